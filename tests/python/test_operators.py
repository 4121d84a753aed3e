"""The operators of libcpshard_torch.so in real gloo groups, against the executed reference: values,
gradients to the bit, dtypes, errors."""

import operator_cases as cases
import pytest
import reference
import torch
import torch.distributed as dist
from operator_cases import drawn, ops, raised, same, token_map

SIZES = (2, 3, 4)
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.bool, torch.uint8,
          torch.int8, torch.int16, torch.int32, torch.int64, torch.complex64, torch.complex128,
          torch.float8_e4m3fn)
REFERENCE_SENDS = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.bool,
                   torch.uint8, torch.int8, torch.int32, torch.int64)


def group_name(mesh):
    return mesh.get_group().group_name


def shapes(length):
    """(shape, dim) of tensors whose axis `dim` is `length` long."""
    return [([length], 0), ([2, length], 1), ([2, length], -1), ([1, length, 5], 1),
            ([3, length, 2], 1), ([length, 4], 0), ([2, 3, length, 2], 2)]


def own(mesh, columns, full, dim):
    return full.index_select(dim, torch.tensor(columns[mesh.get_local_rank()], dtype=torch.long))


def gathered_by_reference(mesh, local, columns, dim):
    indices = torch.tensor(columns[mesh.get_local_rank()])
    return reference.sharder.gather_token_tensor_by_indices(mesh, local, indices, seq_dim=dim)


# --- token maps


def test_a_token_map_says_of_every_column_its_rank_and_slot():
    for ranks in SIZES:
        for columns in cases.maps(ranks).values():
            width = len(columns[0])
            for prefix in (ranks * width, ranks * width - 3, 0):
                order, moves, sizes = token_map(columns, max(prefix, 0))
                expected = {column: rank * width + slot for rank, slots in enumerate(columns)
                            for slot, column in enumerate(slots)}
                assert order.tolist() == [expected[column] for column in range(max(prefix, 0))]
                unrolled = [rank * width + slot + i for rank, slot, column, length in moves.tolist()
                            for i in range(length)]
                assert unrolled == order.tolist() and len(moves) >= 2
                assert same(ops.moves_of(order, sizes), moves)


def test_a_token_map_of_uneven_ranks_counts_slots_by_the_longest():
    order, moves = ops.token_map(torch.tensor([[0, 4, 1], [1, 0, 4], [2, 5, 2]]), [1, 4, 2], 7)
    assert order.tolist() == [4, 5, 6, 7, 0, 8, 9]
    assert moves.tolist() == [[1, 0, 0, 4], [0, 0, 4, 1], [2, 0, 5, 2]]


@pytest.mark.parametrize("runs, sizes, columns, text", [
    ([[0, 0, 2], [1, 3, 2]], [2, 2], 5, "no rank holds column 2 of 5"),
    ([[0, 0, 2], [1, 1, 2]], [2, 2], 4, "column 1 of 4 is held twice"),
    ([[0, 0, 2], [1, 2, 2]], [2, 2], 6, "no rank holds column 4 of 6"),
    ([[0, 0, 2], [1, 2, 2]], [2, 3], 4, "rank 1 are 2 columns long together, its size is 3"),
    ([[0, 0, 2], [2, 2, 2]], [2, 2], 4, "run 1 {rank 2"),
    ([[0, -1, 2], [1, 2, 2]], [2, 2], 4, "run 0 {rank 0, column -1"),
    ([[0, 0, 2], [1, 2, 2**62], [1, 0, 2**62]], [2, 2], 4, "run 1 {rank 1"),
])
def test_runs_that_do_not_tile_the_columns_are_refused(runs, sizes, columns, text):
    with pytest.raises(ValueError, match=text.replace("{", r"\{")):
        ops.token_map(torch.tensor(runs), sizes, columns)


def test_an_order_that_is_no_permutation_of_slots_is_refused():
    with pytest.raises(ValueError, match="column 2 comes from rank 0, slot 1, as one before"):
        ops.moves_of(torch.tensor([0, 1, 1]), [2, 2])
    with pytest.raises(ValueError, match="column 1 comes from position 4, which is no slot"):
        ops.moves_of(torch.tensor([0, 4]), [2, 2])


# --- gathers


def gathers_that_differ(mesh, dtype_index):
    """Values of every map, shape and stride; those the reference can send against it."""
    dtype, ranks, wrong = DTYPES[dtype_index], mesh.size(), []
    for name, columns in cases.maps(ranks).items():
        order, moves, sizes = token_map(columns)
        for shape, dim in shapes(len(columns[0])):
            full_shape = [*shape]
            full_shape[dim] *= ranks
            full = drawn(full_shape, torch.float32 if dtype.itemsize == 1 and
                         dtype.is_floating_point else dtype, seed=7).to(dtype)
            local = own(mesh, columns, full.view(torch.uint8), dim).view(dtype) \
                if dtype == torch.float8_e4m3fn else own(mesh, columns, full, dim)
            gapped = local.repeat_interleave(2, dim=0)[::2] if dtype in REFERENCE_SENDS else local
            results = [ops.gather_tokens(t, order, m, sizes, dim, group_name(mesh))
                       for t, m in ((local, moves), (gapped, moves.t().contiguous().t()))]
            if dtype in REFERENCE_SENDS:
                full = gathered_by_reference(mesh, local, columns, dim)
            if not all(same(result, full) and result.is_contiguous() for result in results):
                wrong.append((name, shape, dim))
    return wrong


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", range(len(DTYPES)), ids=[str(d)[6:] for d in DTYPES])
def test_a_gather_gives_the_full_tensor_of_any_dtype(worlds, size, dtype):
    assert worlds.run(size, gathers_that_differ, dtype) == [[]] * size


def gradients_that_differ(mesh, dtype_name):
    """Of a tensor that every rank uses with a gradient of its own, -0.0 among it; of gathers that
    are trimmed, too."""
    dtype, ranks, wrong = getattr(torch, dtype_name), mesh.size(), []
    for name, columns in cases.maps(ranks).items():
        for shape, dim in shapes(len(columns[0])):
            for cut in (0, 1):
                length = ranks * len(columns[0]) - cut
                local = drawn(shape, dtype, seed=11 + mesh.get_local_rank())
                ours, theirs = (local.clone().requires_grad_() for _ in range(2))
                order, moves, sizes = token_map(columns, length)
                full = ops.gather_tokens(ours, order, moves, sizes, dim, group_name(mesh))
                expected = gathered_by_reference(mesh, theirs, columns, dim).narrow(dim, 0, length)
                gradient = drawn(full.shape, dtype, seed=23 + mesh.get_local_rank())
                if name == "round robin":  # nothing but zeros of the other sign
                    gradient = torch.full_like(gradient, -0.0)
                full.backward(gradient)
                expected.backward(gradient)
                if not (same(full, expected) and same(ours.grad, theirs.grad)):
                    wrong.append((name, shape, dim, cut))
    return wrong


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_the_gradient_of_a_gather_is_the_reference_s_to_the_bit(worlds, size, dtype):
    assert worlds.run(size, gradients_that_differ, dtype) == [[]] * size


def slices_that_differ(mesh):
    wrong = []
    for name, columns in cases.maps(mesh.size()).items():
        order, moves, sizes = token_map(columns)
        for shape, dim in shapes(len(columns[0])):
            local = drawn(shape, torch.float32, seed=3).requires_grad_()
            full = ops.gather_tokens(local, order, moves, sizes, dim, group_name(mesh), True)
            gradient = drawn(full.shape, torch.float32, seed=mesh.get_local_rank())
            full.backward(gradient)
            if not same(local.grad, own(mesh, columns, gradient, dim)):
                wrong.append((name, shape, dim))
    return wrong


def test_a_sliced_gradient_is_the_rank_s_own_part_and_nobody_else_s(worlds):
    assert worlds.run(2, slices_that_differ) == [[]] * 2


def uneven_gathers_that_differ(mesh):
    """Sum and slice, in long moves and in short ones; the expected is put together by hand."""
    rank, wrong = mesh.get_local_rank(), []
    for columns in ([[6, 7, 0], [1, 2, 3, 4, 5], []], [[1, 4, 7], [6, 2, 0, 5], [3]]):
        order, moves, sizes = token_map(columns)
        for shape, dim in [([3, 8], 1), ([8], 0), ([2, 8, 30], 1), ([8, 2], 0)]:
            for sliced in (False, True):
                full = drawn(shape, torch.float32, seed=5)
                local = own(mesh, columns, full, dim).requires_grad_()
                result = ops.gather_tokens(local, order, moves, sizes, dim, group_name(mesh),
                                           sliced)
                gradients = [drawn(shape, torch.float64, seed=9 + q).float() for q in range(3)]
                result.backward(gradients[rank])
                used = [gradients[rank]] if sliced else gradients
                expected = own(mesh, columns, torch.stack(used).sum(0), dim)
                if not (same(result, full) and torch.equal(local.grad, expected)):
                    wrong.append((columns, shape, dim, sliced))
    return wrong


def test_ranks_of_uneven_sizes_gather_and_get_their_gradients(worlds):
    assert worlds.run(3, uneven_gathers_that_differ) == [[]] * 3


def foreign_gathers_that_differ(mesh):
    wrong, rank = [], mesh.get_local_rank()
    for name, columns in cases.maps(mesh.size()).items():
        a, b = (drawn([2, len(columns[0]), 3], torch.float32, seed=rank).requires_grad_()
                for _ in range(2))
        indices = torch.tensor(columns[rank], dtype=torch.int32)
        full = ops.gather_token_tensor_by_indices(a, indices, 1, group_name(mesh))
        expected = gathered_by_reference(mesh, b, columns, 1)
        full.backward(drawn(full.shape, torch.float32, seed=4 + rank))
        expected.backward(drawn(full.shape, torch.float32, seed=4 + rank))
        if not (same(full, expected) and same(a.grad, b.grad)):
            wrong.append(name)
    return wrong


def test_where_only_the_own_indices_are_known_the_others_are_asked(worlds):
    assert worlds.run(3, foreign_gathers_that_differ) == [[]] * 3


def empty_gathers(mesh):
    results = []
    for columns, shape, dim in [(cases.contiguous(2, 4), [0, 4, 3], 1),
                                (cases.contiguous(2, 4), [2, 4, 0], 1), ([[], []], [2, 0], 1)]:
        order, moves, sizes = token_map(columns)
        local = torch.zeros(shape, requires_grad=True)
        full = ops.gather_tokens(local, order, moves, sizes, dim, group_name(mesh))
        full.sum().backward()
        results.append((list(full.shape), list(local.grad.shape)))
    return results


def test_empty_tensors_are_gathered_to_empty_tensors(worlds):
    expected = [([0, 8, 3], [0, 4, 3]), ([2, 8, 0], [2, 4, 0]), ([2, 0], [2, 0])]
    assert worlds.run(2, empty_gathers) == [expected] * 2


def no_gradient_of_integers(mesh):
    order, moves, sizes = token_map(cases.round_robin(2, 2))
    full = ops.gather_tokens(torch.arange(4), order, moves, sizes, 0, group_name(mesh))
    return full.requires_grad


def test_integers_gather_without_a_gradient(worlds):
    assert worlds.run(2, no_gradient_of_integers) == [False, False]


def twice_differentiated(mesh):
    order, moves, sizes = token_map(cases.round_robin(2, 2))
    local = torch.ones(4, requires_grad=True)
    full = ops.gather_tokens(local, order, moves, sizes, 0, group_name(mesh))
    error = raised(torch.autograd.grad, (full * full).sum(), local, create_graph=True)
    dist.barrier()
    return type(error).__name__, str(error)


def test_a_gradient_of_a_gradient_is_refused(worlds):
    for kind, text in worlds.run(2, twice_differentiated):
        assert kind == "NotImplementedError" and "differentiable once" in text


def misfits(mesh):
    """No rank sends anything, so none waits."""
    columns = cases.round_robin(2, 2)
    order, moves, sizes = token_map(columns)
    name, local = group_name(mesh), torch.zeros(2, 4)
    beyond = moves.clone()
    beyond[0, 2] = 7
    arguments = [
        (torch.zeros(2, 5), order, moves, sizes, 1, name),
        (local, order, moves, [4, 4, 4], 1, name),
        (local, order, beyond, sizes, 1, name),
        (local, order[:-1], moves, sizes, 1, name),
        (local, order.int(), moves, sizes, 1, name),
        (local, order, moves, sizes, 2, name),
    ]
    errors = [raised(ops.gather_tokens, *each) for each in arguments]
    return [(type(error).__name__, str(error)) for error in errors]


def test_a_map_of_another_batch_is_refused_before_anything_is_sent(worlds):
    expected = [
        ("ValueError", "on axis 1 the layout has 4 for rank"),
        ("ValueError", "the map is for 3 ranks, group"),
        ("ValueError", "{rank 0, slot 0, column 7, length 2} leaves 8 columns"),
        ("ValueError", "7"),
        ("ValueError", "it must be int64, 1-D"),
        ("IndexError", "ut of range"),
    ]
    for found in worlds.run(2, misfits):
        for (kind, text), (expected_kind, expected_text) in zip(found, expected, strict=True):
            assert kind == expected_kind and expected_text in text, (kind, text)


# --- gather_sequence


def sequences_that_differ(mesh):
    theirs, wrong = reference.deepseek_v41.gather_sequence, []
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        for shape in ([1, 3], [2, 3], [2, 1, 4], [1, 5, 2], [3, 4, 2, 2], [0, 3], [2, 0]):
            local = drawn(shape, dtype, seed=mesh.get_local_rank())
            a, b = (local.clone().requires_grad_(dtype.is_floating_point) for _ in range(2))
            full = ops.gather_sequence(a, group_name(mesh))
            expected = theirs(b, mesh.get_group())
            equal = same(full, expected) and full.requires_grad == expected.requires_grad
            if a.requires_grad and full.numel():
                gradient = drawn(full.shape, dtype, seed=17 + mesh.get_local_rank())
                full.backward(gradient)
                expected.backward(gradient)
                equal = equal and same(a.grad, b.grad)
            if not equal:
                wrong.append((dtype, shape))
    return wrong


@pytest.mark.parametrize("size", SIZES)
def test_a_gathered_sequence_is_the_reference_s_gradients_too(worlds, size):
    assert worlds.run(size, sequences_that_differ) == [[]] * size


def sliced_sequence(mesh):
    rank = mesh.get_local_rank()
    local = torch.zeros(2, 3, 2, requires_grad=True)
    full = ops.gather_sequence(local, group_name(mesh), 1, True)
    gradient = drawn(full.shape, torch.float32, seed=rank)
    full.backward(gradient)
    return same(local.grad, gradient[:, 3 * rank:3 * rank + 3])


def test_a_sliced_gradient_of_a_sequence_is_the_rank_s_own(worlds):
    assert worlds.run(2, sliced_sequence) == [True, True]


def test_without_a_group_a_gather_is_the_tensor_itself():
    tensor = torch.arange(6.).view(2, 3)
    order, moves, sizes = token_map([[0, 1, 2]])
    assert ops.gather_sequence(tensor, "").data_ptr() == tensor.data_ptr()
    assert ops.gather_tokens(tensor, order, moves, sizes, 1, "").data_ptr() == tensor.data_ptr()

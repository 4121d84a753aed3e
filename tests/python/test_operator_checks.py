"""What the operators refuse, and that no rank is left waiting for one that refused: arguments that
do not fit each other, ranks that disagree (CPSHARD_CHECK=1), tensors that cannot be moved."""

import datetime
import itertools
import os
import time

import operator_cases as cases
import pytest
import torch
import torch.distributed as dist
from operator_cases import ops, raised, same, token_map

PATIENCE = datetime.timedelta(seconds=5)


def group_name(mesh):
    return mesh.get_group().group_name


def told(function, *arguments):
    """(kind, text) of what a rank raises, and whether that was before the group lost patience."""
    began = time.monotonic()
    error = raised(function, *arguments)
    return type(error).__name__, str(error), time.monotonic() - began < PATIENCE.total_seconds()


def checked(function, *arguments):
    os.environ["CPSHARD_CHECK"] = "1"
    try:
        return told(function, *arguments)
    finally:
        del os.environ["CPSHARD_CHECK"]


# --- ranks that disagree


def one_refuses(mesh, what):
    """Rank 1 calls with something that it must refuse by itself, rank 0 with what is right."""
    name, wrong = dist.new_group(timeout=PATIENCE).group_name, mesh.get_local_rank() == 1
    order, moves, sizes = token_map(cases.round_robin(2, 2))
    local = torch.zeros(1, 4)
    long = torch.zeros(1, 5) if wrong else local
    facts = (None, None, 8, 8)

    def gather(tensor=local, order=order, moves=moves, dim=1, trim=False, facts=facts):
        return checked(ops.gather_token_tensor, tensor, order, moves, sizes, *facts, dim, trim,
                       None, name)

    return {
        "length": lambda: gather(long),
        "length of gather_tokens":
            lambda: checked(ops.gather_tokens, long, order, moves, sizes, 1, name),
        "axis": lambda: gather(dim=5 if wrong else 1),
        "trim": lambda: gather(trim=True, facts=(None, None, 9 if wrong else 8, 8)),
        "order": lambda: gather(order=order[:-1] if wrong else order),
        "moves": lambda: gather(moves=moves.flip(0) if wrong else moves),
        "sequence": lambda: checked(ops.gather_sequence, local, name, 5 if wrong else 1),
        "quantized": lambda: gather(torch.quantize_per_tensor(local, 0.1, 0, torch.quint8)
                                    if wrong else local),
        "indices": lambda: checked(ops.gather_token_tensor_by_indices, long, torch.arange(4), 1,
                                   name),
    }[what]()


@pytest.mark.parametrize("what, text", [
    ("length", "the tensor has shape [1, 5]"),
    ("length of gather_tokens", "gather_tokens refuses: the tensor has shape [1, 5]"),
    ("axis", "has no axis 5"),
    ("trim", "original_seq_len=9"),
    ("order", "order has 7 columns"),
    ("moves", "stands where column 0 is due"),
    ("sequence", "ut of range"),
    ("quantized", "is quantized"),
    ("indices", "has 5 slots on axis 1, there are 4 indices"),
])
def test_where_one_rank_refuses_all_raise_and_say_why(worlds, what, text):
    for kind, told_text, soon in worlds.run(2, one_refuses, what):
        assert soon and kind == "ValueError", (kind, told_text)
        assert "rank 1 at" in told_text and "refuses: " in told_text and text in told_text


def all_refuse(mesh):
    order, moves, sizes = token_map(cases.round_robin(2, 2))
    return checked(ops.gather_token_tensor, torch.zeros(1, 4), order, moves, sizes, None, None, 8,
                   8, 5, False, None, group_name(mesh))


def test_where_all_ranks_refuse_alike_each_raises_its_own_kind(worlds):
    for kind, text, soon in worlds.run(2, all_refuse):
        assert soon and kind == "IndexError" and text.startswith("a tensor of shape [1, 4]")


def gradients_disagree(mesh, what):
    rank = mesh.get_local_rank()
    order, moves, sizes = token_map(cases.round_robin(2, 2))
    local = torch.zeros(1, 4, requires_grad=what != "needed" or rank == 0)
    sliced = what == "slice" and rank == 1
    name = group_name(mesh)
    return [checked(ops.gather_tokens, local, order, moves, sizes, 1, name, sliced),
            checked(ops.gather_sequence, local, name, 1, sliced)]


@pytest.mark.parametrize("what, other", [("slice", "gradient sliced"), ("needed", "no gradient")])
def test_a_gradient_that_not_all_ranks_sum_is_found_before_it_hangs(worlds, what, other):
    for answers in worlds.run(2, gradients_disagree, what):
        for kind, text, _ in answers:
            assert kind == "ValueError" and "gradient summed" in text and other in text


def no_gradient_is_no_difference(mesh):
    """A sliced gradient takes no collective, so ranks may differ in whether they want it."""
    order, moves, sizes = token_map(cases.round_robin(2, 2))
    local = torch.zeros(1, 4, requires_grad=mesh.get_local_rank() == 0)
    return checked(ops.gather_tokens, local, order, moves, sizes, 1, group_name(mesh), True)[0]


def test_ranks_may_differ_in_wanting_a_sliced_gradient(worlds):
    assert worlds.run(2, no_gradient_is_no_difference) == ["NoneType"] * 2


def uneven_indices(mesh):
    slots = 4 + 2 * mesh.get_local_rank()
    return checked(ops.gather_token_tensor_by_indices, torch.zeros(1, slots), torch.arange(slots),
                   1, group_name(mesh))


def test_indices_that_are_not_as_many_on_every_rank_are_found_before_they_are_sent(worlds):
    for kind, text, _ in worlds.run(2, uneven_indices):
        assert kind == "ValueError" and "so many indices [4]" in text and "[6]" in text


# --- maps that are none


def broken_maps(mesh):
    """Of a map of 2 ranks with 4 slots: with long moves, where memory is moved by them, and short
    ones. Nothing is sent, so nothing is waited for."""
    name = group_name(mesh)
    order, moves, sizes = token_map(cases.round_robin(2, 2))
    uneven = ops.token_map(torch.tensor([[0, 0, 2], [1, 2, 4]]), [2, 4], 6)

    def order_with(column, position, of=order):
        changed = of.clone()
        changed[column] = position
        return changed

    rows = torch.tensor
    broken = [
        (torch.arange(8), rows([[0, 0, 0, 4], [1, 0, 0, 4]]), sizes),  # columns twice, or never
        (order, rows([[1, 0, 4, 4], [0, 0, 0, 4]]), sizes),  # columns out of their order
        (order, rows([[0, 0, 0, 4], [1, 0, 4, 4]]), sizes),  # moves of another map
        (rows([0, 1, 2, 3, 0, 1, 2, 3]), rows([[0, 0, 0, 4], [0, 0, 4, 4]]), sizes),  # slots twice
        (order_with(4, -1), moves, sizes),
        (order_with(4, 99), moves, sizes),
        (order_with(4, 3), moves, sizes),  # as column 2
        (order_with(3, 4), moves, sizes),  # in the middle of a move
        (order_with(0, 2, uneven[0]), uneven[1], [2, 4]),  # a slot that rank 0 does not have
    ]
    answers = []
    for wide in (1, 64):
        for index, (bad_order, bad_moves, bad_sizes) in enumerate(broken):
            local = torch.zeros(2, bad_sizes[mesh.get_local_rank()], wide)
            answers.append((index, *told(ops.gather_tokens, local, bad_order, bad_moves, bad_sizes,
                                         1, name)[:2]))
    return answers


def test_an_order_or_moves_that_are_no_map_are_refused_before_anything_is_sent(worlds):
    for answers in worlds.run(2, broken_maps):
        assert [kind for _, kind, _ in answers] == ["ValueError"] * 18, answers
        texts = {index: text for index, _, text in answers}
        assert "stands where column 4 is due" in texts[0]
        assert "column 2 comes from position 4 by order, from position 2 by moves" in texts[2]
        assert "slots twice" in texts[3]
        assert "column 4 comes from position -1 by order, from position 6 by moves" in texts[4]


def backward_of_broken_moves(mesh):
    """The gradient's operator by itself: what no column goes to would be memory of nobody."""
    order = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
    moves = torch.tensor([[0, 0, 0, 4], [0, 0, 4, 4]])
    return told(ops._gather_tokens_backward, torch.zeros(2, 8, 64), order, moves, [4, 4], 4, 1,
                group_name(mesh), False)[:2]


def test_a_gradient_by_moves_that_take_a_slot_twice_is_refused(worlds):
    for kind, text in worlds.run(2, backward_of_broken_moves):
        assert kind == "ValueError" and "slots twice" in text


def maps_of_other_groups(mesh):
    name, full = group_name(mesh), torch.zeros(1, 8)
    order, moves, sizes = token_map([list(range(8))])
    verb = (None, None, 8, 8, 1, True, None)
    return [told(ops.gather_token_tensor, full, order, moves, sizes, *verb, name),
            told(ops.gather_tokens, full, order, moves, sizes, 1, name),
            told(ops.gather_tokens, full, order, moves, sizes, 1, "nobody"),
            told(ops.gather_token_tensor, full, order, moves, sizes, *verb, "nobody")]


def test_one_size_is_no_group_of_one(worlds):
    for answers in worlds.run(2, maps_of_other_groups):
        for kind, text, _ in answers[:2]:
            assert kind == "ValueError" and "the map is for 1 ranks, group" in text
        for kind, text, _ in answers[2:]:
            assert kind == "RuntimeError" and "nobody" in text


def prefixes(mesh):
    columns = cases.round_robin(2, 2)
    order, moves, sizes = token_map(columns, 6)
    return [told(ops.gather_token_tensor, torch.zeros(1, 4), order, moves, sizes, None, shape, 6, 8,
                 1, trim, None, group_name(mesh))[:2]
            for shape, trim in ((None, False), (None, True), ([2, 4], True))]


def test_a_verb_takes_the_order_of_all_columns(worlds):
    for answers in worlds.run(2, prefixes):
        for kind, text in answers:
            assert kind == "ValueError" and "order has 6 columns, the ranks' shards 8" in text


def test_sizes_beyond_int64_are_refused_and_large_ones_cost_nothing():
    with pytest.raises(ValueError, match="beyond int64"):
        ops.token_map(torch.tensor([[0, 2, 2**62], [1, 2, 2**62], [2, 2, 2**62], [3, 0, 2**62]]),
                      [2**62] * 4, 2)
    with pytest.raises(ValueError, match="0 at least"):
        ops.moves_of(torch.tensor([0]), [4, -5])
    assert ops.moves_of(torch.tensor([0, 1]), [2**44]).tolist() == [[0, 0, 0, 2], [0, 0, 0, 0]]


def test_without_a_group_a_map_must_fit_the_tensor():
    order, moves, sizes = token_map([list(range(8))])
    two = token_map(cases.contiguous(2, 4))
    for tensor, arguments, text in [
        (torch.zeros(1, 7), (order, moves, sizes), "7 slots on axis 1, the map has 8"),
        (torch.zeros(1, 4), two, "4 slots on axis 1, the map has 8"),
        (torch.zeros(1, 8), (order.flip(0), moves, sizes), "the columns in their order"),
    ]:
        with pytest.raises(ValueError, match=text):
            ops.gather_tokens(tensor, *arguments, 1, "")


# --- tensors and values


def tensors_that_cannot_be_moved(mesh):
    name = group_name(mesh)
    order, moves, sizes = token_map(cases.round_robin(2, 2))
    tensors = [torch.quantize_per_tensor(torch.ones(1, 4), 0.1, 0, torch.quint8),
               torch.zeros(1, 4).to_sparse(), torch.zeros(1, 4).to_mkldnn()]
    return [told(function, tensor, *arguments)[:2] for tensor in tensors
            for function, *arguments in ((ops.gather_tokens, order, moves, sizes, 1, name),
                                         (ops.gather_sequence, name))]


def test_a_tensor_that_is_not_plain_memory_is_refused(worlds):
    for answers in worlds.run(2, tensors_that_cannot_be_moved):
        for kind, text in answers:
            assert kind == "TypeError" and "gather a dense tensor" in text


UNSIGNED = ((torch.uint16, torch.int16), (torch.uint32, torch.int32), (torch.uint64, torch.int64))


def unsigned_gathers_that_differ(mesh):
    """torch moves no elements of these by index; compared as what it does move."""
    wrong = []
    for name, columns in cases.maps(2).items():
        order, moves, sizes = token_map(columns)
        for (unsigned, signed), dim in itertools.product(UNSIGNED, (0, 1)):
            full = cases.drawn([3, 2 * sizes[0]][1 - dim:], signed, seed=5)
            local = full.index_select(dim, torch.tensor(columns[mesh.get_local_rank()]))
            result = ops.gather_tokens(local.view(unsigned), order, moves, sizes, dim,
                                       group_name(mesh))
            if result.dtype != unsigned or not same(result.view(signed), full):
                wrong.append((name, unsigned, dim))
    return wrong


def test_unsigned_integers_are_gathered_by_long_moves_and_short_ones(worlds):
    assert worlds.run(2, unsigned_gathers_that_differ) == [[]] * 2


@pytest.mark.parametrize("dtype, stands_for", [
    (torch.float8_e4m3fn, torch.uint8), (torch.float8_e5m2, torch.uint8), *UNSIGNED])
def test_rows_of_any_dtype_are_repositioned_and_put_back(dtype, stands_for):
    values = torch.tensor([[7, 1, 2, 3, 4, 5]], dtype=stands_for)
    positions = torch.tensor([[0, 3, 2, 7, -1, 5]])
    shard = ops.shard_token_tensor(values.view(dtype), torch.arange(8), positions,
                                   padded_seq_len=8, fill=0)
    assert shard.dtype == dtype and shard.view(stands_for).tolist() == [[7, 0, 2, 1, 0, 5, 0, 3]]
    order, moves, sizes = token_map([list(range(8))])
    back = ops.gather_token_tensor(shard, order, moves, sizes, positions, None, None, 8, 1, True, 0,
                                   "")
    assert back.dtype == dtype and back.view(stands_for).tolist() == [[7, 1, 2, 3, 0, 5]]


@pytest.mark.parametrize("kind, text, indices, facts", [
    (TypeError, "indices are Float", torch.tensor([0.5, 1.7]), {}),
    (TypeError, "indices are Bool", torch.tensor([True, False]), {}),
    (IndexError, "index 99 is no column of the 8", torch.tensor([0, 99]), {}),
    (IndexError, "index -1 is no column of the 8", torch.tensor([0, -1]), {}),
    (ValueError, "position 9 of row 1, token 2, is no column of padded_seq_len=8", torch.arange(8),
     dict(positions=torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, 9, -1, 4, 5]]))),
    (TypeError, "positions are Float", torch.arange(8), dict(positions=torch.zeros(2, 6))),
])
def test_indices_and_positions_are_columns_that_there_are(kind, text, indices, facts):
    with pytest.raises(kind, match=text):
        ops.shard_token_tensor(torch.zeros(2, 6), indices, original_seq_len=6, padded_seq_len=8,
                               fill=0, **facts)


def positions_of_another_batch(mesh):
    order, moves, sizes = token_map(cases.round_robin(2, 2))
    return told(ops.gather_token_tensor, torch.zeros(1, 4), order, moves, sizes,
                torch.tensor([[0, 8]]), None, None, 8, 1, True, 0, group_name(mesh))[:2]


def test_positions_beyond_the_gathered_columns_are_refused_before_anything_is_sent(worlds):
    for kind, text in worlds.run(2, positions_of_another_batch):
        assert kind == "ValueError" and "position 8 of row 0, token 1" in text

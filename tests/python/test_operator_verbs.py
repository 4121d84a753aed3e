"""shard_token_tensor and gather_token_tensor as operators, against the executed reference's sharder
over the same layouts; agreement between ranks, and peers that are gone."""

import datetime
import os
import time

import operator_cases as cases
import pytest
import reference
import torch
import torch.distributed as dist
from operator_cases import drawn, ops, raised, same, token_map

Layout = reference.sharder.ShardLayout


def group_name(mesh):
    return mesh.get_group().group_name


def layouts(ranks):
    """Name -> (columns of the ranks, layout without indices, whether those are captured). 12 slots a
    rank; the layouts differ in what they report."""
    even, chunks = cases.contiguous(ranks, 12), cases.round_robin(ranks, 6)
    padded = 12 * ranks
    positions = torch.full((2, padded - 5), -1)
    positions[0, :9] = torch.arange(9) + 2
    positions[1, 3:] = torch.arange(padded - 8)
    return {
        "padded": (chunks, dict(original_seq_len=padded - 3, padded_seq_len=padded), False),
        "not padded": (even, dict(original_seq_len=padded, padded_seq_len=padded), False),
        "no layout": (chunks, {}, False),
        "rows": (cases.documents(ranks, [2, 4]),
                 dict(input_row_shape=(2, padded // 2), padded_seq_len=padded), True),
        "positions": (even, dict(input_token_stream_positions=positions, padded_seq_len=padded),
                      False),
        "captured": (cases.shuffled(ranks, 12, 1), dict(padded_seq_len=padded), True),
    }


def shapes(ranks):
    padded = 12 * ranks
    return [([2, padded], 1), ([2, padded - 3], 1), ([2, padded - 5], 1), ([2, padded // 2], 1),
            ([2, padded // 2, 3], 1), ([padded], 0), ([padded - 3, 2], 0), ([2, padded, 3], -2),
            ([2, padded, 3], 3), ([1, padded], 1), ([2, 12], 1), ([12, 3], 0), ([1, 12, 2], 1),
            ([2, 11], 1), ([2, 12], -1), ([0, padded], 1)]


class Sides:
    """One layout as the reference's sharder and as arguments of the operators."""

    def __init__(self, mesh, columns, facts, captured):
        self.mesh, self.columns, self.facts, self.captured = mesh, columns, facts, captured
        self.indices = torch.tensor(columns[mesh.get_local_rank()])
        self.theirs = reference.sharder.ContextParallelSharder(
            shard_batch=lambda *a, **k: None, device_mesh=mesh,
            local_token_global_indices=lambda mesh, length, device: self.indices,
            shard_layout=Layout(local_token_global_indices=self.indices if captured else None,
                                **facts))
        self.order, self.moves, self.sizes = token_map(columns)
        self.expected = self.indices.numel() * mesh.size() if captured else None

    def fits(self, length):
        """The closed form of this test is of one length; the reference asks it for any."""
        return self.captured or length == self.indices.numel() * self.mesh.size()

    def shard(self, tensor, dim, fill):
        facts = self.facts
        return ops.shard_token_tensor(
            tensor, self.indices, facts.get("input_token_stream_positions"),
            facts.get("input_row_shape"), facts.get("original_seq_len"),
            facts.get("padded_seq_len"), dim, fill, self.expected)

    def gather(self, tensor, dim, trim, fill):
        facts = self.facts
        return ops.gather_token_tensor(
            tensor, self.order, self.moves, self.sizes, facts.get("input_token_stream_positions"),
            facts.get("input_row_shape"), facts.get("original_seq_len"),
            facts.get("padded_seq_len"), dim, trim, fill, group_name(self.mesh), False,
            self.expected)


def outcome(function, tensor, *arguments):
    """(kind of the error, result, gradient of the input); the result's gradient has -0.0 in it."""
    tensor = tensor.clone().requires_grad_(tensor.dtype.is_floating_point)
    try:
        result = function(tensor, *arguments)
    except Exception as error:
        return type(error).__name__, None, None
    if tensor.requires_grad:
        result.backward(drawn(result.shape, result.dtype, seed=result.numel()))
    return None, result.detach(), tensor.grad


def alike(a, b):
    return a is b if a is None or b is None else same(a, b)


def verbs_that_differ(mesh):
    wrong, compared, refused = [], 0, 0
    for name, (columns, facts, captured) in layouts(mesh.size()).items():
        sides = Sides(mesh, columns, facts, captured)
        for shape, dim in shapes(mesh.size()):
            for dtype in (torch.float32, torch.bool, torch.int64):
                tensor = drawn(shape, dtype, seed=mesh.get_local_rank())
                asked = [("shard", sides.shard, sides.theirs.shard_token_tensor, (dim, fill))
                         for fill in (None, 1)]
                asked += [("gather", sides.gather, sides.theirs.gather_token_tensor,
                           (dim, trim, fill)) for trim in (False, True) for fill in (None, 1)]
                for verb, ours, theirs, arguments in asked:
                    inside = -len(shape) <= dim < len(shape)
                    length = shape[dim] * (mesh.size() if verb == "gather" else 1) if inside else 0
                    if name == "no layout" and not sides.fits(length):
                        continue  # the index map would be asked for another length
                    if verb == "gather" and not sides.fits(length) and inside:
                        continue  # the reference would gather by indices of another length
                    got, expected = outcome(ours, tensor, *arguments), outcome(theirs, tensor,
                                                                               *arguments)
                    compared += 1
                    refused += expected[0] is not None
                    kinds = (got[0], expected[0])
                    trimmed = verb == "gather" and arguments[1]
                    if trimmed and name in ("rows", "positions") and None not in kinds:
                        continue  # no tensor of that layout: the reference falls over in torch
                    if kinds[0] != kinds[1] or not all(map(alike, got[1:], expected[1:])):
                        wrong.append((name, verb, shape, dim, arguments, dtype, kinds))
    return wrong, compared > 300 and refused > 50


@pytest.mark.parametrize("size", (2, 4))
def test_the_verbs_do_what_the_reference_s_do_errors_and_gradients_too(worlds, size):
    assert worlds.run(size, verbs_that_differ) == [([], True)] * size


def test_a_refusal_names_the_numbers_and_the_way_out():
    tensor, indices = torch.zeros(2, 6), torch.arange(4)
    for kind, text, arguments in [
        (ValueError, "the layout accepts 8|8", dict(original_seq_len=5, padded_seq_len=8)),
        (ValueError, "16.*6|6.*16", dict(expected_columns=16)),
        (IndexError, "no axis 2", dict(seq_dim=2)),
        (ValueError, "fill", dict(positions=torch.zeros(2, 6), padded_seq_len=8)),
    ]:
        with pytest.raises(kind, match=text):
            ops.shard_token_tensor(tensor, indices, **arguments)


# --- agreement


def disagreement(mesh, what):
    os.environ["CPSHARD_CHECK"] = "1"
    try:
        rank = mesh.get_local_rank()
        if what == "dtype":
            tensor = torch.zeros(2, 4, dtype=(torch.float32, torch.int32)[rank])
            return str(raised(ops.gather_sequence, tensor, group_name(mesh)))
        if what == "shape":
            return str(raised(ops.gather_sequence, torch.zeros(2 + rank, 4), group_name(mesh)))
        if what == "verb" and rank == 0:
            return str(raised(ops.gather_sequence, torch.zeros(2, 4), group_name(mesh)))
        columns = (cases.contiguous(2, 4), cases.round_robin(2, 2))[rank if what == "order" else 0]
        order, moves, sizes = token_map(columns)
        facts = (None, None, 8, 8)
        trim = what == "trim" and rank == 1
        arguments = (order, moves, sizes, *facts, 1, trim, None, group_name(mesh))
        error = raised(ops.gather_token_tensor, torch.zeros(2, 4), *arguments)
        return f"{type(error).__name__}: {error}"
    finally:
        del os.environ["CPSHARD_CHECK"]


@pytest.mark.parametrize("what, texts", [
    ("dtype", ("Float [2, -1]", "Int [2, -1]")),
    ("shape", ("[2, -1]", "[3, -1]")),
    ("verb", ("gather_sequence of", "gather_token_tensor of")),
    ("order", ("order #",)),
    ("trim", ("gather_token_tensor of", "gather_token_tensor with trim of")),
])
def test_ranks_that_disagree_both_raise_with_both_values(worlds, what, texts):
    told = worlds.run(2, disagreement, what)
    for text in told:
        assert "disagree: rank 0 is at" in text and "rank 1 at" in text
        assert all(part in text for part in texts)


def test_ranks_that_agree_are_not_held_up(worlds):
    assert worlds.run(2, disagreement, "nothing") == ["NoneType: None"] * 2


def numbers_that_disagree(mesh):
    rank, name = mesh.get_local_rank(), group_name(mesh)
    silent = raised(ops.agree, [1, rank], "step", name)
    os.environ["CPSHARD_CHECK"] = "1"
    error, many = (raised(ops.agree, numbers, "step", name)
                   for numbers in ([1, rank], [0] * 100 + [rank]))
    agreed = raised(ops.agree, [7] * 100, "step", name)
    del os.environ["CPSHARD_CHECK"]
    return silent, type(error).__name__, str(error), type(many).__name__, agreed


def test_agree_compares_numbers_where_it_is_switched_on(worlds):
    for silent, kind, text, many, agreed in worlds.run(2, numbers_that_disagree):
        assert silent is None and agreed is None and kind == many == "ValueError"
        assert "rank 0 is at step [1, 0], rank 1 at step [1, 1]" in text


# --- peers that are gone


def without_rank_1(mesh, verb):
    """Rank 1 leaves a group of its own; what rank 0 sees, and after how long."""
    group = dist.new_group()
    order, moves, sizes = token_map(cases.round_robin(2, 2))
    local, name = torch.zeros(2, 4, requires_grad=True), group.group_name
    full = ops.gather_sequence(local, name)  # all are there
    if mesh.get_local_rank() == 1:
        dist.destroy_process_group(group)
        return None
    began = time.monotonic()
    error = raised({
        "gather_tokens": lambda: ops.gather_tokens(local, order, moves, sizes, 1, name),
        "gather_sequence": lambda: ops.gather_sequence(local, name),
        "gather_sequence (backward)": lambda: full.sum().backward(),
    }[verb])
    return type(error).__name__, str(error), time.monotonic() - began


@pytest.mark.parametrize("verb, awaited", [
    ("gather_tokens", "shards"), ("gather_sequence", "shards"),
    ("gather_sequence (backward)", "gradients")])
def test_a_lost_peer_raises_and_the_error_says_where(worlds, verb, awaited):
    kind, text, seconds = worlds.run(2, without_rank_1, verb)[0]
    assert kind in ("RuntimeError", "DistBackendError", "DistNetworkError")
    assert f"{verb} on group '" in text
    assert f"of 2 ranks, rank 0, waiting for the {awaited} of all ranks: " in text
    assert seconds < 30


def beyond_its_time(mesh):
    """Rank 1 comes too late for a group that waits for one second."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=1))
    if mesh.get_local_rank() == 1:
        time.sleep(3)
        return None
    error = raised(ops.gather_sequence, torch.zeros(2, 4), group.group_name)
    return type(error).__name__, str(error)


def test_a_collective_beyond_its_time_raises_and_says_for_what_it_waited(worlds):
    kind, text = worlds.run(2, beyond_its_time)[0]
    assert kind in ("RuntimeError", "DistBackendError", "DistNetworkError")
    assert "gather_sequence on group '" in text and "waiting for the shards of all ranks: " in text
    assert "imed out" in text

"""Gathers by index maps that are not what they look like, and what counts as a number."""

import functools
from typing import Any

import numpy as np
import pytest
import reference
import torch
import torch.distributed as dist
from dropin_cases import Ranks, plain, same
from gloo_worlds import Raised

import cpshard.torch as ours


# --- index maps ----------------------------------------------------------------------------------

@functools.wraps(ours.contiguous_local_indices)
def turned(mesh: Any, length: int, device: Any = None) -> torch.Tensor:
    """Called as one of ours, and another map."""
    return ours.contiguous_local_indices(mesh, length, device).flip(0)


class Changing:
    """A map that is another one every time."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, mesh: Any, length: int, device: Any = None) -> torch.Tensor:
        self.calls += 1
        indices = torch.arange(length // 2) * 2 + mesh.get_local_rank()
        return indices if self.calls == 1 else indices.flip(0)


def by_map(mesh: Any, kind: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Two gathers by the same map, the reference's and ours."""
    local = torch.arange(4.0)[None] + 10 * mesh.get_local_rank()
    results = []
    for module in (reference.sharder, ours):
        index_map = {"turned": turned, "changing": Changing(),
                     "theirs": reference.sharder.contiguous_local_indices}[kind]
        sharder = module.ContextParallelSharder(
            device_mesh=mesh, shard_batch=module.shard_batch_identity,
            local_token_global_indices=index_map)
        results.append([sharder.gather_token_tensor(local) for _ in range(2)])
    return list(zip(*results))


@pytest.mark.parametrize("kind", ["turned", "changing", "theirs"])
def test_a_gather_goes_by_the_map_of_its_own_call(worlds, kind):
    for gathers in worlds.run(2, by_map, kind):
        assert all(same(made, theirs) for theirs, made in gathers)


def assigned(mesh: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """By index tensors whose `.data` is another one: first of ours, then of nobody's."""
    local = torch.arange(4.0)[None] + 10 * mesh.get_local_rank()
    results = []
    for make in (lambda: ours.contiguous_local_indices(mesh, 8),
                 lambda: torch.arange(4) + 4 * mesh.get_local_rank()):
        indices = make()
        ours.gather_token_tensor_by_indices(mesh, local, indices)
        indices.data = indices.flip(0)
        results.append([module.gather_token_tensor_by_indices(mesh, local, indices)
                        for module in (reference.sharder, ours)])
    return results


def test_assigning_data_makes_an_index_tensor_another_one(worlds):
    for results in worlds.run(2, assigned):
        assert all(same(made, theirs) for theirs, made in results)


class Pair(Ranks):
    """A mesh of two over a process group."""

    def __init__(self, group: Any):
        super().__init__(2)
        self._group = group

    def get_group(self) -> Any:
        return self._group


def in_two_groups(mesh: Any) -> list[torch.Tensor]:
    """The same index tensor in one group, another, and the first again."""
    rank = dist.get_rank()
    groups = {ranks: dist.new_group(ranks) for ranks in ((0, 1), (0, 2))}
    indices = torch.arange(2) * 2 + (rank > 0)
    return [ours.gather_token_tensor_by_indices(Pair(groups[ranks]), indices[None] + 10, indices)
            for ranks in ((0, 1), (0, 2), (0, 1)) if rank in ranks]


def test_an_index_tensor_is_asked_for_once_in_each_group(worlds):
    [first, second, third] = worlds.run(3, in_two_groups)
    assert [len(first), len(second), len(third)] == [3, 2, 1]
    assert all(full.tolist() == [[10, 11, 12, 13]] for full in first + second + third)


def twice_differentiated(mesh: Any) -> Any:
    local = torch.ones(1, 2, requires_grad=True)
    full = ours.gather_token_tensor_by_indices(mesh, local, torch.arange(2) * 2 + dist.get_rank())
    [gradient] = torch.autograd.grad((full ** 3).sum(), local, create_graph=True)
    gradient.sum().backward()


def test_a_gather_has_a_gradient_and_that_has_none(worlds):
    for raised in worlds.run(2, twice_differentiated, raises=False):
        assert isinstance(raised, Raised) and "NotImplementedError" in raised.kinds


# --- one rank ------------------------------------------------------------------------------------

def gathers_of_one(mesh: Any, indices: torch.Tensor) -> list[Any]:
    """The verbs that take a map of the caller's."""
    layout = ours.ShardLayout(local_token_global_indices=indices[None], padded_seq_len=4)
    by_layout = ours.ContextParallelSharder(
        device_mesh=mesh, shard_batch=ours.shard_batch_identity, shard_layout=layout)
    by_map = ours.ContextParallelSharder(
        device_mesh=mesh, shard_batch=ours.shard_batch_identity,
        local_token_global_indices=lambda *_: indices)
    return [lambda *a: ours.gather_token_tensor_by_indices(mesh, a[0], indices, *a[1:]),
            by_layout.gather_token_tensor, by_map.gather_token_tensor,
            by_map.token_layout(columns=4).gather_token_tensor]


@pytest.mark.parametrize("mesh", [None, Ranks(1)], ids=["no mesh", "a mesh of one"])
@pytest.mark.parametrize("indices", [[0, 1, 2, 3], [2, 0, 3, 1], [2, 3, 6, 7], [0, 0, 1, 1]])
def test_one_rank_gets_the_tensor_itself_back_whatever_map_the_caller_has(mesh, indices):
    """Contract 9.3; a plan's own map is another matter (test_layout_verbs.py)."""
    local = torch.ones(1, 4)
    for gather in gathers_of_one(mesh, torch.tensor(indices)):
        assert gather(local) is local


# --- numbers -------------------------------------------------------------------------------------

FILLS = [np.float32(1.5), np.int64(3), np.float64("-inf"), np.bool_(True), torch.tensor(2.5),
         torch.tensor(7), float("nan"), True, -0.0]


def row_sharder(module: Any) -> Any:
    return module.ContextParallelSharder(
        device_mesh=Ranks(2, 1), shard_batch=module.shard_batch_contiguous,
        local_token_global_indices=module.contiguous_local_indices,
        shard_layout=module.ShardLayout(original_seq_len=5, padded_seq_len=8))


@pytest.mark.parametrize("fill", FILLS, ids=repr)
def test_a_fill_may_be_a_number_of_python_numpy_or_torch(fill):
    theirs, made = ([row_sharder(module).shard_token_tensor(torch.ones(2, 5), fill=fill),
                     module.shard_sequence_for_cp_contiguous(Ranks(2, 1), torch.ones(2, 5),
                                                             pad_value=fill)[0]]
                    for module in (reference.sharder, ours))
    assert all(map(same, made, theirs))


@pytest.mark.parametrize("fill", ["5", [1], torch.ones(2)], ids=repr)
def test_what_is_no_number_is_refused_with_its_name(fill):
    with pytest.raises(TypeError, match="^fill is .*give a number"):
        row_sharder(ours).shard_token_tensor(torch.ones(2, 5), fill=fill)
    with pytest.raises(TypeError, match="^pad_value is .*give a number"):
        ours.shard_sequence_for_cp_contiguous(Ranks(2), torch.ones(2, 5), pad_value=fill)


PADS = [np.float32(-1.5), torch.tensor(-1.5), float("-inf"), float("inf"), float("nan"), -2,
        np.int64(3), True, 0.25, -0.0]


def padded(module: Any, pad: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    batch = plain(10) | {"x": torch.ones(2, 10, dtype=dtype)}
    return module.shard_batch_contiguous(
        Ranks(2, 1), None, batch, extra_seq_keys={"x": 1}, extra_pad_values={"x": pad})[1]["x"]


@pytest.mark.parametrize("pad", PADS, ids=repr)
def test_a_pad_is_the_number_that_was_given(pad):
    made, theirs = padded(ours, pad), padded(reference.sharder, pad)
    assert same(made, theirs) and same(made.isinf(), theirs.isinf())
    assert same(made.isnan(), theirs.isnan())


@pytest.mark.parametrize("pad", ["5", None, 1j, [0]], ids=repr)
def test_a_pad_that_is_no_number_is_refused(pad):
    with pytest.raises(TypeError, match="the pad of stream 'x' is"):
        padded(ours, pad)


@pytest.mark.parametrize("number", [np.int64(7), torch.tensor(7), np.float32(7), 7.0], ids=repr)
def test_a_token_id_may_be_a_number_of_python_numpy_or_torch(number):
    for shard in (ours.shard_batch_contiguous, ours.shard_batch_by("contiguous")):
        _, batch, _ = shard(Ranks(2, 1), None, plain(9), padding_token_id=number)
        assert batch["input_ids"][:, -1].tolist() == [7, 7]
    with pytest.raises(TypeError, match="padding_token_id is '7'"):
        ours.shard_batch_contiguous(Ranks(2, 1), None, plain(9), padding_token_id="7")

"""torch.compile over the drop-in's verbs: one graph serves the layouts of all batches."""

import dataclasses
import random
from typing import Any

import pytest
import torch
import torch._dynamo
from torch._dynamo.testing import CompileCounterWithBackend

import cpshard
import cpshard.torch as ours

LAYOUTS = 50
KINDS = {"contiguous": (ours.shard_batch_contiguous, ours.contiguous_local_indices),
         "round_robin": (ours.shard_batch_load_balanced, ours.round_robin_local_indices),
         "thd": (ours.shard_batch_thd, None)}


def verbs(layout: ours.TokenLayout, tensor: torch.Tensor, local: torch.Tensor, seq_dim: int) -> Any:
    return (layout.shard_token_tensor(tensor, fill=0), layout.gather_token_tensor(local, seq_dim),
            layout.gather_token_tensor(local, seq_dim, trim=True))


def batch_of(kind: str, source: random.Random) -> dict[str, torch.Tensor]:
    """Rows of another length each time; packed, of other documents too."""
    if kind != "thd":
        ids = torch.zeros(2, source.randint(5, 200), dtype=torch.long)
        return {"input_ids": ids, "labels": ids.clone()}
    lengths = torch.tensor([source.randint(1, 9) * 8 for _ in range(source.randint(2, 6))])
    ids = torch.zeros(2, int(lengths.sum()), dtype=torch.long)
    return {"input_ids": ids, "labels": ids.clone(), "position_ids": ids.clone(),
            "seq_lens": lengths.repeat(2, 1)}


def compiled(mesh: Any, kind: str) -> int:
    """How often the verbs are compiled; results and gradients are compared with the eager ones."""
    counter = CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()
    run = torch.compile(verbs, backend=counter, fullgraph=True, dynamic=True)
    source = random.Random(3)
    shard, index_map = KINDS[kind]
    for _ in range(LAYOUTS):
        sharder = ours.ContextParallelSharder(device_mesh=mesh, shard_batch=shard,
                                              local_token_global_indices=index_map)
        batch = batch_of(kind, source)
        tensor = torch.rand(batch["input_ids"].shape, requires_grad=True)
        sharder.shard(batch)
        length = sharder.shard_layout.padded_seq_len // mesh.size()
        local = torch.rand([length] if kind == "thd" else [2, length], requires_grad=True)
        outcomes = []
        for call in (verbs, run):
            results = call(sharder.token_layout(), tensor, local, local.dim() - 1)
            sum((result * result).sum() for result in results).backward()
            outcomes.append((tensor.grad, local.grad, *results))
            tensor.grad = local.grad = None
        assert all(map(torch.equal, *outcomes))
    return counter.frame_count


def with_breaks(mesh: Any) -> None:
    """Verbs that look a map up, in a graph that may break there."""
    sharder = ours.ContextParallelSharder(
        device_mesh=mesh, shard_batch=ours.shard_batch_contiguous,
        local_token_global_indices=ours.contiguous_local_indices)

    def run(tensor: torch.Tensor, layout: cpshard.ShardLayout) -> Any:
        local, indices, _ = ours.shard_sequence_for_cp_round_robin(mesh, tensor * 3)
        return (ours.gather_token_tensor_by_indices(mesh, local * 2, indices),
                sharder.gather_token_tensor(tensor * 5),
                ours.gather_token_tensor(layout, mesh, tensor * 7, trim=True))

    torch._dynamo.reset()
    call = torch.compile(run, backend="aot_eager")
    for length in (16, 24, 32):
        tensor = torch.rand(2, length)
        ids = torch.zeros(2, 2 * length, dtype=torch.long)
        _, _, layout = ours.shard_batch_contiguous(mesh, None, {"input_ids": ids, "labels": ids})
        received = dataclasses.replace(layout)  # nothing is known of the other ranks
        assert all(map(torch.equal, call(tensor, received), run(tensor, received)))


def test_a_verb_that_looks_its_map_up_breaks_a_graph_and_no_more(worlds):
    worlds.run(2, with_breaks)


@pytest.mark.parametrize("kind", KINDS)
def test_verbs_compile_at_most_twice_over_many_layouts(worlds, kind):
    """Twice: rows that need padding and rows that need none are two graphs."""
    assert max(worlds.run(2, compiled, kind)) <= 2

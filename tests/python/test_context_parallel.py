"""Ring attention in the drop-in's contexts: torch's own, over the shards that cpshard made."""

from typing import Any

import pytest
import reference
import ring_on_cpu
import torch
import torch.nn.functional as F

import cpshard.torch as ours

HEADS, WIDTH = 2, 8




def embeddings(length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randn(2, length, HEADS * WIDTH, generator=generator)


def attend(embeds: torch.Tensor) -> torch.Tensor:
    """Causal self-attention with fixed weights, [B, S, heads * width] to the same."""
    generator = torch.Generator().manual_seed(7)
    weights = torch.randn(3, HEADS * WIDTH, HEADS * WIDTH, generator=generator) / 4
    query, key, value = ((embeds @ weight).unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)
                         for weight in weights)
    out = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    return out.transpose(1, 2).flatten(2)


def in_context(mesh: Any, module: Any, function: str, length: int) -> tuple[torch.Tensor, ...]:
    """Local attention and the gradient of the embeddings, by the functions of a module."""
    ring_on_cpu.install()
    embeds = embeddings(length).requires_grad_()
    labels = torch.arange(2 * length).reshape(2, length)
    batch = {"inputs_embeds": embeds, "labels": labels}
    context, batch, layout = getattr(module, function)(mesh, None, batch)
    local = batch["inputs_embeds"]
    if function == "shard_batch_aux_only":
        local, _, _ = module.shard_sequence_for_cp_round_robin(mesh, local)
    with context():
        out = attend(local)
        out.square().sum().backward()
    return out.detach(), embeds.grad, batch["labels"].clone()


def both(mesh: Any, function: str, length: int) -> tuple[Any, Any]:
    return (in_context(mesh, reference.sharder, function, length),
            in_context(mesh, ours, function, length))


@pytest.mark.parametrize("function", ["shard_batch_load_balanced", "shard_batch_aux_only"])
@pytest.mark.parametrize("size,length", [(2, 16), (2, 13), (4, 24)])
def test_attention_and_gradients_are_the_references(worlds, function, size, length):
    for theirs, made in worlds.run(size, both, function, length):
        for name, one, other in zip(("out", "grad", "labels"), theirs, made):
            if function == "shard_batch_load_balanced" or name != "labels":
                assert torch.equal(one, other), name


def gathered(mesh: Any, length: int) -> torch.Tensor:
    """The attention of the whole sequence, trimmed."""
    ring_on_cpu.install()
    sharder = ours.ContextParallelSharder(
        device_mesh=mesh, shard_batch=ours.shard_batch_load_balanced,
        local_token_global_indices=ours.round_robin_local_indices)
    batch = {"inputs_embeds": embeddings(length), "labels": torch.zeros(2, length)}
    context, batch = sharder.shard(batch)
    for _ in range(2):  # a context is made as often as it is wanted
        with context():
            out = attend(batch["inputs_embeds"])
    alone = F.scaled_dot_product_attention(*(torch.ones(1, 1, 4, 4) for _ in range(3)))
    assert torch.equal(alone, torch.ones(1, 1, 4, 4)), "behind the context there is no ring"
    return sharder.gather_token_tensor(out, trim=True)


def raising(mesh: Any) -> bool:
    batch = {"input_ids": torch.ones(2, 8).long(), "labels": torch.ones(2, 8).long()}
    context, _, _ = ours.shard_batch_load_balanced(mesh, None, batch)
    before = F.scaled_dot_product_attention
    try:
        with context():
            assert F.scaled_dot_product_attention is not before
            raise LookupError("in a forward")
    except LookupError:
        return F.scaled_dot_product_attention is before
    return False


def test_behind_an_exception_there_is_no_ring(worlds):
    assert worlds.run(2, raising) == [True, True]


@pytest.mark.parametrize("size", [2, 4])
def test_attention_over_several_ranks_is_that_of_one(worlds, size):
    whole = attend(embeddings(21))
    for full in worlds.run(size, gathered, 21):
        torch.testing.assert_close(full, whole, rtol=1e-5, atol=1e-5)

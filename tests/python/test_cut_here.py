"""What shard_streams cuts itself, by ATen: streams that require grad, lie on a device or are large.
Expected are the contract's words, restated over lists."""

from typing import Any

import pytest
import torch
from dropin_cases import Ranks, same

import cpshard.torch as ours
from cpshard.torch import streams

S, FILL = 7, -100.0
LABELS = [[float(10 * row + column) for column in range(S)] for row in range(2)]
DOCUMENTS = [[1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 1, 3, 3]]


def columns_of(layout: str, rank: int) -> list[int]:
    """Of two ranks: slices of the 8 columns that S is padded to, or head and tail of them."""
    head_tail = [[0, 1, 6, 7], [2, 3, 4, 5]]
    return head_tail[rank] if layout == "round_robin" else [*range(4 * rank, 4 * rank + 4)]


def shifted(row: int, column: int, depth: int, documents: Any) -> int:
    """Whose label the target of a column is (contract 4.19); -1 = fill."""
    other = column + depth
    if other >= S or documents is not None and documents[row][column] != documents[row][other]:
        return -1
    return other


def on_a_device(monkeypatch: Any, also: Any) -> None:
    """As if these tensors lay on a GPU that the library cannot reach."""
    monkeypatch.setattr(streams, "_is_cut_here", lambda value: isinstance(value, torch.Tensor) and (
        value.requires_grad or any(value is tensor for tensor in also)))


@pytest.mark.parametrize("layout, documents", [
    ("contiguous", None), ("contiguous", DOCUMENTS), ("round_robin", None)],
    ids=["contiguous", "documents", "round_robin"])
@pytest.mark.parametrize("where", ["requires grad", "on a device"])
@pytest.mark.parametrize("rank", [0, 1])
def test_targets_of_what_is_cut_here_are_those_of_their_depth(monkeypatch, layout, rank, where,
                                                              documents):
    batch = {"input_ids": torch.arange(2 * S).view(2, S), "labels": torch.tensor(LABELS)}
    if documents:
        batch["seq_idx"] = torch.tensor(documents)
    if where == "requires grad":
        batch["labels"].requires_grad_()
    else:
        on_a_device(monkeypatch, [batch["input_ids"], batch["labels"]])
    options = {layout: {}, "targets": {"num_depths": 3}, "padding_token_id": 0}
    _, made, _ = ours.shard_batch_by(options)(Ranks(2, rank), None, dict(batch))
    gradient = [[0.0] * S for _ in LABELS]
    for depth in (1, 2, 3):
        sources = [[shifted(row, column, depth, documents) for column in columns_of(layout, rank)]
                   for row in range(2)]
        targets = made[f"targets.{depth - 1}"]
        assert targets.tolist() == [[FILL if column < 0 else LABELS[row][column]
                                     for column in sources[row]] for row in range(2)]
        assert made[f"target_input_ids.{depth - 1}"].tolist() == [
            [0 if column < 0 else S * row + column for column in sources[row]] for row in range(2)]
        if where == "requires grad":
            (targets * depth).sum().backward(retain_graph=True)
            for row in range(2):
                for column in sources[row]:
                    if column >= 0:
                        gradient[row][column] += depth
    if where == "requires grad":
        assert batch["labels"].grad.tolist() == gradient


@pytest.mark.parametrize("rank", [0, 1])
def test_a_plain_slice_of_a_batch_with_targets_has_a_slice_s_gradient(rank):
    """It keeps -0.0, as the reference's does; a selection's does not."""
    labels = torch.tensor(LABELS, requires_grad=True)
    options = {"contiguous": {}, "targets": {"num_depths": 1}, "padding_token_id": 0}
    batch = {"input_ids": torch.arange(2 * S).view(2, S), "labels": labels}
    _, made, _ = ours.shard_batch_by(options)(Ranks(2, rank), None, batch)
    made["labels"].backward(torch.full((2, 4), -0.0))
    theirs = torch.tensor(LABELS, requires_grad=True)
    padded = torch.cat((theirs, torch.full((2, 1), FILL)), 1)
    padded.narrow(1, 4 * rank, 4).contiguous().backward(torch.full((2, 4), -0.0))
    assert same(labels.grad, theirs.grad)


# --- extra streams -------------------------------------------------------------------------------

POSITIONS = torch.arange(3 * S).view(3, 1, S)


def with_extra(shard: Any, extras: dict[str, int], batch: dict[str, torch.Tensor],
               **arguments: Any) -> dict[str, Any]:
    keyword = "extra_seq_keys" if shard is ours.shard_batch_contiguous else "extra_seq_buffers"
    _, made, layout = shard(Ranks(2, 1), None, dict(batch), **{keyword: extras}, **arguments)
    assert (layout.original_seq_len, layout.padded_seq_len) == (S, 8)
    return made


@pytest.mark.parametrize("name", ["position_ids", "labels", "padding_mask", "loss_mask",
                                  "inputs_embeds"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("where", ["large", "on a device"])
@pytest.mark.parametrize("shard", [ours.shard_batch_contiguous, ours.shard_batch_load_balanced])
def test_an_extra_that_the_layout_handles_anyway_is_ignored_wherever_it_is_cut(
        monkeypatch, shard, where, axis, name):
    """Its axis too, which may be none of the tensor's (contract 4.2 step 6, C21)."""
    batch = {"inputs_embeds": torch.arange(S * 4.0).view(1, S, 4), "position_ids": POSITIONS,
             "labels": torch.arange(S)[None], "padding_mask": torch.zeros(1, S, dtype=torch.bool),
             "loss_mask": torch.ones(1, S)}
    expected = with_extra(shard, {}, batch)
    if where == "large":
        monkeypatch.setattr(streams, "LARGE", 0)
    else:
        on_a_device(monkeypatch, batch.values())
    columns = columns_of("contiguous" if shard is ours.shard_batch_contiguous else "round_robin", 1)
    made = with_extra(shard, {name: axis}, batch)
    # They go on by one in the pad of contiguous; rank 1 of round robin has none.
    assert made["position_ids"].tolist() == [[[S * rope + column for column in columns]]
                                             for rope in range(3)]
    assert made.keys() == expected.keys()
    for stream, tensor in expected.items():
        assert same(made[stream], tensor), stream


@pytest.mark.parametrize("where", ["on the CPU", "large", "on a device"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shard, whole", [
    (ours.shard_batch_contiguous, {"shard_primary": False}), (ours.shard_batch_aux_only, {})])
def test_an_extra_may_be_the_primary_that_the_layout_leaves(monkeypatch, shard, whole, where, axis):
    """On any axis of S columns; the rows are still counted on axis 1."""
    embeds = torch.arange(1.0, 1 + S ** 3).view(S, S, S)
    batch = {"inputs_embeds": embeds, "labels": torch.arange(S * S).view(S, S)}
    if where == "large":
        monkeypatch.setattr(streams, "LARGE", 0)
    elif where == "on a device":
        on_a_device(monkeypatch, batch.values())
    made = with_extra(shard, {"inputs_embeds": axis}, batch, **whole)
    rank = columns_of("contiguous" if whole else "round_robin", 1)
    rows = embeds.transpose(0, axis).tolist()
    empty = [[0.0] * S] * S
    wanted = torch.tensor([rows[column] if column < S else empty for column in rank])
    assert torch.equal(made["inputs_embeds"], wanted.transpose(0, axis))

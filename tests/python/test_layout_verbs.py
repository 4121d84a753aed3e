"""The token verbs by a layout that came with a shard: no plan of the batch is at hand."""

import dataclasses

import numpy as np
import pytest
import reference
import torch
from dropin_cases import Ranks, packed

import cpshard
import cpshard.torch
from cpshard import embedded

TOKENS = 22
OPTIONS = {
    "round_robin": ({"round_robin": {}}, {}),
    "contiguous": ({"contiguous": {"pad_multiple": 3}, "padding_token_id": 9}, {}),
    # 9 + 4 slots on rank 0, 9 on rank 1.
    "explicit": ({"explicit": {"ranks": [
        {"runs": [{"source": 0, "length": 9}, {"source": 18, "length": 4}]},
        {"runs": [{"source": 9, "length": 9}]}]}}, {}),
    "deepseek_v41": ({"deepseek_v41": {"packed_alignment": 4}, "padding_token_id": 9},
                     {"seq_lens": torch.tensor([[5, 9, 8], [22, -1000, -1000]])}),
    "thd": ({"thd": {}}, {}),
    "magi": ({"magi": {"variant": "HF"}, "padding_token_id": 9}, {}),
}


def batch_of(layout, first=0):
    if layout == "thd":
        return packed()
    if layout == "magi":  # takes one row; its pads are slots
        ids = torch.arange(first, first + 37)[None]
        return {"input_ids": ids, "labels": ids + 1000}
    ids = torch.arange(first, first + 2 * TOKENS).view(2, TOKENS)
    return {"input_ids": ids, "labels": ids + 1000, **OPTIONS[layout][1]}


def received(mesh, layout, first=0):
    """This rank's shard as from a server: nothing else is known of the batch."""
    plan = embedded.plan(batch_of(layout, first), OPTIONS[layout][0], mesh.size(), digest=True)
    shard = plan.shard(mesh.get_local_rank())
    return shard.batch, dataclasses.replace(shard.layout)


def gathered(mesh, layout):
    """Also by the verbs of a token layout of all ranks."""
    batch, record = received(mesh, layout)
    labels, dim = batch["labels"], batch["labels"].dim() - 1
    full = cpshard.torch.gather_token_tensor(record, mesh, labels, dim, trim=True, fill=-7)
    agree = cpshard.torch.token_layout(record, mesh)
    again = [cpshard.torch.shard_token_tensor(record, full, fill=-100),
             agree.shard_token_tensor(full, fill=-100)]
    return full.tolist(), all(torch.equal(shard, labels) for shard in again)


@pytest.mark.parametrize("layout,cp_size", [
    (layout, cp_size) for layout in OPTIONS for cp_size in (2, 4)
    if layout != "explicit" or cp_size == 2])
def test_gather_with_trim_gives_back_what_was_sharded(worlds, layout, cp_size):
    expected = batch_of(layout)["labels"].tolist()
    for full, shards_again in worlds.run(cp_size, gathered, layout):
        assert full == expected
        assert shards_again


def under_a_default_device(mesh):
    batch, record = received(mesh, "thd")
    rows = batch_of("contiguous")
    with torch.device("meta"):
        full = cpshard.torch.gather_token_tensor(record, mesh, batch["labels"], 0, trim=True)
        _, made, _ = cpshard.torch.shard_batch_contiguous(mesh, None, rows)
    return full.tolist(), made["labels"].tolist()


def test_another_default_device_changes_nothing(worlds):
    """Tensors that come from nowhere in particular lie there: none of these may."""
    labels = packed()["labels"].tolist()
    shards = []
    for full, shard in worlds.run(2, under_a_default_device):
        assert full == labels
        shards.append(shard)
    rows = [first + second for first, second in zip(*shards)]
    assert [row[:TOKENS] for row in rows] == batch_of("contiguous")["labels"].tolist()


def uneven(mesh):
    batch, record = received(mesh, "explicit")
    labels = batch["labels"].float().requires_grad_()
    full = cpshard.torch.gather_token_tensor(record, mesh, labels)
    (full * torch.arange(TOKENS)).sum().backward()
    return full.tolist(), labels.grad.tolist()


def test_shards_of_uneven_length_come_back_with_their_gradients(worlds):
    columns = [[*range(9), *range(18, 22)], [*range(9, 18)]]
    for rank, (full, gradient) in enumerate(worlds.run(2, uneven)):
        assert full == batch_of("explicit")["labels"].float().tolist()
        # Both ranks weigh column i with i.
        assert gradient == [[2.0 * column for column in columns[rank]]] * 2


def of_other_batches(mesh):
    batch, record = received(mesh, "round_robin", first=mesh.get_local_rank())
    return cpshard.torch.gather_token_tensor(record, mesh, batch["labels"])


def test_shards_of_different_batches_are_refused_on_every_rank(worlds):
    for raised in worlds.run(2, of_other_batches, raises=False):
        assert "ValueError" in raised.kinds
        assert "different batches" in raised.text and "on rank 1" in raised.text


def of_other_ranks(mesh):
    batch, record = received(mesh, "round_robin")
    return cpshard.torch.gather_token_tensor(dataclasses.replace(record, cp_rank=0), mesh,
                                             batch["labels"])


def test_a_layout_of_another_rank_is_refused_on_every_rank(worlds):
    for raised in worlds.run(2, of_other_ranks, raises=False):
        assert "ValueError" in raised.kinds
        assert "rank 1 of a mesh of 2 has the layout of rank 0 of 2" in raised.text


def collectives(mesh):
    import torch.distributed as dist

    count, call = [], dist.all_gather
    dist.all_gather = lambda *args, **kwargs: (count.append(1), call(*args, **kwargs))[1]
    try:
        batch, record = received(mesh, "round_robin")
        for _ in range(3):
            cpshard.torch.gather_token_tensor(record, mesh, batch["labels"])
    finally:
        dist.all_gather = call
    return len(count)


def test_the_other_ranks_are_asked_once_for_a_layout(worlds):
    assert worlds.run(2, collectives) == [2, 2]


def test_a_layout_without_runs_is_refused():
    with pytest.raises(ValueError, match="no runs"):
        cpshard.torch.token_layout(cpshard.ShardLayout(padded_seq_len=8))


def test_a_layout_of_another_package_is_refused_by_the_same_text():
    with pytest.raises(ValueError, match="no runs"):
        cpshard.torch.token_layout(reference.sharder.ShardLayout(padded_seq_len=8))


def of_no_rank(mesh):
    batch, record = received(mesh, "round_robin")
    rank = 0 if mesh.get_local_rank() == 0 else None
    return cpshard.torch.gather_token_tensor(dataclasses.replace(record, cp_rank=rank), mesh,
                                             batch["labels"])


def test_a_layout_that_tells_no_rank_is_refused_on_every_rank(worlds):
    for raised in worlds.run(2, of_no_rank, raises=False):
        assert "ValueError" in raised.kinds and "on rank 1 has no cp_rank" in raised.text


def in_numpy(mesh):
    """Layout arrays of numpy, and a sharder that is given such a layout."""
    given = {name: value.numpy() if isinstance(value, torch.Tensor) else value
             for name, value in packed().items()}
    shard = embedded.plan(given, "thd", mesh.size()).shard(mesh.get_local_rank())
    sharder = cpshard.torch.ContextParallelSharder(
        device_mesh=mesh, shard_batch=cpshard.torch.shard_batch_thd, shard_layout=shard.layout)
    labels = torch.from_numpy(shard.batch["labels"])
    again = sharder.shard_token_tensor(packed()["labels"])
    return torch.equal(again, labels), sharder.gather_token_tensor(labels, 0, trim=True).tolist()


def test_a_sharder_takes_a_layout_whose_arrays_are_numpy_s(worlds):
    assert worlds.run(2, in_numpy) == [(True, packed()["labels"].tolist())] * 2


# --- one rank ------------------------------------------------------------------------------------

# Its slots are the columns 6 ... 9, then 0 ... 5, of which two are the pad of S = 8.
TURNED = {"explicit": {"ranks": [{"runs": [{"source": 6, "length": 4},
                                           {"source": 0, "length": 6}]}]},
          "padding_token_id": 0}
SLOTS = [6, 7, 8, 9, 0, 1, 2, 3, 4, 5]


def turned(length):
    """The plan's layout for one rank, and its labels. `length`: 10 needs no pad, 8 two columns."""
    ids = torch.arange(2 * length).view(2, length)
    shard = embedded.plan({"input_ids": ids, "labels": ids + 100}, TURNED, 1).shard(0)
    return ids + 100, shard.layout, shard.batch["labels"]


@pytest.mark.parametrize("mesh", [None, Ranks(1)], ids=["no mesh", "a mesh of one"])
@pytest.mark.parametrize("length", [10, 8])
def test_one_rank_whose_slots_are_in_another_order_gathers_in_that_of_the_columns(mesh, length):
    """gather(shard(x)) = x (contract 15.2), padded or trimmed, by every verb that has the map."""
    full, layout, labels = turned(length)
    padded = torch.cat((full, torch.full((2, 10 - length), -100)), 1)
    assert labels.tolist() == padded[:, SLOTS].tolist()
    by_value = cpshard.torch.token_layout(layout, mesh)
    planned = cpshard.torch.ContextParallelSharder(
        device_mesh=mesh, shard_batch=cpshard.torch.shard_batch_by(TURNED))
    gathers = [by_value.gather_token_tensor,
               lambda *a, **k: cpshard.torch.gather_token_tensor(layout, mesh, *a, **k)]
    if mesh is not None:
        planned.shard({"input_ids": full.clone(), "labels": full})
        gathers += [planned.gather_token_tensor, planned.token_layout().gather_token_tensor]
    for gather in gathers:
        assert gather(labels).tolist() == padded.tolist()
        assert gather(labels, trim=True).tolist() == full.tolist()
        assert gather(labels.t(), 0, trim=True, gradient="slice").tolist() == full.t().tolist()
        assert gather(labels[..., None].bfloat16(), -2).dtype == torch.bfloat16
        leaf = labels.double().requires_grad_()
        (gather(leaf) * torch.arange(10)).sum().backward()
        assert leaf.grad.tolist() == [[float(column) for column in SLOTS]] * 2
        with pytest.raises(ValueError, match="9"):
            gather(labels[:, :9])
        with pytest.raises(IndexError):
            gather(labels, 2)


def test_a_compiled_gather_of_one_rank_goes_by_its_map():
    _, layout, labels = turned(8)
    made = cpshard.torch.token_layout(layout)

    def run(tokens, tensor):
        return tokens.gather_token_tensor(tensor), tokens.gather_token_tensor(tensor, trim=True)

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True, dynamic=True)
    assert all(map(torch.equal, compiled(made, labels), run(made, labels)))


def test_one_rank_whose_slots_are_in_order_is_given_the_very_tensor():
    batch = embedded.plan(batch_of("contiguous"), "contiguous", 1).shard(0)
    labels = batch.batch["labels"]
    assert cpshard.torch.gather_token_tensor(batch.layout, None, labels) is labels


def test_one_rank_of_several_without_a_mesh_is_given_its_shard():
    """There is nobody to ask (T53)."""
    shard = embedded.plan({"input_ids": torch.arange(8)[None], "labels": torch.arange(8)[None]}, {
        "explicit": {"ranks": [{"runs": [{"source": 2, "length": 2}, {"source": 0, "length": 2}]},
                               {"runs": [{"source": 4, "length": 4}]}]}}, 2).shard(0)
    labels = shard.batch["labels"]
    assert cpshard.torch.gather_token_tensor(shard.layout, None, labels) is labels


def test_indices_are_the_columns_of_the_runs_in_slot_order():
    runs = np.array([[4, 2], [0, 1], [9, 3]])
    made = cpshard.torch.token_layout(cpshard.ShardLayout(runs=runs, padded_seq_len=12))
    assert made.indices.tolist() == [4, 5, 0, 9, 10, 11]

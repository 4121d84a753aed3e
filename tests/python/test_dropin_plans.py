"""What a sharder knows of a batch that was planned here: its layout by name, and the maps of all
ranks, whatever index map the caller has."""

import contextlib
import gc
import weakref
from typing import Any

import pytest
import reference
import torch
from dropin_cases import Ranks, packed, plain
from gloo_worlds import Raised

import cpshard.torch as ours
from cpshard import embedded

UNEVEN = {"explicit": {"ranks": [{"runs": [{"source": 0, "length": 5}]},
                                 {"runs": [{"source": 5, "length": 9}]}]}}
V41 = {"model": {"family": "DEEPSEEK_V41"}}


def sharder_by(mesh: Any, options: Any, index_map: Any = None) -> ours.ContextParallelSharder:
    return ours.ContextParallelSharder(device_mesh=mesh, shard_batch=ours.shard_batch_by(options),
                                       local_token_global_indices=index_map)


# --- by options ----------------------------------------------------------------------------------

def verbs(mesh: Any, options: Any, index_map: str) -> tuple[bool, list[Any]]:
    """Whether the shard verb makes the batch's own labels, and what is gathered of them."""
    sharder = sharder_by(mesh, options, getattr(ours, index_map, None))
    _, batch = sharder.shard(plain(14))
    again = sharder.shard_token_tensor(plain(14)["labels"], fill=-100)
    return torch.equal(again, batch["labels"]), [
        sharder.gather_token_tensor(batch["labels"], trim=True).tolist(),
        sharder.token_layout().gather_token_tensor(batch["labels"], trim=True).tolist()]


@pytest.mark.parametrize("index_map", ["none", "contiguous_local_indices",
                                       "round_robin_local_indices"])
@pytest.mark.parametrize("options", ["round_robin", "contiguous", "model", UNEVEN, V41],
                         ids=["round_robin", "contiguous", "model", "uneven", "v41"])
def test_verbs_go_by_the_plan_whatever_index_map_is_given(worlds, options, index_map):
    for shards_again, gathered in worlds.run(2, verbs, options, index_map):
        assert shards_again
        assert gathered == [plain(14)["labels"].tolist()] * 2


def resolved(mesh: Any, options: Any) -> tuple[bool, bool, list[str]]:
    """Whether there is a context, whether the batch has this mesh's group, and all of its names."""
    batch = packed() | {"note": ["kept"]}
    if options == "model":
        batch = plain(8)
    context, made = sharder_by(mesh, options).shard(batch)
    return (context is not contextlib.nullcontext, made.get("cp_group") is mesh.get_group(),
            sorted(made))


def test_a_model_s_layout_brings_its_context_and_its_group(worlds):
    assert [made[:2] for made in worlds.run(2, resolved, "model")] == [(True, False)] * 2
    assert [made[:2] for made in worlds.run(2, resolved, V41)] == [(False, True)] * 2


def test_a_model_s_layout_keeps_what_the_layout_by_its_name_keeps(worlds):
    """GLM's hands on nothing that it does not know."""
    by_family = {"model": {"family": "GLM_MOE_DSA", "backend_attn": "tilelang"}}
    [made, _] = worlds.run(2, resolved, by_family)
    assert made == worlds.run(2, resolved, "glm_dsa")[0] and "note" not in made[2]


def test_a_model_whose_layout_reads_a_context_of_its_framework_is_refused():
    options = {"model": {"family": "QWEN3_5_MOE", "backend_attn": "sdpa"}}
    assert embedded.plan(of_documents(), options, 2).chosen == "block_diagonal"
    with pytest.raises(NotImplementedError, match="block_diagonal"):
        sharder_by(Ranks(2), options).shard(of_documents())


def of_documents() -> dict[str, Any]:
    ids = torch.arange(8)[None]
    return {"input_ids": ids, "labels": ids.clone(), "position_ids": ids.clone(),
            "_packed_seq_ids": torch.ones_like(ids)}


# --- what a layout keeps -------------------------------------------------------------------------

def test_a_layout_keeps_no_batch_alive_and_asks_for_no_other_rank(monkeypatch):
    asked, array = [], embedded.Plan._array
    monkeypatch.setattr(embedded.Plan, "_array", lambda plan, rank, kind: (
        asked.append(rank), array(plan, rank, kind))[1])
    batch = packed()
    ids = weakref.ref(batch["input_ids"])
    _, _, layout = ours.shard_batch_thd(Ranks(4, 3), None, batch | {
        "seq_lens": torch.tensor([[16, 8]] * 2), "seq_lens_padded": torch.tensor([[16, 8]] * 2)})
    del batch
    gc.collect()
    assert ids() is None and set(asked) == {3} and layout is not None


# --- without a group, and of a wrong one ---------------------------------------------------------

@pytest.mark.parametrize("module", [reference.sharder, ours], ids=["reference", "cpshard"])
def test_captured_indices_are_counted_for_the_mesh_where_nobody_is_there_to_gather_from(module):
    layout = module.ShardLayout(local_token_global_indices=torch.arange(4), padded_seq_len=8)
    sharder = module.ContextParallelSharder(
        device_mesh=Ranks(2), shard_batch=module.shard_batch_identity, shard_layout=layout)
    assert sharder.gather_token_tensor(torch.arange(4)[None]).tolist() == [[0, 1, 2, 3]]
    with pytest.raises(ValueError):
        sharder.gather_token_tensor(torch.arange(3)[None])


def of_identity(mesh: Any) -> torch.Tensor:
    sharder = ours.ContextParallelSharder(
        device_mesh=mesh, shard_batch=ours.shard_batch_identity,
        local_token_global_indices=ours.identity_local_indices)
    return sharder.gather_token_tensor(torch.ones(1, 4))


def test_what_every_rank_has_whole_is_not_gathered_as_if_it_were_cut(worlds):
    for raised in worlds.run(2, of_identity, raises=False):
        assert "ValueError" in raised.kinds and "identity_local_indices" in raised.text


# --- refilled batches ----------------------------------------------------------------------------

@pytest.mark.parametrize("shard", [ours.shard_batch_contiguous, ours.shard_batch_load_balanced,
                                   ours.shard_cp_batch])
def test_the_mapping_of_the_last_batch_may_be_filled_again(shard):
    sharder = ours.ContextParallelSharder(device_mesh=Seat(2), shard_batch=shard,
                                          loss_mask=torch.ones(2, 10))
    batch = plain(10)
    sharder.shard(batch)
    first = {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}
    batch |= plain(10)
    sharder.shard(batch)
    assert first["loss_mask"].shape[1] < 10
    assert all(torch.equal(batch[name], value) for name, value in first.items())


class Seat(Ranks):
    def get_group(self) -> None:
        return None


def test_a_mapping_that_is_refused_keeps_what_the_last_shard_added():
    sharder = ours.ContextParallelSharder(device_mesh=Ranks(2), loss_mask=torch.ones(2, 10),
                                          shard_batch=ours.shard_batch_contiguous)
    batch = plain(10)
    sharder.shard(batch)
    batch |= plain(9)
    before = dict(batch)
    with pytest.raises(ValueError, match="loss_mask"):
        sharder.shard(batch)
    assert batch.keys() == before.keys()
    assert all(batch[name] is value for name, value in before.items())


def test_a_loss_mask_of_the_caller_s_own_is_not_taken_for_an_old_one():
    sharder = ours.ContextParallelSharder(device_mesh=Ranks(2), loss_mask=torch.ones(2, 10),
                                          shard_batch=ours.shard_batch_contiguous)
    batch = plain(10)
    sharder.shard(batch)
    with pytest.raises(ValueError, match="as an argument and in the batch"):
        sharder.shard(batch | plain(10) | {"loss_mask": torch.zeros(2, 10)})


# --- agreeing on the longest row -----------------------------------------------------------------

def synced(mesh: Any, fault: str) -> Any:
    batch = plain(10) | {"seq_lens": torch.tensor([[4, 5], [10, 0]])}
    if mesh.get_local_rank() == 1 and fault == "long":
        batch["seq_lens"] = torch.tensor([[4, 9], [10, 0]])
    if mesh.get_local_rank() == 1 and fault == "no labels":
        del batch["labels"]
    names = list(batch)
    try:
        ours.shard_cp_batch(mesh, None, batch, sync_packed_length=True)
    except Exception as error:
        return Raised(error), list(batch) == names
    return "sharded"


@pytest.mark.parametrize("fault,kind,text", [("long", "ValueError", "row 0: entry 1"),
                                             ("no labels", "KeyError", "labels")])
def test_a_row_that_one_rank_refuses_is_refused_by_all_that_would_wait(worlds, fault, kind, text):
    [other, own] = worlds.run(2, synced, fault)
    assert kind in own[0].kinds and text in own[0].text and own[1]
    assert "ValueError" in other[0].kinds and "rank 1 of the job refuses" in other[0].text


def test_ranks_that_refuse_nothing_agree(worlds):
    assert worlds.run(2, synced, "none") == ["sharded"] * 2

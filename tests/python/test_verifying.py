"""cpshard.verifying: somebody else's shards beside ours."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch

import reference

import cpshard
import cpshard.torch as sharders
from cpshard import embedded, verifying
from cpshard.sharders import trainer_sharder
from cpshard.verifying import verify


def batch_of() -> dict[str, Any]:
    ids = torch.arange(1, 65).reshape(2, 32)
    return {"input_ids": ids, "labels": torch.roll(ids, -1, 1), "position_ids": None,
            "qkv_format": "bshd"}


def ours(cp_size: int = 4) -> list[dict[str, Any]]:
    return [shard.batch for shard in embedded.plan(batch_of(), "round_robin", cp_size).shards()]


def test_our_own_shards_are_equal_in_every_form():
    shards = ours()
    for theirs in (shards, dict(enumerate(shards)), tuple(shards),
                   embedded.plan(batch_of(), "round_robin", 4).shards(),
                   [{name: np.asarray(value) for name, value in shard.items()
                     if name != "qkv_format"} for shard in shards]):
        found = verify(batch_of(), "round_robin", 4, theirs)
        assert found.equal, found.text
        assert found.report["verdict"] == "EQUAL"
        found.raise_on_difference()


def test_one_wrong_element_is_found_and_told_by_rank_token_and_value():
    shards = ours()
    shards[2]["labels"][1, 3] = 40
    found = verify(batch_of(), "round_robin", 4, shards)
    assert not found.equal
    with pytest.raises(verifying.ShardsDiffer) as failure:
        found.raise_on_difference()
    text = str(failure.value)
    # Rank 2 of 4 has columns 8-11 and 20-23 of 32; column 11 of row 1 has the id 44, the label 45.
    assert "rank 2 at [1, 3], slot 3 <- token 11 of row 1" in text, text
    assert "expected  45" in text and "found     40" in text, text
    wrong = [stream["name"] for stream in found.report["streams"]
             if stream["verdict"] != "EQUAL"]
    assert wrong == ["labels"]


def test_another_layout_is_named():
    def contiguous(batch: dict[str, Any], rank: int, size: int) -> dict[str, Any]:
        return {name: value.chunk(size, 1)[rank] for name, value in batch.items()
                if isinstance(value, torch.Tensor)}

    found = verify(batch_of(), "round_robin", 4, sharder=contiguous,
                   streams=["input_ids", "labels"])
    assert "another layout, contiguous" in found.text, found.text
    assert "MISSING" not in found.text


def test_a_sharder_may_change_its_batch_in_place():
    seen = []

    def in_place(batch: dict[str, Any], rank: int, size: int) -> dict[str, Any]:
        seen.append((rank, size, batch["input_ids"].sum().item()))
        shard = {name: value.clone() if isinstance(value, torch.Tensor) else value
                 for name, value in ours()[rank].items()}
        batch["input_ids"].zero_()
        batch.clear()
        return shard

    batch = batch_of()
    assert verify(batch, "round_robin", 4, sharder=in_place).equal
    assert seen == [(rank, 4, 64 * 65 // 2) for rank in range(4)]
    assert batch["input_ids"].sum() == 64 * 65 // 2


def test_a_part_of_the_ranks_is_compared_where_only_that_is_given():
    shards = ours()
    found = verify(batch_of(), "round_robin", 4, {1: shards[1], 3: shards[3]})
    assert found.equal and found.report["ranks"] == [1, 3]
    shards[3]["input_ids"][0, 0] += 1
    assert not verify(batch_of(), "round_robin", 4, {1: shards[1], 3: shards[3]}).equal
    assert verify(batch_of(), "round_robin", 4, shards, ranks=[0, 1]).equal


def test_shards_of_another_group_are_not_equal():
    assert not verify(batch_of(), "round_robin", 4, ours() + ours()[:1]).equal
    with pytest.raises(LookupError, match=r"no shard of ranks \[2, 3\], but of ranks \[0, 1\]"):
        verify(batch_of(), "round_robin", 4, ours(2))


def test_tensors_of_other_dtypes_and_shapes_are_told_apart():
    shards = ours()
    shards[0]["labels"] = shards[0]["labels"].to(torch.int32)
    shards[1]["input_ids"] = shards[1]["input_ids"].reshape(-1)
    found = verify(batch_of(), "round_robin", 4, shards)
    verdicts = {stream["name"]: stream["verdict"] for stream in found.report["streams"]}
    assert verdicts == {"input_ids": "DIFFERENT", "labels": "DIFFERENT", "position_ids": "EQUAL"}
    assert "i32" in found.text and "[16]" in found.text, found.text


def test_bfloat16_lists_and_empty_tensors_cross():
    batch = batch_of() | {"embeds": torch.randn(2, 32, 3).to(torch.bfloat16)}
    options = {"round_robin": {}, "extra_streams": [{"name": "embeds", "seq_axis": 1}]}
    shards = [shard.batch for shard in embedded.plan(batch, options, 2).shards()]
    shards[0]["theirs_alone"] = [torch.zeros(0, 3), torch.tensor(1.5)]
    found = verify(batch, options, 2, shards)
    assert found.equal and "theirs_alone.0" in found.text, found.text


@pytest.mark.parametrize("arguments", [{}, {"shards": [], "sharder": dict}, {"shards": [3]}])
def test_wrong_arguments_are_refused(arguments: dict[str, Any]):
    with pytest.raises(ValueError):
        verify(batch_of(), "round_robin", 1, **arguments)


# --- sharders of trainers -------------------------------------------------------------------------


class Mesh:
    """Of one axis, on one rank, without a group."""

    mesh_dim_names = ("cp",)

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size

    def __getitem__(self, name: str) -> Mesh:
        return self

    def get_local_rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size


def direct(shard_batch: Any, rank: int = 1, size: int = 4, **arguments: Any) -> Any:
    return sharders.ContextParallelSharder(device_mesh=Mesh(rank, size), shard_batch=shard_batch,
                                           **arguments)


SHARDERS = [
    (lambda: direct(sharders.shard_batch_contiguous), "contiguous"),
    (lambda: direct(functools.partial(sharders.shard_batch_contiguous, pad_multiple=8)),
     "contiguous"),
    (lambda: direct(sharders.shard_batch_load_balanced), "round_robin"),
    (lambda: direct(sharders.shard_batch_aux_only), "round_robin"),
    (lambda: direct(reference.sharder.shard_batch_contiguous), "contiguous"),
    (lambda: reference.sharder.ContextParallelSharder(
        device_mesh=Mesh(1, 4), shard_batch=reference.sharder.shard_batch_contiguous),
     "contiguous")]


@pytest.mark.parametrize("make, layout", SHARDERS)
def test_a_sharder_tells_its_options_and_is_compared_on_its_own_rank(make: Any, layout: str):
    batch = {name: value for name, value in batch_of().items() if value is not None}
    told = trainer_sharder(make())
    assert told is not None and layout in told.options()
    found = cpshard.verify(batch, sharder=make())
    assert found.equal and found.report["ranks"] == [1], found.text
    assert batch["input_ids"].shape == (2, 32)  # theirs had a batch of its own


def test_what_a_sharder_does_otherwise_than_it_tells_is_found():
    def another(*arguments: Any, **named: Any) -> Any:
        context, batch, layout = sharders.shard_batch_contiguous(*arguments, **named)
        batch["labels"][0, 0] = 7
        return context, batch, layout

    another.__module__, another.__qualname__ = "cpshard.torch", "shard_batch_contiguous"
    found = cpshard.verify(batch_of(), sharder=direct(another))
    assert not found.equal and "rank 1 at [0, 0]" in found.text, found.text


def test_the_loss_mask_of_a_sharder_is_a_stream():
    mask = torch.ones(2, 32, dtype=torch.bool)
    found = cpshard.verify(batch_of(), sharder=direct(sharders.shard_batch_contiguous,
                                                      loss_mask=mask))
    assert found.equal, found.text
    assert "loss_mask" in [stream["name"] for stream in found.report["streams"]]


def test_a_callback_is_compared_on_all_ranks():
    found = cpshard.verify(batch_of(), cp_size=4, sharder=sharders.shard_batch_load_balanced)
    assert found.equal and found.report["ranks"] == [0, 1, 2, 3], found.text
    assert cpshard.verify(batch_of(), sharder=sharders.shard_batch_identity).equal


def test_a_resolving_sharder_tells_too():
    mine = sharders.ContextParallelSharder(None, None, batch_of())
    assert cpshard.verify(batch_of(), sharder=mine).equal


@pytest.mark.parametrize("arguments, words", [
    ({"sharder": lambda batch, rank, size: batch}, "does not tell its own"),
    ({"shards": []}, "do not tell theirs"),
    ({"sharder": direct(sharders.shard_batch_by("contiguous"))},
     "shard_batch_by.*give the options="),
    ({"sharder": direct(sharders.shard_batch_contiguous), "ranks": [2]}, "this process rank 1"),
    ({"sharder": reference.sharder.shard_batch_contiguous, "cp_size": 2},
     "ContextParallelSharder that has the mesh"),
    ({"options": "identity", "shards": [{"__metadata__": np.ones(2)}]}, "'__metadata__'"),
    ({"options": "identity", "shards": {0: {}}, "ranks": [9]}, r"ranks \[9\] are asked for"),
])
def test_what_does_not_tell_enough_is_refused_with_the_way_out(arguments: Any, words: str):
    with pytest.raises(ValueError, match=words) as raised:
        cpshard.verify(batch_of(), **arguments)
    assert isinstance(raised.value, cpshard.Error)


def test_options_that_are_given_are_those_that_count():
    mine = direct(sharders.shard_batch_by("contiguous"))
    assert cpshard.verify(batch_of(), "contiguous", sharder=mine).equal
    found = cpshard.verify(batch_of(), "round_robin", sharder=mine)
    assert not found.equal and "another layout, contiguous" in found.text, found.text


def test_texts_are_in_words_of_this_call():
    found = verify(batch_of(), "round_robin", 1, [{"input_ids": batch_of()["input_ids"]}])
    assert not found.equal and "(streams=)" in found.text
    for text in (found.text, str(found.report)):
        assert "--stream" not in text and "cpshard-verify-" not in text
    assert verify(batch_of(), "round_robin", 4, ours(), streams="labels").equal


def verified_in_a_group(mesh: Any, module: str, function: str) -> tuple[bool, list[int], str]:
    of = {"reference": reference.sharder, "ours": sharders}[module]
    mine = of.ContextParallelSharder(device_mesh=mesh, shard_batch=getattr(of, function))
    batch = {name: value for name, value in batch_of().items() if value is not None}
    if function == "shard_batch_thd":
        batch |= {"seq_lens": torch.tensor([[32], [32]]), "qkv_format": "thd",
                  "seq_lens_padded": torch.tensor([[32], [32]]),
                  "position_ids": torch.arange(32).repeat(2, 1)}
    found = cpshard.verify(batch, sharder=mine)
    return found.equal, found.report["ranks"], found.text


@pytest.mark.parametrize("module, function", [
    ("reference", "shard_batch_load_balanced"), ("reference", "shard_batch_contiguous"),
    ("ours", "shard_batch_load_balanced"), ("ours", "shard_batch_thd")])
def test_in_a_real_group_every_rank_verifies_its_own(worlds: Any, module: str, function: str):
    answers = worlds.run(2, verified_in_a_group, module, function)
    for rank, (equal, ranks, text) in enumerate(answers):
        assert equal and ranks == [rank], text

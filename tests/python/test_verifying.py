"""cpshard.verifying: somebody else's shards beside ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cpshard import embedded, verifying
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

"""The golden corpus, every case that shards a batch, through cpshard.embedded: outputs and layouts
of all ranks, from torch tensors and from numpy arrays; and the outputs once more by Plan.cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import golden
from cpshard import Error, embedded

STEMS = sorted(path.stem for path in golden.FOLDER.glob("*.jsonl"))
# Without batches: verbs and functions of the library.
WITHOUT = {"gather_sequence", "gather_token_tensor", "in_forward", "index_map",
           "shard_token_tensor", "vision"}


def test_files_without_batches_are_those_named_here():
    assert WITHOUT == {stem for stem in STEMS if not list(golden.shard_cases(stem))}


def shards_of(case: golden.Case, convert: Any) -> list[tuple[dict[str, Any], embedded.Plan, Any]]:
    """(batch, plan, shard) of the ranks of all replicas."""
    found = []
    for values in case.batches:
        batch = {name: convert(value) for name, value in values.items()}
        plan = embedded.plan(batch, case.options, case.cp_size)
        found += [(batch, plan, shard) for shard in plan.shards()]
    return found


def failure_of(case: golden.Case, convert: Any) -> str | None:
    try:
        shards = shards_of(case, convert)
    except Error as error:
        return None if error.code == case.error else f"{error.code}: {error}"
    if case.error:
        return f"not refused with {case.error}"
    if len(shards) != len(case.ranks):
        return f"{len(shards)} shards instead of {len(case.ranks)}"
    for number, ((batch, plan, shard), want) in enumerate(zip(shards, case.ranks)):
        outputs = {name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
                   for name, value in shard.batch.items()}
        outputs, layout = golden.as_reference_returns(case.backend, batch, outputs, want.layout)
        found = golden.outputs_difference(outputs, want.outputs)
        if not found and layout is not None:
            found = golden.layout_difference(shard.layout, layout)
        found = found or cut_difference(batch, plan, shard)
        if found:
            return f"rank {number}, {found}"
    return None


# --- the same by Plan.cut -------------------------------------------------------------------------


def cut_difference(batch: dict[str, Any], plan: embedded.Plan, shard: Any) -> str | None:
    """Streams that are cut of one tensor, cut here once more, element by element."""
    for name in shard.cuts:
        cut = plan.cut(name, shard.layout.cp_rank)
        if cut is None:
            continue
        rows = [plan.cut(name, shard.layout.cp_rank, row) for row in range(cut.rows)]
        want = torch.as_tensor(shard.batch[name])
        got = cut_by_hand(torch.as_tensor(batch[cut.source]), rows)
        if found := golden.difference(got, want):
            return f"cut of {name}: {found}"
    return None


def cut_by_hand(source: torch.Tensor, rows: list[embedded.Cut]) -> torch.Tensor:
    cut = rows[0]
    shaped = source.expand(cut.dims) if cut.broadcast else source.reshape(cut.dims)
    if cut.extent == "whole":
        return shaped
    columns = [[column for start, length in row.runs.tolist()
                for column in (range(start, start + length) if start >= 0 else [-1] * length)]
               for row in rows]
    dims = list(cut.dims)
    dims[cut.axis] = len(columns[0])
    local = torch.full(dims, cut.fill, dtype=source.dtype)
    for outer in np.ndindex(*cut.dims[:cut.axis]):
        row = outer[cut.batch_axis] if cut.batch_axis >= 0 and len(rows) > 1 else 0
        for slot, column in enumerate(columns[row]):
            if column >= 0:
                local[(*outer, slot)] = shaped[(*outer, column)]
    return local.reshape(cut.chunks, -1, *dims[1:]) if cut.chunks > 1 else local


# --- the tests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stem", [stem for stem in STEMS if stem not in WITHOUT])
@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_every_rank_gets_what_the_corpus_says(stem: str, library: str):
    def to_numpy(value: Any) -> Any:
        return value.numpy() if isinstance(value, torch.Tensor) else value

    failures, ran = [], 0
    for case in golden.shard_cases(stem):
        in_bf16 = any(isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16
                      for values in case.batches for value in values.values())
        if library == "numpy" and in_bf16:
            continue  # numpy has no such thing
        ran += 1
        found = failure_of(case, to_numpy if library == "numpy" else lambda value: value)
        if found:
            failures.append(f"{case.id}: {found}")
    assert not failures, f"{len(failures)} of {ran}:\n" + "\n".join(failures)
    assert ran

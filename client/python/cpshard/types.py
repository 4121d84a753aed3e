"""What a batch turns into: the layout of a rank and its shard."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping

import numpy as np
from numpy.typing import NDArray

# A value of a batch: a numpy array, a torch tensor, or a bool, int, float or str. None is absent.
Batch = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, eq=False)
class ShardLayout:
    """Where the tokens of one rank's shard come from. Every field may be absent (None).

    The first five are the reference's, under its names (contract 2.7):

    local_token_global_indices: int64 [L] or [1, L], padded columns of the local slots; an array of
        the library that the shard's tensors are of. None where a closed form gives them.
    original_seq_len: columns before padding. None where rows have no single length.
    padded_seq_len: columns after padding.
    input_row_shape: (B, S) of rows that were flattened to one stream.
    input_token_stream_positions: int64 [B, S], the padded column of every token, -1 = dropped.

    cpshard's own:

    cp_rank, cp_size: whose shard it is, and of how many.
    batch_digest: XXH3-64 of the batch (docs/WIRE.md); 0 in a plan.
    runs: int64 [n, 2], source and length: padded columns of the local slots, in slot order; source
        -1 = fill. Several chunks: over the flattened [C, ...] columns.
    """

    local_token_global_indices: Any = None
    original_seq_len: int | None = None
    padded_seq_len: int | None = None
    input_row_shape: tuple[int, ...] | None = None
    input_token_stream_positions: Any = None
    cp_rank: int | None = None
    cp_size: int | None = None
    batch_digest: int | None = None
    runs: NDArray[np.int64] | None = None


@dataclasses.dataclass(frozen=True)
class Cut:
    """How much of a stream a shard holds.

    extent: "local" (the rank's own slots), "padded" (all padded columns) or "whole" (not cut, the
        same for every rank).
    seq_axis: the axis of the shard's own tensor that was cut; without meaning where it is whole.
    """

    extent: str
    seq_axis: int


@dataclasses.dataclass(frozen=True, eq=False)
class TokenCounts:
    """real + pad = all that are counted. supervised: their label is not -100; None: not known."""

    real: int
    pad: int
    supervised: int | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class RankLoad:
    """What a rank has to work through: its slots, and query-key pairs under four masks (None where
    nothing tells rows or documents)."""

    tokens: TokenCounts
    causal_rows: float | None = None
    full_rows: float | None = None
    causal_documents: float | None = None
    full_documents: float | None = None


@dataclasses.dataclass(frozen=True)
class Notice:
    """A remark of a plan: `code` for programs, `text` for people."""

    code: str
    text: str


@dataclasses.dataclass(frozen=True, eq=False)
class Shard:
    """One rank's part of a batch.

    batch: name -> tensor [.., L, ..] or scalar, in the order that the layout gives them.
    cuts: name -> Cut, of the tensors.
    load: None where the layout gives no slots to ranks.
    executor: who made it, "cpu" or "cuda:0"; "": a server that does not say.
    """

    batch: dict[str, Any]
    layout: ShardLayout
    cuts: dict[str, Cut] = dataclasses.field(default_factory=dict)
    load: RankLoad | None = None
    executor: str = ""

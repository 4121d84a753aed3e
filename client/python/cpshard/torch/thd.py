"""Packed rows as one flat stream, cut per document as TransformerEngine cuts it: contract 4.7, with
5 and 6 (D5, D7, D8, D11, D16, D17)."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Optional

import torch

from ..errors import InvalidArgument
from ..types import ShardLayout
from . import mesh as meshes
from .batches import Batch, loss_mask_of, streams_of, without
from .layouts import shared_options, with_layout
from .shard_batch import Context
from .streams import shard_streams
from .token_maps import remember_as

STREAMS = frozenset(("input_ids", "labels", "position_ids", "seq_lens", "seq_lens_padded",
                     "padding_mask", "attention_mask", "qkv_format", "cu_seqlens",
                     "cu_seqlens_padded", "max_seqlen"))
INDICES = "_thd_local_indices"
SENTINEL = -1000


def shard_batch_thd(cp_mesh: Any, tp_mesh: Any, batch: Batch, *,
                    loss_mask: Optional[torch.Tensor] = None, padding_token_id: Optional[int] = 0,
                    num_chunks: int = 1) -> tuple[Context, Batch, Optional[ShardLayout]]:
    """Flattens rows [B, S] to a stream [T] and gives rank r two pieces of every document.

    Args:
        cp_mesh: None or a mesh of one: the stream is not cut.
        batch: `input_ids` [B, S] or [B, S, H], `labels`, `position_ids` [B, S], `seq_lens` and
            `seq_lens_padded` [B, D], filled up with -1000. Padded lengths are multiples of
            2 * cp_size and sum to S in every row. Not written to.
        num_chunks: above 1, rows are divided into so many streams, stacked on a new first axis.

    Returns:
        A null context factory; a new mapping with the local streams [L] (or [num_chunks, L]),
        `cu_seqlens`, `max_seqlen`, `padding_mask`, under a mesh of several `cp_size` and `cp_rank`,
        `_thd_local_indices` where there is one stream, and what the layout does not know; the
        layout, None with several chunks.

    Raises:
        The reference's kinds (contract 13): KeyError, TypeError, AttributeError, IndexError,
        RuntimeError; ValueError for lengths that do not fit (D5) and for a loss mask (D17).
    """
    streams = streams_of(batch, STREAMS)
    mask = loss_mask_of(batch, loss_mask)
    if mask is not None:
        streams["loss_mask"] = mask
    options = with_layout(shared_options(padding_token_id), "thd",
                          num_chunks=num_chunks if num_chunks > 1 else None)
    require(streams, meshes.size_of(cp_mesh))
    try:
        sharded = shard_streams(streams, options, cp_mesh)
    except InvalidArgument as error:
        raise _as_reference(error, streams, cp_mesh) from None
    # In chunks and on one rank no tensor that it does not know survives (contract 5.6; D16).
    all_tensors = num_chunks <= 1 or meshes.size_of(cp_mesh) > 1
    prepared = without(batch, STREAMS | {"loss_mask"}, tensors=all_tensors) | sharded.outputs
    return contextlib.nullcontext, prepared, _with_indices(sharded.layout, prepared.get(INDICES))


def _with_indices(layout: Optional[ShardLayout], indices: Optional[torch.Tensor]
                  ) -> Optional[ShardLayout]:
    """The layout reports the very tensor that the batch carries, int32 under a mesh (T36)."""
    if layout is None or indices is None:
        return layout
    return remember_as(dataclasses.replace(layout, local_token_global_indices=indices), layout)


def require(streams: Batch, cp_size: int) -> None:
    """KeyError, TypeError, AttributeError: what a packed batch is missing, as in the reference."""
    for name in ("input_ids", "labels"):
        if name not in streams:
            raise KeyError(f"{name}: a packed batch needs it to become a THD stream")
    if cp_size > 1 and "seq_lens" not in streams:
        raise TypeError("seq_lens: a packed batch is cut by documents, and without their lengths "
                        f"there are none to give to {cp_size} ranks")
    if cp_size > 1 and "position_ids" not in streams:
        raise AttributeError(f"position_ids: needed to cut a packed batch for {cp_size} ranks")


def _as_reference(error: InvalidArgument, streams: Batch, cp_mesh: Any) -> Exception:
    """The refusal as the kind of exception that the reference raises for this batch."""
    ids, lengths, positions = (streams.get(name) for name in
                               ("input_ids", "seq_lens", "position_ids"))
    cp_size = meshes.size_of(cp_mesh)
    assert ids is not None
    if ids.dim() >= 2 and ids.shape[0] * ids.shape[1] == 0:
        return RuntimeError(error.message)
    if lengths is not None and not bool((lengths != SENTINEL).any()):
        return IndexError(error.message)
    if cp_size > 1 and positions is not None and positions.dim() == 3:
        return IndexError(error.message)
    if cp_size > 1 and ids.dim() >= 2 and ids.shape[0] * ids.shape[1] % (2 * cp_size) != 0:
        return RuntimeError(error.message)
    return error

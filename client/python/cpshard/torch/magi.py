"""Sharding for MagiAttention by its dispatch formula: contract 7 (D3, D4, D5, D17).

What is made here is the batch and its layout. The attention of a model runs on MagiAttention, which
has a key of its own for every step; that key, and masks other than causal documents, are the
caller's.
"""

from __future__ import annotations

import contextlib
from typing import Any, Optional

import torch

from ..types import ShardLayout
from . import mesh as meshes
from .batches import Batch, loss_mask_of, streams_of, without
from .layouts import shared_options, with_layout
from .shard_batch import Context
from .streams import shard_streams
from .thd import STREAMS as PACKED_STREAMS
from .thd import require, shard_batch_thd

ROW_STREAMS = frozenset(("input_ids", "labels", "position_ids", "attention_mask"))


def shard_batch_magi(cp_mesh: Any, tp_mesh: Any, batch: Batch, *,
                     loss_mask: Optional[torch.Tensor] = None, padding_token_id: Optional[int] = 0,
                     custom: bool = False, domain: str = "llm", num_chunks: int = 1
                     ) -> tuple[Context, Batch, Optional[ShardLayout]]:
    """Gives every rank the chunks of the sequence that MagiAttention's solver gives it.

    Args:
        batch: of one row [1, S] (custom False), or packed as for `shard_batch_thd` (custom, with
            `qkv_format` thd; any other batch stays as it is). Not written to.
        custom: backend.attn is magi; False: the config's attention implementation is.
        domain: "llm" or "vlm".

    Returns:
        A null context factory, a new mapping, and the layout, whose indices are the true slots,
        pads among them (D3); None where nothing is dispatched.

    Raises:
        KeyError, TypeError, AttributeError: a packed batch without its streams.
        NotImplementedError: a `prefix_tree`; a vision model on several ranks. ValueError: not one
            row, lengths that do not fit, a loss mask.
    """
    if batch.get("prefix_tree") is not None:
        raise NotImplementedError("prefix_tree: its mask is made by MagiAttention, and chunks are "
                                  "dispatched by causal documents here; shard such a batch by the "
                                  "model's own framework")
    packed = custom and domain == "llm" and batch.get("qkv_format") == "thd"
    if custom and not packed:
        return contextlib.nullcontext, without(batch, ("prefix_tree",), tensors=True), None
    several = meshes.size_of(cp_mesh) > 1
    if packed and not several:  # converted, not dispatched
        rest = without(batch, ("prefix_tree",), tensors=True)
        context, prepared, _ = shard_batch_thd(
            cp_mesh, tp_mesh, rest, loss_mask=loss_mask, padding_token_id=padding_token_id,
            num_chunks=num_chunks)
        return context, prepared, None
    names = PACKED_STREAMS if packed else ROW_STREAMS
    streams = streams_of(batch, names)
    if packed:
        require(streams, meshes.size_of(cp_mesh))
    mask = loss_mask_of(batch, loss_mask)
    if mask is not None:
        streams["loss_mask"] = mask
    options = with_layout(shared_options(padding_token_id), "magi",
                          variant="CUSTOM" if custom else "HF", domain=domain.upper())
    sharded = shard_streams(streams, options, cp_mesh)
    kept = {} if packed else without(batch, {*names, "loss_mask", "prefix_tree"}, tensors=True)
    return contextlib.nullcontext, kept | sharded.outputs, sharded.layout

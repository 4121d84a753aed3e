"""A `shard_batch` callback for any layout of cpshard, by its options."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Mapping, Optional

import torch
from google.protobuf import json_format

from ..errors import error_of
from ..options import Options, options_of
from ..types import ShardLayout
from .batches import Batch, loss_mask_of
from .layouts import shared_options
from .records import assemble
from .ring_attention import ring_attention
from .shard_batch import Context
from .streams import shard_streams


def shard_batch_by(options: Options, *, records: Optional[Mapping[str, Callable[..., Any]]] = None
                   ) -> Callable[..., tuple[Context, Batch, Optional[ShardLayout]]]:
    """The callback that shards by these options, as a server would, with what a model's own adds:
    process group and record.

        sharder = ContextParallelSharder(
            device_mesh=mesh, shard_batch=shard_batch_by({"kimi": {"variant": "LINEAR"}}))

    It returns a new mapping: this rank's shard, and every entry that cannot travel as it is. What
    layouts expect of a model's attention is not set up, but for the ring attention of round robin.
    The option `model` counts as the layout that it resolves to.

    Args:
        options: ShardingOptions as mapping, JSON text, name of a layout, or message. Where they
            have no padding_token_id, the sharder's counts.
        records: see `records.assemble`.

    Raises:
        cpshard.Error: no such option. NotImplementedError: `block_diagonal`, whose attention reads
            the documents of a context that its framework alone makes.
    """
    message = options_of(options)
    given = str(message.WhichOneof("layout"))
    _require_no_context(given)
    fields = json_format.MessageToDict(message, preserving_proto_field_name=True)

    def shard_batch(cp_mesh: Any, tp_mesh: Any, batch: Batch, *,
                    loss_mask: Optional[torch.Tensor] = None,
                    padding_token_id: Optional[int] = 0
                    ) -> tuple[Context, Batch, Optional[ShardLayout]]:
        mask = loss_mask_of(batch, loss_mask)
        streams = {name: value for name, value in batch.items() if _travels(value)}
        if mask is not None:
            streams["loss_mask"] = mask
        sharded = shard_streams(streams, shared_options(padding_token_id) | fields, cp_mesh)
        layout = sharded.chosen or given
        _require_no_context(layout)
        kept = {} if layout == "glm_dsa" else {
            name: value for name, value in batch.items() if name not in streams}
        context = ring_attention(cp_mesh) if layout == "round_robin" else contextlib.nullcontext
        made = assemble(kept | sharded.outputs, layout, cp_mesh, records)
        return context, made, sharded.layout

    return shard_batch


def _require_no_context(layout: str) -> None:
    if layout == "block_diagonal":
        raise error_of("UNIMPLEMENTED", "block_diagonal: the attention of this layout reads "
                       "documents from a context that the model's framework makes; use its sharder")


def _travels(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, bool, int, float, str))

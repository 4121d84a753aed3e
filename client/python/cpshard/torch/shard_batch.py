"""The `shard_batch` callbacks of the layouts over rows [B, S]: contract 4.1 to 4.4, with the
decisions D1, D2, D5, D6, D8, D17 and D18 of its section 17.

Each takes the whole batch, the same on all ranks, and gives back a context factory for the forward,
the batch with this rank's shard in it (the same mapping, written to), and the layout. Nothing is
exchanged, and no tensor of the caller is written to. Streams that a layout does not know stay in
the batch as they are, and so does everything that is no tensor.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Mapping, Optional

import torch

from ..errors import invalid
from ..types import ShardLayout
from .batches import Batch, loss_mask_of, put, require_one_primary, streams_of
from .layouts import extra_streams, int_or_none, shared_options, with_layout
from .ring_attention import ring_attention
from .streams import LARGE, PRIMARIES, shard_streams

Context = Callable[[], ContextManager[Any]]
Result = tuple[Context, Batch, Optional[ShardLayout]]

ROW_STREAMS = frozenset(("input_ids", "inputs_embeds", "labels", "position_ids", "padding_mask",
                         "attention_mask"))
# Of these an extra stream changes nothing, its axis included (C21); nor of a primary that is cut.
HANDLED_STREAMS = frozenset(("labels", "position_ids", "loss_mask", "padding_mask"))
# What a batch has that keeps documents apart, which round robin cannot (D18).
DOCUMENT_STREAMS = frozenset(("seq_lens", "seq_lens_padded", "cu_seqlens", "cu_seqlens_padded",
                              "_packed_seq_ids", "qkv_format"))


def shard_batch_identity(cp_mesh: Any, tp_mesh: Any, batch: Batch, *,
                         loss_mask: Optional[torch.Tensor] = None,
                         padding_token_id: Optional[int] = 0) -> Result:
    """Every entry as it is. A loss mask that is given is returned under `loss_mask` (D17).

    The layout has original_seq_len = padded_seq_len = axis 1 of the primary stream; None where that
    is missing or has fewer than two axes.
    """
    mask = loss_mask_of(batch, loss_mask)
    if mask is not None:
        batch["loss_mask"] = mask
    primary = next((batch[name] for name in ("inputs_embeds", "input_ids")
                    if batch.get(name) is not None), None)
    if primary is None or primary.dim() < 2:
        return contextlib.nullcontext, batch, None
    length = primary.shape[1]
    return contextlib.nullcontext, batch, ShardLayout(original_seq_len=length,
                                                      padded_seq_len=length)


def convert_attention_mask_to_padding_mask(batch: Batch) -> None:
    """Takes `attention_mask` out and derives `padding_mask`, bool [B, S], True = padding, unless
    the batch has one (contract 2.5).

    A mask [B, S] of any dtype: zero is padding. [B, H, Q, K]: the diagonal of head 0; in a bool
    mask False is padding, in a floating one, which is added to scores, all but 0.

    ValueError: a 4-D mask of integers, which may be meant either way (D6).
    """
    mask = batch.get("attention_mask")
    if mask is not None and batch.get("padding_mask") is None:
        batch["padding_mask"] = _padding_of(mask)
    batch.pop("attention_mask", None)


def _padding_of(mask: torch.Tensor) -> torch.Tensor:
    if mask.ndim != 4:
        return mask.bool().logical_not()
    if mask.dtype != torch.bool and not mask.dtype.is_floating_point:
        raise invalid(f"stream 'attention_mask' {list(mask.shape)} of {mask.dtype}: integers of "
                      "four axes may be added to scores or say what is attended; send bool or "
                      "floats")
    diagonal = torch.diagonal(mask[:, 0], dim1=-2, dim2=-1)
    return diagonal.logical_not() if mask.dtype == torch.bool else diagonal != 0


def shard_batch_contiguous(cp_mesh: Any, tp_mesh: Any, batch: Batch, *,
                           loss_mask: Optional[torch.Tensor] = None,
                           padding_token_id: Optional[int] = 0, pad_multiple: Optional[int] = 1,
                           extra_seq_keys: Optional[Mapping[str, int]] = None,
                           extra_pad_values: Optional[Mapping[str, Any]] = None,
                           shard_primary: bool = True) -> Result:
    """Pads rows to a multiple of cp_size * max(pad_multiple, 2) and gives rank r the r-th slice.

    Args:
        cp_mesh: of any size, one included; it pads there too.
        batch: `input_ids` [B, S] or `inputs_embeds` [B, S, H]; `labels` [B, S]; `position_ids`
            [B, S], [1, S] or [axes, B, S], made where they are missing; `padding_mask` [B, S];
            `attention_mask` becomes a padding mask.
        loss_mask: [B, S], returned under `loss_mask`; becomes the labels where the batch has none.
        extra_seq_keys: further streams and their sequence axes, padded with extra_pad_values or 0.
        shard_primary: False leaves the primary stream whole and unpadded.

    Raises:
        AssertionError: no primary stream, or two. KeyError: neither labels nor a loss mask.
        ValueError: a stream of another shape; the text names it.
    """
    require_one_primary(batch)
    mask = loss_mask_of(batch, loss_mask)
    if batch.get("labels") is None and mask is None:
        raise KeyError("Context parallelism requires `labels` in the batch, or labels passed as "
                       "`loss_mask`.")
    options = with_layout(
        shared_options(padding_token_id, extra_streams(extra_seq_keys, extra_pad_values)),
        "contiguous", pad_multiple=int_or_none(pad_multiple),
        keep_primary_full=None if shard_primary else True)
    layout = _shard_rows(cp_mesh, batch, mask, options, extra_seq_keys, shard_primary)
    return contextlib.nullcontext, batch, layout


def shard_batch_load_balanced(cp_mesh: Any, tp_mesh: Any, batch: Batch, *,
                              loss_mask: Optional[torch.Tensor] = None,
                              padding_token_id: Optional[int] = 0,
                              extra_seq_buffers: Optional[Mapping[str, int]] = None) -> Result:
    """Pads rows to a multiple of 2 * cp_size and gives rank r the chunks r and 2 * cp_size - 1 - r.

    The shards are there when this returns (D1). Inside the context that the factory makes torch's
    scaled_dot_product_attention is ring attention over the group.

    Args:
        batch: as `shard_batch_contiguous`; labels are a must, an attention mask is dropped.
        loss_mask: [B, S], returned under `loss_mask` (D2).
        padding_token_id: not used; input_ids are padded with 0.
        extra_seq_buffers: further streams and their sequence axes, padded with 0.

    Raises:
        AssertionError: no primary stream, or two. KeyError: no labels, or an extra that is missing.
        ValueError: a stream of another shape; a batch with documents, which need a layout that
            keeps them apart (D18).
    """
    layout = _shard_round_robin(cp_mesh, batch, loss_mask, extra_seq_buffers, shard_primary=True)
    return ring_attention(cp_mesh), batch, layout


def shard_batch_aux_only(cp_mesh: Any, tp_mesh: Any, batch: Batch, *,
                         loss_mask: Optional[torch.Tensor] = None,
                         padding_token_id: Optional[int] = 0,
                         extra_seq_buffers: Optional[Mapping[str, int]] = None) -> Result:
    """As `shard_batch_load_balanced`, but the primary stream stays whole and unpadded: the model
    embeds it and shards it by `shard_sequence_for_cp_round_robin`, to layout.padded_seq_len."""
    layout = _shard_round_robin(cp_mesh, batch, loss_mask, extra_seq_buffers, shard_primary=False)
    return ring_attention(cp_mesh), batch, layout


def _shard_round_robin(cp_mesh: Any, batch: Batch, loss_mask: Optional[torch.Tensor],
                       extras: Optional[Mapping[str, int]], shard_primary: bool) -> ShardLayout:
    require_one_primary(batch)
    if batch.get("labels") is None:
        raise KeyError("labels: round robin needs them in the batch; a loss mask does not stand in")
    for name in extras or {}:
        if batch.get(name) is None:
            raise KeyError(f"Extra CP sequence buffer {name!r} is missing from the batch")
    options = with_layout(shared_options(None, extra_streams(extras)), "round_robin",
                          keep_primary_full=None if shard_primary else True)
    return _shard_rows(cp_mesh, batch, loss_mask_of(batch, loss_mask), options, extras,
                       shard_primary, DOCUMENT_STREAMS)


def _shard_rows(cp_mesh: Any, batch: Batch, loss_mask: Optional[torch.Tensor],
                options: dict[str, Any], extras: Optional[Mapping[str, int]], shard_primary: bool,
                more: frozenset[str] = frozenset()) -> ShardLayout:
    """Shards the streams that the layout knows, and writes them into the batch."""
    streams = streams_of(batch, ROW_STREAMS | more | set(extras or {}))
    if loss_mask is not None:
        streams["loss_mask"] = loss_mask
    if "contiguous" not in options:
        streams.pop("attention_mask", None)  # dropped unread, whatever its size
    elif _is_compared_here(streams.get("attention_mask")):
        convert_attention_mask_to_padding_mask(streams)  # where it is
    sharded = shard_streams(streams, options, cp_mesh, _axes(extras or {}, shard_primary))
    put(batch, sharded, {"attention_mask", *streams})
    assert sharded.layout is not None  # layouts over rows have one
    return sharded.layout


def _axes(extras: Mapping[str, int], shard_primary: bool) -> dict[str, int]:
    """Sequence axes of the streams that may have any shape behind them."""
    handled = HANDLED_STREAMS.union(PRIMARIES if shard_primary else ())
    axes = {"inputs_embeds": 1} | {name: axis for name, axis in extras.items()
                                   if name not in handled}
    # Rows are counted on axis 1 of the primary: no shape of it may end before that.
    return {name: axis for name, axis in axes.items() if name not in PRIMARIES or axis >= 1}


def _is_compared_here(mask: Any) -> bool:
    """Not to be fetched, or not to be planned with; what comes of it has no gradient."""
    return isinstance(mask, torch.Tensor) and (
        mask.device.type != "cpu" or mask.nbytes >= LARGE or mask.requires_grad)

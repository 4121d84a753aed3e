"""DeepSeek V4.1: packed or plain rows, cut contiguously (contract 4.9; D5, D8, D14, D17, D19)."""

from __future__ import annotations

import contextlib
from typing import Any, Optional

import torch
import torch.distributed as dist

from ..errors import invalid
from ..types import ShardLayout
from .batches import Batch, loss_mask_of, put, streams_of
from .layouts import int_or_none, shared_options, with_layout
from .shard_batch import Context
from .streams import row_need, shard_streams
from .token_verbs import gather_sequence

__all__ = ["gather_sequence", "shard_cp_batch"]

STREAMS = frozenset(("input_ids", "labels", "position_ids", "padding_mask", "attention_mask",
                     "packed_seq_ids", "seq_lens", "seq_lens_padded", "qkv_format"))
REFUSED = ("pixel_values", "inputs_embeds", "cu_seqlens")  # to be refused by name, or handed on


def shard_cp_batch(cp_mesh: Any, tp_mesh: Any, batch: Batch, *,
                   loss_mask: Optional[torch.Tensor] = None, padding_token_id: Optional[int] = 0,
                   pad_multiple: int = 1, packed_alignment: int = 1,
                   sync_packed_length: bool = False) -> tuple[Context, Batch, ShardLayout]:
    """Lays packed documents out at multiples of `packed_alignment`, pads rows to a multiple of
    cp_size * max(pad_multiple, 2), and gives rank r the r-th slice.

    Args:
        cp_mesh: None: documents are laid out, nothing is padded or cut.
        batch: `input_ids`, `labels` [B, S]; packed rows also have `seq_lens` [B, D], perhaps
            `seq_lens_padded` [B, D]; others perhaps `attention_mask` or `padding_mask` [B, S].
            Afterwards it holds the local tensors [B, L], `attention_mask` (True = valid),
            `packed_seq_ids` where rows were packed, and `cp_group`.
        loss_mask: [B, S], returned under `loss_mask`.
        padding_token_id: None is 0.
        sync_packed_length: agree with all ranks of the job on the longest row of packed ones: a
            collective over the default group. A batch that is refused on one rank is refused on
            all.

    Returns:
        A null context factory, the batch (written to), and the layout; of packed rows it has the
        position of every token, int64 [B, S].

    Raises:
        KeyError: no input_ids; under a mesh, neither labels nor a loss mask. ValueError: embeddings
            or pixels, documents that do not fit, a stream of another shape.
    """
    synced = sync_packed_length and batch.get("seq_lens") is not None and dist.is_initialized()
    try:
        streams = _streams(batch, cp_mesh, loss_mask)
        options = with_layout(
            shared_options(0 if padding_token_id is None else padding_token_id), "deepseek_v41",
            pad_multiple=int_or_none(pad_multiple), packed_alignment=packed_alignment)
        need = row_need(streams, options, cp_mesh) if synced else None
    except Exception:
        if synced:  # the others wait for this rank
            _longest_row(None, _device_of(batch))
        raise
    if synced:
        options |= {"min_padded_len": _longest_row(need or 0, _device_of(batch))}
    sharded = shard_streams(streams, options, cp_mesh)
    put(batch, sharded, {"padding_mask", *streams})
    batch["cp_group"] = None if cp_mesh is None else cp_mesh.get_group()
    assert sharded.layout is not None
    return contextlib.nullcontext, batch, sharded.layout


def _streams(batch: Batch, cp_mesh: Any, loss_mask: Optional[torch.Tensor]) -> Batch:
    mask = loss_mask_of(batch, loss_mask)
    _require(batch, cp_mesh, mask)
    streams = streams_of(batch, STREAMS | set(REFUSED))
    if mask is not None:
        streams["loss_mask"] = mask
    if "seq_lens" not in streams:
        streams.pop("packed_seq_ids", None)  # not its own here
    return streams


def _require(batch: Batch, cp_mesh: Any, loss_mask: Optional[torch.Tensor]) -> None:
    if any(batch.get(name) is not None for name in ("pixel_values", "inputs_embeds")):
        return  # refused for these
    if batch.get("input_ids") is None:
        raise KeyError("input_ids: DeepSeek V4.1 shards text, and the batch has none")
    if cp_mesh is not None and batch.get("labels") is None and loss_mask is None:
        raise KeyError("Context parallelism requires `labels` in the batch, or labels passed as "
                       "`loss_mask`.")


def _device_of(batch: Batch) -> Any:
    ids = batch.get("input_ids")
    return (batch["seq_lens"] if ids is None else ids).device


def _longest_row(need: Optional[int], device: Any) -> int:
    """Columns of the longest row of all ranks of the job: a collective over the default group.

    Args:
        need: of this rank's rows; None: they are refused here, and the caller says why.

    Raises:
        InvalidArgument: those of another rank are.
    """
    refusing = dist.get_rank() + 1 if need is None else 0
    agreed = torch.tensor([need or 0, refusing], device=device)
    dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
    longest, refused = agreed.tolist()
    if refused and need is not None:
        raise invalid(f"rank {refused - 1} of the job refuses its batch, so the ranks cannot agree "
                      "on the longest packed row (sync_packed_length): its own error says why")
    return int(longest)

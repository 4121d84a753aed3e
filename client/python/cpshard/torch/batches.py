"""What the sharding functions do with the batch mapping itself."""

from __future__ import annotations

from typing import Any, Collection, MutableMapping

import torch

from .streams import Sharded

Batch = MutableMapping[str, Any]


def require_one_primary(batch: Batch) -> str:
    """The name of the primary stream. AssertionError: there is none, or both are there."""
    names = [name for name in ("inputs_embeds", "input_ids") if batch.get(name) is not None]
    if len(names) != 1:
        raise AssertionError("the CP dispatch requires exactly one of 'inputs_embeds' or "
                             f"'input_ids' in the batch; it has {' and '.join(names) or 'neither'}")
    return names[0]


def loss_mask_of(batch: Batch, loss_mask: Any) -> Any:
    """The one loss mask: the argument, or the batch's entry of that name (D17).

    ValueError: both, and they are not the same tensor.
    """
    resident = batch.get("loss_mask")
    if loss_mask is None or resident is None or resident is loss_mask:
        return resident if loss_mask is None else loss_mask
    raise ValueError("loss_mask is given as an argument and in the batch; a stream of that name is "
                     "the argument here: take one of them away")


def streams_of(batch: Batch, names: Collection[str]) -> dict[str, Any]:
    """The entries of those names that are there, in the order of the batch. Everything else in a
    batch is none of the layout's: process groups, records and media stay as they are."""
    return {name: value for name, value in batch.items() if name in names and value is not None}


def put(batch: Batch, sharded: Sharded, streams: Collection[str]) -> None:
    """Writes a shard into the batch; of `streams` what the layout does not hand on is taken out."""
    for name in streams:
        if name not in sharded.outputs:
            batch.pop(name, None)
    batch.update(sharded.outputs)


def without(batch: Batch, names: Collection[str], tensors: bool) -> dict[str, Any]:
    """A new mapping of the entries but those, for layouts that return one; `tensors`: False leaves
    out all other tensors too."""
    return {name: value for name, value in batch.items()
            if name not in names and (tensors or not isinstance(value, torch.Tensor))}

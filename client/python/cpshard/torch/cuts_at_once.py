"""Cutting the streams of a batch that lie on a GPU: all that are cut alike by one launch, in the
order of torch's current stream.

Where the library cannot do it - it was built without CUDA, the driver is older than what it was
built with, the GPU is one that it has no machine code for, torch has taken all memory - ATen does,
stream by stream, to the same bytes; the log "cpshard" says once a device why.
"""

from __future__ import annotations

import logging
from typing import Mapping

import torch

from .. import embedded
from .native import ops

_log = logging.getLogger("cpshard")
_said: set[tuple[torch.device, type]] = set()


def cut_at_once(sources: Mapping[str, tuple[embedded.Cut, torch.Tensor]]
                ) -> dict[str, torch.Tensor]:
    """Those of the outputs that are made at once, slots on the axis of their cut; chunks are not
    taken apart yet. The others, which may be all, are for ATen.

    Args:
        sources: of each output its cut and the tensor that it is cut from, in the cut's shape.
    """
    alike: dict[tuple[torch.device, bytes], list[str]] = {}
    for name, (cut, tensor) in sources.items():
        if _is_of_one_map(cut) and _is_on_gpu(tensor):
            alike.setdefault((tensor.device, cut.runs.tobytes()), []).append(name)
    made: dict[str, torch.Tensor] = {}
    for (device, _), names in alike.items():
        cuts = [sources[name][0] for name in names]
        try:
            shards = ops.shard_streams([sources[name][1] for name in names],
                                       torch.from_numpy(cuts[0].runs), [cut.axis for cut in cuts],
                                       [cut.fill for cut in cuts])
        except (NotImplementedError, torch.OutOfMemoryError) as error:
            _say_once(device, error)
        else:
            made |= zip(names, shards)
    return made


def _is_of_one_map(cut: embedded.Cut) -> bool:
    return cut.extent != "whole" and cut.rows == 1


def _is_on_gpu(tensor: torch.Tensor) -> bool:
    """And no gradient is to go through."""
    return tensor.device.type == "cuda" and not tensor.requires_grad


def _say_once(device: torch.device, error: Exception) -> None:
    """A device may refuse at every batch, or be out of memory at one alone."""
    if (device, type(error)) in _said:
        return
    _said.add((device, type(error)))
    _log.warning("batches on %s are cut by torch, stream by stream: %s", device,
                 str(error).partition("\n")[0])

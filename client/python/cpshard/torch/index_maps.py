"""The closed-form index maps: local slot <- global padded column (contract 2.7).

Each is int64, one-dimensional, and the same function of the mesh and the padded length on every
rank, so that whoever holds such a map knows those of all ranks: a gather by it needs no exchange of
indices. An index tensor that was made here remembers what it is (`closed_form_of`).
"""

from __future__ import annotations

import sys
from typing import Any, Callable, NamedTuple, Optional

import torch

from . import mesh as meshes

REFERENCE_MODULE = "nemo_automodel.components.distributed.context_parallel.sharder"


class ClosedForm(NamedTuple):
    """A map of all ranks: `name` is identity, contiguous or round_robin."""

    name: str
    padded_seq_len: int
    cp_size: int


def state_of(tensor: torch.Tensor) -> Optional[tuple[int, int]]:
    """Another one once the tensor is written to, or `.data` assigned; None: nothing counts that
    (inference mode). What is written through `.numpy()` nothing counts either: copy such a tensor.
    """
    return None if tensor.is_inference() else (tensor._version, tensor.data_ptr())


def _remember(indices: torch.Tensor, form: ClosedForm) -> torch.Tensor:
    if not torch.compiler.is_compiling():
        tag = (form, state_of(indices))
        indices._cpshard_closed_form = tag  # type: ignore[attr-defined]
    return indices


def closed_form_of(indices: torch.Tensor) -> Optional[ClosedForm]:
    """What an index tensor of this module is, as long as it is the tensor that was returned and
    was not written to; None for a copy of it and for everybody else's. Alike on all ranks that run
    the same program."""
    form, state = getattr(indices, "_cpshard_closed_form", (None, None))
    return None if state is None or state != state_of(indices) else form


def name_of(index_map: Optional[Callable[..., torch.Tensor]]) -> Optional[str]:
    """The name of a closed-form map, of this module or the reference's; None for another one,
    whatever it is called."""
    reference = sys.modules.get(REFERENCE_MODULE)
    return next((name for name, function in _MAPS.items() if index_map is not None and index_map in
                 (function, getattr(reference, function.__name__, None))), None)


def identity_local_indices(cp_mesh: Any, padded_seq_len: int,
                           device: Optional[torch.device] = None) -> torch.Tensor:
    """All columns, 0 ... padded_seq_len - 1, int64 [padded_seq_len]; the mesh is not looked at."""
    indices = torch.arange(padded_seq_len, device=device, dtype=torch.long)
    return _remember(indices, ClosedForm("identity", padded_seq_len, 1))


def contiguous_local_indices(cp_mesh: Any, padded_seq_len: int,
                             device: Optional[torch.device] = None) -> torch.Tensor:
    """The columns r * L ... (r + 1) * L - 1 of rank r, int64 [L], L = padded_seq_len / cp_size.

    ValueError: the length is not divisible by cp_size.
    """
    cp_size = cp_mesh.size()
    if padded_seq_len % cp_size != 0:
        raise ValueError(f"padded_seq_len must be divisible by cp_size, got {padded_seq_len} "
                         f"columns for cp_size {cp_size}; pad the sequence to a multiple of it")
    length = padded_seq_len // cp_size
    start = meshes.rank_of(cp_mesh) * length
    indices = torch.arange(start, start + length, device=device, dtype=torch.long)
    return _remember(indices, ClosedForm("contiguous", padded_seq_len, cp_size))


def round_robin_local_indices(cp_mesh: Any, padded_seq_len: int,
                              device: Optional[torch.device] = None) -> torch.Tensor:
    """Of 2 * cp_size equal chunks rank r has chunk r, then chunk 2 * cp_size - 1 - r; int64
    [padded_seq_len / cp_size].

    ValueError: the length is not divisible by 2 * cp_size.
    """
    cp_size = cp_mesh.size()
    if padded_seq_len % (2 * cp_size) != 0:
        raise ValueError(f"padded_seq_len must be divisible by 2 * cp_size, got {padded_seq_len} "
                         f"columns for cp_size {cp_size}; pad the sequence to a multiple of "
                         f"{2 * cp_size}")
    chunk = padded_seq_len // (2 * cp_size)
    rank = meshes.rank_of(cp_mesh)
    tail_start = (2 * cp_size - 1 - rank) * chunk
    head = torch.arange(rank * chunk, (rank + 1) * chunk, device=device, dtype=torch.long)
    tail = torch.arange(tail_start, tail_start + chunk, device=device, dtype=torch.long)
    return _remember(torch.cat((head, tail)), ClosedForm("round_robin", padded_seq_len, cp_size))


_MAPS = {"identity": identity_local_indices, "contiguous": contiguous_local_indices,
         "round_robin": round_robin_local_indices}

"""Token maps: which rank and slot every column of a gathered tensor comes from.

Where the maps of all ranks are known - closed forms, and layouts that were planned here - a token
map is made on the host without any exchange, and a gather by it is one collective. Index tensors
that were made elsewhere are gathered once for as long as they live.
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from typing import Any, Iterable, Optional, Sequence

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.utils.weak import WeakIdKeyDictionary

from ..types import ShardLayout
from . import mesh as meshes
from .index_maps import ClosedForm, closed_form_of, version_of
from .native import ops

Runs = NDArray[np.int64]  # [n, 2]: first padded column and length, in slot order
KEPT = 8  # closed forms whose maps are kept; one costs 8 bytes a column


@dataclasses.dataclass(frozen=True, eq=False)
class TokenMap:
    """A map of all ranks of a group.

    order: int64 [columns], rank * max(sizes) + slot of every column, on the device of the tensors
        that are gathered.
    moves: int64 CPU [m, 4], the same as runs: rank, slot, column, length.
    sizes: local slots of each rank.
    """

    order: torch.Tensor
    moves: torch.Tensor
    sizes: tuple[int, ...]

    @property
    def columns(self) -> int:
        return int(self.order.shape[0])

    def to(self, device: torch.device) -> TokenMap:
        return self if self.order.device == device else dataclasses.replace(
            self, order=self.order.to(device))


def of_runs(ranks: Sequence[Runs]) -> TokenMap:
    """From the runs of every rank, fill runs (source -1) left out by the caller's layout.

    ValueError: together they do not cover the columns 0 ... n - 1 once.
    """
    rows = [np.column_stack((np.full(len(runs), rank), runs)) for rank, runs in enumerate(ranks)]
    table = torch.from_numpy(np.concatenate(rows).astype(np.int64).reshape(-1, 3))
    sizes = [int(runs[:, 1].sum()) for runs in ranks]
    order, moves = ops.token_map(table, sizes, sum(sizes))
    return TokenMap(order, moves, tuple(sizes))


def of_closed_form(form: ClosedForm, device: torch.device) -> TokenMap:
    """Of a map that is the same function on every rank; kept for the next tensor of this length."""
    return _of_closed_form(form, str(device))


@functools.lru_cache(maxsize=KEPT)
def _of_closed_form(form: ClosedForm, device: str) -> TokenMap:
    name, columns, cp_size = form
    if name == "round_robin":
        chunk = columns // (2 * cp_size)
        ranks = [[(rank * chunk, chunk), ((2 * cp_size - 1 - rank) * chunk, chunk)]
                 for rank in range(cp_size)]
    else:
        length = columns // cp_size
        ranks = [[(rank * length, length)] for rank in range(cp_size)]
    return of_runs([np.array(runs, np.int64) for runs in ranks]).to(torch.device(device))


def of_indices(indices: torch.Tensor, cp_mesh: Any) -> TokenMap:
    """From this rank's indices alone, int64 [L] on the device of the tensors: a collective. Ties
    keep the order of ranks; every rank must have as many (contract 9.3)."""
    parts = [torch.empty_like(indices) for _ in range(cp_mesh.size())]
    dist.all_gather(parts, indices.contiguous(), group=cp_mesh.get_group())
    order = torch.argsort(torch.cat(parts), stable=True)
    sizes = (indices.shape[0],) * cp_mesh.size()
    return TokenMap(order, ops.moves_of(order.cpu(), sizes), sizes)


# What was exchanged already, by the very tensor that was given; alike on all ranks, as long as they
# run the same program.
_exchanged: Any = WeakIdKeyDictionary()


def of_foreign(indices: torch.Tensor, cp_mesh: Any, device: torch.device) -> TokenMap:
    """`of_indices`, exchanged once for a tensor as long as it lives and is not written to.

    Args:
        indices: of any shape and integer type, flattened.
    """
    state = (meshes.group_name_of(cp_mesh), version_of(indices))
    known = _exchanged.get(indices)
    if known is not None and known[0] == state:
        return known[1].to(device)  # type: ignore[no-any-return]
    flat = indices.reshape(-1).to(device=device, dtype=torch.long)
    made = of_indices(flat, cp_mesh)
    if state[1] is not None:
        _exchanged[indices] = (state, made)
    return made


def of_any(indices: torch.Tensor, cp_mesh: Any, device: torch.device) -> TokenMap:
    """Without an exchange for an index tensor of this package, with one for anybody else's."""
    form = closed_form_of(indices)
    if form is not None and form.cp_size == cp_mesh.size():
        return of_closed_form(form, device)
    return of_foreign(indices, cp_mesh, device)


# The runs of all ranks, of layouts that were planned here.
_planned: weakref.WeakKeyDictionary[ShardLayout, _Planned] = weakref.WeakKeyDictionary()


@dataclasses.dataclass(eq=False)
class _Planned:
    ranks: list[Runs]
    made: Optional[TokenMap] = None


def remember(layout: ShardLayout, ranks: Iterable[ShardLayout]) -> ShardLayout:
    """Notes the layouts of all ranks of the plan that `layout` is of. Returns `layout`."""
    remember_runs(layout, [np.asarray(rank.runs) for rank in ranks])
    return layout


def remember_runs(layout: ShardLayout, ranks: list[Runs]) -> None:
    """Notes the runs of all ranks of the batch that `layout` is of."""
    _planned[layout] = _Planned(ranks)


def remember_as(layout: ShardLayout, other: ShardLayout) -> ShardLayout:
    """Notes that `layout` is of the same plan as `other`. Returns `layout`."""
    if other in _planned:
        _planned[layout] = _planned[other]
    return layout


def of_layout(layout: ShardLayout, device: torch.device) -> Optional[TokenMap]:
    """The map of a layout that was planned here, made when it is first asked for; else None."""
    planned = _planned.get(layout) if isinstance(layout, ShardLayout) else None
    if planned is None:
        return None
    if planned.made is None:
        planned.made = of_runs(planned.ranks)
    planned.made = planned.made.to(device)
    return planned.made

"""Token maps: which rank and slot every column of a gathered tensor comes from.

Where the maps of all ranks are known - closed forms, and layouts that were planned here - a token
map is made on the host without any exchange, and a gather by it is one collective. Index tensors
that were made elsewhere are gathered once for as long as they live.

What looks a map up is left out of graphs by torch.compile; a compiled function takes a TokenLayout.
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from typing import Any, Callable, Optional, Sequence, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.utils.weak import WeakIdKeyDictionary

from ..types import ShardLayout
from . import mesh as meshes
from .index_maps import ClosedForm, closed_form_of, state_of
from .native import ops

Runs = NDArray[np.int64]  # [n, 2]: first padded column and length, in slot order
KEPT = 8  # maps of few runs that are kept; one costs 8 bytes a column

_Function = TypeVar("_Function", bound=Callable[..., Any])


def untraced(function: _Function) -> _Function:
    """Left out of graphs: torch.compile breaks one there, and goes on behind."""
    return cast(_Function, torch.compiler.disable(function))


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


def columns_of(runs: Runs) -> NDArray[np.int64]:
    """[L] of runs [n, 2]: the column of every slot, -1 = fill."""
    starts, lengths = runs[:, 0], runs[:, 1]
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    spread = np.repeat(starts, lengths)
    return np.where(spread < 0, -1, spread + within)


def of_runs(ranks: Sequence[Runs], device: torch.device) -> TokenMap:
    """From the runs of every rank. One of few runs, as closed forms have them, is kept for the next
    batch of the same length.

    ValueError: together they do not cover the columns 0 ... n - 1 once.
    """
    counts = tuple(len(runs) for runs in ranks)
    table = np.concatenate(ranks).astype(np.int64).tobytes()
    make = _of_table if sum(counts) <= 2 * len(ranks) else _of_table.__wrapped__
    return make(table, counts, str(device))


@functools.lru_cache(maxsize=KEPT)
def _of_table(table: bytes, counts: tuple[int, ...], device: str) -> TokenMap:
    runs = np.frombuffer(table, np.int64).reshape(-1, 2)
    rows = torch.from_numpy(np.column_stack((np.repeat(np.arange(len(counts)), counts), runs)))
    ends = np.cumsum(counts)
    sizes = [int(runs[end - count:end, 1].sum()) for count, end in zip(counts, ends)]
    order, moves = ops.token_map(rows, sizes, sum(sizes))
    return TokenMap(order, moves, tuple(sizes)).to(torch.device(device))


@untraced
def of_closed_form(form: ClosedForm, device: torch.device) -> TokenMap:
    """Of a map that is the same function on every rank; kept for the next tensor of this length.

    ValueError: identity, which gives all columns to each of several ranks.
    """
    return _of_closed_form(form, str(device))


@functools.lru_cache(maxsize=KEPT)
def _of_closed_form(form: ClosedForm, device: str) -> TokenMap:
    name, columns, cp_size = form
    if name == "identity" and cp_size > 1:
        raise ValueError(f"identity_local_indices gives every column to each of {cp_size} ranks, "
                         "and a gather takes it once: give the index map that the batch was "
                         "sharded by")
    if name == "round_robin":
        chunk = columns // (2 * cp_size)
        ranks = [[(rank * chunk, chunk), ((2 * cp_size - 1 - rank) * chunk, chunk)]
                 for rank in range(cp_size)]
    else:
        length = columns // cp_size
        ranks = [[(rank * length, length)] for rank in range(cp_size)]
    return of_runs([np.array(runs, np.int64) for runs in ranks], torch.device(device))


@untraced
def of_indices(indices: torch.Tensor, cp_mesh: Any) -> TokenMap:
    """From this rank's indices alone, int64 [L] on the device of the tensors: a collective. Ties
    keep the order of ranks; every rank must have as many (contract 9.3)."""
    parts = [torch.empty_like(indices) for _ in range(cp_mesh.size())]
    dist.all_gather(parts, indices.contiguous(), group=cp_mesh.get_group())
    order = torch.argsort(torch.cat(parts), stable=True)
    sizes = (indices.shape[0],) * cp_mesh.size()
    return TokenMap(order, ops.moves_of(order.cpu(), sizes), sizes)


# What was exchanged already, by the very tensor that was given, then by group; alike on all ranks
# of a group, as long as they run the same program there.
_exchanged: Any = WeakIdKeyDictionary()


@untraced
def of_foreign(indices: torch.Tensor, cp_mesh: Any, device: torch.device) -> TokenMap:
    """`of_indices`, exchanged once for a tensor as long as it lives and is not written to (see
    `state_of`).

    Args:
        indices: of any shape and integer type, flattened.
    """
    group, state = meshes.group_name_of(cp_mesh), state_of(indices)
    known = _exchanged.get(indices, {}).get(group)
    if known is not None and known[0] == state:
        return known[1].to(device)  # type: ignore[no-any-return]
    flat = indices.reshape(-1).to(device=device, dtype=torch.long)
    made = of_indices(flat, cp_mesh)
    if state is not None:
        _exchanged.setdefault(indices, {})[group] = (state, made)
    return made


@untraced
def of_any(indices: torch.Tensor, cp_mesh: Any, device: torch.device) -> TokenMap:
    """Without an exchange for an index tensor of this package, with one for anybody else's."""
    form = closed_form_of(indices)
    if form is not None and form.cp_size == cp_mesh.size():
        return of_closed_form(form, device)
    return of_foreign(indices, cp_mesh, device)


# --- one rank ------------------------------------------------------------------------------------
# It has nobody to ask, and its slots may still be in another order than the columns.

def order_of_one(columns: NDArray[np.int64]) -> Optional[torch.Tensor]:
    """The slot of every column, int64 [n], of a rank that has the columns 0 ... n - 1. None: they
    stand in their order; or it has others, as one of several ranks whose mesh is not known."""
    every = np.arange(len(columns))
    if (columns == every).all():
        return None
    order = columns.argsort(kind="stable")
    return torch.from_numpy(order) if (columns[order] == every).all() else None


def in_column_order(tensor: torch.Tensor, order: torch.Tensor, dim: int) -> torch.Tensor:
    """The full tensor from the slots of the one rank; differentiable.

    ValueError: it has another number of slots. IndexError: no such axis.
    """
    if tensor.shape[dim] != order.shape[0]:
        raise ValueError(f"a tensor of shape {list(tensor.shape)} has {tensor.shape[dim]} slots on "
                         f"axis {dim}, the map has {order.shape[0]}; it does not match the batch "
                         "that was sharded")
    return tensor.index_select(dim, order.to(tensor.device))


# --- layouts -------------------------------------------------------------------------------------

@dataclasses.dataclass(eq=False)
class _Planned:
    """The runs of all ranks, and what was made of them when it was first asked for."""

    ranks: Callable[[], Sequence[Runs]]
    indices: Optional[torch.Tensor] = None  # of this rank
    made: Optional[TokenMap] = None


_planned: weakref.WeakKeyDictionary[ShardLayout, _Planned] = weakref.WeakKeyDictionary()


def remember(layout: ShardLayout, ranks: Callable[[], Sequence[Runs]]) -> ShardLayout:
    """Notes how to get the runs of all ranks of the batch that `layout` is of: asked once, before
    the first gather. Returns `layout`."""
    _planned[layout] = _Planned(ranks)
    return layout


def remember_as(layout: ShardLayout, other: ShardLayout) -> ShardLayout:
    """Notes that `layout` is of the same rank and plan as `other`. Returns `layout`."""
    if other in _planned:
        _planned[layout] = _planned[other]
    return layout


def is_planned(layout: Any) -> bool:
    """Whether the maps of all ranks are known: the layout, this very one, was planned here."""
    return isinstance(layout, ShardLayout) and layout in _planned


@untraced
def indices_of_layout(layout: ShardLayout, device: torch.device) -> torch.Tensor:
    """The padded columns of this rank's slots, int64 [L]. Precondition: is_planned."""
    planned = _planned[layout]
    if planned.indices is None:
        assert layout.runs is not None  # of our own planning
        planned.indices = torch.from_numpy(columns_of(np.asarray(layout.runs)))
    planned.indices = planned.indices.to(device)
    return planned.indices


@untraced
def of_layout(layout: ShardLayout, device: torch.device) -> TokenMap:
    """The map of all ranks. Precondition: is_planned."""
    planned = _planned[layout]
    if planned.made is None:
        planned.made = of_runs(planned.ranks(), device)
    planned.made = planned.made.to(device)
    return planned.made

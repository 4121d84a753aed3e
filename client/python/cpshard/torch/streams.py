"""Sharding a batch's streams by `cpshard.embedded`: this rank's part of each, and its layout.

Tensors on the CPU are cut by the library. One that requires grad, lies on a device or is large is
planned by its shape and cut where it is: on a GPU by the library's kernel (`cuts_at_once`), else by
ATen, so that gradients go through, nothing large is copied to the host, and embeddings and logits
may be over the library's limit of a batch (2 GiB); of those on a device the few that a layout
computes from (positions, masks) are fetched.
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import Any, Collection, Mapping, Optional

import numpy as np
import torch
from numpy.typing import NDArray

from .. import embedded
from ..types import Shard, ShardLayout
from . import mesh as meshes
from . import token_maps
from .cuts_at_once import cut_at_once
from .token_maps import columns_of

Streams = Mapping[str, Any]
LARGE = 1 << 26  # bytes; from there on ATen cuts as fast
PRIMARIES = ("inputs_embeds", "input_ids")
REPORTED = ("local_token_global_indices", "original_seq_len", "padded_seq_len", "input_row_shape",
            "input_token_stream_positions")


@dataclasses.dataclass(frozen=True, eq=False)
class Sharded:
    """This rank's shard.

    outputs: name -> tensor or scalar; a tensor is where the stream of that name was, a new one
        where the primary stream is. A stream that is handed on whole is the caller's own tensor.
    layout: with its index tensors there too; None where none of the reference's five fields is
        reported.
    chosen: name of the layout that the option `model` resolved to; without it empty.
    """

    outputs: dict[str, Any]
    layout: Optional[ShardLayout]
    chosen: str


def shard_streams(streams: Streams, options: Mapping[str, Any], cp_mesh: Any,
                  axes: Mapping[str, int] = MappingProxyType({})) -> Sharded:
    """Plans the streams and makes this rank's part of them.

    Args:
        streams: what the layout has to know, tensors and scalars; None is absent (D8).
        options: ShardingOptions in JSON form.
        cp_mesh: None = no mesh, which is not a mesh of one (contract 1).
        axes: sequence axes of streams that may have any shape behind them: [.., S, anything].

    Raises:
        cpshard.Error: what the layout refuses. NotImplementedError: a stream that requires grad and
            that the layout computes from.
    """
    given = {name: value for name, value in streams.items() if value is not None}
    rank = meshes.rank_of(cp_mesh)
    devices = {name: value.device for name, value in given.items()
               if isinstance(value, torch.Tensor)}
    apart = {name for name in devices
             if _is_cut_here(given[name]) or name in axes and given[name].nbytes >= LARGE}
    planned = _plan(given, apart, options, cp_mesh, axes)
    while None in planned.cuts.values():
        computed = _to_fetch(planned, given, apart)
        given |= {name: given[name].cpu() for name in computed}
        apart -= computed
        planned = _plan(given, apart, options, cp_mesh, axes)
    primary = next((devices[name] for name in PRIMARIES if name in devices), torch.device("cpu"))
    shard = planned.shard
    outputs = {name: _to(planned.given.get(id(value), value), devices.get(name, primary))
               for name, value in shard.batch.items()}
    padded = shard.layout.padded_seq_len if "contiguous" in options else None
    sources: dict[str, tuple[embedded.Cut, torch.Tensor]] = {}
    for name, cut in planned.cuts.items():
        assert cut is not None  # those were fetched
        source = given[cut.source]
        sources[name] = cut, source if cut.source in axes else _as_planned(source, cut)
    at_once = cut_at_once(sources)
    for name, (cut, source) in sources.items():
        outputs[name] = (_apart(at_once[name], cut) if name in at_once else
                         _cut(planned.plan, name, cut, rank, source, padded))
    chosen = planned.plan.chosen if "model" in options else ""
    return Sharded(outputs, _reported(shard.layout, primary, planned.plan), chosen)


def row_need(streams: Streams, options: Mapping[str, Any], cp_mesh: Any) -> Optional[int]:
    """The columns that this batch's rows need, where the layout has all groups of a job agree on
    the longest (D14); else None."""
    given = {name: value for name, value in streams.items() if value is not None}
    apart = {name for name, value in given.items() if _is_cut_here(value)}
    return _plan(given, apart, options, cp_mesh).plan.row_need


@dataclasses.dataclass(frozen=True, eq=False)
class _Planned:
    """A plan and this rank's shard, as far as the library could write it.

    cuts: how the other outputs come of their sources; None: they are computed.
    given: what the plan's tensors stand for, by id.
    """

    plan: embedded.Plan
    shard: Shard
    cuts: dict[str, Optional[embedded.Cut]]
    given: dict[int, torch.Tensor]


def _plan(given: Streams, apart: Collection[str], options: Mapping[str, Any], cp_mesh: Any,
          axes: Mapping[str, int] = MappingProxyType({})) -> _Planned:
    """Those apart by their shapes alone; of a device's the library fetches what it has to read."""
    entries = {name: _spec(value, axes.get(name)) if name in apart else value
               for name, value in given.items()}
    rank = meshes.rank_of(cp_mesh)
    plan = embedded.plan(entries, options, meshes.cp_size_of(cp_mesh), ranks=[rank])
    shard = plan.shard(rank)
    cuts = {name: plan.cut(name, rank) for name in shard.cuts if name not in shard.batch}
    return _Planned(plan, shard, cuts, {id(entries[name]): given[name] for name in apart})


def _spec(tensor: torch.Tensor, axis: Optional[int]) -> torch.Tensor:
    """What stands for a tensor in a plan: of one whose sequence axis is given a shape without the
    bulk behind that axis. (One without elements is written by the library all the same.)"""
    if axis is not None and -tensor.dim() <= axis < tensor.dim() and tensor.numel():
        last = axis % tensor.dim() + 1
        shape = [*tensor.shape[:last], *(1 for _ in tensor.shape[last:])]
        return torch.empty(shape, dtype=tensor.dtype, device="meta")
    return tensor if tensor.device.type != "cpu" else torch.empty_like(tensor, device="meta")


def _is_cut_here(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.requires_grad or value.device.type != "cpu")


def _to_fetch(planned: _Planned, given: Streams, apart: Collection[str]) -> set[str]:
    """What the computed outputs may come of: tensors that nothing is cut from, else any."""
    cut = {cut.source for cut in planned.cuts.values() if cut is not None}
    computed = set(apart) - cut or {name for name in apart if not given[name].requires_grad}
    for name in sorted(computed or apart):
        if given[name].requires_grad:
            raise NotImplementedError(f"stream '{name}' requires grad, but this layout computes "
                                      "its output anew and no gradient goes through: give it "
                                      "detached")
    return computed


def _to(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


def _reported(layout: ShardLayout, device: torch.device, plan: embedded.Plan
              ) -> Optional[ShardLayout]:
    fields = {name: getattr(layout, name) for name in REPORTED}
    if all(value is None for value in fields.values()):
        return None
    moved: dict[str, Any] = {name: value.to(device) for name, value in fields.items()
                             if isinstance(value, torch.Tensor)}
    return token_maps.remember(dataclasses.replace(layout, **moved), plan.runs_of_ranks())


# --- cutting by ATen -----------------------------------------------------------------------------

def _cut(plan: embedded.Plan, name: str, cut: embedded.Cut, rank: int, tensor: torch.Tensor,
         padded_seq_len: Optional[int]) -> torch.Tensor:
    """The output `name`, differentiable: a cut of `tensor`, on the device where that is.

    padded_seq_len: given where a rank has one slice of the padded tensor, but of what is shifted
        (targets). The reference slices there, and the gradient of a slice keeps -0.0, that of a
        selection does not.
    """
    if cut.extent == "whole":
        return tensor
    if cut.rows > 1:
        rows = [plan.cut(name, rank, row) for row in range(cut.rows)]
        return _select_rows(tensor, [columns_of(row.runs) for row in rows if row is not None], cut)
    if padded_seq_len is not None and cut.extent == "local":
        length = padded_seq_len // (plan.cp_size or 1)
        if _is_slice(cut.runs, rank * length, length, tensor.shape[cut.axis]):
            padded = _padded(tensor, cut.axis, padded_seq_len, cut.fill)
            return padded.narrow(cut.axis, rank * length, length).contiguous()
    return _apart(_select(tensor, cut.axis, columns_of(cut.runs), cut.fill), cut)


def _is_slice(runs: NDArray[np.int64], first: int, length: int, columns: int) -> bool:
    """Whether the slots are `length` columns from `first` on, fill from the end of a tensor of
    `columns` on."""
    held = min(length, max(columns - first, 0))
    slice_runs = [run for run in ([first, held], [-1, length - held]) if run[1] > 0]
    return len(runs) == len(slice_runs) and runs.tolist() == slice_runs


def _apart(selected: torch.Tensor, cut: embedded.Cut) -> torch.Tensor:
    """Slots of several chunks as [chunks, L, ...]."""
    if cut.chunks == 1:
        return selected
    shape = list(selected.shape)
    shape[cut.axis:cut.axis + 1] = [cut.chunks, selected.shape[cut.axis] // cut.chunks]
    return selected.reshape(shape).movedim(cut.axis, 0).contiguous()


def _as_planned(source: torch.Tensor, cut: embedded.Cut) -> torch.Tensor:
    """In the shape that it has before it is cut."""
    if cut.broadcast:
        return source.expand(cut.dims)
    return source if source.shape == cut.dims else source.reshape(cut.dims)


def _padded(tensor: torch.Tensor, axis: int, columns: int, fill: Any) -> torch.Tensor:
    """With `fill` on its right up to `columns`."""
    missing = columns - tensor.shape[axis]
    if missing <= 0:
        return tensor
    shape = list(tensor.shape)
    shape[axis] = missing
    return torch.cat((tensor, tensor.new_full(shape, fill)), axis)


def _select(tensor: torch.Tensor, axis: int, columns: NDArray[np.int64], fill: Any) -> torch.Tensor:
    """Slots by column; a column of fill behind the tensor stands for those without one."""
    length = tensor.shape[axis]
    if (columns < 0).any():
        tensor = _padded(tensor, axis, length + 1, fill)
        columns = np.where(columns < 0, length, columns)
    return tensor.index_select(axis, torch.from_numpy(columns).to(tensor.device))


def _select_rows(tensor: torch.Tensor, columns: list[NDArray[np.int64]], cut: embedded.Cut
                 ) -> torch.Tensor:
    """Every row by columns of its own."""
    if cut.batch_axis < 0 or cut.chunks > 1:
        raise NotImplementedError(f"stream '{cut.source}' is placed row by row and has no axis of "
                                  "rows: give it on the CPU, without requires_grad")
    axis = cut.axis - 1 if cut.batch_axis < cut.axis else cut.axis
    rows = tensor.unbind(cut.batch_axis)
    selected = [_select(row, axis, columns[i], cut.fill) for i, row in enumerate(rows)]
    return torch.stack(selected, cut.batch_axis)

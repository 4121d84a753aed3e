"""ContextParallelSharder: how a batch is sharded, and where its tokens went (contract 3 and 9)."""

from __future__ import annotations

import weakref
from typing import Any, Callable, Mapping, Optional

import numpy as np
import torch

from ..types import ShardLayout
from . import mesh as meshes
from . import token_maps
from .batches import Batch
from .index_maps import ClosedForm, name_of
from .resolution import resolve
from .shard_batch import Context
from .token_layout import TokenLayout, for_shards

_NO_LAYOUT = ShardLayout()


class ContextParallelSharder:
    """Shards batches for one rank, and tensors that are aligned with their tokens.

    Made from a `shard_batch` callback (direct), or from a model, a mesh and a batch, which decide
    on one (resolving). A layout is that of the last batch: `shard` replaces it.

    The map of a batch that was planned by cpshard counts before `local_token_global_indices`. The
    gathers are collectives over the mesh's `cp` axis: one exchange where all ranks' maps are known
    - layouts that were planned by cpshard, and the closed forms of this package and of the
    reference. Of anybody else's layout the indices are exchanged before the first gather, of
    anybody else's index map, which may be another one next time, before each.

    Not thread-safe; one sharder for each model and stream of batches.

    Attributes:
        shard_batch: (cp_mesh, tp_mesh, batch, *, loss_mask, padding_token_id) -> (context factory,
            batch, layout or None).
        local_token_global_indices: (cp_mesh, padded_seq_len, device) -> int64 [L], or None where
            the map comes with the layout.
        shard_layout: of the last batch that was sharded.
    """

    shard_batch: Callable[..., tuple[Context, Batch, Optional[ShardLayout]]]
    local_token_global_indices: Optional[Callable[..., torch.Tensor]]
    shard_layout: Optional[ShardLayout]
    _cp_mesh: Any
    _tp_mesh: Any
    _loss_mask: Optional[torch.Tensor]
    _padding_token_id: Optional[int]

    def __init__(self, model: Optional[torch.nn.Module] = None, device_mesh: Any = None,
                 batch: Optional[Batch] = None, *,
                 shard_batch: Optional[Callable[..., Any]] = None,
                 local_token_global_indices: Optional[Callable[..., torch.Tensor]] = None,
                 shard_layout: Optional[ShardLayout] = None,
                 padding_token_id: Optional[int] = 0, num_chunks: int = 1,
                 loss_mask: Optional[torch.Tensor] = None, invoke_pre_embed: bool = True,
                 extra_seq_buffers: Optional[Mapping[str, int]] = None) -> None:
        """Direct with `shard_batch`, resolving without.

        Args:
            model: decides on the layout by its hook `prepare_model_inputs_for_cp` and its attention
                (contract 3.2). None: round robin on several ranks, else identity.
            device_mesh: with an axis `cp`, perhaps `tp`; None: neither.
            batch: what is to be sharded first; what the hook returns is merged into it.
            padding_token_id: for the columns that are appended to `input_ids`.
            num_chunks: streams of a THD batch.
            loss_mask: [B, S], sharded with every batch.
            invoke_pre_embed: False: the model's hook is not called.
            extra_seq_buffers: further streams for round robin, with their sequence axes.

        Raises:
            TypeError: arguments of both modes, or no batch. ValueError: extra streams where the
                layout takes none (D13).
        """
        names = getattr(device_mesh, "mesh_dim_names", None) or ()
        self._cp_mesh = device_mesh["cp"] if "cp" in names else None
        self._tp_mesh = device_mesh["tp"] if "tp" in names else None
        self._loss_mask = loss_mask
        self._padding_token_id = padding_token_id
        self._added: dict[str, weakref.ref[torch.Tensor]] = {}
        if shard_batch is not None:
            if model is not None or batch is not None or num_chunks != 1 or not invoke_pre_embed \
                    or extra_seq_buffers is not None:
                raise TypeError("shard_batch is mutually exclusive with model, batch, and "
                                "strategy-resolution options")
            self.shard_batch = shard_batch
            self.local_token_global_indices = local_token_global_indices
            self.shard_layout = shard_layout
            return
        if local_token_global_indices is not None or shard_layout is not None:
            raise TypeError("local_token_global_indices and shard_layout require shard_batch")
        if batch is None:
            raise TypeError("batch is required when shard_batch is not provided")
        chosen = resolve(model, device_mesh, batch, num_chunks=num_chunks,
                         invoke_pre_embed=invoke_pre_embed, extra_seq_buffers=extra_seq_buffers)
        self.shard_batch = chosen.shard_batch
        self.local_token_global_indices = chosen.local_token_global_indices
        self.shard_layout = chosen.shard_layout

    def shard(self, batch: Batch) -> tuple[Context, Batch]:
        """Shards a batch and keeps its layout.

        The mapping of the last batch may be filled again: what the shard of that one added to it,
        positions and masks, is taken out first.

        Returns:
            A factory of contexts for the forward, and the batch with this rank's shard: mostly the
            same mapping, written to.
        """
        stale = {name: batch.pop(name) for name, added in self._added.items()
                 if batch.get(name) is not None and batch[name] is added()}
        given = set(batch)
        try:
            context, made, self.shard_layout = self.shard_batch(
                self._cp_mesh, self._tp_mesh, batch, loss_mask=self._loss_mask,
                padding_token_id=self._padding_token_id)
        except Exception:
            batch.update(stale)
            raise
        self._added = {name: weakref.ref(value) for name, value in made.items()
                       if name not in given and isinstance(value, torch.Tensor)}
        return context, made

    def shard_token_tensor(self, tensor: torch.Tensor, seq_dim: int = 1,
                           fill: Optional[float | int] = None) -> torch.Tensor:
        """This rank's slots of a tensor that is aligned with the tokens of the last batch.

        Args:
            tensor: by the first rule that fits (contract 9.2): [B, S] where the layout has stream
                positions; [B, S, ...] with the layout's row shape, then flattened; original_seq_len
                columns on `seq_dim`, with `fill`; padded_seq_len columns.
            fill: what padding holds, converted to the dtype.

        Returns:
            The slots in local order, contiguous; differentiable.

        Raises:
            ValueError: another length, or `fill` is missing. NotImplementedError: the map comes
                with a layout, and there is none yet. IndexError: no such axis.
        """
        columns = self._columns_of(tensor, seq_dim)
        return self._shards(columns, tensor.device).shard_token_tensor(tensor, seq_dim, fill)

    def gather_token_tensor(self, tensor: torch.Tensor, seq_dim: int = 1, trim: bool = False,
                            fill: Optional[float | int] = None, *, gradient: str = "sum"
                            ) -> torch.Tensor:
        """The full tensor in global order, from every rank's slots; differentiable. A collective.

        Args:
            tensor: [..., L, ...], L slots on axis `seq_dim`.
            trim: back to the caller's coordinates, by the first of the layout's stream positions
                (with `fill` where a token was dropped), row shape and original_seq_len.
            gradient: "sum" over all ranks' uses (the reference's), or "slice": this rank's own.

        Raises:
            ValueError: L * cp_size is not the layout's length, or `fill` is missing.
            NotImplementedError: trim with nothing to trim to, or no map yet.
        """
        columns = tensor.shape[seq_dim] * meshes.size_of(self._cp_mesh)
        layout = self._gathers(columns, tensor.device)
        return layout.gather_token_tensor(tensor, seq_dim, trim, fill, gradient=gradient)

    def token_layout(self, device: Optional[torch.device] = None, columns: Optional[int] = None
                     ) -> TokenLayout:
        """The verbs over the last batch's layout as a value, for torch.compile, which cannot trace
        this object's own. A collective where gathers are not by known maps.

        Args:
            device: of the tensors to come; None: the CPU.
            columns: padded ones of them; None: the layout's padded_seq_len.

        Raises:
            ValueError: columns are not given and the layout does not say. NotImplementedError: no
                map yet.
        """
        length = (self.shard_layout or _NO_LAYOUT).padded_seq_len if columns is None else columns
        if length is None:
            raise ValueError("the layout reports no padded_seq_len; give the columns")
        return self._gathers(length, device or torch.device("cpu"))

    # --- maps ------------------------------------------------------------------------------------

    def _columns_of(self, tensor: torch.Tensor, seq_dim: int) -> int:
        """The padded columns that a tensor has once it is in the layout's coordinates; where it
        does not fit there, the operator says so."""
        layout = self.shard_layout or _NO_LAYOUT
        if layout.padded_seq_len is not None:
            return layout.padded_seq_len
        shape = layout.input_row_shape
        if shape is not None and tuple(tensor.shape[:len(shape)]) == tuple(shape):
            return int(torch.Size(shape).numel())
        return int(tensor.shape[seq_dim])

    def _shards(self, columns: int, device: torch.device) -> TokenLayout:
        """For shards alone, which exchange nothing: without the maps of other ranks."""
        layout = self.shard_layout or _NO_LAYOUT
        self._check_group(layout)
        return for_shards(layout, self._indices(columns, device), meshes.size_of(self._cp_mesh))

    def _check_group(self, layout: ShardLayout) -> None:
        cp_size, ranks = getattr(layout, "cp_size", None), meshes.size_of(self._cp_mesh)
        if cp_size not in (None, ranks):
            raise ValueError(f"the layout is of a batch that was sharded for {cp_size} ranks, and "
                             f"the mesh has {ranks}: use the sharder of that group")

    def _gathers(self, columns: int, device: torch.device) -> TokenLayout:
        layout = self._shards(columns, device)
        group = meshes.group_name_of(self._cp_mesh)
        if not group:
            return layout.of_one(self._order_of_one(columns))
        return layout.of_group(self._token_map(layout.indices, columns, device), group)

    def _planned_layout(self, columns: int) -> Optional[ShardLayout]:
        """The layout, where it was planned here and is of so many columns. A closed form is for any
        number, and of another one than the batch's the caller's function tells (contract 9.1)."""
        layout = self.shard_layout
        if layout is None or not token_maps.is_planned(layout):
            return None
        by_function = self.local_token_global_indices is not None and \
            layout.local_token_global_indices is None
        return None if by_function and layout.padded_seq_len not in (None, columns) else layout

    def _indices(self, columns: int, device: torch.device) -> torch.Tensor:
        """The padded columns of the local slots, int64 [L]: the layout's, else the closed form."""
        planned = self._planned_layout(columns)
        if planned is not None:
            return token_maps.indices_of_layout(planned, device)
        captured = (self.shard_layout or _NO_LAYOUT).local_token_global_indices
        if captured is not None:
            return _flat(captured, device)
        if self.local_token_global_indices is None:
            raise NotImplementedError(
                "This ContextParallelSharder has a data-dependent token layout: its index map "
                "arrives with the first batch that is sharded; shard one before its token tensors")
        indices: torch.Tensor = self.local_token_global_indices(self._cp_mesh, columns, device)
        return indices

    def _token_map(self, indices: torch.Tensor, columns: int, device: torch.device
                   ) -> token_maps.TokenMap:
        """The map of all ranks. The way to it is the same on every rank: it goes by the layout and
        by functions, never by the values of indices."""
        planned = self._planned_layout(columns)
        if planned is not None:
            return token_maps.of_layout(planned, device)
        captured = (self.shard_layout or _NO_LAYOUT).local_token_global_indices
        if captured is not None:
            return token_maps.of_foreign(torch.as_tensor(captured), self._cp_mesh, device)
        name = name_of(self.local_token_global_indices)
        if name is not None:
            form = ClosedForm(name, columns, meshes.size_of(self._cp_mesh))
            return token_maps.of_closed_form(form, device)
        return token_maps.of_indices(indices.to(device=device, dtype=torch.long), self._cp_mesh)

    def _order_of_one(self, columns: int) -> Optional[torch.Tensor]:
        """The order of the slots of one rank that has all columns, where it is not theirs. By
        anybody's map but a plan's one rank gets its tensor back (contract 9.3)."""
        planned = self._planned_layout(columns)
        if planned is None or meshes.size_of(self._cp_mesh) > 1:
            return None
        return token_maps.order_of_one(token_maps.columns_of(np.asarray(planned.runs)))


def _flat(captured: Any, device: torch.device) -> torch.Tensor:
    return torch.as_tensor(captured).reshape(-1).to(device=device, dtype=torch.long)

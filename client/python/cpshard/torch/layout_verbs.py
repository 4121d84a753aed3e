"""The token verbs by the layout that came with a shard, of cpshard.rank or cpshard.connect.

    for batch, layout in cpshard.rank(..., tensors="torch"):
        log_probs = model(**batch)                                               # [B, L]
        full = cpshard.torch.gather_token_tensor(layout, mesh["cp"], log_probs, trim=True)  # [B, S]

A layout tells the columns of its own rank. The first gather by it asks the other ranks for theirs,
in two small exchanges, and finds out whether all of them hold the same batch; what was asked is
kept for as long as the layout lives.
"""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import torch
import torch.distributed as dist

from ..types import ShardLayout
from . import mesh as meshes
from . import token_maps
from .token_layout import TokenLayout, for_shards

_CPU = torch.device("cpu")


@token_maps.untraced
def token_layout(layout: ShardLayout, cp_mesh: Any = None,
                 device: torch.device = _CPU) -> TokenLayout:
    """The layout of this rank's shard as tensors on `device`, for the verbs and for torch.compile.

    Args:
        layout: as it came with the shard; with `runs`, which cpshard's own layouts have.
        cp_mesh: whose ranks hold the batch: a collective, where there are several. None: shards can
            be cut by the result, and nothing gathered but of one rank.

    Raises:
        ValueError: the layout has no runs, or is of another group or rank; on every rank, with both
            values: the ranks hold different batches.
    """
    runs = _runs_of(layout)
    columns, cp_size = token_maps.columns_of(runs), layout.cp_size or meshes.size_of(cp_mesh)
    made = for_shards(layout, torch.from_numpy(columns).to(device), cp_size)
    group = meshes.group_name_of(cp_mesh)
    if not group:
        return made.of_one(token_maps.order_of_one(columns)) if cp_size == 1 else made
    if not token_maps.is_planned(layout):
        ranks = _exchange(layout, runs, cp_mesh, device)
        token_maps.remember(layout, lambda: ranks)
    return made.of_group(token_maps.of_layout(layout, device), group)


def shard_token_tensor(layout: ShardLayout, tensor: torch.Tensor, seq_dim: int = 1,
                       fill: Optional[float | int] = None) -> torch.Tensor:
    """This rank's slots of a full tensor: see ContextParallelSharder.shard_token_tensor."""
    return token_layout(layout, None, tensor.device).shard_token_tensor(tensor, seq_dim, fill)


def gather_token_tensor(layout: ShardLayout, cp_mesh: Any, tensor: torch.Tensor, seq_dim: int = 1,
                        trim: bool = False, fill: Optional[float | int] = None, *,
                        gradient: str = "sum") -> torch.Tensor:
    """The full tensor from every rank's slots, differentiable; a collective. See
    ContextParallelSharder.gather_token_tensor."""
    return token_layout(layout, cp_mesh, tensor.device).gather_token_tensor(
        tensor, seq_dim, trim, fill, gradient=gradient)


def _runs_of(layout: ShardLayout) -> token_maps.Runs:
    if getattr(layout, "runs", None) is None:  # of another package, perhaps
        raise ValueError("the layout has no runs, so it tells no columns: it was not made by "
                         "cpshard; use a ContextParallelSharder with its index map")
    return np.asarray(layout.runs, np.int64).reshape(-1, 2)


def _exchange(layout: ShardLayout, runs: token_maps.Runs, cp_mesh: Any, device: torch.device
              ) -> list[token_maps.Runs]:
    """The runs of all ranks."""
    padded = -1 if layout.padded_seq_len is None else layout.padded_seq_len
    digest = np.uint64(layout.batch_digest or 0).astype(np.int64)
    place = [-1 if number is None else number for number in (layout.cp_rank, layout.cp_size)]
    head = torch.tensor([len(runs), *place, padded, int(digest)], device=device)
    heads = [each.tolist() for each in _all_gather(head, cp_mesh)]
    _check_agreement(heads)
    own = torch.zeros((max(each[0] for each in heads), 2), dtype=torch.long, device="cpu")
    own[:len(runs)] = torch.from_numpy(runs)
    parts = _all_gather(own.to(device), cp_mesh)
    return [part[:each[0]].cpu().numpy() for part, each in zip(parts, heads)]


def _check_agreement(heads: list[list[int]]) -> None:
    """Alike on every rank: none goes on where another one stops."""
    for rank, (_, cp_rank, cp_size, padded, digest) in enumerate(heads):
        if -1 in (cp_rank, cp_size):
            raise ValueError(f"the layout on rank {rank} has no cp_rank and cp_size: it tells the "
                             "columns of a rank, and not which; give them as they came with it")
        if (cp_rank, cp_size) != (rank, len(heads)):
            raise ValueError(f"rank {rank} of a mesh of {len(heads)} has the layout of rank "
                             f"{cp_rank} of {cp_size}: give the mesh of the group that the shards "
                             "were made for")
        if (padded, digest) != tuple(heads[0][3:]):
            raise ValueError(
                "the ranks hold shards of different batches: padded_seq_len and batch_digest are "
                f"{heads[0][3]} and {_unsigned(heads[0][4])} on rank 0, {padded} and "
                f"{_unsigned(digest)} on rank {rank}; gather by the layouts of one step")


def _unsigned(digest: int) -> int:
    return digest & ((1 << 64) - 1)


def _all_gather(tensor: torch.Tensor, cp_mesh: Any) -> list[torch.Tensor]:
    parts = [torch.empty_like(tensor) for _ in range(cp_mesh.size())]
    dist.all_gather(parts, tensor, group=cp_mesh.get_group())
    return parts

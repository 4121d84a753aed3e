"""Token verbs by indices, and the sharding of a sequence inside a model's forward (contract 4.6,
9).

Every verb takes tensors of any rank and dtype, on any device, and gradients go through all of them;
through a gather once: a gradient of its gradient (create_graph=True) is a NotImplementedError. A
gather is a collective: all ranks of the group call it, in the same order.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch.distributed as dist

from . import mesh as meshes
from . import token_maps
from .index_maps import contiguous_local_indices, round_robin_local_indices
from .native import ops
from .scalars import number_of


def slices_gradient(gradient: str) -> bool:
    """Of a gather: "sum" adds what all ranks did with a token (the reference's; contract 9.4),
    "slice" takes what this rank did with its own, without a collective.

    ValueError: another word.
    """
    if gradient not in ("sum", "slice"):
        raise ValueError(f"gradient is {gradient!r}; 'sum' and 'slice' are possible")
    return gradient == "slice"


def shard_token_tensor_by_indices(tensor: torch.Tensor, local_indices: torch.Tensor,
                                  seq_dim: int = 1) -> torch.Tensor:
    """This rank's slots of a full-length tensor.

    Args:
        tensor: [..., padded, ...], `padded` on axis `seq_dim`.
        local_indices: [L], padded columns of the local slots.

    Returns:
        [..., L, ...], contiguous, of the same dtype.
    """
    return tensor.index_select(seq_dim, local_indices.to(tensor.device)).contiguous()


def gather_token_tensor_by_indices(cp_mesh: Any, tensor: torch.Tensor, local_indices: torch.Tensor,
                                   seq_dim: int = 1, *, gradient: str = "sum") -> torch.Tensor:
    """The full tensor in global order, from every rank's slots; differentiable.

    One collective for the very index tensors that the index maps of this package return; others are
    exchanged first, once for as long as they live.

    Args:
        cp_mesh: None, a mesh of one, or torch.distributed not initialised: the tensor itself.
        tensor: [..., L, ...], as many slots on every rank.
        local_indices: [L], padded columns of the local slots.
        gradient: "sum" or "slice", see `slices_gradient`.

    Returns:
        [..., L * cp_size, ...], nothing trimmed.
    """
    slice_gradient = slices_gradient(gradient)
    group = meshes.group_name_of(cp_mesh)
    if not group:
        return tensor
    token_map = token_maps.of_any(local_indices, cp_mesh, tensor.device)
    return _gather(tensor, token_map, seq_dim, group, slice_gradient)


def _gather(tensor: torch.Tensor, token_map: token_maps.TokenMap, dim: int, group: str,
            slice_gradient: bool) -> torch.Tensor:
    return ops.gather_tokens(  # type: ignore[no-any-return]
        tensor, token_map.order, token_map.moves, list(token_map.sizes), dim, group, slice_gradient)


def unshard_context_parallel_tensor(cp_mesh: Any, tensor: torch.Tensor, *, seq_dim: int
                                    ) -> torch.Tensor:
    """The full tensor from head and tail chunks of all ranks, without a gradient (contract 9.5).

    Args:
        cp_mesh: a mesh of one: the tensor itself.
        tensor: [..., L, ...], L slots of round robin on axis `seq_dim`.

    Returns:
        [..., L * cp_size, ...] on every rank.
    """
    if cp_mesh.size() <= 1:
        return tensor
    columns = tensor.shape[seq_dim] * cp_mesh.size()
    indices = round_robin_local_indices(cp_mesh, columns, tensor.device)
    return gather_token_tensor_by_indices(cp_mesh, tensor.detach(), indices, seq_dim)


def gather_sequence(tensor: torch.Tensor, group: Optional[dist.ProcessGroup], *, dim: int = 1,
                    gradient: str = "sum") -> torch.Tensor:
    """The shards of all ranks side by side, in rank order (contract 4.9).

    Args:
        tensor: [B, L, ...], as many on every rank; with requires_grad the result is differentiable.
        group: None or a group of one: the tensor itself.
        gradient: "sum" or "slice", see `slices_gradient`.

    Returns:
        [B, L * size, ...]; the tensor is not written to.
    """
    slice_gradient = slices_gradient(gradient)
    if group is None or dist.get_world_size(group) == 1:
        return tensor
    name = str(group.group_name)
    return ops.gather_sequence(tensor, name, dim, slice_gradient)  # type: ignore[no-any-return]


def shard_sequence_for_cp_round_robin(
        cp_mesh: Any, tensor: torch.Tensor, *, seq_dim: int = 1, pad_value: float | int = 0
        ) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Pads a full-length sequence to a multiple of 2 * cp_size and keeps this rank's head and tail
    chunk: the peer of `shard_batch_aux_only` inside a model's forward.

    Args:
        cp_mesh: None or a mesh of one: nothing is padded or cut.
        tensor: [..., S, ...] on axis `seq_dim`, inputs_embeds [B, S, H] for instance.
        pad_value: what the new columns hold, converted to the dtype.

    Returns:
        (local [..., padded / cp_size, ...], local_indices int64 [padded / cp_size], padded)
    """
    return _shard_sequence(cp_mesh, tensor, seq_dim, pad_value, 2, round_robin_local_indices)


def shard_sequence_for_cp_contiguous(
        cp_mesh: Any, tensor: torch.Tensor, *, seq_dim: int = 1, pad_value: float | int = 0,
        pad_multiple: Optional[int] = 1) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Pads a full-length sequence to a multiple of cp_size * max(pad_multiple, 2) and keeps the
    slice of this rank: the peer of `shard_batch_contiguous(shard_primary=False)` inside a forward.

    Args and returns: as `shard_sequence_for_cp_round_robin`.
    """
    multiple = max(int(pad_multiple or 1), 2)
    return _shard_sequence(cp_mesh, tensor, seq_dim, pad_value, multiple, contiguous_local_indices)


def _shard_sequence(cp_mesh: Any, tensor: torch.Tensor, seq_dim: int, pad_value: float | int,
                    multiple: int, index_map: Any) -> tuple[torch.Tensor, torch.Tensor, int]:
    length = tensor.shape[seq_dim]
    if meshes.size_of(cp_mesh) <= 1:
        return tensor, torch.arange(length, device=tensor.device, dtype=torch.long), length
    padded = length + (-length) % (cp_mesh.size() * multiple)
    indices = index_map(cp_mesh, padded, tensor.device)
    fill = number_of(pad_value, "pad_value")
    local = ops.shard_token_tensor(tensor, indices, None, None, length, padded, seq_dim, fill, None)
    return local, indices, padded

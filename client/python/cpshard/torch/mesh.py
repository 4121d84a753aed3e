"""What is asked of a torch DeviceMesh: ranks, sizes and the name of the group."""

from __future__ import annotations

from typing import Any, Optional

import torch.distributed as dist


def is_distributed() -> bool:
    """Whether this process has a default process group."""
    return bool(dist.is_available() and dist.is_initialized())


def submesh_of(device_mesh: Any, dim: str) -> Any:
    """The axis `dim` of the mesh as a mesh of its own; None without a mesh or such an axis."""
    names = getattr(device_mesh, "mesh_dim_names", None) or ()
    return device_mesh[dim] if dim in names else None


def size_of(cp_mesh: Any) -> int:
    """Ranks of the group; 1 without a mesh."""
    return 1 if cp_mesh is None else int(cp_mesh.size())


def cp_size_of(cp_mesh: Any) -> Optional[int]:
    """`cp_size` of a request: None without a mesh, which is not a mesh of one (contract 1)."""
    return None if cp_mesh is None else int(cp_mesh.size())


def rank_of(cp_mesh: Any) -> int:
    """This process's place in the group (contract 2.6); 0 without a mesh."""
    if cp_mesh is None:
        return 0
    if is_distributed():
        return int(dist.get_rank(group=cp_mesh.get_group()))
    return int(getattr(cp_mesh, "get_local_rank", lambda: 0)())


def group_name_of(cp_mesh: Any) -> str:
    """The name by which an operator finds the group of a collective; "" where there is nobody to
    exchange anything with: no mesh, one rank, or torch.distributed is not initialised."""
    if size_of(cp_mesh) <= 1 or not is_distributed():
        return ""
    return str(cp_mesh.get_group().group_name)

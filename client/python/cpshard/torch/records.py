"""What a model reads beside streams: process groups, which never travel, and records, whose fields
travel as entries named `record.field`."""

from __future__ import annotations

import types
from typing import Any, Callable, Mapping, Optional

from . import mesh as meshes

RECORDS = ("kimi_packed_context", "glm5_next_packed_context", "_qwen3_8_flash_next_cp_context")
GROUPS = {"deepseek_v4": "_dsv4_cp_group", "deepseek_v41": "cp_group",
          "glm_dsa": "_glm_dsa_cp_group"}


def assemble(batch: Mapping[str, Any], layout: str, cp_mesh: Any = None,
             kinds: Optional[Mapping[str, Callable[..., Any]]] = None) -> dict[str, Any]:
    """A shard with the records of its layout built and its process group added.

    Args:
        batch: a shard, from `cpshard.rank` or `cpshard.embedded`; not written to.
        layout: its name, as in the options.
        cp_mesh: whose group is added under the model's own name, where it has one.
        kinds: name of a record -> what is called with its fields; without, a SimpleNamespace.
    """
    made: dict[str, Any] = {}
    records: dict[str, dict[str, Any]] = {}
    for name, value in batch.items():
        record, _, field = name.partition(".")
        if record in RECORDS and field:
            records.setdefault(record, {})[field] = value
        else:
            made[name] = value
    group = cp_mesh.get_group() if cp_mesh is not None and meshes.is_distributed() else None
    if "_qwen3_8_flash_next_cp_context" in records:
        of_qwen = records["_qwen3_8_flash_next_cp_context"]
        of_qwen["group"] = group if meshes.size_of(cp_mesh) > 1 else None
        of_qwen.setdefault("global_cu_seqlens", None)
    for record, fields in records.items():
        made[record] = (kinds or {}).get(record, types.SimpleNamespace)(**fields)
    if layout in GROUPS and (layout != "deepseek_v4" or meshes.size_of(cp_mesh) > 1):
        made[GROUPS[layout]] = group
    return made

"""Which sharding a model and a batch ask for: the rungs of contract 3.2, with decision D13."""

from __future__ import annotations

import functools
from typing import Any, Callable, Mapping, NamedTuple, Optional

import torch

from ..errors import invalid
from . import mesh as meshes
from .batches import Batch
from .facts import HOOK, attention_of, has_hook
from .index_maps import identity_local_indices, round_robin_local_indices
from .magi import shard_batch_magi
from .shard_batch import shard_batch_identity, shard_batch_load_balanced
from .thd import shard_batch_thd


class Strategy(NamedTuple):
    """What a sharder is made of: the fields of ContextParallelSharder without its mesh."""

    shard_batch: Callable[..., Any]
    local_token_global_indices: Optional[Callable[..., torch.Tensor]] = None
    shard_layout: Any = None


class Attention(NamedTuple):
    """What the rungs ask of a model."""

    magi: bool
    custom: bool  # magi by backend.attn, not by the config
    te: bool
    domain: str  # "llm" or "vlm"


def resolve(model: Any, device_mesh: Any, batch: Batch, *, num_chunks: int = 1,
            invoke_pre_embed: bool = True, extra_seq_buffers: Optional[Mapping[str, int]] = None
            ) -> Any:
    """The first that fits: the model's own, magi, THD, round robin, identity.

    Args:
        batch: what the model's hook returns beside its sharder is merged into it.

    Returns:
        A Strategy, or the sharder that the model's hook returned, whoever made it.

    Raises:
        ValueError: extra streams where the layout is the model's own, magi's or THD (D13).
    """
    attention = _attention_of(model)
    cp_size = meshes.size_of(meshes.submesh_of(device_mesh, "cp"))
    is_thd = batch.get("qkv_format") == "thd"
    owns_thd = is_thd and bool(getattr(model, "supports_thd", False))
    replaces_hook = attention.magi and attention.domain == "llm"
    own = None
    if has_hook(model) and invoke_pre_embed and not replaces_hook and (cp_size > 1 or owns_thd):
        own = _call_hook(model, batch, num_chunks)
    if is_thd and (attention.magi or attention.te):
        _refuse_extras(extra_seq_buffers, "attention magi or te of a THD batch")
    if own is not None:
        _refuse_extras(extra_seq_buffers, "the layout of the model's hook")
        return own
    if attention.magi:
        _refuse_extras(extra_seq_buffers, "layout magi")
        return Strategy(functools.partial(shard_batch_magi, custom=attention.custom,
                                          domain=attention.domain, num_chunks=num_chunks))
    if is_thd and attention.te:
        return Strategy(functools.partial(shard_batch_thd, num_chunks=num_chunks))
    if cp_size > 1:
        return Strategy(functools.partial(shard_batch_load_balanced,
                                          extra_seq_buffers=extra_seq_buffers),
                        round_robin_local_indices)
    return Strategy(shard_batch_identity, identity_local_indices)


def _attention_of(model: Any) -> Attention:
    facts = attention_of(model)
    name = facts.get("backend_attn", facts.get("attn_implementation"))
    return Attention(magi=name == "magi", custom="backend_attn" in facts,
                     te=name == "te" or facts["te_attention_injected"],
                     domain="vlm" if facts["has_vision_or_audio_tower"] else "llm")


def _call_hook(model: Any, batch: Batch, num_chunks: int) -> Any:
    """The sharder that the hook returns, or None. Nulls are merged too."""
    prepared = getattr(model, HOOK)(batch, num_chunks=num_chunks)
    batch.update({name: value for name, value in prepared.items() if name != "cp_sharder"})
    return prepared.get("cp_sharder")


def _refuse_extras(extras: Optional[Mapping[str, int]], who: str) -> None:
    if extras:
        raise invalid(f"extra_seq_buffers {sorted(extras)}: {who} takes no extra streams; leave "
                      "them out")

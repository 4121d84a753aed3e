"""Torch's ring attention for CPU tensors: torch has the ring and the kernel, but not the one for
the other. The same ring as on a GPU, with the CPU's flash kernel inside, for the processes that
call `install`; contexts of anybody then run on it."""

from typing import Any

import torch
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.experimental._context_parallel import _attention

SEQ_DIM = 2  # of [B, heads, S, width]
FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def _forward(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[DTensor, ...]:
    mesh = args[0].device_mesh
    query, key, value = (tensor.to_local() for tensor in args[:3])
    dropout_p, is_causal = (*args[3:], *(0.0, False)[len(args) - 3:])
    results = _attention._templated_ring_attention(
        mesh.get_group(), SEQ_DIM, FORWARD, query, key, value, is_causal=is_causal,
        dropout_p=dropout_p, **kwargs)
    return _sharded(results, mesh)


def _backward(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[DTensor, ...]:
    mesh = args[1].device_mesh
    grad_out, query, key, value, out, logsumexp = (tensor.to_local() for tensor in args[:6])
    dropout_p, is_causal = args[6:8]
    results = _attention._templated_ring_attention_backward(
        mesh.get_group(), SEQ_DIM, BACKWARD, grad_out, "grad_out", query, key, value, out,
        logsumexp, is_causal=is_causal, dropout_p=dropout_p, **kwargs)
    return _sharded(results, mesh)


def _sharded(tensors: tuple[torch.Tensor, ...], mesh: Any) -> tuple[DTensor, ...]:
    return tuple(DTensor.from_local(tensor, mesh, [Shard(SEQ_DIM)]) for tensor in tensors)


def install() -> None:
    """In this process, from the next context on."""
    _attention.custom_ops[FORWARD] = _forward
    _attention.custom_ops[BACKWARD] = _backward

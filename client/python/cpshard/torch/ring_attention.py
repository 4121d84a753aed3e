"""The context in which torch's scaled_dot_product_attention is ring attention over the CP group."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Iterator, Optional

import torch


def ring_attention(cp_mesh: Any) -> Callable[[], ContextManager[None]]:
    """A factory of contexts in which F.scaled_dot_product_attention attends over the shards of all
    ranks, head and tail chunks each (round robin), with the kernels that the reference allows.

    The batch is sharded already: torch's context_parallel is entered over a buffer of its own, for
    it cannot do without one. A context may be entered as often as it is made. It is left behind an
    exception too, where torch's own would leave the ring installed.
    """

    @contextlib.contextmanager
    def context() -> Iterator[None]:
        from torch.distributed.tensor.experimental import context_parallel
        from torch.distributed.tensor.experimental._attention import set_rotate_method
        from torch.nn.attention import SDPBackend, sdpa_kernel

        set_rotate_method("allgather")
        buffer = torch.zeros(2 * cp_mesh.size(), device=cp_mesh.device_type)
        kernels = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
        failed: Optional[BaseException] = None
        with sdpa_kernel(kernels), context_parallel(
                cp_mesh, buffers=[buffer], buffer_seq_dims=[0], no_restore_buffers={buffer}):
            try:
                yield
            except BaseException as error:
                failed = error
        if failed is not None:
            raise failed

    return context

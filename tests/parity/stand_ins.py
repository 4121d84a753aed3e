"""Stand-ins of two GPU-only packages that the reference calls, from their public formulas:
TransformerEngine's THD partition (contract section 6) and MagiAttention's dispatch (7.4). What a
row with them proves is the layout around the formula, not the formula."""

import heapq
import sys
import types
from dataclasses import dataclass

import torch

DEFAULT_CHUNKS_PER_RANK = 8


def te_partition(cu_seqlens: torch.Tensor, total: int, world: int, rank: int) -> torch.Tensor:
    """Each document in 2 * world equal slices; a rank takes one from each end."""
    checked = (cu_seqlens.dtype == torch.int32 and cu_seqlens.dim() == 1
               and cu_seqlens.numel() >= 2 and 0 <= rank < world and total > 0
               and total % (2 * world) == 0)
    if not checked:
        raise RuntimeError("thd_get_partitioned_indices: bad argument")
    starts = [int(boundary / world) for boundary in cu_seqlens.tolist()]
    indices = []
    document = 0
    for slot in range(total // world):
        while document < len(starts) - 2 and starts[document + 1] <= slot:
            document += 1
        half = int((starts[document + 1] - starts[document]) / 2)
        offset = slot - starts[document]
        slices = rank if offset < half else 2 * (world - 1) - rank
        indices.append(offset + starts[document] * world + half * slices)
    return torch.tensor(indices, dtype=torch.int32)


@dataclass
class DispatchKey:
    """A partition of one rank: the true indices of its slots, and how many tokens are real."""

    slots: list[int]
    total: int
    pad_size: int
    chunk_size: int


def solve(documents: list[int], cp_size: int, rank: int, chunk_size: int) -> DispatchKey:
    """The min-heap dispatch over causal documents."""
    total = sum(documents)
    chunk = min(-(-total // (DEFAULT_CHUNKS_PER_RANK * cp_size)), chunk_size)
    if total == 0 or -(-total // chunk) < cp_size:
        raise ValueError("too few tokens to dispatch")
    pad = -total % (chunk * cp_size)
    if cp_size == 1:
        return DispatchKey(list(range(total + pad)), total, pad, chunk)
    work = [o + 1 for length in documents for o in range(length)] + [0] * pad
    chunks = (total + pad) // chunk
    loads = [sum(work[i * chunk:(i + 1) * chunk]) for i in range(chunks)]
    order = sorted(range(chunks), key=lambda i: loads[i])[::-1]
    heap = [(0, r) for r in range(cp_size)]
    held: list[list[int]] = [[] for _ in range(cp_size)]
    for index in order:
        load, taker = heapq.heappop(heap)
        while len(held[taker]) == chunks // cp_size:
            load, taker = heapq.heappop(heap)
        held[taker].append(index)
        heapq.heappush(heap, (load + loads[index], taker))
    slots = [i * chunk + o for i in sorted(held[rank]) for o in range(chunk)]
    return DispatchKey(slots, total, pad, chunk)


def dispatch(tensor: torch.Tensor, *, key: DispatchKey, pad_value: float = 0) -> torch.Tensor:
    padded = torch.full((key.total + key.pad_size,), pad_value, dtype=tensor.dtype)
    padded[:key.total] = tensor
    return padded[torch.tensor(key.slots)]


def get_position_ids(key: DispatchKey) -> torch.Tensor:
    return torch.tensor([min(slot, key.total - 1) for slot in key.slots])


class LastKey:
    """The key of the last dispatch: its true indices are what D3 asks for."""

    key: DispatchKey | None = None


def _key_of(documents: list[int], group: object, chunk_size: int) -> DispatchKey:
    LastKey.key = solve(documents, group.size(), group.rank(), chunk_size)
    return LastKey.key


def _varlen_key(*, cu_seqlens_q: torch.Tensor, cp_group_or_mesh: object, chunk_size: int,
                **_: object) -> DispatchKey:
    return _key_of(cu_seqlens_q.diff().tolist(), cp_group_or_mesh, chunk_size)


def _flex_key(*, q_ranges: list[list[int]], cp_group_or_mesh: object, chunk_size: int,
              **_: object) -> DispatchKey:
    return _key_of([end - start for start, end in q_ranges], cp_group_or_mesh, chunk_size)


def _module(name: str, **contents: object) -> None:
    module = types.ModuleType(name)
    module.__dict__.update(contents)
    module.__path__ = []
    sys.modules[name] = module


def install() -> None:
    """Puts the stand-ins where the reference imports the packages."""
    ranges = type("AttnRanges", (), {"from_ranges": staticmethod(lambda ranges: ranges)})
    _module("transformer_engine_torch", thd_get_partitioned_indices=te_partition)
    _module("magi_attention")
    _module("magi_attention.common", AttnRanges=ranges)
    _module("magi_attention.api", dispatch=dispatch, get_position_ids=get_position_ids,
            magi_attn_varlen_key=_varlen_key, magi_attn_flex_key=_flex_key)
    _module("magi_attention.api.functools",
            compute_pad_size=lambda length, cp_size, chunk_size: -length % (chunk_size * cp_size))

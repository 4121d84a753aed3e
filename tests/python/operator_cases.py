"""What the tests of the operators share: maps of columns to ranks, the same for both sides, and
comparing to the bit."""

import random
from typing import Any, Optional, Sequence

import torch
from cpshard.native import find

torch.ops.load_library(str(find("libcpshard_torch.so", "ninja cpshard_torch builds it")))
ops: Any = torch.ops.cpshard

Columns = list[list[int]]  # [rank][slot] -> padded column


def contiguous(ranks: int, length: int) -> Columns:
    return [list(range(rank * length, (rank + 1) * length)) for rank in range(ranks)]


def round_robin(ranks: int, chunk: int) -> Columns:
    last = 2 * ranks - 1
    return [[*range(rank * chunk, (rank + 1) * chunk),
             *range((last - rank) * chunk, (last - rank + 1) * chunk)] for rank in range(ranks)]


def documents(ranks: int, chunks: Sequence[int]) -> Columns:
    """Head and tail of every document: of each chunk length one document of 2 * ranks chunks."""
    columns: Columns = [[] for _ in range(ranks)]
    start = 0
    for chunk in chunks:
        for rank, slots in enumerate(round_robin(ranks, chunk)):
            columns[rank] += [start + slot for slot in slots]
        start += 2 * ranks * chunk
    return columns


def striped(ranks: int, block: int, rounds: int) -> Columns:
    return [[(turn * ranks + rank) * block + i for turn in range(rounds) for i in range(block)]
            for rank in range(ranks)]


def shuffled(ranks: int, length: int, seed: int) -> Columns:
    columns = list(range(ranks * length))
    random.Random(seed).shuffle(columns)
    return [columns[rank * length:(rank + 1) * length] for rank in range(ranks)]


def maps(ranks: int) -> dict[str, Columns]:
    """Of the kinds that layouts make, short, long, regular and not; every rank holds as many."""
    return {
        "contiguous": contiguous(ranks, 6),
        "one slot": contiguous(ranks, 1),
        "round robin": round_robin(ranks, 3),
        "documents": documents(ranks, [1, 4, 2]),
        "two documents": documents(ranks, [1, 3]),
        "stripes": striped(ranks, 2, 3),
        "long stripes": striped(ranks, 1, 40),
        "rotated": contiguous(ranks, 4)[1:] + contiguous(ranks, 4)[:1],
        "shuffled": shuffled(ranks, 12, seed=ranks),
    }


def runs_of(columns: Columns) -> torch.Tensor:
    """int64 [n, 3]: rank, first column, length."""
    runs: list[list[int]] = []
    for rank, slots in enumerate(columns):
        for slot, column in enumerate(slots):
            if slot and column == slots[slot - 1] + 1:
                runs[-1][2] += 1
            else:
                runs.append([rank, column, 1])
    return torch.tensor(runs, dtype=torch.int64).reshape(-1, 3)


def token_map(columns: Columns, prefix: Optional[int] = None) -> tuple[Any, Any, list[int]]:
    """(order, moves, sizes) as the operators take them."""
    sizes = [len(slots) for slots in columns]
    order, moves = ops.token_map(runs_of(columns), sizes,
                                 sum(sizes) if prefix is None else prefix)
    return order, moves, sizes


def drawn(shape: Sequence[int], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Values of any dtype, some of them -0.0 where there is such a thing."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(list(shape), generator=generator) < 0.5
    if dtype.is_floating_point or dtype.is_complex:
        values = torch.randn(list(shape), generator=generator, dtype=torch.float64).to(dtype)
        values[torch.rand(list(shape), generator=generator) < 0.3] = -0.0
        return values
    return torch.randint(0, 100, list(shape), generator=generator).to(dtype)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Dtype, shape and every bit: -0.0 is not 0.0, and a NaN is itself."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    a, b = (torch.view_as_real(t) if t.dtype.is_complex else t for t in (a.detach(), b.detach()))
    return bool(torch.equal(a.contiguous().reshape(-1).view(torch.uint8),
                            b.contiguous().reshape(-1).view(torch.uint8)))


def raised(function: Any, *arguments: Any, **named: Any) -> Optional[Exception]:
    try:
        function(*arguments, **named)
    except Exception as error:
        return error
    return None

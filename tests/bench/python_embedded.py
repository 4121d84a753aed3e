"""What a call of cpshard.embedded costs: plan and shard of a rank, beside a copy of as many bytes.

    PYTHONPATH=<build>/python python tests/bench/python_embedded.py
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable

import numpy as np

from cpshard import embedded

BATCHES = [("small", 1, 512), ("64 KB", 1, 4096), ("2 MB", 1, 131072), ("32 MB", 16, 131072)]
OPTIONS = {"round_robin": {}, "padding_token_id": 0}
CP_SIZE, RANK = 8, 3


def microseconds(call: Callable[[], Any], repeats: int) -> float:
    """The median of single calls, after as many to warm up."""
    times = []
    for _ in range(2 * repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[repeats:]) * 1e6


def main() -> None:
    print(f"round robin, cp_size {CP_SIZE}, the shard of rank {RANK}; input_ids and labels i64; "
          "microseconds, median")
    print(f"{'batch':>7} {'plan':>9} {'shard':>9} {'both':>9} {'all layouts':>12} "
          f"{'shard bytes':>12} {'their copy':>11}")
    for name, rows, columns in BATCHES:
        ids = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns)
        batch = {"input_ids": ids, "labels": ids + 1}
        repeats = 200 if rows * columns < 1 << 20 else 20
        plan = embedded.plan(batch, OPTIONS, CP_SIZE)
        nbytes = sum(value.nbytes for value in plan.shard(RANK).batch.values())
        source = np.ones(nbytes, np.uint8)
        calls = (lambda: embedded.plan(batch, OPTIONS, CP_SIZE), lambda: plan.shard(RANK),
                 lambda: embedded.plan(batch, OPTIONS, CP_SIZE).shard(RANK),
                 lambda: embedded.plan(batch, OPTIONS, CP_SIZE).layouts, source.copy)
        one, shard, both, layouts, copy = (microseconds(call, repeats) for call in calls)
        print(f"{name:>7} {one:9.1f} {shard:9.1f} {both:9.1f} {layouts:12.1f} {nbytes:12d} "
              f"{copy:11.1f}")


if __name__ == "__main__":
    main()

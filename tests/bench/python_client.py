"""What a call of the Python client costs over one of the C++ client: ShardBatch of 64 KB, all
ranks, the median of single calls, in turn on one server.

    PYTHONPATH=<build>/python python tests/bench/python_client.py <build>/bin
"""

from __future__ import annotations

import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import cpshard

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from live_server import LiveServer  # noqa: E402

BYTES, CP_SIZE, CALLS, ROUNDS = 64 << 10, 4, 1000, 3
GOAL = 200  # microseconds over the C++ client


def of_python(address: str, columns: int) -> float:
    ids = np.arange(4 * columns, dtype=np.int64).reshape(4, columns)
    batch = {"input_ids": ids, "labels": ids + 1, "position_ids": ids % columns,
             "padding_mask": np.zeros((4, columns), bool)}
    times = []
    with cpshard.connect(address) as client:
        for _ in range(2 * CALLS):
            begin = time.perf_counter()
            client.shard(batch, "round_robin", CP_SIZE)
            times.append(time.perf_counter() - begin)
    return statistics.median(times[CALLS:]) * 1e6


def of_cpp(programs: pathlib.Path, address: str) -> tuple[float, int]:
    result = subprocess.run([programs / "cpshard_client_call", address, str(BYTES), str(CP_SIZE),
                             str(CALLS)], stdout=subprocess.PIPE, text=True, check=True)
    median, columns = result.stdout.split()
    return float(median), int(columns)


def main(programs: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory(prefix="cpshard-") as folder, \
            LiveServer(programs / "cpshardd", f"--listen=unix:{folder}/server.sock") as server:
        address = server.wait_until_listening().address
        print(f"ShardBatch of {BYTES >> 10} KB over {CP_SIZE} ranks, one call at a time, unix "
              "socket; microseconds, median")
        print(f"{'round':>6} {'C++':>8} {'Python':>8} {'over':>8}")
        over = []
        for number in range(1, ROUNDS + 1):
            cpp, columns = of_cpp(programs, address)
            python = of_python(address, columns)
            over.append(python - cpp)
            print(f"{number:>6} {cpp:8.1f} {python:8.1f} {over[-1]:8.1f}")
        median = statistics.median(over)
        print(f"median {median:.1f} over the C++ client; goal {GOAL}: "
              f"{'met' if median <= GOAL else 'NOT MET'}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

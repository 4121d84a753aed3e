"""Starts the processes of a job on this machine, and ends those that are left when one fails. A
cluster has a launcher for this (torchrun, Kubernetes)."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
from typing import Iterator, Sequence

_POLL_SECONDS = 0.05


def _server_binary() -> str:
    here = pathlib.Path(__file__).resolve().parents[1] / "build" / "bin" / "cpshardd"
    found = os.environ.get("CPSHARDD") or (str(here) if here.exists() else shutil.which("cpshardd"))
    if not found:
        raise SystemExit("no cpshardd: build it (./dev build), or name it in CPSHARDD")
    return found


@contextlib.contextmanager
def server() -> Iterator[str]:
    """A cpshardd of its own; yields its address."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/cpshard.sock"
        process = subprocess.Popen([_server_binary(), "--listen", address],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield address
        finally:
            process.terminate()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_job(command: Sequence[str], ranks: int) -> int:
    """Runs `command --role load` once and `command --role train` on each rank, with torchrun's
    environment, until all trainers have ended. The exit status: the first that is not 0."""
    with server() as address:
        # A server that starts anew knows no generation; one that goes on is told a later one.
        common = {**os.environ, "CPSHARD_ADDRESS": address, "CPSHARD_JOB": "example",
                  "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()),
                  "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
        loader = subprocess.Popen([*command, "--role", "load"], env=common)
        trainers = [subprocess.Popen([*command, "--role", "train"],
                                     env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)})
                    for rank in range(ranks)]
        try:
            return _wait_for_all(trainers)
        finally:
            for process in (*trainers, loader):
                process.kill()
                process.wait()


def _wait_for_all(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    while True:
        ended = [process.poll() for process in processes]
        failed = [status for status in ended if status]
        if failed or None not in ended:
            return abs(failed[0]) if failed else 0
        time.sleep(_POLL_SECONDS)

"""Process groups in which the reference runs: cp_size real processes with a gloo mesh each."""

import multiprocessing
import os
import pathlib
import tempfile
import traceback
import warnings
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import reference

FORK = multiprocessing.get_context("fork")


def serve(rank: int, cp_size: Optional[int], store: str, pipe: Any) -> None:
    """A rank's loop: lists of cases in, lists of answers out, until None."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    mesh = None
    if cp_size is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank,
                                world_size=cp_size)
        mesh = init_device_mesh("cpu", (cp_size,), mesh_dim_names=("cp",))["cp"]
    while (cases := pipe.recv()) is not None:
        try:
            pipe.send([reference.run(case, mesh, rank) for case in cases])
        except Exception:  # not the reference's: a fault of this harness
            pipe.send(traceback.format_exc())
    if mesh is not None:
        dist.destroy_process_group()


class World:
    """One process per rank, started at once and closed by `close`."""

    def __init__(self, cp_size: Optional[int], folder: str):
        self._pipes = []
        self._processes = []
        store = str(pathlib.Path(folder) / f"store-{cp_size}")
        for rank in range(cp_size or 1):
            ours, theirs = FORK.Pipe()
            process = FORK.Process(target=serve, args=(rank, cp_size, store, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def run(self, cases: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        """Per case the answers of all ranks."""
        for pipe in self._pipes:
            pipe.send(cases)
        answers = [pipe.recv() for pipe in self._pipes]
        for answer in answers:
            if isinstance(answer, str):
                raise RuntimeError(f"a rank failed outside the reference:\n{answer}")
        return [list(ranks) for ranks in zip(*answers)]

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(timeout=20)
            if process.is_alive():
                process.kill()


class Worlds:
    """Worlds by cp size, each started when it is first needed. To be used in a with statement."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="cpshard-parity-")
        self._worlds: dict[Optional[int], World] = {}

    def run(self, cases: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        """Per case, in their order, the answers of all its ranks."""
        answers: list[list[dict[str, Any]]] = [[] for _ in cases]
        for cp_size in dict.fromkeys(case["cp_size"] for case in cases):
            if cp_size not in self._worlds:
                self._worlds[cp_size] = World(cp_size, self._folder.name)
            at = [i for i, case in enumerate(cases) if case["cp_size"] == cp_size]
            results = self._worlds[cp_size].run([cases[i] for i in at])
            for i, result in zip(at, results):
                answers[i] = result
        return answers

    def __enter__(self) -> "Worlds":
        return self

    def __exit__(self, *_: object) -> None:
        for world in self._worlds.values():
            world.close()
        self._folder.cleanup()

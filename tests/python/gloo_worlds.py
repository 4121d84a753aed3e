"""Real process groups: gloo on so many processes, started once and asked many things.

    worlds = GlooWorlds()
    results = worlds.run(2, function, argument)     # one result per rank
    worlds.close()

`function(mesh, *arguments)` must stand at the top of a module. Every rank is a fork of this
process, so what is imported before the first `run` need not be imported again.
"""

import multiprocessing
import os
import pathlib
import pickle
import tempfile
import traceback
import warnings
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

FORK = multiprocessing.get_context("fork")
TIMEOUT_S = 120.0


class Raised:
    """What a rank raised: its class and those above it, by name, and the text."""

    def __init__(self, error: BaseException):
        self.kinds = [kind.__name__ for kind in type(error).__mro__]
        self.text = str(error)
        self.trace = "".join(traceback.format_exception(error))

    def __repr__(self) -> str:
        return f"{self.kinds[0]}: {self.text}"


def serve(rank: int, size: Optional[int], store: str, pipe: Any) -> None:
    """A rank's loop; without a size it is alone, without torch.distributed."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    mesh = None
    if size is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
        mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("cp",))
    while (asked := pickle.loads(pipe.recv_bytes())) is not None:
        function, arguments = asked
        try:
            answer = function(mesh, *arguments)
        except Exception as error:
            answer = Raised(error)
        pipe.send_bytes(pickle.dumps(answer))
    if mesh is not None:
        dist.destroy_process_group()
    os._exit(0)


class GlooWorlds:
    """Worlds by size, each started when it is first needed; size None is one process without
    torch.distributed, and its mesh is None."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="cpshard-gloo-")
        self._worlds: dict[Optional[int], list[tuple[Any, Any]]] = {}

    def run(self, size: Optional[int], function: Callable[..., Any], *arguments: Any,
            raises: bool = True) -> list[Any]:
        """The results of all ranks; where `raises`, an exception of a rank fails the test."""
        ranks = self._started(size)
        request = pickle.dumps((function, arguments))
        for _, pipe in ranks:
            pipe.send_bytes(request)
        answers = []
        for rank, (_, pipe) in enumerate(ranks):
            if not pipe.poll(TIMEOUT_S):
                self._kill(size)
                raise TimeoutError(f"rank {rank} of {size} gave no answer in {TIMEOUT_S:.0f} s: "
                                   f"{function.__name__}")
            answers.append(pickle.loads(pipe.recv_bytes()))
        failed = [(rank, answer) for rank, answer in enumerate(answers)
                  if isinstance(answer, Raised)]
        if raises and failed:
            rank, answer = failed[0]
            raise AssertionError(f"rank {rank} of {size} raised:\n{answer.trace}")
        return answers

    def _started(self, size: Optional[int]) -> list[tuple[Any, Any]]:
        if size not in self._worlds:
            store = str(pathlib.Path(self._folder.name) / f"store-{size}")
            self._worlds[size] = [self._start(rank, size, store) for rank in range(size or 1)]
        return self._worlds[size]

    @staticmethod
    def _start(rank: int, size: Optional[int], store: str) -> tuple[Any, Any]:
        ours, theirs = FORK.Pipe()
        process = FORK.Process(target=serve, args=(rank, size, store, theirs), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def _kill(self, size: Optional[int]) -> None:
        for process, _ in self._worlds.pop(size):
            process.kill()

    def close(self) -> None:
        for ranks in self._worlds.values():
            for _, pipe in ranks:
                pipe.send_bytes(pickle.dumps(None))
            for process, _ in ranks:
                process.join(timeout=20)
                if process.is_alive():
                    process.kill()
        self._folder.cleanup()

"""Times cpshard against the reference: the same batch, in process, one thread each, one run.

bench_reference.py --timer CPSHARD_SHARD_TIMER [--rounds N] [--json FILE] [--only NAME...]

The reference shards for every rank in turn; a stand-in process group without a network makes this
process that rank. Timed are the sharder (of round robin the entering of its context too, which cuts)
and giving the results bytes of their own where they are views of something larger, as all of
cpshard's have. cpshard makes the shards of all ranks in one call. Both keep freed memory; the clock
is the thread's processor time. Ratios are taken inside a round; figures are median (min-max).
"""

import argparse
import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from typing import Any, Iterator

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

import fast_stand_ins
import reference
from bench_batches import CASES, SIZES, Batch, Case, Size, write_safetensors

GOAL = 5.0
REPEAT = 4  # calls in a row, whose mean is one sample
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


@contextlib.contextmanager
def mesh_of(rank: int, cp_size: int) -> Iterator[Any]:
    dist.init_process_group("fake", rank=rank, world_size=cp_size, store=FakeStore())
    try:
        yield init_device_mesh("cpu", (cp_size,), mesh_dim_names=("cp",))["cp"]
    finally:
        dist.destroy_process_group()


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from tensors_in(element)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
    elif dataclasses.is_dataclass(value):
        yield from tensors_in([getattr(value, f.name) for f in dataclasses.fields(value)])


def is_part(tensor: torch.Tensor) -> bool:
    """Whether it is a view of something larger, or strided."""
    own = tensor.numel() * tensor.element_size()
    return not tensor.is_contiguous() or (
        tensor._is_view() and tensor.untyped_storage().nbytes() > own)


def sharder_of(case: Case, mesh: Any) -> Any:
    """The reference's function; called with (mesh, None, batch, ...)."""
    if case.backend in reference.ROUND_ROBIN:
        module = reference.module(f"{reference.COMMON}.context_parallel.sharder")
        return getattr(module, reference.ROUND_ROBIN[case.backend])
    if case.backend == "te_thd":
        return reference.resolve(mesh)
    if case.backend == "magi":
        magi = reference.module(f"{reference.COMMON}.context_parallel.magi")
        custom = case.arguments["variant"] == "custom"
        state = magi.MagiState(enabled=True, custom=custom, cp_group=mesh.get_group(),
                               cp_size=mesh.size(), device_mesh=mesh)
        return reference.resolve(mesh, magi=state, is_thd=custom, model=reference.Model())
    path, function = reference.SHARDERS[case.backend]
    return getattr(reference.module(path), function)


@dataclasses.dataclass
class Seconds:
    """`call`: the sharder as it returns; `copies`: its views made bytes of their own."""

    call: float = 0.0
    copies: float = 0.0


def time_call(case: Case, mesh: Any, batch: Batch, arguments: dict[str, Any], seconds: Seconds
              ) -> Batch:
    batch = {name: value.clone() if isinstance(value, torch.Tensor) else value
             for name, value in batch.items()}  # some sharders cut in place
    shard = sharder_of(case, mesh)
    with contextlib.ExitStack() as stack:
        start = time.thread_time()
        context, outputs, _ = shard(mesh, None, batch, **arguments)
        if case.backend in reference.ROUND_ROBIN:
            stack.enter_context(context())
        called = time.thread_time()
        copies = [tensor.clone() for tensor in tensors_in(outputs) if is_part(tensor)]
        seconds.copies += time.thread_time() - called
        seconds.call += called - start
        del copies
        return {name: list(value.shape) for name, value in outputs.items()
                if isinstance(value, torch.Tensor)}


def time_reference(case: Case, size: Size, batch: Batch) -> tuple[Seconds, Batch]:
    """Of all ranks together, and the shapes of rank 0."""
    arguments = {"loss_mask": None, "padding_token_id": 0} | case.arguments
    if case.backend == "magi":
        del arguments["variant"]
    total = Seconds()
    shapes: Batch = {}
    for rank in range(size.cp_size):
        with mesh_of(rank, size.cp_size) as mesh:
            found = time_call(case, mesh, batch, arguments, Seconds())  # not counted
            shapes = shapes or found
            for _ in range(REPEAT):
                time_call(case, mesh, batch, arguments, total)
    return Seconds(total.call / REPEAT, total.copies / REPEAT), shapes


class Timer:
    """The program cpshard_shard_timer, one request and one answer a line."""

    def __init__(self, program: str):
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         text=True)

    def measure(self, case: Case, size: Size, path: pathlib.Path) -> Batch:
        request = {"batch": str(path), "cp_size": size.cp_size, "repeat": 2 * REPEAT,
                   "options": case.options | {"padding_token_id": 0}}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(f"{case.name}: cpshard says: {answer['error']}")
        return answer

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=60)


def check_shapes(case: Case, ours: Batch, theirs: Batch) -> None:
    """Both did the same work: the streams that both name are of the same shape."""
    for name in ours.keys() & theirs.keys():
        if ours[name] != theirs[name]:
            print(f"note: {case.name}: '{name}' is {ours[name]} here, {theirs[name]} there")


@dataclasses.dataclass
class Row:
    case: Case
    size: Size
    megabytes: float
    theirs: list[float]  # milliseconds, with the copies
    returned: list[float]  # without
    ours: list[float]
    plans: list[float]

    def ratios(self, theirs: list[float]) -> list[float]:
        return [a / b for a, b in zip(theirs, self.ours)]


def measure(case: Case, size: Size, rounds: int, timer: Timer, folder: str) -> Row:
    batch = case.make(size)
    path = pathlib.Path(folder) / "batch.safetensors"
    write_safetensors(path, batch)
    row = Row(case, size, 0.0, [], [], [], [])
    for _ in range(rounds):
        seconds, shapes = time_reference(case, size, batch)
        answer = timer.measure(case, size, path)
        row.theirs.append(1e3 * (seconds.call + seconds.copies))
        row.returned.append(1e3 * seconds.call)
        row.ours.append(1e3 * answer["all"])
        row.plans.append(1e3 * answer["plan"])
    row.megabytes = answer["bytes"] / 1e6
    check_shapes(case, answer["shapes"], shapes)
    return row


def text(samples: list[float], digits: int) -> str:
    return (f"{statistics.median(samples):.{digits}f} "
            f"({min(samples):.{digits}f}-{max(samples):.{digits}f})")


def verdict(row: Row) -> str:
    if not row.case.goal:
        return f"reported: {row.case.note}"
    return "met" if statistics.median(row.ratios(row.theirs)) >= GOAL else "NOT MET"


def print_row(row: Row) -> None:
    print(f"| {row.case.name} | {row.megabytes:.1f} | {text(row.theirs, 1)} | {text(row.ours, 2)} "
          f"| {statistics.median(row.plans):.3f} | **{text(row.ratios(row.theirs), 1)}** "
          f"| {text(row.ratios(row.returned), 1)} | {verdict(row)} |", flush=True)


def print_head(size: Size) -> None:
    print(f"\n{size}; load {os.getloadavg()[0]:.1f}\n")
    print("| layout | MB out | reference, ms | cpshard, ms | its plan | times faster "
          "| ... than views left as they are | goal 5 |\n" + "|---" * 8 + "|", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--timer", required=True, help="the program cpshard_shard_timer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="write all samples here, in milliseconds")
    parser.add_argument("--only", nargs="*", help="cases whose names begin so")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    warnings.filterwarnings("ignore")
    for option, value in ((M_MMAP_THRESHOLD, 1 << 30), (M_TRIM_THRESHOLD, 2_000_000_000)):
        ctypes.CDLL(None).mallopt(option, value)
    torch.set_num_threads(1)
    reference.prepare()
    fast_stand_ins.install()
    chosen = [case for case in CASES
              if not arguments.only or case.name.startswith(tuple(arguments.only))]
    rows = []
    timer = Timer(arguments.timer)
    with tempfile.TemporaryDirectory(prefix="cpshard-bench-") as folder:
        for size in SIZES:
            print_head(size)
            for case in chosen:
                if case.one_row and size.rows > 1:
                    continue
                rows.append(measure(case, size, arguments.rounds, timer, folder))
                print_row(rows[-1])
    timer.close()
    if arguments.json:
        lines = [dataclasses.asdict(row) | {"case": row.case.name,
                                            "goal": GOAL if row.case.goal else None}
                 for row in rows]
        pathlib.Path(arguments.json).write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    sys.exit(main())

"""The part of ./check that has torch in it: torch.ops.cpshard.shard_streams against index_select, in
bytes, in order with torch's current stream, and in time. For a process of its own.

The library is libcpshard_torch.so beside this file, in build*/python, or where
CPSHARD_TORCH_LIBRARY says; it needs the torch that it was built against.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
NAME = "torch.ops.cpshard.shard_streams"
TOKENS = 1 << 20
RANKS = 8
GOAL = 3.0  # times torch, in time on the device
SETS = 11  # of the streams: more than any cache holds
ROUNDS = 21
SPIN = 2_000_000  # cycles of the device, about a millisecond


class TorchJob:
    """All ranks' ids, labels, positions and mask, set after set, in torch and by
    torch.ops.cpshard."""

    def __init__(self, torch):
        self.torch = torch
        numbers = torch.arange(3 * TOKENS, device="cuda").view(3, 1, TOKENS)
        self.sets = [[*(numbers + i), (numbers[0] + i) % 3 == 0] for i in range(SETS)]
        chunk = TOKENS // (2 * RANKS)
        slots = torch.arange(TOKENS, device="cuda").view(2 * RANKS, chunk)
        pairs = [(r, 2 * RANKS - 1 - r) for r in range(RANKS)]
        self.indices = [torch.cat([slots[head], slots[tail]]) for head, tail in pairs]
        self.runs = [torch.tensor([[head * chunk, chunk], [tail * chunk, chunk]])
                     for head, tail in pairs]
        self.spin = SPIN

    def by_torch(self, streams, rank):
        return [stream.index_select(1, self.indices[rank]) for stream in streams]

    def by_cpshard(self, streams, rank):
        return self.torch.ops.cpshard.shard_streams(streams, self.runs[rank], [1] * 4, [0] * 4)

    def all_ranks(self, cut, streams):
        return [cut(streams, rank) for rank in range(RANKS)]

    def events(self):
        return (self.torch.cuda.Event(enable_timing=True) for _ in range(2))

    def seconds_behind_a_backlog(self, cut, streams, rank):
        """What the device takes for it: it comes behind a kernel that spins for longer than the
        host takes to enqueue it. None: it did not."""
        begin, end = self.events()
        self.torch.cuda._sleep(self.spin)
        begin.record()
        cut(streams, rank)
        end.record()
        in_time = not begin.query()
        self.torch.cuda.synchronize()
        return begin.elapsed_time(end) / 1e3 if in_time else None

    def device_seconds(self, cut):
        """Of all ranks of one set."""
        total = 0.0
        for streams in self.sets:
            for rank in range(RANKS):
                seconds = self.seconds_behind_a_backlog(cut, streams, rank)
                while seconds is None:
                    if self.spin > 100 * SPIN:
                        raise RuntimeError(f"{cut.__name__} waits for the device")
                    self.spin *= 2
                    seconds = self.seconds_behind_a_backlog(cut, streams, rank)
                total += seconds
        return total / SETS

    def seconds_in_a_row(self, cut):
        """Of one set, as fast as the host enqueues it, gaps between the launches included."""
        begin, end = self.events()
        begin.record()
        for streams in self.sets:
            self.all_ranks(cut, streams)
        end.record()
        self.torch.cuda.synchronize()
        return begin.elapsed_time(end) / 1e3 / SETS

    def difference(self):
        """Where the operator's bytes are not torch's, in words, or nothing."""
        for number, streams in enumerate(self.sets):
            for rank in range(RANKS):
                pairs = zip(self.by_cpshard(streams, rank), self.by_torch(streams, rank))
                for i, pair in enumerate(pairs):
                    if not self.torch.equal(*pair):
                        return f"set {number}, rank {rank}, stream {i}"
        return ""

    def out_of_order(self):
        """Whether the operator reads before what was enqueued first is done, or after what comes
        behind it."""
        wanted = self.all_ranks(self.by_torch, self.sets[0])
        streams = [stream.zero_() for stream in map(self.torch.clone, self.sets[0])]
        self.torch.cuda._sleep(20 * SPIN)
        for stream, values in zip(streams, self.sets[0]):
            stream.copy_(values)
        made = self.all_ranks(self.by_cpshard, streams)
        for stream in streams:
            stream.zero_()
        return not all(self.torch.equal(*pair) for ours, theirs in zip(made, wanted)
                       for pair in zip(ours, theirs))


def in_pairs(measure, job):
    """(torch : ours of each pair, seconds of torch); which goes first changes."""
    ratios, seconds = [], []
    for number in range(ROUNDS):
        cuts = (job.by_cpshard, job.by_torch)[::1 if number % 2 else -1]
        took = {cut.__name__: measure(cut) for cut in cuts}
        ratios.append(took["by_torch"] / took["by_cpshard"])
        seconds.append(took["by_torch"])
    return ratios, seconds


def gb_per_s(seconds):
    return f"{TOKENS * 25 / statistics.median(seconds) / 1e9:.1f} GB/s"


def spread(ratios):
    return (f"{statistics.median(ratios):.2f} x torch ({min(ratios):.2f} to {max(ratios):.2f} in "
            f"{ROUNDS} pairs)")


def timed(job):
    """The goal is held against time on the device; what the host makes of it is shown."""
    for cut in (job.by_cpshard, job.by_torch):
        job.device_seconds(cut)  # the first one is slow
    ratios, seconds = in_pairs(job.device_seconds, job)
    in_a_row, row_seconds = in_pairs(job.seconds_in_a_row, job)
    return {"verdict": "PASS" if statistics.median(ratios) >= GOAL else "FAIL", "goal": GOAL,
            "reason": f"on the device, behind a backlog, {spread(ratios)}, torch "
                      f"{gb_per_s(seconds)}, goal {GOAL} x; calls in a row, bound by the host, "
                      f"{spread(in_a_row)}, torch {gb_per_s(row_seconds)}; equal bytes"}


def library():
    named = os.environ.get("CPSHARD_TORCH_LIBRARY")
    if named:
        return pathlib.Path(named)  # which has to be there
    candidates = [HERE / "libcpshard_torch.so", *sorted(
        HERE.glob("../../build*/python/cpshard/_native/libcpshard_torch.so"))]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def why_not(torch):
    """Loads torch.ops.cpshard; nothing, or (verdict, reason) where it is not there."""
    if not torch.cuda.is_available():
        return "SKIP", f"torch {torch.__version__} sees no GPU"
    path = library()
    if path is None:
        return "SKIP", "no libcpshard_torch.so beside the check, and CPSHARD_TORCH_LIBRARY not set"
    torch.ops.load_library(str(path.resolve()))
    obstacle = torch.ops.cpshard.cuda_obstacle()
    return ("FAIL", obstacle) if obstacle else None


def looked_at(with_speed, about):
    """The item; `about` gets what torch it was."""
    try:
        import torch
    except ModuleNotFoundError as error:
        return {"verdict": "SKIP", "reason": f"no torch: {error}"}
    about["torch"] = torch.__version__
    obstacle = why_not(torch)
    if obstacle:
        return {"verdict": obstacle[0], "reason": obstacle[1]}
    job = TorchJob(torch)
    difference = job.difference()
    if difference:
        return {"verdict": "FAIL", "reason": f"not what torch makes: {difference}"}
    if job.out_of_order():
        return {"verdict": "FAIL", "reason": "not in order with torch's current stream"}
    return timed(job) if with_speed else {"verdict": "PASS", "reason": "equal bytes"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--no-speed", action="store_true")
    arguments = parser.parse_args()
    about = {}
    try:
        item = looked_at(not arguments.no_speed, about)
    except Exception as error:  # whatever torch and its libraries make of this machine
        item = {"verdict": "FAIL", "reason": f"{type(error).__name__}: {error}".splitlines()[0]}
    item = {"name": NAME} | item
    print(f"{item['verdict']}  {NAME}: {item['reason']}")
    arguments.json.write_text(json.dumps(about | {"items": [item], "rows": []}), encoding="utf-8")
    return int(item["verdict"] == "FAIL")


if __name__ == "__main__":
    sys.exit(main())

"""The token verbs' operators beside the reference's verbs, in real gloo groups on this machine.

    PYTHONPATH=<build>/python python tests/bench/torch_verbs.py [rounds]

Forward and backward of a gather, and many streams cut at once; ours and theirs take turns in one
run, each round one of each. Prints medians in ms and their ratio: below 1, ours is faster.
"""

import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import operator_cases as cases  # noqa: E402
import reference  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from gloo_worlds import GlooWorlds  # noqa: E402
from operator_cases import ops, token_map  # noqa: E402

SHAPES = (("[1, 131072]", [1, 131072]), ("[8, 8192, 64]", [8, 8192, 64]))


def columns_of(name, ranks, length):
    if name == "contiguous":
        return cases.contiguous(ranks, length // ranks)
    if name == "round robin":
        return cases.round_robin(ranks, length // (2 * ranks))
    return cases.documents(ranks, [16] * (length // (2 * ranks * 16)))


def timed(function, rounds):
    """Medians of the alternatives, in ms: one of each in turn, all ranks at once."""
    seconds = [[] for _ in function]
    for turn in range(rounds + 2):
        for i, each in enumerate(function):
            dist.barrier()
            began = time.perf_counter()
            each()
            if turn >= 2:
                seconds[i].append(time.perf_counter() - began)
    return [statistics.median(each) * 1e3 for each in seconds]


def gathers(mesh, map_name, shape, rounds):
    columns = columns_of(map_name, mesh.size(), shape[1])
    order, moves, sizes = token_map(columns)
    indices, name = torch.tensor(columns[mesh.get_local_rank()]), mesh.get_group().group_name
    local = torch.randn([shape[0], sizes[0], *shape[2:]]).requires_grad_()
    gradient = torch.randn(shape)

    def ours():
        ops.gather_tokens(local, order, moves, sizes, 1, name).backward(gradient)

    def theirs():
        reference.sharder.gather_token_tensor_by_indices(mesh, local, indices, 1).backward(gradient)

    return timed([ours, theirs], rounds)


def sequences(mesh, shape, rounds):
    name, group = mesh.get_group().group_name, mesh.get_group()
    local = torch.randn([shape[0], shape[1] // mesh.size(), *shape[2:]]).requires_grad_()
    gradient = torch.randn(shape)
    return timed([lambda: ops.gather_sequence(local, name).backward(gradient),
                  lambda: reference.deepseek_v41.gather_sequence(local, group).backward(gradient)],
                 rounds)


def cuts(mesh, rounds):
    """Five streams of a batch [8, 8192], int64 but for two."""
    streams = [torch.zeros(8, 8192, dtype=dtype) for dtype in
               (torch.int64, torch.int64, torch.int64, torch.bool, torch.float32)]
    columns = cases.round_robin(4, 8192 // 8)[1]
    indices = torch.tensor(columns)
    runs = torch.tensor([[columns[0], 1024], [columns[1024], 1024]])
    dims, fills = [1] * 5, [0] * 5
    return timed([lambda: ops.shard_streams(streams, runs, dims, fills),
                  lambda: [each.index_select(1, indices) for each in streams]], rounds)


def report(label, worlds, size, function, *arguments):
    ours, theirs = (max(each) for each in zip(*worlds.run(size, function, *arguments)))
    print(f"{label:44} cp {size}  {ours:9.3f}  {theirs:9.3f}  {ours / theirs:6.2f}", flush=True)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    worlds = GlooWorlds()
    print(f"{'':50} {'ours ms':>9}  {'theirs ms':>9}  {'ratio':>6}")
    try:
        for size in (2, 4):
            for text, shape in SHAPES:
                for map_name in ("contiguous", "round robin", "documents"):
                    report(f"gather {text} f32 {map_name}", worlds, size, gathers, map_name, shape,
                           rounds)
                report(f"gather_sequence {text} f32", worlds, size, sequences, shape, rounds)
        report("shard_streams, 5 of [8, 8192]", worlds, 2, cuts, rounds)
    finally:
        worlds.close()


if __name__ == "__main__":
    main()

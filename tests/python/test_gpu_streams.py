"""shard_streams and cpshard.torch on a GPU. Expected is what they make of the same streams on the
CPU, to the bit. Where torch sees no GPU, or the library was built without CUDA, these tests say so
and are left out."""

import pytest
import torch
from dropin_cases import Ranks, plain
from operator_cases import drawn, ops

import cpshard.torch as ours
from cpshard.torch import cuts_at_once

OBSTACLE = ("torch sees no GPU" if not torch.cuda.is_available() else
            ops.cuda_obstacle())
pytestmark = pytest.mark.skipif(bool(OBSTACLE), reason=OBSTACLE)
DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.bool, torch.uint8, torch.int32,
          torch.int64)
GPU = "cuda:0"


def bits(tensor):
    return tensor.cpu().contiguous().view(torch.uint8)


def batch(columns, seed=0):
    """Streams of every dtype, some of them on an odd element of their memory."""
    shapes = [([2, columns], 1), ([3, 2, columns], -1), ([columns], 0), ([columns, 5], 0),
              ([2, columns, 3], 1), ([0, columns], 1)]
    streams, dims, fills = [], [], []
    for i, dtype in enumerate(DTYPES):
        for shape, dim in shapes:
            whole = drawn([*shape[:-1], shape[-1] + i % 2], dtype, seed=seed + i)
            streams.append(whole.flatten()[i % 2:][:torch.Size(shape).numel()].view(shape))
            dims.append(dim)
            fills.append((True, 3, 0)[i % 3])
    return streams, dims, fills


def runs_of(columns, length, seed=0):
    """All columns in runs of that length, shuffled, a fill behind every fifth."""
    starts = torch.randperm(columns // length, generator=torch.Generator().manual_seed(seed))
    runs = []
    for i, start in enumerate((starts * length).tolist()):
        runs.append((start, length))
        if i % 5 == 4:
            runs.append((-1, 3))
    return torch.tensor(runs, dtype=torch.int64)


def on_gpu(streams):
    """At the same places modulo 256 bytes: the offset in the memory is kept."""
    moved = []
    for stream in streams:
        memory = torch.empty(stream.numel() + stream.storage_offset(), dtype=stream.dtype,
                             device=GPU)
        moved.append(memory[stream.storage_offset():].view(stream.shape).copy_(stream))
    return moved


def expect_same(made, expected):
    for i, (shard, other) in enumerate(zip(made, expected, strict=True)):
        assert shard.device == torch.device(GPU) and shard.is_contiguous()
        assert shard.shape == other.shape and shard.dtype == other.dtype
        assert torch.equal(bits(shard), bits(other)), f"stream {i}"


@pytest.mark.parametrize("columns, length", [(0, 1), (7, 1), (64, 8), (1000, 125), (4096, 3)])
def test_a_gpu_has_the_bytes_of_the_cpu(columns, length):
    streams, dims, fills = batch(columns)
    runs = runs_of(columns, length).view(-1, 2)
    expect_same(ops.shard_streams(on_gpu(streams), runs, dims, fills),
                ops.shard_streams(streams, runs, dims, fills))


@pytest.mark.parametrize("columns", [1 << 14, 1 << 20])  # 0.5 and 32 MB of table
def test_a_table_of_any_size_is_carried_out(columns):
    stream = torch.arange(columns).view(1, -1)
    runs = runs_of(columns, 1)
    expect_same(ops.shard_streams([stream.to(GPU)], runs, [1], [-1]),
                ops.shard_streams([stream], runs, [1], [-1]))


def test_gaps_and_expanded_rows_are_as_on_the_cpu():
    stream = drawn([10, 6], torch.float32, seed=9)
    runs = torch.tensor([[2, 3], [-1, 2], [9, 1]])
    expect_same(ops.shard_streams([stream.to(GPU).t(), stream.to(GPU)[:, :1].expand(10, 4)], runs,
                                  [1, 0], [-1.5, 2]),
                ops.shard_streams([stream.t(), stream[:, :1].expand(10, 4)], runs, [1, 0],
                                  [-1.5, 2]))


@pytest.mark.parametrize("side", [False, True])
def test_it_comes_after_what_was_enqueued_and_before_what_follows(side):
    """Many times, each reading what a kernel before it writes late, and overwritten at once."""
    columns, stream = 1 << 16, torch.cuda.Stream() if side else torch.cuda.default_stream()
    runs = runs_of(columns, 64)
    index = ops.shard_streams([torch.arange(columns)], runs, [0], [-1])[0]
    work = torch.randn(2048, 2048, device=GPU)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        source = torch.zeros(columns, dtype=torch.long, device=GPU)
        sums = []
        for turn in range(30):
            work = work @ work * 1e-3
            source.copy_(torch.arange(columns, device=GPU) + turn)
            (shard,) = ops.shard_streams([source], runs, [0], [-1])
            source.zero_()
            sums.append(shard.clone())
            del shard  # its memory is the next one's
    torch.cuda.synchronize()
    for turn, shard in enumerate(sums):
        assert torch.equal(shard.cpu(), torch.where(index < 0, -1, index + turn)), turn


def test_many_streams_in_turn_make_what_one_does():
    source = torch.arange(4096, device=GPU)
    runs = runs_of(4096, 16)
    (expected,) = ops.shard_streams([source.cpu()], runs, [0], [-1])
    torch.cuda.synchronize()
    for stream in [torch.cuda.Stream() for _ in range(20)] * 2:  # more than executors are kept
        with torch.cuda.stream(stream):
            (shard,) = ops.shard_streams([source], runs, [0], [-1])
        stream.synchronize()
        assert torch.equal(shard.cpu(), expected)


def test_the_host_does_not_wait():
    work = torch.randn(4096, 4096, device=GPU)
    source, runs = torch.arange(4096, device=GPU), runs_of(4096, 16)
    ops.shard_streams([source], runs, [0], [-1])  # makes the executor
    torch.cuda.synchronize()
    for _ in range(200):
        work = work @ work * 1e-3
    ops.shard_streams([source], runs, [0], [-1])
    assert not torch.cuda.current_stream().query(), "all that was enqueued is done already"


def test_streams_of_two_devices_are_refused_by_name():
    host, gpu = torch.ones(2, 4), torch.ones(2, 4, device=GPU)
    with pytest.raises(ValueError, match="stream 0 is on cuda:0, stream 1 on cpu"):
        ops.shard_streams([gpu, host], torch.tensor([[0, 1]]), [1, 1], [0, 0])
    with pytest.raises(ValueError, match="stream 0 is on cpu, stream 1 on cuda:0"):
        ops.shard_streams([host, gpu], torch.tensor([[0, 1]]), [1, 1], [0, 0])


def test_what_does_not_fit_is_refused_as_on_the_cpu():
    stream = torch.ones(2, 4, device=GPU)
    with pytest.raises(ValueError, match="the runs read 5"):
        ops.shard_streams([stream], torch.tensor([[0, 5]]), [1], [0])
    with pytest.raises(TypeError, match="int64 on the CPU"):
        ops.shard_streams([stream], torch.tensor([[0, 1]], device=GPU), [1], [0])
    with pytest.raises(ValueError, match="requires grad"):
        ops.shard_streams([stream.requires_grad_()], torch.tensor([[0, 1]]), [1], [0])


@pytest.mark.parametrize("shard_batch", [ours.shard_batch_contiguous,
                                         ours.shard_batch_load_balanced])
def test_a_batch_on_a_gpu_is_cut_there_in_one_call(shard_batch, monkeypatch):
    calls = []
    monkeypatch.setattr(cuts_at_once.ops, "shard_streams",
                        lambda *a, op=ops.shard_streams: calls.append(len(a[0])) or op(*a))
    for rank in range(2):
        host = plain(21)
        gpu = {name: value.to(GPU) for name, value in host.items()}
        shard_batch(Ranks(2, rank), None, host)
        shard_batch(Ranks(2, rank), None, gpu)
        for name, value in host.items():
            assert gpu[name].device == torch.device(GPU)
            assert torch.equal(gpu[name].cpu(), value), name
    assert calls == [2, 2], "input_ids and labels together, on each rank"

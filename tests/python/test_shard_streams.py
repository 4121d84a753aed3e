"""shard_streams: many streams of a batch cut at once. Expected is what torch's own cat and
index_select make of them."""

import pytest
import torch
from operator_cases import drawn, ops, same

DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.bool, torch.uint8, torch.int32,
          torch.int64)


def expected(stream, runs, dim, fill):
    parts = []
    for source, length in runs:
        shape = list(stream.shape)
        shape[dim] = length
        parts.append(torch.full(shape, fill, dtype=stream.dtype) if source < 0
                     else stream.narrow(dim, source, length))
    return torch.cat(parts, dim)


def test_every_stream_is_cut_on_its_own_axis_with_its_own_fill():
    runs = [(2, 3), (-1, 2), (9, 1), (0, 2)]
    streams, dims, fills = [], [], []
    for i, dtype in enumerate(DTYPES):
        for shape, dim in [([2, 10], 1), ([3, 2, 10], 2), ([3, 2, 10], -1), ([10], 0),
                           ([10, 4], 0), ([2, 10, 3], 1), ([0, 10], 1), ([2, 10, 0], 1)]:
            streams.append(drawn(shape, dtype, seed=i))
            dims.append(dim)
            fills.append((True, 3, 0)[i % 3])
    streams.append(drawn([10, 6], torch.float32, seed=99).t())  # gaps
    dims.append(1)
    fills.append(-1.5)
    shards = ops.shard_streams(streams, torch.tensor(runs), dims, fills)
    assert len(shards) == len(streams)
    for shard, stream, dim, fill in zip(shards, streams, dims, fills):
        assert same(shard, expected(stream, runs, dim, fill)) and shard.is_contiguous()


def test_no_runs_make_empty_shards():
    (shard,) = ops.shard_streams([torch.ones(2, 4)], torch.zeros(0, 2, dtype=torch.int64), [1], [0])
    assert list(shard.shape) == [2, 0]


@pytest.mark.parametrize("arguments, kind, text", [
    (([torch.ones(2, 4)], [[0, 5]], [1], [0]), ValueError, "4 columns on axis 1, the runs read 5"),
    (([torch.ones(2, 4)], [[-2, 1]], [1], [0]), ValueError, r"run 0 \{-2, 1\} is neither"),
    (([torch.ones(2, 4)], [[2**62, 2**62]], [1], [0]), ValueError, "is neither"),
    (([torch.ones(2, 4)], [[0, 1]], [2], [0]), IndexError, "out of range"),
    (([torch.ones(2, 4)], [[0, 1]], [1], []), ValueError, "1 streams, 1 seq_dims and 0 fills"),
    (([torch.ones(2, 4, requires_grad=True)], [[0, 1]], [1], [0]), ValueError, "requires grad"),
    (([torch.ones(2, 4, dtype=torch.uint8)], [[-1, 1]], [1], [300]), RuntimeError, "overflow"),
])
def test_what_does_not_fit_is_refused(arguments, kind, text):
    streams, runs, dims, fills = arguments
    with pytest.raises(kind, match=text):
        ops.shard_streams(streams, torch.tensor(runs), dims, fills)


def test_runs_must_be_integers():
    with pytest.raises(TypeError, match="they must be int64"):
        ops.shard_streams([torch.ones(2, 4)], torch.tensor([[0.0, 1.0]]), [1], [0])

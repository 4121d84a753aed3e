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


@pytest.mark.parametrize("stream", [
    torch.arange(1 << 20).expand(1 << 18, 1 << 20),
    torch.arange(1 << 20).view(2, 1, 1, 1 << 19).expand(2, 1 << 9, 1 << 9, 1 << 19),
    torch.ones(()).expand(1 << 18, 1 << 21),
    torch.arange(1 << 22).view(1 << 20, 4).t().unsqueeze(0).expand(1 << 16, 4, 1 << 20),
], ids=["rows", "heads", "one number", "transposed"])
def test_what_is_expanded_is_not_written_out(stream):
    """Of 2 TB no copy can be made; index_select makes none either."""
    runs = torch.tensor([[5, 1], [-1, 1], [7, 1]])
    (shard,) = ops.shard_streams([stream], runs, [-1], [9])
    assert list(shard.shape) == [*stream.shape[:-1], 3] and shard.is_contiguous()
    for row in ((0,), (-1,), (1, -1), (0, 2))[:2 * stream.dim() - 2]:
        assert same(shard[row], expected(stream[row], runs.tolist(), -1, 9)), row


@pytest.mark.parametrize("view", [
    lambda x: x[:, :, 1:3], lambda x: x[:, 1:, ::2], lambda x: x.permute(2, 0, 1, 3),
    lambda x: x.transpose(0, 3), lambda x: x[..., ::2], lambda x: x[0, 1, 2],
    lambda x: x[:1].expand(4, -1, -1, -1), lambda x: x[:, :1].expand(-1, 4, -1, -1)])
@pytest.mark.parametrize("dim", [0, -1, -2])
def test_rows_may_lie_anywhere(view, dim):
    stream = view(drawn([4, 5, 6, 8], torch.int32, seed=1))
    if stream.dim() < 2:
        dim = 0
    runs = [(2, 2), (-1, 1), (0, 3)]
    dim %= stream.dim()
    runs = [(source, min(length, stream.shape[dim] - max(source, 0))) for source, length in runs]
    runs = [run for run in runs if run[1] > 0]
    (shard,) = ops.shard_streams([stream], torch.tensor(runs), [dim], [-7])
    assert same(shard, expected(stream, runs, dim, -7)) and shard.is_contiguous()


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int8, torch.int16, torch.float16, torch.uint64,
                                   torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2,
                                   torch.float8_e8m0fnu])
def test_a_fill_is_what_torch_full_makes_of_it(dtype):
    for fill in (0, 1, 2, -1, 200, 300, -100, 70000, 2**31, 2**40, 2**63, 1.5, -0.0, 0.1, 1e39,
                 -1e300, float("inf"), float("nan"), True, False, 1 + 2j):
        def shard():
            stream = torch.empty(1, 1, dtype=dtype)
            return ops.shard_streams([stream], torch.tensor([[-1, 1]]), [1], [fill])[0]

        try:
            wanted = torch.full((1, 1), fill, dtype=dtype)
        except RuntimeError as error:
            with pytest.raises(RuntimeError) as raised:
                shard()
            assert str(error) == str(raised.value), fill
        else:
            assert same(shard().view(torch.uint8), wanted.view(torch.uint8)), fill


def test_an_element_of_sixteen_bytes_is_refused_by_its_dtype():
    with pytest.raises(TypeError, match="stream 1 is ComplexDouble, of 16 bytes an element"):
        ops.shard_streams([torch.ones(2, 4), torch.ones(2, 4, dtype=torch.complex128)],
                          torch.tensor([[0, 1]]), [1, 1], [0, 0])


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

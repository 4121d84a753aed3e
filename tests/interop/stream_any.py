"""A loader from the .proto files alone, as in any language: stream_any.py ADDRESS

Streams eight batches, some of them at a time, and checks the shards against plain numpy. Then two
of packed documents.
"""

import pathlib
import queue
import subprocess
import sys
import tempfile

import grpc
import numpy as np

proto = pathlib.Path(__file__).resolve().parents[2] / "proto"
stubs = tempfile.TemporaryDirectory()
subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{proto}",
                f"--python_out={stubs.name}", f"--grpc_python_out={stubs.name}",
                "cpshard/v1/types.proto", "cpshard/v1/options.proto", "cpshard/v1/session.proto",
                "cpshard/v1/service.proto"], check=True)
sys.path.insert(0, stubs.name)
from cpshard.v1 import options_pb2, service_pb2, service_pb2_grpc, types_pb2  # noqa: E402

ROWS, TOKENS, RANKS, BATCHES = 2, 8190, 4, 8
CHUNK = 64 << 10  # 2 MiB is a good size; this one makes several frames of a small batch

service = service_pb2_grpc.ShardServiceStub(grpc.insecure_channel(sys.argv[1]))
limits = service.GetServerInfo(service_pb2.GetServerInfoRequest(), timeout=10).limits


def make_batch(number):
    tokens = np.arange(ROWS * TOKENS, dtype="<i8").reshape(ROWS, TOKENS) + number * 10**6
    return {"input_ids": tokens, "labels": tokens + 1}


def frames_of(number, batch=None, cp_size=RANKS, **layout):
    """One batch: every tensor lies in the batch buffer, from a multiple of 64 on; the frames carry
    that buffer from front to back. Only the first has the begin, only the last says so."""
    layout = layout or {"round_robin": options_pb2.RoundRobin()}
    begin = service_pb2.BatchBegin(options=options_pb2.ShardingOptions(**layout), cp_size=cp_size)
    buffer = b""
    for name, tensor in (batch or make_batch(number)).items():
        begin.entries.add(name=name, dtype=types_pb2.DTYPE_I64, dims=tensor.shape,
                          offset=len(buffer), nbytes=tensor.nbytes)
        buffer += tensor.tobytes() + bytes(-tensor.nbytes % 64)
    begin.total_bytes = len(buffer)
    for seq, at in enumerate(range(0, len(buffer), CHUNK)):
        yield service_pb2.BatchFrame(
            batch_id=number, frame_seq=seq, begin=begin if seq == 0 else None, offset=at,
            body=buffer[at:at + CHUNK], last=at + CHUNK >= len(buffer))


# What is under way stays within the server's limits: every answer gives its credit back, and only
# then the next batch is sent. gRPC sends from a thread of its own, so reading goes on meanwhile.
batch_bytes = sum(len(frame.body) for frame in frames_of(0))
at_once = min(3, limits.max_inflight_batches, max(1, limits.max_inflight_bytes // batch_bytes))
outbox = queue.Queue()
waiting = list(range(BATCHES))


def send_next():
    if waiting:
        for frame in frames_of(waiting.pop(0)):
            outbox.put(frame)
    else:
        outbox.put(None)  # ends the client's side


for _ in range(at_once):
    send_next()

answers, checked = {}, []
for frame in service.ShardBatches(iter(outbox.get, None), timeout=60):
    assert not frame.HasField("status"), frame.status
    if frame.draining:  # the server goes down: what is not answered can be sent elsewhere
        continue
    shards, body = answers.setdefault(frame.batch_id, ([], bytearray()))
    shards.extend(frame.shards)
    assert not frame.body or frame.offset == len(body)
    body += frame.body
    if not frame.last:
        continue
    assert (frame.credit.bytes, frame.credit.batches) == (batch_bytes, 1)
    send_next()

    # 8190 tokens become 8192; of 8 chunks of 1024 rank r holds number r and number 7 - r.
    del answers[frame.batch_id]
    batch = make_batch(frame.batch_id)
    fill = {"input_ids": 0, "labels": -100}
    padded = {name: np.pad(tensor, ((0, 0), (0, 2)), constant_values=fill[name])
              for name, tensor in batch.items()}
    padded["position_ids"] = np.tile(np.append(np.arange(TOKENS), [0, 0]), (ROWS, 1))
    for rank, shard in enumerate(shards):
        columns = np.r_[1024 * rank:1024 * (rank + 1), 1024 * (7 - rank):1024 * (8 - rank)]
        assert (shard.layout.cp_rank, shard.layout.cp_size) == (rank, RANKS)
        assert {entry.name for entry in shard.entries} == set(padded)
        for entry in shard.entries:
            local = np.frombuffer(body, "<i8", entry.nbytes // 8, entry.offset)
            assert np.array_equal(local.reshape(tuple(entry.dims)),
                                  padded[entry.name][:, columns]), (rank, entry.name)
    assert len(shards) == RANKS
    checked.append(frame.batch_id)

assert sorted(checked) == list(range(BATCHES)) and not answers
# Rows packed with documents of 1,024 and 15,360 tokens, over 2 ranks: rank r holds chunk r and chunk
# 3 - r of 4 of every document. The layout reads the values of seq_lens: a batch buffer that begins
# with them lets the server plan, and refuse, at once; in any other order it waits for them.
tokens = np.arange(2 * 16384, dtype="<i8").reshape(2, 16384)
packed = {"input_ids": tokens, "labels": tokens + 1,
          "position_ids": np.tile(np.r_[0:1024, 0:15360].astype("<i8"), (2, 1)),
          "seq_lens": np.array([[1024, 15360]] * 2, "<i8")}
starts, sizes = (0, 1024, 16384, 17408), (256, 3840, 256, 3840)
columns = [np.concatenate([np.r_[start + rank * size:start + (rank + 1) * size,
                                 start + (3 - rank) * size:start + (4 - rank) * size]
                           for start, size in zip(starts, sizes)]) for rank in range(2)]
first = {"seq_lens": packed["seq_lens"]} | packed
sent = [frame for number, batch in enumerate((first, packed))
        for frame in frames_of(number, batch, 2, thd=options_pb2.Thd())]
answers = {}
for frame in service.ShardBatches(iter(sent), timeout=60):
    assert not frame.HasField("status"), frame.status
    shards, body = answers.setdefault(frame.batch_id, ([], bytearray()))
    shards.extend(frame.shards)
    body += frame.body
for number in range(2):
    shards, body = answers[number]
    for rank, shard in enumerate(shards):
        entries = {entry.name: entry for entry in shard.entries}
        for name in ("input_ids", "labels", "position_ids"):
            local = np.frombuffer(body, "<i8", entries[name].nbytes // 8, entries[name].offset)
            assert np.array_equal(local, packed[name].reshape(-1)[columns[rank]]), (rank, name)
        # A layout over 16 KiB: its arrays lie in the answer buffer, as entries.
        indices = entries["_layout.local_token_global_indices"]
        assert np.array_equal(np.frombuffer(body, "<i8", 16384, indices.offset), columns[rank])
        runs = entries["_layout.runs"]
        runs = np.frombuffer(body, "<i8", runs.nbytes // 8, runs.offset).reshape(-1, 2)
        assert np.array_equal(np.concatenate([np.arange(a, a + n) for a, n in runs]),
                              columns[rank])
    assert len(shards) == 2

print(f"{BATCHES} batches of {ROWS} x {TOKENS} tokens, {at_once} at a time: all shards are right")

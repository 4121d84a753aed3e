"""A client from the .proto files alone, as one would write it in any language: shard_any.py ADDRESS

Shards one batch over 4 ranks, checks the shards against plain numpy and puts them together again.
Then packed documents over 2 ranks.
"""

import pathlib
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
                "cpshard/v1/service.proto", "grpc/health/v1/health.proto"], check=True)
sys.path.insert(0, stubs.name)
grpc.__path__.append(f"{stubs.name}/grpc")  # Python only: its gRPC package is called grpc too
from cpshard.v1 import options_pb2, service_pb2, service_pb2_grpc, types_pb2  # noqa: E402
from grpc.health.v1 import health_pb2, health_pb2_grpc  # noqa: E402

channel = grpc.insecure_channel(sys.argv[1])
service = service_pb2_grpc.ShardServiceStub(channel)

# Is it there, and what can it do?
health = health_pb2_grpc.HealthStub(channel).Check(
    health_pb2.HealthCheckRequest(service="cpshard.v1.ShardService"), timeout=10)
assert health.status == health_pb2.HealthCheckResponse.SERVING
info = service.GetServerInfo(service_pb2.GetServerInfoRequest(), timeout=10)
assert "round_robin" in info.layouts and info.limits.max_ranks >= 4

# One batch: every tensor is an entry that says where its bytes lie in the body, from a multiple
# of 64 on.
batch = {"input_ids": np.arange(60, dtype="<i8").reshape(2, 30),
         "labels": np.arange(1000, 1060, dtype="<i8").reshape(2, 30)}


def request_of(batch, cp_size, **layout):
    request = service_pb2.ShardBatchRequest(options=options_pb2.ShardingOptions(**layout),
                                            cp_size=cp_size)
    for name, tensor in batch.items():
        request.entries.add(name=name, dtype=types_pb2.DTYPE_I64, dims=tensor.shape,
                            offset=len(request.body), nbytes=tensor.nbytes)
        request.body += tensor.tobytes() + bytes(-tensor.nbytes % 64)
    return request


request = request_of(batch, 4, round_robin=options_pb2.RoundRobin())
reply = service.ShardBatch(request, timeout=10)
assert reply.executor == info.executor  # nobody was asked for: it is the server's own choice

# 30 tokens become 32; of 8 chunks of 4 rank r holds number r and number 7 - r.
padded = {"input_ids": np.pad(batch["input_ids"], ((0, 0), (0, 2))),
          "labels": np.pad(batch["labels"], ((0, 0), (0, 2)), constant_values=-100),
          "position_ids": np.tile(np.append(np.arange(30), [0, 0]), (2, 1))}
gathered = np.full((2, 32), -1)
for rank, shard in enumerate(reply.shards):
    layout, slot = shard.layout, 0
    assert (layout.cp_rank, layout.cp_size) == (rank, 4)
    assert (layout.original_seq_len, layout.padded_seq_len) == (30, 32)
    columns = np.r_[4 * rank:4 * rank + 4, 28 - 4 * rank:32 - 4 * rank]
    assert {entry.name for entry in shard.entries} == set(padded)
    for entry in shard.entries:
        local = np.frombuffer(reply.body, "<i8", entry.nbytes // 8, entry.offset)
        local = local.reshape(tuple(entry.dims))
        assert np.array_equal(local, padded[entry.name][:, columns]), (rank, entry.name)
        if entry.name == "input_ids":  # to gather, follow the runs of the layout
            for run in layout.runs:
                gathered[:, run.source:run.source + run.length] = local[:, slot:slot + run.length]
                slot += run.length
assert len(reply.shards) == 4
assert np.array_equal(gathered[:, :layout.original_seq_len], batch["input_ids"])

# A refusal has a code to act on, and a text that names what is wrong.
del request.entries[1]
try:
    service.ShardBatch(request, timeout=10)
    raise AssertionError("a batch without labels was not refused")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and "labels" in error.details()

# Rows packed with documents: [8 tokens, 5 of them real] [8] and [16]. Every document is cut into 4
# equal chunks, of which rank r holds number r and number 3 - r.
lengths = [[5, 8], [16, -1000]], [[8, 8], [16, -1000]]
positions = np.r_[np.tile(np.arange(8), 2), np.arange(16)].reshape(2, 16)
packed = {"input_ids": np.arange(32, dtype="<i8").reshape(2, 16),
          "labels": np.arange(100, 132, dtype="<i8").reshape(2, 16),
          "position_ids": positions.astype("<i8"), "seq_lens": np.array(lengths[0], "<i8"),
          "seq_lens_padded": np.array(lengths[1], "<i8")}
request = request_of(packed, 2, thd=options_pb2.Thd())
columns = [np.r_[0:2, 6:10, 14:20, 28:32], np.r_[2:6, 10:14, 20:28]]
want = {name: packed[name].reshape(-1) for name in ("input_ids", "labels", "position_ids")}
want["padding_mask"] = np.isin(np.arange(32), [5, 6, 7])
want["_thd_local_indices"] = np.arange(32, dtype="<i4")
types = {types_pb2.DTYPE_I64: "<i8", types_pb2.DTYPE_I32: "<i4", types_pb2.DTYPE_BOOL: "?"}
reply = service.ShardBatch(request, timeout=10)
for rank, shard in enumerate(reply.shards):
    tensors, scalars = {}, {}
    for entry in shard.entries:
        if entry.HasField("scalar"):
            scalars[entry.name] = getattr(entry.scalar, entry.scalar.WhichOneof("value"))
            continue
        data = reply.body[entry.offset:entry.offset + entry.nbytes]
        tensors[entry.name] = np.frombuffer(data, types[entry.dtype]).reshape(tuple(entry.dims))
    whole = {"cu_seqlens": [0, 8, 16, 32], "max_seqlen": 16}  # not cut: the same for every rank
    assert set(tensors) == set(want) | set(whole)
    for name, stream in want.items():
        assert np.array_equal(tensors[name], stream[columns[rank]]), (rank, name)
    assert all(np.array_equal(tensors[name], value) for name, value in whole.items())
    assert scalars == {"qkv_format": "thd", "cp_size": 2, "cp_rank": rank}  # a rank's own

# A plan needs the lengths alone; without them it says so. A batch's other bytes stay at home.
plan = service_pb2.PlanLayoutRequest(options=request.options, cp_size=2, body=request.body)
for entry in request.entries:
    if entry.name not in ("seq_lens", "seq_lens_padded"):
        entry.offset = entry.nbytes = 0
    plan.entries.append(entry)
reply = service.PlanLayout(plan, timeout=10)
assert list(reply.needs) == ["seq_lens", "seq_lens_padded"]
for rank, layout in enumerate(reply.layouts):
    runs = [np.arange(run.source, run.source + run.length) for run in layout.runs]
    assert np.array_equal(np.concatenate(runs), columns[rank])
    assert list(layout.input_row_shape.values) == [2, 16] and layout.padded_seq_len == 32
assert len(reply.layouts) == 2

print(f"cpshardd {info.version}: 4 shards of 2 x 30 tokens are right, and together again")

"""Python stubs, generated from the .proto files when this module is imported (the generator runs as
a program of its own), and the batches of the tests as messages."""

import atexit
import pathlib
import subprocess
import sys
import tempfile

import grpc
import numpy as np

from safetensors_file import DTYPES, Tensor

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"
_folder = tempfile.TemporaryDirectory(prefix="cpshard-stubs-")
atexit.register(_folder.cleanup)
subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}",
                f"--python_out={_folder.name}", f"--grpc_python_out={_folder.name}",
                "cpshard/v1/types.proto", "cpshard/v1/options.proto", "cpshard/v1/session.proto",
                "cpshard/v1/service.proto", "grpc/health/v1/health.proto"], check=True)
sys.path.insert(0, _folder.name)
grpc.__path__.append(f"{_folder.name}/grpc")  # the protocol's package lies inside gRPC's name
from cpshard.v1 import options_pb2, service_pb2, service_pb2_grpc  # noqa: E402
from cpshard.v1 import session_pb2, types_pb2  # noqa: E402
from google.protobuf import json_format  # noqa: E402
from grpc.health.v1 import health_pb2, health_pb2_grpc  # noqa: E402

__all__ = ["connect", "health_pb2", "health_pb2_grpc", "json_format", "options_of", "options_pb2",
           "request_of", "service_pb2", "service_pb2_grpc", "session_pb2", "shards_of", "types_pb2"]

UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


def connect(address, unlimited=False):
    """(channel, ShardService stub); a connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1), *(UNLIMITED if unlimited else [])]
    channel = grpc.insecure_channel(address, options)
    return channel, service_pb2_grpc.ShardServiceStub(channel)


def dtype_number(name):
    return types_pb2.DType.Value(f"DTYPE_{name}")


def options_of(options):
    return json_format.ParseDict(options, options_pb2.ShardingOptions())


def scalar_of(value):
    kind = {bool: "bool_value", int: "int_value", float: "float_value", str: "string_value"}
    return types_pb2.Scalar(**{kind[type(value)]: value})


def request_of(batch, options, cp_size, ranks=()):
    """A ShardBatchRequest of a dict name -> Tensor or scalar."""
    request = service_pb2.ShardBatchRequest(options=options_of(options), ranks=ranks)
    if cp_size is not None:
        request.cp_size = cp_size
    body = bytearray()
    for name, value in batch.items():
        if not isinstance(value, Tensor):
            request.entries.add(name=name, scalar=scalar_of(value))
            continue
        request.entries.add(name=name, dtype=dtype_number(value.dtype), dims=value.array.shape,
                            offset=len(body), nbytes=value.array.nbytes)
        body += value.array.tobytes()
        body += bytes(-len(body) % 64)
    request.body = bytes(body)
    return request


def shards_of(reply):
    """The tensors of every shard, dicts name -> Tensor."""
    shards = []
    for shard in reply.shards:
        tensors = {}
        for entry in shard.entries:
            if entry.HasField("scalar"):
                continue
            dtype = types_pb2.DType.Name(entry.dtype).removeprefix("DTYPE_")
            data = reply.body[entry.offset:entry.offset + entry.nbytes]
            array = np.frombuffer(data, DTYPES[dtype]).reshape(tuple(entry.dims))
            tensors[entry.name] = Tensor(dtype, array)
        shards.append(tensors)
    return shards

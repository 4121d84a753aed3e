"""safetensors files and the batches in them, with struct and json: the product's own code is not
its judge."""

import json
import struct
from typing import NamedTuple

import numpy as np

# Name in the file, name on the wire, numpy's type. bf16 is kept as its bits.
DTYPES = {"BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8",
          "F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8"}


class Tensor(NamedTuple):
    """A dense tensor: `dtype` as in the file, `array` of DTYPES[dtype]."""
    dtype: str
    array: np.ndarray

    def same(self, other):
        return (self.dtype == other.dtype and self.array.shape == other.array.shape and
                self.array.tobytes() == other.array.tobytes())

    def __repr__(self):
        return f"{self.dtype}{list(self.array.shape)} {self.array.tolist()}"


def tensor(dtype, values, shape=None):
    array = np.array(values, DTYPES[dtype])
    return Tensor(dtype, array if shape is None else array.reshape(shape))


def bf16(values):
    """Tensor of the bf16 values that begin with the same bits as `values` (as float32)."""
    bits = np.array(values, "<f4").view("<u4") >> 16
    return Tensor("BF16", bits.astype("<u2"))


def random_tensor(random, dtype, *shape):
    """Any bits, not-a-numbers and negative zeros too; `random` is a generator of numpy."""
    if dtype == "BOOL":
        return tensor(dtype, random.integers(0, 2, shape))
    item = np.dtype(DTYPES[dtype]).itemsize
    data = random.bytes(int(np.prod(shape)) * item)
    return Tensor(dtype, np.frombuffer(data, DTYPES[dtype]).reshape(shape))


def encode(tensors, metadata=None):
    """The bytes of a file with these tensors, in this order."""
    header, at = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (dtype, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    return encode_raw(json.dumps(header).encode(),
                      b"".join(array.tobytes() for _, array in tensors.values()))


def encode_raw(header, body):
    return struct.pack("<Q", len(header)) + header + body


def decode(data):
    """(tensors, metadata) of a file's bytes."""
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__", {})
    body = data[8 + size:]
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        array = np.frombuffer(body[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = Tensor(entry["dtype"], array)
    return tensors, metadata


def write(path, tensors, metadata=None):
    path.write_bytes(encode(tensors, metadata))
    return path


def read(path):
    return decode(path.read_bytes())

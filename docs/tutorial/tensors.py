"""Reads and writes safetensors files of int64 tensors with the standard library alone: 8 bytes of
header length, a JSON header, then the elements. Use the `safetensors` package in earnest."""

import json
import math
import struct


def write(path, tensors, metadata=None):
    """tensors: {name: (shape, [integers, row by row])}; metadata: {name: string}."""
    header, body = ({"__metadata__": metadata} if metadata else {}), b""
    for name in sorted(tensors):
        shape, values = tensors[name]
        assert math.prod(shape) == len(values), name
        begin, body = len(body), body + struct.pack(f"<{len(values)}q", *values)
        header[name] = {"dtype": "I64", "shape": shape, "data_offsets": [begin, len(body)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


def read(path):
    """{name: (shape, [integers])}"""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header, body = json.loads(file.read(size)), file.read()
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = struct.unpack(f"<{(end - begin) // 8}q", body[begin:end])
            tensors[name] = (entry["shape"], list(values))
    return tensors

"""safetensors files that are none, or hold what no batch can hold."""

import json
import random
import struct
from typing import NamedTuple

import numpy as np

from bad_batches import INVALID
from safetensors_file import encode, encode_raw, tensor


class File(NamedTuple):
    name: str
    code: str
    texts: tuple
    data: bytes


GOOD = {"input_ids": tensor("I64", np.arange(6), (1, 6)),
        "labels": tensor("I64", np.arange(6), (1, 6))}
HEADER = {"input_ids": {"dtype": "I64", "shape": [1, 6], "data_offsets": [0, 48]},
          "labels": {"dtype": "I64", "shape": [1, 6], "data_offsets": [48, 96]}}


def with_labels(**changes):
    """The header with fields of labels changed; None = left out."""
    entry = HEADER["labels"] | changes
    entry = {key: value for key, value in entry.items() if value is not None}
    return json.dumps(HEADER | {"labels": entry}).encode()


def rows():
    good = encode(GOOD)
    text = json.dumps(HEADER)
    body = bytes(96)
    made = []

    def add(name, *texts, data=None, header=None, content=body):
        raw = encode_raw(header if isinstance(header, bytes) else str(header).encode(),
                         content) if data is None else data
        made.append(File(name, INVALID, texts, raw))

    # The frame.
    add("no bytes", "0 bytes", data=b"")
    add("7 bytes", "7 bytes", data=good[:7])
    for size in (1, 2**31, 10**8 + 1, 2**63, 2**64 - 1):
        length = len(good) - 8 + (size if size == 1 else 0)
        size = length if size == 1 else size
        add(f"a header of {size} bytes", str(size), data=struct.pack("<Q", size) + good[8:])
    for size in (len(good) - 1, len(good) - 48, len(good) - 96):
        add(f"{size} of {len(good)} bytes", data=good[:size])
    add("one byte too many", "97", data=good + b"x")
    add("half a header", data=good[:60])

    # The header.
    for header in (b"", b"not json", b"[]", b"7", b"null", b'"text"', text[:-1].encode(),
                   text.encode() + b"x", b"{'a': 1}", b'{"a\xff": 1}', b'{"\\ud800": 1}', b"\0",
                   b"[" * 100000, b'{"a":' * 100000, b'{"a":' * 100000 + b"1" + b"}" * 100000):
        add(f"a header {header[:12]!r} of {len(header)} bytes", header=header)
    add("a tensor twice", "'labels'", "twice",
        header=text[:-1] + ', "labels": ' + json.dumps(HEADER["labels"]) + "}")
    add("a dtype twice", "'dtype'", "twice", header=text.replace("{", '{"x": {"dtype": "I64", ', 1)
        .replace('"dtype": "I64", "input_ids": ', '"dtype": "I64", "dtype": "I64"}, "input_ids": '))
    add("a metadata key twice", "'a'", "twice",
        header=text[:-1] + ', "__metadata__": {"a": "1", "a": "1"}}')
    for metadata in ([], "text", 7, None):
        add(f"metadata {metadata!r}", "__metadata__",
            header=json.dumps(HEADER | {"__metadata__": metadata}))
    for value in (7, None, True, {"a": "b"}, ["a"]):
        add(f"metadata of {value!r}", "__metadata__", "string",
            header=json.dumps(HEADER | {"__metadata__": {"a": value}}))

    # Entries.
    for missing in ("dtype", "shape", "data_offsets"):
        add(f"no {missing}", "'labels'", missing, header=with_labels(**{missing: None}))
    for entry in (7, [], "I64", None):
        add(f"an entry {entry!r}", "'labels'", header=json.dumps(HEADER | {"labels": entry}))
    for dtype in ("U16", "U32", "U64", "F8_E4M3", "C64", "i64", "", "I64 "):
        add(f"dtype {dtype!r}", "'labels'", dtype, "I64", header=with_labels(dtype=dtype))
    add("a dtype that is a number", "'labels'", header=with_labels(dtype=7))
    for shape in ([-1, -6], [1.0, 6], ["1", 6], 6, {"a": 6}, [True, 6], [[1], 6], [2**64, 1],
                  [2**63, 1], [-2**63, 1], [1e30, 1], [0, 2**63 - 1, 2**63 - 1]):
        add(f"shape {shape}", "'labels'", header=with_labels(shape=shape))
    for shape in ([1, 5], [1, 7], [6, 0], [], [0], [2**31, 2**31], [2**62, 4], [2**61, 1],
                  [2**31, 2**31, 2**31, 2**31]):
        add(f"shape {shape} for 48 bytes", "labels", header=with_labels(shape=shape))
    for offsets in ([48], [48, 96, 96], [96, 48], [-48, 0], [48.0, 96], ["48", "96"], 48, {},
                    [48, 2**64], [2**63, 2**63 + 48], [48, None]):
        add(f"offsets {offsets}", "'labels'", header=with_labels(data_offsets=offsets))

    # Places.
    add("a gap", "'labels'", "56", "48", header=with_labels(data_offsets=[56, 104]),
        content=bytes(104))
    add("a gap at the start", "'input_ids'", header=json.dumps(
        {"input_ids": HEADER["input_ids"] | {"data_offsets": [8, 56]}}), content=bytes(56))
    add("an overlap", "'labels'", "40", "48", header=with_labels(data_offsets=[40, 88]),
        content=bytes(88))
    add("one place for two", "48", header=with_labels(data_offsets=[0, 48]), content=bytes(48))
    add("a body that ends early", "96", "95", content=bytes(95), header=text)
    add("a tensor far beyond the body", str(2**40 + 48), header=with_labels(
        shape=[1, 2**40 // 8], data_offsets=[48, 48 + 2**40]))
    return made


# One tensor of 2 GiB and 64 bytes; the file is made sparse.
OVER_LIMIT_BYTES = 2**31 + 64 + 48
OVER_LIMIT = File("a file over the limit", INVALID, ("'input_ids'", str(2**31)), encode_raw(
    json.dumps({"labels": {"dtype": "I64", "shape": [1, 6], "data_offsets": [0, 48]},
                "input_ids": {"dtype": "I64", "shape": [1, 2**28 + 8],
                              "data_offsets": [48, OVER_LIMIT_BYTES]}}).encode(), b""))

FLIP_OPTIONS = {"contiguous": {}, "padding_token_id": 0,
                "extra_streams": [{"name": "e"}, {"name": "h", "seq_axis": 0}]}


def flipped(count):
    """A good file with 1 to 4 bytes changed; every second time in the header."""
    chance = random.Random(20)
    tensors = {name: tensor(dtype, np.ones((2, 6))) for name, dtype in (
        ("input_ids", "I64"), ("labels", "I32"), ("padding_mask", "BOOL"), ("loss_mask", "F32"),
        ("position_ids", "I16"), ("e", "BF16"))} | {"h": tensor("F64", np.ones(6))}
    good = encode(tensors, {"step": "7", "name": "text"})
    (header,) = struct.unpack_from("<Q", good)
    for number in range(count):
        data = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(8 + header if number % 2 == 0 else len(data))
            data[at] ^= 1 << chance.randrange(8)
        yield bytes(data)

"""Messages that no command line would send, and batches over the limits of a server or a call."""

from typing import NamedTuple

import numpy as np

from bad_batches import CONTIGUOUS, INVALID, ROUND_ROBIN, UNIMPLEMENTED, Row, zeros
from safetensors_file import tensor
from stubs import request_of, types_pb2

BOTH = ("ShardBatch", "PlanLayout")
EXHAUSTED = "RESOURCE_EXHAUSTED"
UNDECODABLE = "INTERNAL|UNIMPLEMENTED|INVALID_ARGUMENT"  # gRPC's own answers differ by its version


class Message(NamedTuple):
    name: str
    code: str
    texts: tuple
    data: bytes
    methods: tuple = BOTH


ROWS = []


def good():
    """input_ids lie at bytes 0 to 96 of the body, labels at 128 to 224, 256 bytes in all."""
    return request_of({"input_ids": zeros("I64", 2, 6), "labels": zeros("I64", 2, 6)}, ROUND_ROBIN,
                      2)


def message(name, *texts, code=INVALID, methods=BOTH, data=None, more=b"", entry=None, add=None):
    """`entry`: fields of labels that change; `add`: one more entry; `more`: bytes that follow."""
    request = good()
    for field, value in (entry or {}).items():
        if field == "dims":
            request.entries[1].dims[:] = value
        else:
            setattr(request.entries[1], field, value)
    if add is not None:
        request.entries.add(**add)
    ROWS.append(Message(name, code, texts,
                        request.SerializeToString() + more if data is None else data, methods))


def without(name):
    """The good request without one of its fields."""
    request = good()
    request.ClearField(name)
    return request.SerializeToString()


def field(number, payload):
    """A length-delimited field on the wire."""
    def varint(value):
        out = bytearray()
        while value >= 0x80:
            out.append(value & 0x7f | 0x80)
            value >>= 7
        return bytes(out + bytes([value]))

    return varint(number << 3 | 2) + varint(len(payload)) + payload


# dtypes, shapes and places of tensors.
message("an unknown dtype", "'labels'", "99", entry={"dtype": 99})
message("no dtype", "'labels'", "0", entry={"dtype": 0})
message("a size beyond 64 bits", "'labels'", str(2**62), entry={"dims": [2**62, 4]})
message("a size that a 0 hides", "'labels'", str(2**63 - 1),
        entry={"dims": [0, 2**63 - 1, 2**63 - 1], "nbytes": 0})
message("a size that a 0 hides, its end", "'labels'", entry={"dims": [2**62, 4, 0], "nbytes": 0})
message("a negative dim", "'labels'", "-2", entry={"dims": [-2, -6]})
message("the most negative dim", "'labels'", str(-2**63), entry={"dims": [-2**63, 6]})
message("100,000 axes", "'labels'", "100000", "8", entry={"dims": [1] * 100000})
message("nbytes above what dims say", "'labels'", "104", "96", entry={"nbytes": 104})
message("nbytes below what dims say", "'labels'", "88", "96", entry={"nbytes": 88})
message("nbytes 0", "'labels'", "0", "96", entry={"nbytes": 0}, methods=("ShardBatch",))
message("nbytes near 2^64", "'labels'", str(2**64 - 1), entry={"nbytes": 2**64 - 1})
message("an offset that is not a multiple of 64", "'labels'", "96", "64", entry={"offset": 96})
message("an offset past the body", "'labels'", "256", entry={"offset": 256})
message("a tensor that leaves the body", "'labels'", "192", entry={"offset": 192})
message("an offset near 2^64", "'labels'", str(2**64 - 64), entry={"offset": 2**64 - 64})
message("two tensors at one place", "'input_ids'", "'labels'", "overlap", entry={"offset": 0})
message("tensors that overlap in part", "'input_ids'", "'labels'", "overlap", entry={"offset": 64})
message("no body", "'input_ids'", "0", data=without("body"))

# Entries and their names.
message("a name used twice", "'labels'", "two", add={"name": "labels", "dtype": 6})
message("a tensor and a scalar of one name", "'labels'", "two",
        add={"name": "labels", "scalar": types_pb2.Scalar(int_value=1)})
message("two scalars of one name", "'x'", "two",
        add={"name": "x", "scalar": types_pb2.Scalar(int_value=1)},
        more=field(4, field(1, b"x") + field(6, b"\x10\x01")))
message("a scalar without a value", "'x'", "value", add={"name": "x", "scalar": types_pb2.Scalar()})
for extra in ({"dtype": 6}, {"dims": [1]}, {"nbytes": 8}, {"offset": 64}):
    message(f"a scalar that is a tensor by {list(extra)}", "'x'", "both",
            add={"name": "x", "scalar": types_pb2.Scalar(int_value=1)} | extra)
message("an entry with a name alone", "'x'", add={"name": "x"})
message("a long name with an unknown dtype", "'xxx", entry={"name": "x" * 20000, "dtype": 99})
message("a long name of an empty scalar", "'xxx",
        add={"name": "x" * 20000, "scalar": types_pb2.Scalar()})
message("a long name of two natures", "'xxx", add={
    "name": "x" * 20000, "dtype": 6, "scalar": types_pb2.Scalar(int_value=1)})
message("a long name of a declared extra", "'xxx",
        more=field(1, field(3, field(1, b"x" * 20000))))

# Options that this build does not know.
message("an unknown option", "500", more=field(1, field(500, b"x")))
message("an unknown option of the layout", "501", more=field(1, field(12, field(501, b"x"))))
message("an unknown option of an extra", "502", more=field(1, field(3, field(502, b"x"))))
message("an unknown option of a model", "503", more=field(1, field(26, field(503, b"x"))))
message("an unknown family of models", "99", "family", more=field(1, field(26, b"\x08\x63")))
message("an unknown enum value", "77", "variant", more=field(1, field(18, b"\x08\x4d")))
message("no options at all", "layout", data=without("options"))

# Not what the method takes.
message("no message", code=UNDECODABLE, data=b"\xff" * 100)
message("a truncated message", code=UNDECODABLE, data=good().SerializeToString()[:-1])
message("a name that is not UTF-8", code=UNDECODABLE, more=field(4, field(1, b"\xff\xfe")))
message("an empty message", "layout", data=b"")
message("a call that is not built", code=UNIMPLEMENTED, methods=("Nothing",))
message("a message over the limit of gRPC", code=EXHAUSTED, more=field(15, bytes(9 << 20)))

# One unary call carries 4 MiB each way.
WIDE = {f"e{i}": tensor("BOOL", np.ones((1, 30))) for i in range(12)} | {
    "input_ids": zeros("I64", 2, 30), "labels": zeros("I64", 2, 30)}
TOO_LARGE = (
    Row("a request over 4 MiB", EXHAUSTED, ("request", "4194304", "ShardBatches"),
        {"input_ids": zeros("I64", 1, 300000), "labels": zeros("I64", 1, 300000)}, ROUND_ROBIN),
    Row("a reply over 4 MiB", EXHAUSTED, ("reply", "4194304", "ShardBatches"),
        {"input_ids": zeros("U8", 1, 600000), "labels": zeros("I8", 1, 600000)}, ROUND_ROBIN),
    Row("padding that makes a reply over 4 MiB", EXHAUSTED, ("reply", "ShardBatches"),
        {"input_ids": zeros("I64", 1, 14), "labels": zeros("I64", 1, 14)},
        {"contiguous": {"pad_multiple": str(2**18)}, "padding_token_id": "0"}),
    Row("many small shards over 4 MiB", EXHAUSTED, ("reply", "ShardBatches"), WIDE,
        ROUND_ROBIN | {"extra_streams": [{"name": name} for name in WIDE if name[0] == "e"]}, 4096))

# For a server with max_batch_bytes 1000, max_tensors 3 and max_ranks 8.
WITHIN_LIMITS = {"input_ids": zeros("I64", 2, 6), "labels": zeros("I64", 2, 6)}
OVER_LIMITS = (
    Row("a batch over the limit", INVALID, ("'labels'", "1000"),
        {"input_ids": zeros("I64", 1, 100), "labels": zeros("I64", 1, 100)}, ROUND_ROBIN),
    Row("shards over the limit", INVALID, ("pad_multiple", "1000"),
        {"input_ids": zeros("U8", 1, 30), "labels": zeros("I16", 1, 30)},
        CONTIGUOUS | {"contiguous": {"pad_multiple": "100"}}, 1),
    Row("too many entries", INVALID, ("4", "3"),
        WITHIN_LIMITS | {"a": zeros("U8", 1), "b": 7}, ROUND_ROBIN),
    Row("too many ranks", INVALID, ("cp_size", "9", "8"), WITHIN_LIMITS, ROUND_ROBIN, 9))

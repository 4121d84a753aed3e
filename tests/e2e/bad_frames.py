"""Frames that break a rule of docs/WIRE.md, one row each. The batch is stream_case.good_batch():
1,024 bytes, input_ids at 0 to 480, labels at 512 to 992; in frames of 256 bytes."""

from typing import NamedTuple

from bad_batches import INVALID, UNIMPLEMENTED
from bad_messages import EXHAUSTED, field
from safetensors_file import tensor
from stream_case import good_batch, large_batch
from streams import MAX_CHUNK, MAX_HEADER, frames, packed
from stubs import options_of, service_pb2, types_pb2
from work import GOOD, OPTIONS

LOST = "DATA_LOSS"
BAD = 2  # the id of the bad batch


class Row(NamedTuple):
    name: str
    code: str
    texts: tuple
    messages: list  # BatchFrames, bytes
    batch_id: int = BAD


ROWS = []  # answered with a status; the stream goes on
ENDING = []  # that end the stream


def row(name, *texts, messages, code=INVALID, batch_id=BAD):
    ROWS.append(Row(name, code, texts, messages, batch_id))


def ending(name, *texts, message, code=INVALID):
    ENDING.append(Row(name, code, texts, [message]))


def picked(*numbers):
    """Frames 0 to 3 of the batch, in this order; the last message is the last one of the batch."""
    sent = frames(BAD, good_batch(), 256)
    made = []
    for number in numbers:
        made.append(service_pb2.BatchFrame())
        made[-1].CopyFrom(sent[number])
        made[-1].last = False
    made[-1].last = True
    return made


def changed(number, **fields):
    """The four frames, one of them with other fields."""
    made = picked(0, 1, 2, 3)
    for name, value in fields.items():
        setattr(made[number], name, value)
    return made


def begun(entry=None, add=None, **fields):
    """The four frames with another begin. `entry`: fields of labels; `add`: one more entry."""
    made = picked(0, 1, 2, 3)
    begin = made[0].begin
    for name, value in fields.items():
        setattr(begin, name, value)
    for name, value in (entry or {}).items():
        if name == "dims":
            begin.entries[1].dims[:] = value
        else:
            setattr(begin.entries[1], name, value)
    if add is not None:
        begin.entries.add(**add)
    return made


def with_options(options):
    made = picked(0, 1, 2, 3)
    made[0].begin.options.CopyFrom(options_of(options))
    return made


def with_begin(number):
    """Frame `number` has a begin too."""
    made = picked(0, 1, 2, 3)
    made[number].begin.CopyFrom(made[0].begin)
    return made


# The order of frames.
row("two frames change places", "frame_seq 2", "expected 1", code=LOST, messages=picked(0, 2, 1, 3))
row("a frame is missing", "frame_seq 3", "expected 2", code=LOST, messages=picked(0, 1, 3))
row("a frame comes twice", "frame_seq 1", "expected 2", messages=picked(0, 1, 1, 2, 3))
row("an early frame comes again", "frame_seq 1", "expected 3", messages=picked(0, 1, 2, 1, 3))
row("the largest frame_seq", str(2**32 - 1), "expected 1", code=LOST,
    messages=changed(1, frame_seq=2**32 - 1))
row("the first frame is missing", "frame_seq 1", "not begun", messages=picked(1, 2, 3))
row("a frame for an id that nobody began", "frame_seq 7", "not begun", batch_id=99,
    messages=[service_pb2.BatchFrame(batch_id=99, frame_seq=7, body=bytes(64), last=True)])
row("an empty message", "frame_seq 0", "not begun", batch_id=0,
    messages=[b"", service_pb2.BatchFrame(last=True)])
row("a body without a header", "frame_seq 0", "not begun", batch_id=0,
    messages=[field(15, bytes(1024)), service_pb2.BatchFrame(last=True)])
row("the batch is begun twice", "again", messages=picked(0, 0, 1, 2, 3))
row("frame 1 has a begin", "again", messages=with_begin(1))
row("frame 3 has a begin", "again", messages=with_begin(3))
row("the begin is in frame_seq 1", "frame_seq 1", "expected 0", code=LOST,
    messages=changed(0, frame_seq=1))

# Where bodies lie.
row("a body over 4 MiB", str(MAX_CHUNK + 64), str(MAX_CHUNK),
    messages=frames(BAD, large_batch(8), MAX_CHUNK + 64))
row("a body that ends past total_bytes", "320", "256", "1024",
    messages=changed(3, body=bytes(320)))
row("one more body than total_bytes takes", "64", "0", "1024",
    messages=[*picked(0, 1, 2, 3)[:3], *changed(3, last=False)[3:], service_pb2.BatchFrame(
        batch_id=BAD, frame_seq=4, offset=1024, body=bytes(64), last=True)])
row("fewer bytes than total_bytes", "768", "1024", messages=picked(0, 1, 2))
row("a begin alone", "0 of total_bytes 1024",
    messages=[service_pb2.BatchFrame(batch_id=BAD, begin=good_batch().begin, last=True)])
row("a body of 100 bytes in the middle", "100", "64", messages=changed(1, body=bytes(100)))
row("an offset that leaves a hole", "512", "256", messages=changed(1, offset=512))
row("an offset that goes back", "0", "256", messages=changed(1, offset=0))
row("an offset in the first frame", "64", "0", messages=changed(0, offset=64))
row("an offset near 2^64", str(2**64 - 64), "512", messages=changed(2, offset=2**64 - 64))

# The begin: sizes, places, dtypes.
for total in (2**63, 2**64 - 1, (2 << 30) + 64):
    row(f"total_bytes {total}", str(total), str(2 << 30), messages=begun(total_bytes=total))
for total in (1088, 960, 993, 1 << 20):
    row(f"total_bytes {total} where the tensors end at 992", str(total),
        messages=begun(total_bytes=total))
row("total_bytes 0", "0", messages=begun(total_bytes=0))
row("an entry at an odd offset", "'labels'", "500", "64", messages=begun({"offset": 500}))
row("two entries at one place", "'input_ids'", "'labels'", "overlap",
    messages=begun({"offset": 0}))
row("entries that overlap in part", "'input_ids'", "'labels'", "448",
    messages=begun({"offset": 448}))
row("an entry past the end", "'labels'", str(2**40), "1024", messages=begun({"offset": 2**40}))
row("an entry near 2^64", "'labels'", str(2**64 - 64), messages=begun({"offset": 2**64 - 64}))
row("nbytes that dims do not give", "'labels'", "488", "480", messages=begun({"nbytes": 488}))
row("a size beyond 64 bits", "'labels'", str(2**62), messages=begun({"dims": [2**62, 4]}))
row("2^62 columns", "'labels'", str(2**62), messages=begun({"dims": [1, 2**62]}))
row("a negative dim", "'labels'", "-2", messages=begun({"dims": [-2, -30]}))
row("an unknown dtype", "'labels'", "99", messages=begun({"dtype": 99}))
row("a name of 200 bytes", "200", "128", messages=begun({"name": "x" * 200}))
row("a reserved name", "_layout.runs", "reserved", messages=begun({"name": "_layout.runs"}))
row("a name used twice", "'labels'", "two", messages=begun(add={"name": "labels", "dtype": 6}))
row("a scalar without a value", "'x'",
    messages=begun(add={"name": "x", "scalar": types_pb2.Scalar()}))
row("257 tensors", "257", "256", messages=frames(BAD, packed(
    GOOD | {f"e{number}": tensor("U8", [1]) for number in range(255)}, OPTIONS, 4)))
row("cp_size 5000", "cp_size", "5000", "4096", messages=begun(cp_size=5000))
row("rank 4 of 4", "rank 4", messages=frames(BAD, packed(GOOD, OPTIONS, 4, [0, 4])))
row("shards over max_batch_bytes", str(2 << 30), messages=frames(BAD, packed(
    GOOD, {"contiguous": {"pad_multiple": str(2**28)}, "padding_token_id": 0}, 4)))

# The begin: options.
row("no options", "layout", messages=with_options({}))
row("a layout with what it does not go with", "tp_size", code=UNIMPLEMENTED,
    messages=with_options({"qwen3_8": {"tp_size": "2"}}))
row("an option that nobody knows", "900", messages=[
    picked(0, 1, 2, 3)[0].SerializeToString() + field(3, field(1, field(900, b"x"))),
    *picked(0, 1, 2, 3)[1:]])
row("no labels", "'labels'", messages=frames(BAD, packed(
    {"input_ids": GOOD["input_ids"]}, OPTIONS, 4), 64))

# Nothing can be said under an id.
LONG = packed(GOOD | {"text": "x" * MAX_HEADER}, OPTIONS, 4)
ending("no protobuf", "100 bytes", message=b"\xff" * 100)
ending("a message cut short", message=picked(0, 1)[0].SerializeToString()[:-1])
ending("a body longer than its message", message=b"\x7a\xff\xff\xff\xff\x07" + bytes(64))
ending("a name that is not UTF-8", message=field(3, field(4, field(1, b"\xff\xfe"))))
ending("a header over 64 KiB", str(MAX_HEADER), message=frames(BAD, LONG, 256)[0])
ending("a header over 64 KiB that nobody knows", str(MAX_HEADER),
       message=field(900, bytes(MAX_HEADER)) + field(15, bytes(64)))
ending("two bodies of which one is over 64 KiB", str(MAX_HEADER),
       message=field(15, bytes(MAX_HEADER)) + field(15, bytes(64)))
ending("a message over 8 MiB", str(8 << 20), code=EXHAUSTED, message=field(15, bytes(8 << 20)))

assert len({each.name for each in ROWS + ENDING}) == len(ROWS + ENDING)

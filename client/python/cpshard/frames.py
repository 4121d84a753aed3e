"""Messages with a body, and batches and answers that travel as several frames (docs/WIRE.md,
"Streams"). The body is the last field and the only large one: it is kept out of protobuf, so that
its bytes are copied once on their way out and once on their way in."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence

import numpy as np
from google.protobuf.message import DecodeError

from ._proto import service_pb2
from .errors import Error, error_of
from .executors import executor_number
from .messages import add_entries, place_entries, shards_of
from .tensors import Bytes, sample_of
from .types import Shard

CHUNK_BYTES = 2 << 20  # a good size of a body
_BODY = 15 << 3 | 2    # its tag: field 15, bytes
_FIXED = {1: 8, 5: 4}  # sizes by wire type


def join(head: Any, pieces: Sequence[Any]) -> bytes:
    """The serialised message `head` with the pieces as its body. One copy of the pieces."""
    nbytes = sum(len(piece) for piece in pieces)
    if nbytes == 0:
        return bytes(head.SerializeToString())
    return b"".join([head.SerializeToString(), bytes([_BODY]), _varint(nbytes), *pieces])


def split(message: bytes) -> tuple[bytes, memoryview]:
    """A serialised message without its body, and the body, a window on the message. ValueError: it
    is cut off."""
    at, size = 0, len(message)
    while at < size:
        begin = at
        tag, at = _read_varint(message, at)
        if tag & 7 == 2:
            length, at = _read_varint(message, at)
            at += length
        elif tag & 7 == 0:
            length, at = _read_varint(message, at)
        else:
            at += _FIXED[tag & 7]
        if at > size:
            raise ValueError(f"a message of {size} bytes is cut off in field {tag >> 3}")
        if tag == _BODY:
            return message[:begin] + message[at:], memoryview(message)[at - length:at]
    return message, memoryview(b"")


def read(kind: Any, message: bytes) -> tuple[Any, memoryview]:
    """A received message of the class `kind`, without its body, and the body. Internal: it is
    none."""
    try:
        head, body = split(message)
        return kind.FromString(head), body
    except (ValueError, KeyError, DecodeError) as error:
        raise error_of("INTERNAL", f"the server sent what is no {kind.DESCRIPTOR.name}: "
                       f"{error}") from None


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7f:
        out.append(number & 0x7f | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError(f"a message of {len(message)} bytes is cut off at byte {at}")
        byte = message[at]
        at += 1
        number |= (byte & 0x7f) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def writable(body: memoryview) -> Bytes:
    """A copy of received bytes, for tensors that may be written to."""
    memory = np.empty(len(body), np.uint8)
    memory[:] = np.frombuffer(body, np.uint8)
    return memory


# --- out ------------------------------------------------------------------------------------------


class OutgoingBatch:
    """A batch laid out for frames: its head, and the batch buffer in pieces, windows on the
    caller's memory, which must not change until the batch is answered.

    Immutable. library: that its shards are wanted of. total_bytes: of the batch buffer, which
    counts to the limits of a stream.
    """

    def __init__(self, batch: Mapping[str, Any], options: Any = None, cp_size: int | None = None,
                 ranks: Sequence[int] = (), library: str = "numpy",
                 executor: str = "auto") -> None:
        self.cp_size, self.ranks, self.executor = cp_size, tuple(ranks), executor
        self.begin = service_pb2.BatchBegin(options=options, cp_size=cp_size, ranks=self.ranks,
                                            executor=executor_number(executor))
        tensors = add_entries(self.begin.entries, batch)
        self._pieces, self.total_bytes = place_entries(self.begin.entries, tensors)
        self.begin.total_bytes = self.total_bytes
        self.library = library

    def sample(self) -> list[bytes]:
        """By which it shows that the caller's memory has changed since."""
        return [sample_of(piece) for piece in self._pieces if isinstance(piece, np.ndarray)]

    def unary(self) -> bytes:
        """As a serialised ShardBatchRequest."""
        begin = self.begin
        request = service_pb2.ShardBatchRequest(options=begin.options, cp_size=self.cp_size,
                                                ranks=self.ranks, entries=begin.entries,
                                                executor=begin.executor)
        return join(request, self._pieces)

    def frames(self, batch_id: int, chunk_bytes: int = CHUNK_BYTES,
               push: Any = None) -> Iterator[bytes]:
        """Its serialised BatchFrames. `push`: the PushHead of a batch of a session."""
        seq = offset = 0
        pieces = _Cutter(self._pieces)
        while True:
            size = min(chunk_bytes, self.total_bytes - offset)
            frame = service_pb2.BatchFrame(batch_id=batch_id, frame_seq=seq, offset=offset,
                                           last=offset + size == self.total_bytes)
            if seq == 0:
                frame.begin.CopyFrom(self.begin)
                if push is not None:
                    frame.push.CopyFrom(push)
            yield join(frame, pieces.take(size))
            seq, offset = seq + 1, offset + size
            if frame.last:
                return


class _Cutter:
    """Takes so many bytes at a time from the front of pieces."""

    def __init__(self, pieces: Sequence[Any]) -> None:
        self._pieces = [memoryview(piece) for piece in reversed(pieces)]

    def take(self, size: int) -> list[memoryview]:
        taken = []
        while size > 0:
            piece = self._pieces.pop()
            if len(piece) > size:
                self._pieces.append(piece[size:])
                piece = piece[:size]
            taken.append(piece)
            size -= len(piece)
        return taken


# --- in -------------------------------------------------------------------------------------------


class IncomingAnswer:
    """An answer as it arrives: its frames are held to each other, their bodies land in one buffer.

    max_bytes: an answer that says it is larger is refused. Not thread-safe. Internal, with the
    numbers: a frame that cannot come here; the object is of no use then.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._begin: Any = None
        self._memory: Bytes = np.empty(0, np.uint8)
        self._heads: list[Any] = []
        self._received = self._next_seq = 0
        self.complete = False

    def take(self, frame: Any, body: memoryview) -> None:
        """A ShardFrame without its body (and without a status), and the body."""
        if self.complete or frame.frame_seq != self._next_seq:
            raise self._broken(frame, f"frame {self._next_seq} was expected")
        if frame.HasField("begin") != (self._next_seq == 0):
            raise self._broken(frame, "a begin is in frame 0 and only there")
        self._next_seq += 1
        if frame.HasField("begin"):
            self._start(frame)
        self._heads.extend(frame.shards)
        self._check_place(frame, len(body))
        end = self._received + len(body)
        self._memory[self._received:end] = np.frombuffer(body, np.uint8)
        self._received = end
        self.complete = frame.last

    def _start(self, frame: Any) -> None:
        self._begin = frame.begin
        if frame.begin.total_bytes > self._max_bytes:
            raise self._broken(frame, f"it announces {frame.begin.total_bytes} bytes; at most "
                               f"{self._max_bytes} can be")
        self._memory = np.empty(frame.begin.total_bytes, np.uint8)

    def _check_place(self, frame: Any, size: int) -> None:
        shards, total = self._begin.num_shards, self._begin.total_bytes
        if len(self._heads) > shards or (size and len(self._heads) < shards):
            raise self._broken(frame, f"{len(self._heads)} shards and then a body of {size} bytes; "
                               f"{shards} shards were announced")
        if size and frame.offset != self._received or size > total - self._received:
            raise self._broken(frame, f"its body of {size} bytes lies at {frame.offset}; the one "
                               f"before ended at {self._received} of {total}")
        if frame.last and (len(self._heads), self._received + size) != (shards, total):
            raise self._broken(frame, f"it is the last, after {len(self._heads)} of {shards} "
                               f"shards and {self._received + size} of {total} bytes")

    def _broken(self, frame: Any, why: str) -> Error:
        return error_of("INTERNAL", f"broken answer to batch {frame.batch_id}, frame "
                        f"{frame.frame_seq}: {why}")

    def shards(self, library: str) -> list[Shard]:
        """The shards, once it is complete, as windows on the buffer, which may be written to."""
        return shards_of(self._heads, self._memory, library, self._begin.executor)

    @property
    def begin(self) -> Any:
        """The ShardsBegin: notices and totals."""
        return self._begin

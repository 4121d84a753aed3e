"""ShardBatches from a client's side: batches cut into frames, frames sent one at a time - as bytes
where they must be wrong - and answers put together. What every answer keeps to is asserted here."""

import functools
import queue
from typing import NamedTuple

import numpy as np

from stubs import request_of, service_pb2

METHOD = "/cpshard.v1.ShardService/ShardBatches"
CHUNK = 2 << 20
MAX_CHUNK = 4 << 20
MAX_HEADER = 64 << 10


class Packed(NamedTuple):
    """A batch as it travels."""
    begin: service_pb2.BatchBegin
    data: bytes  # the batch buffer


def packed(batch, options, cp_size, ranks=()):
    """The tensors lie in the order of the dict."""
    request = request_of(batch, options, cp_size, ranks)
    begin = service_pb2.BatchBegin(options=request.options, ranks=request.ranks,
                                   entries=request.entries, total_bytes=len(request.body))
    if cp_size is not None:
        begin.cp_size = cp_size
    return Packed(begin, request.body)


def frames(batch_id, batch, chunk=CHUNK, checksums=False):
    """The BatchFrames of a Packed batch. With checksums the last one has no body."""
    made, crc = [], None
    for at in range(0, max(len(batch.data), 1), chunk):
        body = batch.data[at:at + chunk]
        made.append(service_pb2.BatchFrame(batch_id=batch_id, frame_seq=len(made), offset=at,
                                           body=body, crc32c=crc))
        crc = crc32c(body) if checksums else None
    if checksums:
        made.append(service_pb2.BatchFrame(batch_id=batch_id, frame_seq=len(made), crc32c=crc))
    made[0].begin.CopyFrom(batch.begin)
    made[-1].last = True
    return made


@functools.cache
def _crc_table():
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ (0x82f63b78 if value & 1 else 0) for value in table]
    return table


def crc32c(data):
    """CRC-32C, a byte at a time: for bodies of some KB."""
    table, crc = _crc_table(), 0xffffffff
    for byte in data:
        crc = table[(crc ^ byte) & 0xff] ^ crc >> 8
    return crc ^ 0xffffffff


class Answer:
    """What came under one batch's id, frame by frame. `shards` and `body` are those of a
    ShardBatchReply, large layouts put together again."""

    credits = True  # not in sessions

    def __init__(self):
        self.begin = None
        self.shards, self.body = [], bytearray()
        self.sent = []  # the shards as they came
        self.status = self.credit = None
        self.num_frames = 0

    def take(self, frame, size):
        """`size`: bytes of the message. True: this was the last frame."""
        assert frame.frame_seq == self.num_frames, (frame.frame_seq, self.num_frames)
        assert len(frame.body) <= MAX_CHUNK and size - len(frame.body) <= MAX_HEADER, size
        with_credit = frame.last and self.credits
        assert frame.HasField("credit") == with_credit, "credit comes with the last frame"
        self.num_frames += 1
        if frame.HasField("status"):
            self._fail(frame)
        else:
            self._add(frame)
        if frame.last:
            self.credit = frame.credit
            if self.status is None:
                assert len(self.body) == self.begin.total_bytes, "bytes of the answer are missing"
                assert len(self.shards) == self.begin.num_shards
                self.sent = self.shards
                self.shards = [restored(shard, self.body) for shard in self.shards]
        return frame.last

    def _fail(self, frame):
        assert frame.last and not frame.body and not frame.shards, "a status stands alone"
        assert 1 <= frame.status.code <= 16, frame.status
        assert len(frame.status.message.encode()) <= 2048 + len("..."), "a status text is cut"
        self.status = frame.status
        self.shards, self.body = [], bytearray()

    def _add(self, frame):
        assert frame.HasField("begin") == (frame.frame_seq == 0)
        if frame.HasField("begin"):
            self.begin = frame.begin
        self.shards += frame.shards
        if frame.body:
            assert len(self.shards) == self.begin.num_shards, "heads come before bodies"
            assert frame.offset == len(self.body) and frame.offset % 64 == 0, frame.offset
            self.body += frame.body

    @property
    def layouts(self):
        return [shard.layout for shard in self.shards]


def restored(shard, body):
    """The shard with the arrays of its layout back in their fields."""
    whole = service_pb2.Shard(layout=shard.layout)
    if shard.HasField("load"):
        whole.load.CopyFrom(shard.load)
    for entry in shard.entries:
        if not entry.name.startswith("_layout."):
            whole.entries.add().CopyFrom(entry)
            continue
        values = np.frombuffer(body, "<i8", entry.nbytes // 8, entry.offset)
        if entry.name == "_layout.runs":
            for source, length in values.reshape(-1, 2).tolist():
                whole.layout.runs.add(source=source, length=length)
            continue
        field = entry.name.removeprefix("_layout.")
        assert whole.layout.HasField(field), "a field that is present stays present"
        getattr(whole.layout, field).shape[:] = entry.dims
        getattr(whole.layout, field).values[:] = values.tolist()
    return whole


class Stream:
    """One call. Sending and reading may be done on different threads."""

    def __init__(self, channel, timeout=60):
        self._out = queue.SimpleQueue()
        self.call = channel.stream_stream(METHOD)(iter(self._out.get, None), timeout=timeout)
        self.total_bytes = {}  # of the batches that were begun; of bytes sent raw: for the caller
        self._coming, self._complete = {}, {}
        self.draining = False

    def send(self, *messages):
        """BatchFrames, or bytes."""
        for message in messages:
            if not isinstance(message, bytes):
                if message.HasField("begin"):
                    self.total_bytes[message.batch_id] = message.begin.total_bytes
                message = message.SerializeToString()
            self._out.put(message)

    def end(self):
        """Nothing more is sent."""
        self._out.put(None)

    def cancel(self):
        self.end()
        self.call.cancel()

    def read(self):
        """The next frame; it counts for `answer` too. StopIteration or RpcError: the end."""
        message = next(self.call)
        frame = service_pb2.ShardFrame.FromString(message)
        if frame.draining:
            assert frame == service_pb2.ShardFrame(draining=True), "drains in a frame of its own"
            self.draining = True
            return frame
        answer = self._coming.setdefault(frame.batch_id, Answer())
        if answer.take(frame, len(message)):
            self._complete.setdefault(frame.batch_id, []).append(self._coming.pop(frame.batch_id))
            if answer.status is None:
                credit = (answer.credit.bytes, answer.credit.batches)
                assert credit == (self.total_bytes[frame.batch_id], 1), credit
        return frame

    def answer(self, batch_id):
        """The next complete answer under this id, a status included."""
        while not self._complete.get(batch_id):
            self.read()
        return self._complete[batch_id].pop(0)

    def read_to_end(self):
        """The code that the call ends with. Answers stay to be asked for."""
        try:
            while True:
                self.read()
        except StopIteration:
            pass
        except Exception as error:  # grpc.RpcError is raised as the call itself
            if error is not self.call:
                raise
        return self.call.code()

    def unread(self):
        """Ids of answers, complete or begun, that nobody asked for."""
        return [*self._coming, *(number for number, some in self._complete.items() if some)]

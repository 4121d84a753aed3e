"""Batches through one ShardBatches stream: several in flight, sent again after a loss."""

from __future__ import annotations

import collections
import dataclasses
import math
import queue
import sys
import threading
import time
from typing import Any, Iterable, Iterator

import grpc

from ._proto import service_pb2
from .at_exit import end_at_exit, join_until
from .backoff import Backoff
from .channel import error_of_rpc, error_of_status, may_pass, stream
from .errors import Error, error_of
from .executors import check_executor
from .frames import CHUNK_BYTES, IncomingAnswer, OutgoingBatch, read
from .messages import ALIGNMENT, check_ranks
from .types import Shard

_MAX_LOSSES = 5          # of a batch: then it may be what breaks the connections
_LOSSES_TO_GO_ALONE = 2  # ... and from then on its neighbours do not fall with it


@dataclasses.dataclass
class _Pending:
    out: OutgoingBatch
    deadline: float = math.inf  # from when it is sent first
    sent: bool = False
    losses: int = 0
    answer: IncomingAnswer | None = None

    @property
    def goes_alone(self) -> bool:
        return self.losses >= _LOSSES_TO_GO_ALONE


class BatchStream:
    """Not thread-safe: one caller, on whose thread batches are taken from their source. gRPC writes
    on a thread of its own; another one reads, so that a wait has a deadline."""

    def __init__(self, channel: Any, limits: Any, deadline: float, max_inflight: int) -> None:
        self._method = stream(channel, "ShardBatches")
        self._limits, self._deadline = limits, deadline
        self._max_inflight = min(max_inflight, limits.max_inflight_batches or max_inflight)
        chunk = limits.max_chunk_bytes or CHUNK_BYTES
        self._chunk_bytes = max(min(CHUNK_BYTES, chunk) // ALIGNMENT * ALIGNMENT, ALIGNMENT)
        self._pending: collections.OrderedDict[int, _Pending] = collections.OrderedDict()
        self._backoff = Backoff()
        self._call: _Call | None = None
        self._left: list[threading.Thread] = []  # at the end of the process
        self._last: Error | None = None  # why batches were sent again
        self._server_goes = False  # so it has said, and nothing came since
        end_at_exit(self)  # an iterator that is kept has its call still

    def leave(self) -> None:
        if self._call is not None:
            self._left.append(self._call.reader)
        self._hang_up()
        for each in self._pending.values():
            each.sent = False

    def join(self, give_up: float) -> None:
        for thread in self._left:
            join_until(thread, give_up)

    def __enter__(self) -> BatchStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._hang_up()

    def run(self, batches: Iterable[OutgoingBatch]) -> Iterator[list[Shard]]:
        """The shards of every batch, in order. The error of one names it by its number."""
        source = iter(batches)
        done: dict[int, list[Shard]] = {}
        taken = given = 0
        while True:
            while source is not None and taken - given < self._max_inflight:
                left = time.monotonic()
                try:
                    out = next(source)
                except StopIteration:
                    source = None  # type: ignore[assignment]
                    break
                self._put_off(left)
                self._pending[taken] = _Pending(out)
                taken += 1
                self._send()
            if given in done:
                left = time.monotonic()
                yield done.pop(given)
                self._put_off(left)
                given += 1
            elif not self._pending:
                return
            else:
                done.update(self._receive())

    def _put_off(self, left: float) -> None:
        """The deadlines, by what the caller took for itself, who was not there to receive."""
        away = time.monotonic() - left
        for each in self._pending.values():
            each.deadline += away

    # --- out

    def _send(self) -> None:
        """Hands batches to the stream, oldest first, as far as the server's limits go."""
        sent = [each for each in self._pending.values() if each.sent]
        under_way = sum(each.out.total_bytes for each in sent)
        bound = self._limits.max_inflight_bytes
        for number, each in self._pending.items():
            if each.sent:
                continue
            if sent and bound and under_way + each.out.total_bytes > bound:
                return
            if sent and (each.goes_alone or sent[-1].goes_alone):
                return
            if self._call is None:
                # Once there was a server. Until there is one again, no connection is lost.
                self._call = _Call(self._method, wait_for_ready=self._last is not None)
            self._call.write(each.out.frames(number + 1, self._chunk_bytes))
            each.deadline = min(each.deadline, time.monotonic() + self._deadline)
            each.sent, each.answer = True, IncomingAnswer(2 * (self._limits.max_batch_bytes
                                                               or 1 << 40))
            under_way += each.out.total_bytes
            sent.append(each)

    def _hang_up(self) -> None:
        if self._call is not None:
            self._call.cancel()
        self._call = None

    # --- in

    def _receive(self) -> dict[int, list[Shard]]:
        """Waits for one message; the batch that it completes, if it does."""
        self._send()
        assert self._call is not None
        patience = min(each.deadline for each in self._pending.values()) - time.monotonic()
        try:
            message = self._call.read(max(patience, 0.0))
        except queue.Empty:
            raise self._late() from None
        if isinstance(message, Error):
            self._lost(message)
            return {}
        self._backoff.reset()
        self._server_goes = False
        frame, body = read(service_pb2.ShardFrame, message)
        number = frame.batch_id - 1
        if frame.draining or number not in self._pending:
            return {}
        if frame.HasField("status"):
            self._refused(number, error_of_status(frame.status))
            return {}
        answer = self._pending[number].answer
        assert answer is not None
        answer.take(frame, body)
        if not answer.complete:
            return {}
        out = self._pending.pop(number).out
        shards = answer.shards(out.library)
        try:
            check_ranks(shards, out.cp_size, out.ranks)
            check_executor(out.executor, answer.begin.executor)
        except Error as error:
            raise _of_batch(number, error) from None
        return {number: shards}

    def _refused(self, number: int, error: Error) -> None:
        """Sends it again, on a stream of its own, where time may help. Unavailable: the server
        goes, and all that it has goes with it."""
        if error.retry_after is None:
            raise _of_batch(number, error)
        self._server_goes = error.code == "UNAVAILABLE"
        self._send_again(error, counts=self._server_goes)

    def _lost(self, error: Error) -> None:
        if not may_pass(error):
            raise error
        # The end of a server that has refused what it had is no other loss.
        counts, self._server_goes = not self._server_goes, False
        self._send_again(error, counts)

    def _send_again(self, error: Error, counts: bool) -> None:
        """All that is not answered, after a while. `counts`: it may be a batch that did it."""
        self._hang_up()
        self._last = error
        for number, each in self._pending.items():
            each.losses += each.sent and counts
            each.sent = False
            if each.losses >= _MAX_LOSSES:
                raise error_of(error.code, f"batch {number} was under way when {each.losses} "
                               "connections ended or their servers gave up, and may be why; the "
                               f"last one with: {error.message}", error.reason, error.values)
        pause = max(self._backoff.next(), self._backoff.spread(error.retry_after or 0.0))
        first = min(each.deadline for each in self._pending.values())
        if time.monotonic() + pause >= first:
            raise self._late()
        time.sleep(pause)

    def _late(self) -> Error:
        why = f": {self._last.message}" if self._last else ""
        return error_of("DEADLINE_EXCEEDED", f"batch {next(iter(self._pending))} was not answered "
                        f"within {self._deadline} seconds{why}")


def _of_batch(number: int, error: Error) -> Error:
    return error.with_message(f"batch {number}: {error.message}")


class _Call:
    """One call; what it is given to write and what it has read wait in queues."""

    def __init__(self, method: Any, wait_for_ready: bool) -> None:
        self._out: queue.SimpleQueue[Iterator[bytes] | None] = queue.SimpleQueue()
        self._in: queue.SimpleQueue[bytes | Error] = queue.SimpleQueue()
        self._call = method(self._frames(), wait_for_ready=wait_for_ready)
        self.reader = threading.Thread(target=self._read, name="cpshard-read", daemon=True)
        self.reader.start()

    def _frames(self) -> Iterator[bytes]:
        while (frames := self._out.get()) is not None:
            yield from frames

    def _read(self) -> None:
        try:
            for message in self._call:
                self._in.put(message)
            self._in.put(error_of("UNAVAILABLE", "the server has ended the stream"))
        except grpc.RpcError as error:
            self._in.put(error_of_rpc(error))

    def write(self, frames: Iterator[bytes]) -> None:
        self._out.put(frames)

    def read(self, patience: float) -> bytes | Error:
        """The next message, or what the call ended with. queue.Empty: not within `patience`."""
        return self._in.get(timeout=patience)

    def cancel(self) -> None:
        self._out.put(None)
        # One of gRPC's threads that are no more by then may have its lock.
        if not sys.is_finalizing():
            self._call.cancel()

"""A rank's reader: its shards of every step, in order, each once, whatever restarts."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from typing import Any, Collection, Mapping

import grpc

from .._proto import service_pb2
from ..channel import error_of_rpc, error_of_status, may_pass, unary
from ..errors import Error, error_of, invalid
from ..executors import check_executor, check_knows_executors
from ..frames import IncomingAnswer, read
from ..messages import check_ranks
from .codec import (decode_opened, delivery_of, encode_close, encode_open, encode_request,
                    encode_session)
from .connection import SessionStream
from .loop import RankLoop, Step
from .messages import (DEFAULT_STEP_BYTES, Commit, DeliveryHead, OpenSession, StepAddress, Want,
                       ReaderStream, check_open)
from .reader_ledger import EndOfPass, ReaderLedger, ReceivedShard, ReceivedStep
from .train_state import hash_of, state_dict
from .waiting import Stall, WaitTally, WarningClock, who_is_in

_WANT_SECONDS = 2.0  # after so long a server says who is waited for; the request is made again
_OPEN_SECONDS = 15.0
_CLOSE_PAUSE = 0.1
_EXIT_SECONDS = 60.0  # that the end of a `with` waits for the other ranks
_LOG = logging.getLogger("cpshard")


@dataclasses.dataclass(frozen=True)
class RankStream:
    """A data stream that a rank reads.

    max_step_bytes: of the batches of one step, all microbatches; the server keeps room for it. All
        ranks alike.
    closed: not wanted yet: the first loop over it, or start_pass, opens it (validation).
    finished: as close_pass(finished=True) left it: for a process that restarts behind its last
    pass.
    """

    name: str
    max_step_bytes: int = DEFAULT_STEP_BYTES
    closed: bool = False
    finished: bool = False


@dataclasses.dataclass
class _Arriving:
    head: DeliveryHead
    answer: IncomingAnswer


def _is_number(value: object, *kinds: type) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def _text(seconds: float) -> str:
    return f"{round(seconds, 2):.12g}"


def _broken(text: str) -> Error:
    return error_of("INTERNAL", f"the server sent {text}")


class Rank(SessionStream, RankLoop):
    """Made by cpshard.rank(). Thread-safe, but a data stream is read by one thread at a time. Not
    for a fork of the process.

    As a context manager: hangs up at the end, and closes the session where nothing was raised and
    every pass that was begun is over. Other ranks are waited for a minute then; that they did not
    close theirs is said in the log.

    What is waited for without end is said in the log (logger "cpshard"): after 10 seconds, and then
    each minute.
    """

    def __init__(self, address: str, opening: OpenSession, *, prefetch: int = 2,
                 keys: Collection[str] = (), timeout: float | None = None, tensors: str = "numpy",
                 data_epoch: int = 0) -> None:
        """Opens the session in the background. `opening`: streams as of where this process goes on.
        The rest as in cpshard.rank(). What a server refuses comes from next()."""
        check_open(opening)
        if not _is_number(prefetch, int) or prefetch < 0 or \
                (timeout is not None and (not _is_number(timeout, int, float) or timeout <= 0)):
            raise invalid(f"prefetch is {prefetch!r}, timeout {timeout!r}; from 0 on, and above 0, "
                          "are possible")
        SessionStream.__init__(self, address, "PullShards")
        RankLoop.__init__(self, [stream.name for stream in opening.streams])
        self._opening, self._keys, self._timeout = opening, list(keys), timeout
        # In time for the text of an error.
        patience = _WANT_SECONDS if timeout is None else min(_WANT_SECONDS, timeout / 2)
        self._want_ms = max(int(patience * 1000), 1)
        self._library, self._data_epoch = tensors, data_epoch
        self._ledger = ReaderLedger(opening, prefetch)
        self._requests: list[bytes] = []  # to be written
        self._asked: dict[int, StepAddress] = {}
        self._arriving: dict[int, _Arriving] = {}  # of the keeper's thread
        self._landing: set[StepAddress] = set()    # bytes of it are coming
        self._word: dict[StepAddress, Error] = {}  # of steps: what the server last said of them
        self._largest_answer = 0
        self._copied = 0.0
        self._closed = False
        self._told = Stall(), time.monotonic()  # of all_stalls, by commits
        self.stall = Stall()      # of the last step
        self.all_stalls = Stall()
        self._start()

    # --- the trainer

    def next(self, stream: str) -> Step | None:
        """The next step; None: the pass is over. Commits the step before. Blocks.

        Error ABORTED: a newer generation or process has taken the place, or a peer has left (reason
        PEER_LEFT: the same call may be made again). FailedPrecondition: the ranks do not agree, or
        the loaders. DeadlineExceeded: `timeout`; the text says who is waited for. NotFound: no such
        data stream. CANCELLED: closed.
        """
        self._check_process()
        self._rest_of(stream).clear()
        self._before.pop(stream, None)
        at = self._begin_wait(stream)
        with self._changed:
            copied, tally = self._copied, WaitTally()
            try:
                self._await_ready(at, tally)
            finally:
                self.stall = tally.finish(self._copied - copied)
                self.all_stalls += self.stall
            received = self._ledger.next(stream)
            if isinstance(received, ReceivedStep):
                self.stats.steps += 1
                self._before[stream] = self._ledger.state_of(stream)
            self._settle()  # the next steps can be asked for
        if isinstance(received, EndOfPass):
            return None
        return Step(*received.at, received.totals, [each.shard for each in received.microbatches])

    def _rest_of(self, stream: str) -> Any:
        if stream not in self._rest:
            raise error_of("NOT_FOUND", f"this session was opened without a data stream '{stream}'")
        return self._rest[stream]

    def _begin_wait(self, stream: str) -> StepAddress:
        at = StepAddress(stream, 0, 0)

        def begin() -> None:
            nonlocal at
            self._ledger.consumed(stream)
            state = self._ledger.state_of(stream)
            at = StepAddress(stream, state.pass_, state.next_step)
            # Who was away when the step was prefetched may be back.
            if at in self._word and self._word[at].reason == "PEER_LEFT":
                del self._word[at]
        self._update(begin)
        return at

    def _await_ready(self, at: StepAddress, tally: WaitTally) -> None:
        begin, warnings = time.monotonic(), WarningClock()
        while not self._ledger.ready(at.stream):
            if self._has_ended():
                raise self._outcome or error_of("CANCELLED", "the rank has been closed")
            if at in self._word and self._word[at].reason == "PEER_LEFT":
                raise self._word[at]
            now = time.monotonic()
            left = None if self._timeout is None else begin + self._timeout - now
            if left is not None and left <= 0:
                raise error_of("DEADLINE_EXCEEDED", self._late(at, self._timeout or 0.0))
            who = self._who_is_waited_for(at)
            if warnings.take():
                self._warn(self._late(at, now - begin))
            else:
                self._changed.wait(warnings.left() if left is None else min(left, warnings.left()))
            tally.add(who, time.monotonic() - now)

    def _who_is_waited_for(self, at: StepAddress) -> str | None:
        if not self._clock.up or at in self._landing:
            return "server"
        word = self._word.get(at)
        if word is None:
            return None
        return who_is_in(word.message) if word.code == "DEADLINE_EXCEEDED" else "server"

    def _late(self, at: StepAddress, seconds: float) -> str:
        word = self._trouble or self._word.get(at)
        why = word.message if word else ("the server has not said why" if self._clock.up else
                                         f"{self.address} is being connected to")
        return f"{self._name()}: {at} has not come within {_text(seconds)} seconds: {why}"

    def _name(self) -> str:
        return f"reader '{self._opening.reader}' of group '{self._opening.group}'"

    def consumed(self, stream: str) -> None:
        self._check_process()
        self._update(lambda: self._ledger.consumed(stream))

    def is_open(self, stream: str) -> bool:
        self._check_process()
        with self._changed:
            return not self._ledger.state_of(stream).closed

    def start_pass(self, stream: str) -> None:
        self._update(lambda: self._ledger.start_pass(stream))

    def close_pass(self, stream: str, finished: bool = False) -> None:
        self._check_process()
        self._rest_of(stream)
        super().close_pass(stream, finished)

        def close() -> None:
            self._ledger.close_pass(stream, finished)
            self._asked = {key: at for key, at in self._asked.items() if at.stream != stream}
            self._word = {at: error for at, error in self._word.items() if at.stream != stream}
        self._update(close)

    def _state(self, instead: Mapping[str, ReaderStream]) -> dict[str, Any]:
        self._check_process()
        with self._changed:
            streams = [instead.get(name) or self._ledger.state_of(name) for name in self._rest]
        return state_dict(streams, fingerprint=self._opening.fingerprint,
                          data_epoch=self._data_epoch, cp_size=self._opening.cp_size,
                          options_hash=hash_of(self._opening.options))

    # --- the end of the session

    def close(self, patience: float = 180.0) -> None:
        """Ends the session; blocks until all ranks of the generation have closed theirs, at most
        `patience` seconds: then DeadlineExceeded, or the server's word for it, or Unavailable is
        raised. Again: nothing."""
        self._check_process()
        error: Error | None = None
        begin, warnings = time.monotonic(), WarningClock()
        give_up = begin + patience
        while not self._closed:
            left = give_up - time.monotonic()
            error = self._close_once(min(left, max(warnings.left(), _CLOSE_PAUSE)))
            if error is not None and left > 0 and warnings.take():
                _LOG.warning("%s has not been closed: %s", self._name(),
                             self._why_open(error, time.monotonic() - begin))
            self._closed = error is None
            again = error is not None and (may_pass(error) or error.code == "NOT_FOUND")
            if not again or self._ended or time.monotonic() + _CLOSE_PAUSE >= give_up:
                break
            with self._changed:
                self._changed.wait(_CLOSE_PAUSE)
        self._end(error_of("CANCELLED", "the session has been closed"))
        if not self._closed and error is not None:
            raise error.with_message(f"{self._name()} has not been closed: " +
                                     self._why_open(error, patience))

    def _why_open(self, error: Error, patience: float) -> str:
        if error.code != "DEADLINE_EXCEEDED":
            return error.message
        return (f"within {_text(patience)} seconds other readers of the group have not closed "
                "theirs; has one of them left before the end? (cpshard status --server "
                f"{self.address} says which are there)")

    def _close_once(self, patience: float) -> Error | None:
        with self._changed:
            if self._has_ended():
                return self._outcome
            channel = self._channel if self._clock.up else None
            trouble = self._trouble.message if self._trouble else "it is being connected to"
        if channel is None:
            return error_of("UNAVAILABLE", "the session is not closed, for the server is away: " +
                            trouble)
        try:
            unary(channel, "CloseSession")(encode_close(self._opening), timeout=max(patience, 0))
        except grpc.RpcError as rpc_error:
            error = error_of_rpc(rpc_error)
            # All readers have closed, this one too: the answer that said so was lost.
            over = error.values.get("generation") == str(self._opening.generation)
            return None if error.reason == "STALE_GENERATION" and over else error
        except ValueError as closed:  # the channel
            return error_of("UNAVAILABLE", str(closed))
        return None

    def hang_up(self) -> None:
        """Without closing the session: the rank may come back."""
        self._check_process()
        self._end(error_of("CANCELLED", "the rank has hung up"))

    def __enter__(self) -> Rank:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if os.getpid() != self._process:
            return
        with self._changed:
            streams = [self._ledger.state_of(name) for name in self._rest]
        done = all(each.closed or each.name in self._at_end for each in streams)
        try:
            if kind is None and done:
                self.close(_EXIT_SECONDS)
        except Error as error:
            if not may_pass(error):
                raise
            _LOG.warning("%s", error.message)
        finally:
            self.hang_up()

    # --- the connection

    def _postponed(self) -> bool:
        return self._ledger.postponed()

    def _owed(self) -> bool:
        return bool(self._asked)

    def _try_again(self) -> None:
        self._ledger.ask_again()

    def _is_final(self, error: Error, connected: bool) -> bool:
        # A session that another instance of the server does not know is opened there.
        return not (connected and error.code == "NOT_FOUND") and not may_pass(error)

    def _greeted(self, channel: Any, info: Any) -> None:
        check_knows_executors(self._opening.executor, info.capabilities)
        self._largest_answer = 2 * max(info.limits.max_batch_bytes or 2 << 30, 64 << 20)
        self._arriving.clear()
        with self._changed:
            opening = self._ledger.open_message()
        opened = decode_opened(unary(channel, "OpenSession")(encode_open(opening),
                                                             timeout=_OPEN_SECONDS))
        check_executor(opening.executor, opened.executor)
        with self._changed:
            self.stats.executor = opened.executor
            self._ledger.on_opened(opened)

    def _connected(self) -> None:
        self.stats.opens += 1
        self._requests = [encode_session(self._opening)]

    def _disconnected(self) -> None:
        self._ledger.disconnected()
        self._requests.clear()
        self._asked.clear()
        self._landing.clear()

    def _take_messages(self) -> list[bytes] | None:
        for request in self._ledger.take_requests():
            stall, elapsed = Stall(), 0.0
            if isinstance(request, Want):
                self._asked[request.id] = request.at
            elif isinstance(request, Commit):
                stall, elapsed = self._take_stall()
            self._requests.append(
                encode_request(request, self._want_ms, self._keys, stall, elapsed))
        messages, self._requests = self._requests, []
        return messages or None

    def _take_stall(self) -> tuple[Stall, float]:
        """What the trainer has waited since the server was told, and in how many seconds."""
        now, (told, told_at) = time.monotonic(), self._told
        self._told = dataclasses.replace(self.all_stalls), now
        return self.all_stalls - told, now - told_at

    # --- what is read

    def _on_message(self, message: bytes) -> None:
        frame, body = read(service_pb2.ShardFrame, message)
        with self._changed:
            self._clock.heard(time.monotonic())
        if frame.draining:  # what is complete still comes
            return
        if frame.HasField("status"):
            self._arriving.pop(frame.batch_id, None)
            error = error_of_status(frame.status)
            self._update(lambda: self._refused(frame.batch_id, error))
        else:
            self._on_answer(frame, body)

    def _refused(self, want: int, error: Error) -> None:
        at = self._asked.pop(want, None)
        if at is not None:
            self._word[at] = error
            self._landing.discard(at)
        if error.retry_after is not None:
            self._clock.postpone_for(error.retry_after)
        self._ledger.on_request_error(want, error)

    def _on_answer(self, frame: Any, body: memoryview) -> None:
        if frame.frame_seq == 0:
            if not frame.HasField("delivery"):
                raise _broken(f"answer {frame.batch_id}, which says of no step")
            head = delivery_of(frame)
            self._arriving[frame.batch_id] = _Arriving(head, IncomingAnswer(self._largest_answer))
            self._update(lambda: self._landing.add(head.at))
        arriving = self._arriving.get(frame.batch_id)
        if arriving is None:
            raise _broken(f"answer {frame.batch_id}, which begins with frame {frame.frame_seq}")
        begin = time.monotonic()
        arriving.answer.take(frame, body)
        with self._changed:
            self._copied += time.monotonic() - begin
            self.stats.received_bytes += len(body)
        if arriving.answer.complete:
            del self._arriving[frame.batch_id]
            self._on_shards(arriving)

    def _on_shards(self, arriving: _Arriving) -> None:
        head = arriving.head
        shards = arriving.answer.shards(self._library)
        check_ranks(shards, self._opening.cp_size, [self._opening.cp_rank])

        def deliver() -> None:
            self._landing.discard(head.at)
            if head.last:
                self._asked.pop(head.id, None)
                self._word.pop(head.at, None)
            self._ledger.on_delivery(ReceivedShard(head, shards[0]))
        self._update(deliver)

"""A loader: makes the steps that it owns and pushes them to the server, for as long as the readers
want them."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import threading
import time
from typing import Any, Iterable, Iterator, Mapping

from ..at_exit import LEAVE_SECONDS, join_until
from ..errors import Error, error_of, invalid
from ..frames import CHUNK_BYTES, OutgoingBatch
from ..messages import ALIGNMENT
from .codec import decode_notice, encode_end, encode_hello, push_to
from .connection import SessionStream
from .loader_ledger import LoaderLedger, MadeBatch, MadeStep, Push, Work
from .messages import (Ack, Drain, LoaderCredit, LoaderHello, LoaderNotice, LoaderStream, PassDone,
                       Position, Released, StepAddress, check_hello)
from .source import REUSED, StepSource, source_step
from .waiting import WarningClock

_LOG = logging.getLogger("cpshard")


@dataclasses.dataclass
class LoaderStats:
    """pushed: batches, those pushed again included. held_bytes: of batches that are kept, now.
    waited: seconds, by the sources, with a step made and no next one wanted."""

    connects: int = 0
    pushed: int = 0
    rewinds: int = 0
    waited: float = 0.0
    held_bytes: int = 0
    held_steps: int = 0


class _LaidOut:
    """A batch as it is pushed, with what shows that the source writes to it meanwhile."""

    def __init__(self, batch: Mapping[str, Any]) -> None:
        self.out = OutgoingBatch(batch)
        self._sample = self.out.sample()

    def changed(self) -> bool:
        return self.out.sample() != self._sample


def _lay_out(made: Any) -> MadeStep:
    step = source_step(made)
    batches = [_LaidOut(batch) for batch in step.microbatches]
    return MadeStep([MadeBatch(batch, batch.out.total_bytes) for batch in batches], step.totals,
                    step.state)


class Loader(SessionStream):
    """Made by cpshard.loader(). Thread-safe. Runs on threads of its own until the readers are done;
    as a context manager it is stopped at the end. Not for a fork of the process.

    What was made is kept until the server says that no reader will need it again, and is pushed
    again to a server that has lost it: a restart of the server is seen by a source only where it
    asks for steps that this process never made, or that were released already.
    """

    def __init__(self, address: str, hello: LoaderHello,
                 sources: Mapping[str, StepSource]) -> None:
        """`sources` by data stream. InvalidArgument: an address, a name or a number that cannot
        be."""
        if not sources:
            raise invalid("a loader of no data stream has nothing to push")
        hello.streams = [LoaderStream(name) for name in sources]
        check_hello(hello)
        super().__init__(address, "PushBatches")
        self._sources = dict(sources)
        self._ledger = LoaderLedger(hello)
        self._hello = b""  # to be sent
        self._chunk_bytes = CHUNK_BYTES
        self._next_id = 1
        self._unacknowledged = 0  # batches that an answer is due for
        self._stats = LoaderStats()
        self._failed: BaseException | None = None  # what a source raised
        self.draining = False  # the server is going down: it will be back, or another
        self._source_thread = threading.Thread(target=self._make_steps, name="cpshard-source",
                                               daemon=True)
        self._threads.append(self._source_thread)
        self._leave_by = math.inf  # then the source is left to itself
        self._start()

    def wait(self, timeout: float | None = None) -> None:
        """Blocks until the loader has ended: all readers have finished with all data streams, or
        stop(). Raises what a source raised, or the server's refusal: ABORTED (replaced by a newer
        process), FailedPrecondition (another number of loaders, a digest that differs, two ends),
        InvalidArgument (a batch that the group's layout refuses, or that its source wrote to).
        DeadlineExceeded: `timeout` seconds have passed.

        The log says (logger "cpshard") what is waited for where nothing happens."""
        self._check_process()
        give_up = math.inf if timeout is None else time.monotonic() + timeout
        warnings = WarningClock()
        with self._changed:
            while not self._has_ended():
                left = give_up - time.monotonic()
                if left <= 0:
                    raise error_of("DEADLINE_EXCEEDED", f"{self._name()} has not ended within "
                                   f"{timeout} seconds: {self._waits_for()}")
                if warnings.take() and self._stands_still():
                    self._warn(f"{self._name()} waits: {self._waits_for()}")
                    continue
                self._changed.wait(min(left, warnings.left()))
        self._join_source(give_up)
        if self._failed is not None:
            raise self._failed
        if self._outcome is not None:
            raise self._outcome

    def _name(self) -> str:
        hello = self._ledger.hello_message()
        return f"loader {hello.loader} of {hello.num_loaders} of group '{hello.group}'"

    def _stands_still(self) -> bool:
        return not self._clock.up or self._stats.pushed == 0 or self._ledger.all_asked_for()

    def _waits_for(self) -> str:
        if self._trouble is not None:
            return self._trouble.message
        if not self._clock.up:
            return f"{self.address} is being connected to"
        if self._stats.pushed == 0:
            return (f"no rank of the group has asked for a step at {self.address}; is theirs "
                    "another group?")
        if self._ledger.all_asked_for():
            return ("the ranks have all of its steps, and have not said that they are finished: a "
                    "rank says so at the end of its `with`, or by finish()")
        return "its ranks ask for more"

    def stop(self) -> None:
        """At once, but for a make() that is under way, which has some seconds to return."""
        self._check_process()
        self._end(None)
        self._join_source()

    def _join_source(self, give_up: float = math.inf) -> None:
        """So that it is not in the middle of something when the process ends."""
        self._leave_by = min(self._leave_by, time.monotonic() + LEAVE_SECONDS)
        join_until(self._source_thread, min(self._leave_by, give_up))

    def join(self, give_up: float) -> None:
        super().join(min(self._leave_by, give_up))

    @property
    def stats(self) -> LoaderStats:
        with self._changed:
            return dataclasses.replace(self._stats, held_bytes=self._ledger.held_bytes(),
                                       held_steps=self._ledger.held_steps())

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        if os.getpid() == self._process:
            self.stop()

    # --- the sources' thread

    def _make_steps(self) -> None:
        while (work := self._await_work()) is not None:
            at = StepAddress(work.stream, work.pass_, work.step)
            try:
                self._make(work)
            except Error as error:
                self._fail(error.with_message(f"{at}: {error.message}"), error)
            except BaseException as raised:
                self._fail(raised, error_of("UNKNOWN", f"{at}: {raised!r}"))
        failed = self._failed or self._outcome
        if failed is not None and not self._exits:  # whoever does not wait() hears of it here
            _LOG.error("%s has ended: %s: %s", self._name(), type(failed).__name__, failed)

    def _fail(self, failed: BaseException, outcome: Error) -> None:
        """Unless it has ended: nobody wants what was being made any more."""
        def fail() -> None:
            if not self._ended:
                self._failed, self._ended, self._outcome = failed, True, outcome
        self._update(fail)

    def _await_work(self) -> Work | None:
        """None: the loader has ended."""
        with self._changed:
            while not self._ended:
                work = self._ledger.next_work()
                if work is not None:
                    return work
                holds, begin = self._ledger.held_steps() > 0, time.monotonic()
                self._changed.wait()
                if holds:
                    self._stats.waited += time.monotonic() - begin
        return None

    def _make(self, work: Work) -> None:
        source = self._sources[work.stream]
        if work.rewind is not None:
            self._stats.rewinds += 1
            source.rewind(work.pass_, work.step, work.rewind.state)
        made = source.make(work.pass_, work.step)
        if made is None:
            end = source.end_step(work.pass_)
            self._update(lambda: self._ledger.made_end(work, end))
        else:
            self._check_held(work.stream)
            step = _lay_out(made)
            self._update(lambda: self._ledger.made(work, step))

    def _check_held(self, stream: str) -> None:
        """InvalidArgument: the source wrote to what it gave before."""
        with self._changed:
            held = self._ledger.held_batches(stream)
        for step, made in held:
            laid_out: _LaidOut = made.batch
            if laid_out.changed():
                raise invalid(f"while it was made, its source wrote to the tensors of step {step}, "
                              f"which ranks still need: {REUSED}")

    # --- the connection

    def _postponed(self) -> bool:
        return self._ledger.postponed()

    def _owed(self) -> bool:
        return self._unacknowledged > 0 or bool(self._hello)

    def _try_again(self) -> None:
        self._ledger.push_again()

    def _over(self) -> tuple[Error | None] | None:
        if self._ledger.failure is not None:
            return (self._ledger.failure,)
        return (None,) if self._ledger.finished() else None

    def _greeted(self, channel: Any, info: Any) -> None:
        chunk = min(CHUNK_BYTES, info.limits.max_chunk_bytes or CHUNK_BYTES)
        self._chunk_bytes = max(chunk // ALIGNMENT * ALIGNMENT, ALIGNMENT)

    def _connected(self) -> None:
        self._stats.connects += 1
        self._hello = encode_hello(self._ledger.hello_message())
        self._ledger.connected()

    def _disconnected(self) -> None:
        self._ledger.disconnected()
        self._hello = b""
        self._unacknowledged = 0

    def _take_messages(self) -> Iterable[bytes] | None:
        if self._hello:
            hello, self._hello = self._hello, b""
            return [hello]
        message = self._ledger.next_message()
        if message is None:
            return None
        if not isinstance(message, Push):
            return [encode_end(message)]
        self._stats.pushed += 1
        self._unacknowledged += 1
        self._next_id += 1
        return self._frames(message, self._next_id)

    def _frames(self, push: Push, batch_id: int) -> Iterator[bytes]:
        laid_out: _LaidOut = push.batch.batch
        return laid_out.out.frames(batch_id, self._chunk_bytes, push_to(push.head))

    # --- what is read

    def _on_message(self, message: bytes) -> None:
        notice = decode_notice(message)
        self._update(lambda: self._on_notice(notice))

    def _on_notice(self, notice: LoaderNotice) -> None:
        self._clock.heard(time.monotonic())
        if isinstance(notice, Ack):
            self._unacknowledged = max(self._unacknowledged - 1, 0)
            if notice.error is not None and notice.error.retry_after is not None:
                self._clock.postpone_for(notice.error.retry_after)
            self._ledger.on_ack(notice)
        elif isinstance(notice, Position):
            self._unacknowledged = 0  # what was pushed for another epoch is dropped without a word
            self._ledger.on_position(notice)
        elif isinstance(notice, LoaderCredit):
            self._ledger.on_credit(notice)
        elif isinstance(notice, Released):
            self._ledger.on_released(notice)
        elif isinstance(notice, PassDone):
            self._unacknowledged = 0
            self._ledger.on_pass_done(notice)
        elif isinstance(notice, Drain):
            self.draining = True

"""A data stream as one reader receives it: the steps that come in, the one that the trainer has in
hand, what it has consumed, and the state that resumes behind that.

    consumed | in hand (0 or 1 step) | received, in order | asked for, or partly here | later
         next_step                 front                                      front + prefetch

Part of ReaderLedger; requests have their ids there.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, Union

from ..errors import Error, error_of
from .messages import (Commit, DeliveryHead, LoaderState, OpenedStream, PassClosed, ReaderStream,
                       ResumeState, StepAddress, StepTotals, Want)

Request = Union[Want, Commit, PassClosed]


@dataclasses.dataclass
class ReceivedShard:
    """One microbatch as it was received; `shard` is opaque here."""

    head: DeliveryHead
    shard: Any


@dataclasses.dataclass
class ReceivedStep:
    at: StepAddress
    totals: StepTotals
    microbatches: list[ReceivedShard]


@dataclasses.dataclass
class EndOfPass:
    at: StepAddress  # the first step that there is not


@dataclasses.dataclass
class _Step:
    microbatches: list[ReceivedShard] = dataclasses.field(default_factory=list)
    totals: StepTotals | None = None
    complete: bool = False


class IncomingStream:
    def __init__(self, start: ReaderStream) -> None:
        self.name = start.name
        self.pass_ = start.pass_
        self._max_step_bytes = start.max_step_bytes
        self._closed = start.closed or start.finished
        self._finished = start.finished
        self._next_step = start.next_step
        self._in_hand: DeliveryHead | None = None
        self._steps: dict[int, _Step] = {}  # from the front on
        self._end: int | None = None
        self._error: Error | None = None
        # Of next_step - 1. Not exact: loaders are missing in it whose states were never heard of.
        self._resume = copy.deepcopy(start.resume or ResumeState())
        self._resume_is_exact = start.resume is not None or start.next_step == 0
        self._asked: set[int] = set()      # and not answered, or postponed
        self._postponed: set[int] = set()  # of these
        self._told = (start.pass_, start.next_step)  # what the server knows

    def state(self) -> ReaderStream:
        received = self._first_incomplete() - 1
        return ReaderStream(
            self.name, self.pass_, self._next_step, received if received >= 0 else None,
            self._closed, self._finished, self._max_step_bytes,
            copy.deepcopy(self._resume) if self._knows_resume() else None)

    @property
    def _front(self) -> int:
        return self._next_step + (self._in_hand is not None)

    def _first_incomplete(self) -> int:
        step = self._front
        while self._complete(step):
            step += 1
        return step

    def _complete(self, step: int) -> bool:
        return step in self._steps and self._steps[step].complete

    def _knows_resume(self) -> bool:
        # Once all loaders have given a state since, what was before does not matter any more.
        every = 0 < self._resume.num_loaders == len(self._resume.loaders)
        return self._resume_is_exact or every

    # --- connection

    def told(self) -> None:
        """The server learns state() with OpenSession."""
        self._told = (self.pass_, self._next_step)

    def opened(self, opened: OpenedStream) -> None:
        told_pass, told_step = self._told
        again = "; start a new generation from a checkpoint"
        if opened.floor is not None and not self._closed and opened.pass_ == told_pass and \
                opened.floor > told_step:
            raise error_of("FAILED_PRECONDITION", f"data stream '{self.name}': the server has "
                           f"nothing below step {opened.floor} of pass {opened.pass_}, and this "
                           f"reader needs step {told_step}{again}")
        if opened.floor is not None and opened.pass_ > told_pass:
            raise error_of("FAILED_PRECONDITION", f"data stream '{self.name}': the server is in "
                           f"pass {opened.pass_}, this reader in pass {told_pass}{again}")
        of_now = self._told == (self.pass_, self._next_step)
        if opened.resume is not None and of_now and not self._knows_resume():
            self._resume = opened.resume
            self._resume_is_exact = True

    def disconnected(self) -> None:
        self._asked.clear()
        self._postponed.clear()
        # What has come behind a hole comes again: `received` does not speak for it, so that its
        # commit would be ahead of what a new server knows of.
        hole = self._first_incomplete()
        self._steps = {step: each for step, each in self._steps.items() if step <= hole}

    # --- requests

    def take_news(self) -> list[Request]:
        """What has been consumed and left since the server was told."""
        news: list[Request] = []
        told_pass, told_step = self._told
        while told_pass < self.pass_:
            finished = self._finished and told_pass + 1 == self.pass_
            news.append(PassClosed(self.name, told_pass, finished))
            told_pass, told_step = told_pass + 1, 0
        if told_step < self._next_step:
            told_step = self._next_step
            news.append(Commit(StepAddress(self.name, self.pass_, told_step - 1)))
        self._told = (told_pass, told_step)
        return news

    def take_step(self, ahead: int) -> int | None:
        """The step so far behind the front, if it is to be asked for now."""
        step = self._front + ahead
        over = self._closed or self._error is not None or \
            (self._end is not None and step >= self._end)
        if over or self._complete(step) or step in self._asked:
            return None
        self._asked.add(step)
        return step

    # Precondition of these: the step was asked for in this pass.

    def receive(self, received: ReceivedShard) -> None:
        """In the order of microbatches, which begins anew with every request. Internal: it lacks or
        contradicts what has to be said."""
        head = received.head
        self._check_head(head)
        if self._resume.loaders and self._resume.num_loaders != head.num_loaders:
            self.fail(error_of(
                "FAILED_PRECONDITION", f"step {head.at.step} of data stream '{self.name}' comes of "
                f"{head.num_loaders} loaders, but this session resumes with states of "
                f"{self._resume.num_loaders}; start {self._resume.num_loaders} loaders"))
            return
        step = self._steps.setdefault(head.at.step, _Step())
        if head.microbatch > len(step.microbatches):
            raise error_of("INTERNAL", f"step {head.at.step} of data stream '{self.name}': "
                           f"microbatch {head.microbatch} came, but not the one before")
        if head.microbatch < len(step.microbatches):
            # It was here before a disconnect. Should it have changed since, all that follows has.
            if step.microbatches[head.microbatch].head.digest == head.digest and not head.last:
                return
            del step.microbatches[head.microbatch:]
        if head.last:
            step.totals, step.complete = head.totals, True
            self._asked.discard(head.at.step)
        step.microbatches.append(received)

    def _check_head(self, head: DeliveryHead) -> None:
        where = f"step {head.at.step} microbatch {head.microbatch} of data stream '{self.name}'"
        if head.num_loaders < 1 or head.owner != head.at.step % head.num_loaders:
            raise error_of("INTERNAL", f"{where} is said to be of loader {head.owner} of "
                           f"{head.num_loaders}: loader i has the steps with step % L == i")
        count = head.totals.num_microbatches if head.totals else None
        if head.last and count != head.microbatch + 1:
            raise error_of("INTERNAL", f"{where} is the last one, but the step's totals " +
                           (f"count {count}" if head.totals else "are missing"))

    def ask_at_once(self, step: int) -> None:
        self._asked.discard(step)

    def postpone(self, step: int) -> None:
        self._postponed.add(step)

    def end(self, step: int, end_step: int) -> None:
        """The request for `step` was answered with the end of the pass."""
        self._asked.discard(step)
        unseen = max(self._steps) + 1 if self._steps else self._front
        if self._end is not None and self._end != end_step:
            instead = f"at step {self._end} before"
        elif end_step < unseen:
            instead = f"step {unseen - 1} was received"
        elif end_step > step:
            instead = f"that is the answer for step {step}"
        else:
            self._end = end_step
            return
        self.fail(error_of("FAILED_PRECONDITION", f"data stream '{self.name}' pass {self.pass_} is "
                           f"said to end at step {end_step}, but {instead}; the ranks would not "
                           "end together: start a new generation from a checkpoint"))

    def fail(self, error: Error) -> None:
        self._error = self._error or error

    @property
    def postponed(self) -> bool:
        return bool(self._postponed)

    def ask_again(self) -> None:
        self._asked -= self._postponed
        self._postponed.clear()

    # --- the trainer

    def start_pass(self) -> None:
        self._closed = self._finished

    def ready(self) -> bool:
        return (self._closed or self._complete(self._front) or self._error is not None
                or self._end == self._front)

    def next(self) -> Union[ReceivedStep, EndOfPass]:
        if self._closed:
            why = "finished" if self._finished else "between two passes; open the next one first"
            raise error_of("FAILED_PRECONDITION", f"data stream '{self.name}' is {why}")
        if self._complete(self._front):
            self.consume()
            step = self._steps.pop(self._next_step)
            assert step.totals is not None
            self._in_hand = step.microbatches[-1].head
            return ReceivedStep(self._in_hand.at, step.totals, step.microbatches)
        if self._end == self._front:
            self.consume()
            return EndOfPass(StepAddress(self.name, self.pass_, self._front))
        raise self._error or error_of("UNAVAILABLE", f"step {self._front} of data stream "
                                      f"'{self.name}' is not here yet")

    def consume(self) -> None:
        if self._in_hand is None:
            return
        self._resume.num_loaders = self._in_hand.num_loaders
        if self._in_hand.owner_state is not None:
            self._resume.loaders[self._in_hand.owner] = LoaderState(self._next_step,
                                                                    self._in_hand.owner_state)
        self._in_hand = None
        self._next_step += 1

    def close_pass(self, finished: bool) -> None:
        if self._finished or (self._closed and not finished):
            return
        self.consume()  # for the number of loaders
        self.pass_ += 1
        self._closed, self._finished = True, finished
        self._next_step = 0
        self._steps.clear()
        self._end = None
        self._resume.loaders.clear()
        self._resume_is_exact = True
        self.disconnected()

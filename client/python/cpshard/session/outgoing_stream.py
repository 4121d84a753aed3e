"""A data stream as one loader makes it: the steps that it holds, where its source stands, what the
server lets in.

    released | held: pushed, or to be pushed | made next | later
          first of held                        next        at most one step ahead of the credits

Steps here are this loader's own: i, i + L, i + 2 L, ... Part of LoaderLedger.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from ..errors import Error, error_of, invalid
from .messages import (MAX_STATE_BYTES, Ack, EndOfStream, LoaderCredit, LoaderState, LoaderStream,
                       PassDone, Position, PushHead, Released, StepAddress, StepTotals)

_MAX_LOSSES = 100  # of a step; but for the first each waits
_MAX_DEVICES = 5   # that servers lost while they sharded a step: then it may be why
_LOOKED_AT = 8     # steps that are held, whether they have changed
_POSTPONED = ("RESOURCE_EXHAUSTED", "UNAVAILABLE", "ABORTED", "DEADLINE_EXCEEDED", "CANCELLED")


@dataclasses.dataclass(frozen=True)
class MadeBatch:
    """One microbatch that a source made; `batch` is opaque here."""

    batch: Any
    nbytes: int = 0


@dataclasses.dataclass
class MadeStep:
    microbatches: list[MadeBatch]  # at least one
    totals: StepTotals | None = None  # where the source knows them
    state: bytes | None = None        # to go on behind this step


@dataclasses.dataclass(frozen=True)
class Rewind:
    """The state behind an earlier step of this loader; None: from the start of the pass."""

    state: LoaderState | None


@dataclasses.dataclass(frozen=True)
class Work:
    """rewind: the source does not stand before `step`; it has to go there first, forwards or
    backwards. (A new source stands at the start of pass 0.)"""

    stream: str
    pass_: int
    step: int
    rewind: Rewind | None = None


@dataclasses.dataclass(frozen=True)
class Push:
    head: PushHead
    batch: MadeBatch


class _At(enum.Enum):
    HERE = 1
    UNDER_WAY = 2
    LANDED = 3
    POSTPONED = 4


@dataclasses.dataclass
class _Held:
    made: MadeStep
    microbatches: list[_At]
    losses: int = 0   # DATA_LOSS
    devices: int = 0  # that servers lost with it ...
    device_lost: bool = False  # ... the last one on this connection

    def all_landed(self) -> bool:
        return all(at is _At.LANDED for at in self.microbatches)

    @property
    def nbytes(self) -> int:
        return sum(batch.nbytes for batch in self.made.microbatches)


@dataclasses.dataclass
class _Credit:
    nbytes: int
    order: int  # of all credits of the loader


class OutgoingStream:
    def __init__(self, name: str, loader: int, num_loaders: int) -> None:
        self._name, self._loader, self._num_loaders = name, loader, num_loaders
        self._generation = self._pass = self._epoch = 0
        self._of_generation = False  # the pass is one of the generation seen last
        self._placed = False   # there has been a position in this pass ...
        self._current = False  # ... on this connection
        self.finished = False
        self._released = 0     # in this pass and generation
        self._held: dict[int, _Held] = {}  # without gaps, up to _next
        self._next = loader
        self._resume: LoaderState | None = None  # takes the source to _next
        self._source = (0, loader)  # pass and step that it makes next, if nobody moves it
        self._end: int | None = None
        self._end_told = False  # since the last position
        self._credits: dict[int, _Credit] = {}  # of steps that are not all there
        self._allowed = -1  # the last step that had credit, or is there

    def state(self) -> LoaderStream:
        # Of a generation that it has only heard of, it cannot say that a pass is over.
        return LoaderStream(self._name, self._pass if self._of_generation else 0, self._released,
                            self._held_from())

    def held_steps(self) -> int:
        return len(self._held)

    def held_batches(self) -> list[tuple[int, MadeBatch]]:
        latest = sorted(self._held)[-_LOOKED_AT:]
        return [(step, batch) for step in latest for batch in self._held[step].made.microbatches]

    def at_end(self) -> bool:
        """All steps of the pass have been made, and all but its last are released: the ranks have
        that one too. (A server releases a step with the commit of the next.)"""
        end = self._end
        return end is not None and self._next >= end and min(self._held, default=end) >= end - 1

    def held_bytes(self) -> int:
        return sum(held.nbytes for held in self._held.values())

    def _held_from(self) -> int:
        return min(self._held, default=self._next)

    def _first_own(self, step: int) -> int:
        """This loader's first step at or behind `step`."""
        ahead = max(step - self._loader, 0)
        return self._loader + -(-ahead // self._num_loaders) * self._num_loaders

    def _is_of_now(self, pass_: int, epoch: int) -> bool:
        return self._current and (pass_, epoch) == (self._pass, self._epoch)

    def _text(self, step: int) -> str:
        return str(StepAddress(self._name, self._pass, step))

    # --- from the server

    def disconnected(self) -> None:
        self._current = False
        self._credits.clear()
        for held in self._held.values():
            held.device_lost = False

    def forget_released(self) -> None:
        """Another generation has begun: what was released in the one before says nothing of it."""
        self._released = 0
        self._of_generation = False

    def _begin_pass(self, pass_: int) -> None:
        self._pass = pass_
        self._placed = self._current = False
        self._released = 0
        self._held.clear()
        self._next = self._loader
        self._resume = None
        self._end = None
        self._credits.clear()

    def _let_go(self, before: int) -> None:
        self._released = max(self._released, before)
        self._held = {step: held for step, held in self._held.items() if step >= self._released}
        self._credits = {step: credit for step, credit in self._credits.items()
                         if step >= self._released}

    def place(self, position: Position) -> None:
        if self.finished and position.generation <= self._generation:
            return
        goes_on = self._is_of_now(position.pass_, position.epoch)
        if position.pass_ != self._pass:
            self._begin_pass(position.pass_)
        self._generation, self._epoch = position.generation, position.epoch
        self._of_generation = self._placed = self._current = True
        self.finished = self._end_told = False
        self._credits.clear()
        self._let_go(position.released)

        start = self._first_own(position.from_step)
        if not self._held_from() <= start <= self._next:
            self._held.clear()
            self._next = start
        if start == self._next:
            self._resume = position.state
        self._allowed = start - 1
        for step, held in self._held.items():
            if step >= start:
                held.microbatches = [at if goes_on and at is _At.UNDER_WAY else _At.HERE
                                     for at in held.microbatches]
        if start in self._held:
            microbatches = self._held[start].microbatches
            for landed in position.landed:
                if 0 <= landed < len(microbatches):
                    microbatches[landed] = _At.LANDED

    def credit(self, credit: LoaderCredit, order: int) -> None:
        step = credit.at.step
        if not self._is_of_now(credit.at.pass_, credit.epoch) or step != self._first_own(step):
            return
        self.push_again()
        order = self._credits[step].order if step in self._credits else order
        self._credits[step] = _Credit(credit.bytes, order)
        self._allowed = max(self._allowed, step)
        held = self._held.get(step)
        if held is not None and held.all_landed():  # and still the server asks for it
            held.microbatches = [_At.HERE] * len(held.microbatches)

    def ack(self, ack: Ack) -> None:
        """Raises an error that does not go away."""
        step = ack.at.step
        if not self._is_of_now(ack.at.pass_, ack.epoch):
            return
        if ack.error is None:
            self._allowed = max(self._allowed, step)  # a process before this one pushed it
        held = self._held.get(step)
        if held is None or not 0 <= ack.microbatch < len(held.microbatches):
            return
        if ack.error is None:
            held.microbatches[ack.microbatch] = _At.LANDED
            if held.all_landed():
                self._credits.pop(step, None)
        else:
            held.microbatches[ack.microbatch] = self._after(ack.error, held, ack)

    def _after(self, error: Error, held: _Held, ack: Ack) -> _At:
        text = f"{self._text(ack.at.step)} microbatch {ack.microbatch}"
        if error.code == "DATA_LOSS":
            held.losses += 1
            if held.losses > _MAX_LOSSES:
                raise error.with_message(f"{text} was lost {held.losses} times; does its source "
                                         f"write to it while it is pushed? {error.message}")
            return _At.HERE if held.losses == 1 else _At.POSTPONED
        if error.reason == "DEVICE_LOST" and not held.device_lost:
            held.device_lost = True
            held.devices += 1
            if held.devices >= _MAX_DEVICES:
                raise error.with_message(f"{text} was being sharded when {held.devices} servers "
                                         "lost their device, and may be why; leave it out, or "
                                         f"shard it with executor cpu: {error.message}")
        if error.code in _POSTPONED:
            return _At.POSTPONED
        raise error.with_message(f"{text} was refused: {error.message}")

    def release(self, released: Released) -> None:
        if self._is_of_now(released.pass_, released.epoch):
            self._let_go(released.before)

    def leave_pass(self, done: PassDone) -> None:
        # One that is finished is so in whatever pass: a group that resumed may end in an earlier
        # one.
        if self.finished or (done.pass_ < self._pass and not done.finished):
            return
        self._begin_pass(done.pass_ + 1)
        self._of_generation = True
        self.finished = done.finished

    # --- the source

    def next_work(self) -> Work | None:
        if self.finished or not self._placed or (self._end is not None and self._next >= self._end):
            return None
        if self._next - self._num_loaders > self._allowed:  # one ahead is enough
            return None
        stands = self._source == (self._pass, self._next)
        return Work(self._name, self._pass, self._next, None if stands else Rewind(self._resume))

    def made(self, work: Work, made: MadeStep) -> None:
        self._source = (work.pass_, work.step + self._num_loaders)
        if self.finished or (work.pass_, work.step) != (self._pass, self._next):
            return
        self._check_made(made, self._text(work.step))
        self._held[self._next] = _Held(made, [_At.HERE] * len(made.microbatches))
        self._next += self._num_loaders

    @staticmethod
    def _check_made(made: MadeStep, text: str) -> None:
        count = len(made.microbatches)
        if count == 0:
            raise invalid(f"{text} has no microbatch")
        if made.totals is not None and made.totals.num_microbatches != count:
            raise invalid(f"{text} has {count} microbatches, but its totals count "
                          f"{made.totals.num_microbatches}")
        if made.state is not None and len(made.state) > MAX_STATE_BYTES:
            raise invalid(f"{text} comes with a loader state of {len(made.state)} bytes; at most "
                          f"{MAX_STATE_BYTES} can be kept: keep what is larger elsewhere, and its "
                          "name in the state")

    def made_end(self, work: Work, end_step: int) -> None:
        self._source = (work.pass_, work.step)
        if self.finished or work.pass_ != self._pass:
            return
        last = max(self._held, default=-1)
        stream = f"data stream '{self._name}' pass {self._pass}"
        if end_step < 0 or end_step > work.step or end_step <= last:
            there = f", and there is step {last}" if last >= 0 else ""
            raise invalid(f"{stream} is said to end at step {end_step}, but there is no step "
                          f"{work.step}{there}: the end is the first step that no loader has")
        if self._end is not None and self._end != end_step:
            raise error_of("FAILED_PRECONDITION", f"{stream} ended at step {self._end}, and now at "
                           f"step {end_step}: a source has to give the same again after a rewind")
        self._end = end_step

    # --- pushing

    def take_end(self) -> EndOfStream | None:
        if not self._current or self._end is None or self._end_told:
            return None
        self._end_told = True
        return EndOfStream(self._name, self._pass, self._epoch, self._end)

    def _pushable(self) -> int | None:
        return next((step for step in sorted(self._credits) if step in self._held
                     and _At.HERE in self._held[step].microbatches), None)

    def next_push(self) -> int | None:
        """The order of the first credit that there is something to push for."""
        step = self._pushable()
        return None if step is None else self._credits[step].order

    def take_push(self) -> Push:
        """Precondition: next_push(). InvalidArgument: the step is larger than may be pushed."""
        step = self._pushable()
        assert step is not None
        held, credit = self._held[step], self._credits[step]
        count = len(held.microbatches)
        if held.nbytes > credit.nbytes:
            raise invalid(f"{self._text(step)} has {held.nbytes} bytes in {count} microbatches, "
                          f"more than the {credit.nbytes} that the readers opened it with: raise "
                          "their max_step_bytes")
        at = held.microbatches.index(_At.HERE)
        held.microbatches[at] = _At.UNDER_WAY
        last = at + 1 == count
        head = PushHead(StepAddress(self._name, self._pass, step), self._epoch, at, last,
                        held.made.totals if at == 0 else None, held.made.state if last else None)
        return Push(head, held.made.microbatches[at])

    def postponed(self) -> bool:
        return any(step in self._held and _At.POSTPONED in self._held[step].microbatches
                   for step in self._credits)

    def push_again(self) -> None:
        for held in self._held.values():
            held.microbatches = [_At.HERE if at is _At.POSTPONED else at
                                 for at in held.microbatches]

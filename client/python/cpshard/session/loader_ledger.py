"""A loader's side of a session as a state machine: which step to make next, what to push, what to
keep until it is released. No threads, no gRPC, no clock.

    on_position -> next_work (rewind, make) -> made -> next_message (with a credit) -> on_ack
                -> on_released (lets go) ... on_pass_done

A loader makes its steps in order, one ahead of what it has credit for: so it finds the end without
a credit. What it made stays until it is released, and is pushed again to a server that lacks it;
only a position below what is held asks the source to rewind.
"""

from __future__ import annotations

import dataclasses

from ..errors import Error
from .messages import (Ack, EndOfStream, LoaderCredit, LoaderHello, PassDone, Position, Released)
from .outgoing_stream import MadeBatch, MadeStep, OutgoingStream, Push, Rewind, Work

__all__ = ["LoaderLedger", "MadeBatch", "MadeStep", "Push", "Rewind", "Work"]


class LoaderLedger:
    """Not thread-safe. What comes of another pass or epoch is dropped."""

    def __init__(self, hello: LoaderHello) -> None:
        """`hello`: group, loader, num_loaders, incarnation and the data streams' names; nothing is
        held."""
        self._hello = dataclasses.replace(hello, streams=[])
        self._streams = {stream.name: OutgoingStream(stream.name, hello.loader, hello.num_loaders)
                         for stream in hello.streams}
        self._turn: list[str] = list(self._streams)  # whose work comes first
        self._connected = False
        self._next_order = 1  # of credits
        self.failure: Error | None = None  # a refusal that does not go away

    # --- connection

    def hello_message(self) -> LoaderHello:
        return dataclasses.replace(self._hello,
                                   streams=[each.state() for each in self._streams.values()])

    def connected(self) -> None:
        """The hello is sent."""
        self._connected = True

    def disconnected(self) -> None:
        """What was pushed and not acknowledged is pushed again."""
        self._connected = False
        for stream in self._streams.values():
            stream.disconnected()

    # --- from the server

    def on_position(self, position: Position) -> None:
        stream = self._of(position.stream)
        if stream is None or position.generation < self._hello.generation_seen:
            return
        if position.generation > self._hello.generation_seen:
            self._hello.generation_seen = position.generation
            for other in self._streams.values():
                other.forget_released()
        stream.place(position)

    def on_credit(self, credit: LoaderCredit) -> None:
        if stream := self._of(credit.at.stream):
            stream.credit(credit, self._next_order)
            self._next_order += 1

    def on_ack(self, ack: Ack) -> None:
        """DATA_LOSS is pushed again, at once; RESOURCE_EXHAUSTED, UNAVAILABLE, ABORTED with the
        next credit, connection or push_again(). Others stay: `failure`. So does the fifth device
        that a server loses with one step."""
        if stream := self._of(ack.at.stream):
            try:
                stream.ack(ack)
            except Error as error:
                self._fail(error)

    def on_released(self, released: Released) -> None:
        if stream := self._of(released.stream):
            stream.release(released)

    def on_pass_done(self, done: PassDone) -> None:
        if stream := self._of(done.stream):
            stream.leave_pass(done)

    def _of(self, stream: str) -> OutgoingStream | None:
        return self._streams.get(stream) if self._connected else None

    def _fail(self, error: Error) -> None:
        self.failure = self.failure or error

    # --- the source

    def next_work(self) -> Work | None:
        """What the source is to make now, of any data stream in turn; None: there is nothing to do.
        The same again until made(), made_end() or a message that changes it: the source does one
        work at a time, and says made or made_end of each that it took."""
        if self.failure is not None:
            return None
        works = (self._streams[name].next_work() for name in self._turn)
        return next((work for work in works if work is not None), None)

    def made(self, work: Work, made: MadeStep) -> None:
        """Dropped when a position has asked for something else meanwhile. A step that cannot be
        pushed (no microbatch, totals or a state that do not hold) is a `failure`."""
        self._take_turn(work.stream)
        try:
            self._streams[work.stream].made(work, made)
        except Error as error:
            self._fail(error)

    def made_end(self, work: Work, end_step: int) -> None:
        """There is no such step: the data stream ends at or before it. `end_step` is the first step
        that no loader has; alike for all loaders."""
        self._take_turn(work.stream)
        try:
            self._streams[work.stream].made_end(work, end_step)
        except Error as error:
            self._fail(error)

    def _take_turn(self, stream: str) -> None:
        self._turn.remove(stream)
        self._turn.append(stream)

    # --- pushing

    def next_message(self) -> Push | EndOfStream | None:
        """The next one to send, in order of credits; None: nothing now."""
        if self.failure is not None or not self._connected:
            return None
        for stream in self._streams.values():
            if (end := stream.take_end()) is not None:
                return end
        pushable = [(order, name) for name, stream in self._streams.items()
                    if (order := stream.next_push()) is not None]
        if not pushable:
            return None
        try:
            return self._streams[min(pushable)[1]].take_push()
        except Error as error:
            self._fail(error)
            return None

    def postponed(self) -> bool:
        """Batches that were refused for now and wait for push_again(), or for the next credit or
        connection."""
        return any(stream.postponed() for stream in self._streams.values())

    def push_again(self) -> None:
        for stream in self._streams.values():
            stream.push_again()

    # --- looking

    def held_batches(self, stream: str) -> list[tuple[int, MadeBatch]]:
        """Those of the latest steps that are held, with their steps."""
        return self._streams[stream].held_batches()

    def all_asked_for(self) -> bool:
        """The readers have all steps of the passes under way."""
        return all(stream.finished or stream.at_end() for stream in self._streams.values())

    def finished(self) -> bool:
        """All data streams are done with, for good."""
        return all(stream.finished for stream in self._streams.values())

    def held_steps(self) -> int:
        return sum(stream.held_steps() for stream in self._streams.values())

    def held_bytes(self) -> int:
        return sum(stream.held_bytes() for stream in self._streams.values())

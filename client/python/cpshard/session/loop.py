"""A rank's data loop: what it looks like, wherever the steps come from."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, Iterator, Mapping

from ..types import Shard, ShardLayout
from .messages import ReaderStream, StepTotals


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """A rank's shards of one step. totals: of the whole batch, all ranks and microbatches."""

    stream: str
    pass_: int
    step: int
    totals: StepTotals
    microbatches: list[Shard]


@dataclasses.dataclass
class RankStats:
    """opens: sessions opened, the first included. steps: handed out. received_bytes: of shards.
    executor: of the server, as it opened the last session: "cpu", "cuda:0".

    Without a server no session is opened and nothing is received; the executor is "cpu"."""

    opens: int = 0
    steps: int = 0
    received_bytes: int = 0
    executor: str = ""


class RankLoop:
    """`for batch, layout in loop` goes through one pass of the first data stream, a microbatch at a
    time; again, through the next pass:

        with cpshard.rank(...) as loop:
            for batch, layout in loop:
                ...

    Who leaves before the end for good, after so many steps, calls finish(): else the loaders wait
    for the rank to come back.

    A data stream is read by one thread at a time. Who inherits gives next() and the passes.
    """

    def __init__(self, streams: list[str]) -> None:
        self.stream = streams[0]
        self.stats = RankStats()
        self._rest: dict[str, collections.deque[Shard]] = {
            name: collections.deque() for name in streams}
        self._last: dict[str, Step] = {}
        # As it was when the step in hand was handed out.
        self._before: dict[str, ReaderStream] = {}
        self._at_end: set[str] = set()

    # --- who inherits

    def next(self, stream: str) -> Step | None:
        """The next step of the data stream, and thereby the commit of the one before; None: the
        pass is over. Blocks."""
        raise NotImplementedError

    def consumed(self, stream: str) -> None:
        """The step that next() returned last has been consumed: state() counts it from now on."""
        raise NotImplementedError

    def is_open(self, stream: str) -> bool:
        raise NotImplementedError

    def start_pass(self, stream: str) -> None:
        """A pass that is closed begins (validation)."""
        raise NotImplementedError

    def close_pass(self, stream: str, finished: bool = False) -> None:
        """The pass is left: what is prefetched is dropped. finished: there is no further one."""
        self._rest[stream].clear()
        self._before.pop(stream, None)
        self._at_end.discard(stream)

    def close(self, patience: float) -> None:
        raise NotImplementedError

    def _state(self, instead: Mapping[str, ReaderStream]) -> dict[str, Any]:
        """`instead` of data streams as they stand."""
        raise NotImplementedError

    def _leave_step(self, stream: str) -> None:
        """The step in hand has been consumed."""
        self._rest[stream].clear()
        self._before.pop(stream, None)
        self.consumed(stream)

    # --- the loop

    def steps(self, stream: str | None = None) -> Iterator[Step]:
        """One pass of a data stream, from where it stands to its end, a step at a time. A pass that
        is over is left first, and the next one begins; one that is closed is opened."""
        name = self._enter(stream)
        while (step := self.next(name)) is not None:
            self._last[name] = step
            yield step
        self._end_pass(name)

    def batches(self, stream: str | None = None) -> Iterator[tuple[dict[str, Any], ShardLayout]]:
        """The same a microbatch at a time: (batch, layout), as Shard has them. `current` says of
        which step it is. Who leaves in the middle of a step goes on there with the next call."""
        name = self._enter(stream)
        rest = self._rest[name]
        while True:
            if not rest:
                step = self.next(name)
                if step is None:
                    self._end_pass(name)
                    return
                self._last[name] = step
                rest.extend(step.microbatches)
            shard = rest.popleft()
            yield shard.batch, shard.layout

    def __iter__(self) -> Iterator[tuple[dict[str, Any], ShardLayout]]:
        return self.batches()

    def _end_pass(self, name: str) -> None:
        self._at_end.add(name)
        if name in self._last:  # who asks for it later wants its number, not its memory
            self._last[name] = dataclasses.replace(self._last[name], microbatches=[])

    def _enter(self, stream: str | None) -> str:
        name = self.stream if stream is None else stream
        if name in self._at_end:
            self.close_pass(name)
        if not self.is_open(name):
            self.start_pass(name)
        return name

    def current(self, stream: str | None = None) -> Step | None:
        """The step that was handed out last; after a pass without its shards."""
        return self._last.get(self.stream if stream is None else stream)

    def state(self, *, in_hand: bool = True) -> dict[str, Any]:
        """For a checkpoint, of all data streams, plain JSON: goes on behind the step in hand once
        all of its microbatches were handed out, for the weights have seen it then; else with it.
        Never counts what is prefetched.

        in_hand=False: goes on with the step in hand, whatever was handed out of it, for weights
            that have not seen it: a checkpoint after an error in the middle of a step.
        """
        if not in_hand:
            return self._state(self._before)
        for name, rest in self._rest.items():
            if not rest:
                self.consumed(name)
        return self._state({})

    def finish(self, patience: float = 180.0) -> None:
        """Leaves all data streams for good, wherever they stand, and ends the session: the loaders
        end, once every rank has said so. Blocks as close() does, and raises what it raises. For a
        checkpoint that goes on where this loop stands take state() before."""
        for name in self._rest:
            self.close_pass(name, finished=True)
        self.close(patience)

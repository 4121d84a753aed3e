"""A rank's data loop without a server: every rank reads the source itself and cuts its own
shard."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, Mapping

from ..errors import error_of
from ..tensors import converted, is_tensor, owned
from ..types import Shard
from .loop import RankLoop, Step
from .messages import LoaderState, OpenSession, ReaderStream, ResumeState, StepTotals
from .source import SourceStep, StepSource, source_step
from .train_state import hash_of, state_dict


class EmbeddedRank(RankLoop):
    """Made by cpshard.rank(source=...). Yields what a Rank yields whose loader has the same source.
    Not thread-safe."""

    def __init__(self, opening: OpenSession, sources: Mapping[str, StepSource], *, tensors: str,
                 data_epoch: int = 0) -> None:
        super().__init__([stream.name for stream in opening.streams])
        self.stats.executor = "cpu"
        from .. import embedded  # ImportError: it is not built, and how to build it
        self._embedded = embedded
        self._opening, self._sources = opening, dict(sources)
        self._library, self._data_epoch = tensors, data_epoch
        self._streams = {stream.name: stream for stream in opening.streams}
        for stream in opening.streams:
            _check_loaders(stream)
        # Where a source is known to stand.
        self._stands: dict[str, tuple[int, int]] = dict.fromkeys(self._streams, (0, 0))
        self._in_hand: dict[str, SourceStep] = {}

    def next(self, stream: str) -> Step | None:
        if stream not in self._streams:
            raise error_of("NOT_FOUND", f"this loop has no data stream '{stream}'")
        self._leave_step(stream)
        at = self._streams[stream]
        if at.closed:
            raise error_of("FAILED_PRECONDITION", f"data stream '{stream}' is " + (
                "finished" if at.finished else "between two passes; open the next one first"))
        made = self._make(at)
        if made is None:
            return None
        batches = [converted(batch, self._library) for batch in made.microbatches]
        plans = [self._embedded.plan(batch, self._opening.options, self._opening.cp_size,
                                     digest=True) for batch in batches]
        shards = [_without_alias(plan.shard(self._opening.cp_rank, load=True), batch)
                  for plan, batch in zip(plans, batches)]
        # Not before: a step that is refused is not handed out.
        self._before[stream] = copy.deepcopy(at)
        self._in_hand[stream] = made
        self.stats.steps += 1
        return Step(stream, at.pass_, at.next_step, _totals_of(plans), shards)

    def _make(self, at: ReaderStream) -> SourceStep | None:
        source = self._sources[at.name]
        stands = self._stands.pop(at.name, None)  # unknown, should the source raise
        if stands != (at.pass_, at.next_step):
            states = at.resume.loaders if at.resume else {}
            source.rewind(at.pass_, at.next_step, states.get(0))
        made = source.make(at.pass_, at.next_step)
        self._stands[at.name] = (at.pass_, at.next_step + (made is not None))
        return None if made is None else source_step(made)

    def consumed(self, stream: str) -> None:
        made = self._in_hand.pop(stream, None)
        if made is None:
            return
        at = self._streams[stream]
        at.resume = at.resume or ResumeState()
        at.resume.num_loaders = 1
        if made.state is not None:
            at.resume.loaders[0] = LoaderState(at.next_step, made.state)
        at.next_step += 1

    def is_open(self, stream: str) -> bool:
        return not self._streams[stream].closed

    def start_pass(self, stream: str) -> None:
        self._streams[stream].closed = self._streams[stream].finished

    def close_pass(self, stream: str, finished: bool = False) -> None:
        super().close_pass(stream, finished)
        at = self._streams[stream]
        if at.finished or (at.closed and not finished):
            return
        self.consumed(stream)  # for the number of loaders
        num_loaders = at.resume.num_loaders if at.resume else 0
        self._streams[stream] = ReaderStream(stream, at.pass_ + 1, 0, None, True, finished,
                                             at.max_step_bytes, ResumeState(num_loaders))

    def _state(self, instead: Mapping[str, ReaderStream]) -> dict[str, Any]:
        streams = [instead.get(name, stream) for name, stream in self._streams.items()]
        return state_dict(streams, fingerprint=self._opening.fingerprint,
                          data_epoch=self._data_epoch, cp_size=self._opening.cp_size,
                          options_hash=hash_of(self._opening.options))

    def close(self, patience: float = 0.0) -> None:
        """Nothing is open."""

    def __enter__(self) -> EmbeddedRank:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _check_loaders(stream: ReaderStream) -> None:
    resume = stream.resume
    if resume is not None and resume.loaders and resume.num_loaders != 1:
        raise error_of(
            "FAILED_PRECONDITION", f"data stream '{stream.name}' resumes with states of "
            f"{resume.num_loaders} loaders, and a rank without a server reads one source: start "
            f"{resume.num_loaders} loaders and a server, or resume where a pass begins")


def _without_alias(shard: Shard, batch: Mapping[str, Any]) -> Shard:
    """The shard, which may be written to: what is handed on as it is, is the source's own."""
    lent = {id(value) for value in batch.values() if is_tensor(value)}
    ours = {name: owned(name, value) if id(value) in lent else value
            for name, value in shard.batch.items()}
    return dataclasses.replace(shard, batch=ours)


def _totals_of(plans: list[Any]) -> StepTotals:
    """Of a step: the sums of its batches, as far as all of them tell."""
    def total(field: str) -> int | None:
        numbers = [getattr(plan.totals, field) for plan in plans]
        return None if None in numbers else sum(numbers)

    return StepTotals(len(plans), total("num_label_tokens"), total("num_tokens_excl_tail_pad"))

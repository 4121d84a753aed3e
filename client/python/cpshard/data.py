"""Data loaders of torch and torchdata, and whatever else can be iterated, as sources of steps.

Nothing of torch is imported here: what has state_dict and load_state_dict (torchdata's
StatefulDataLoader) is resumed by them, all else by starting over and skipping.
"""

from __future__ import annotations

import io
import json
import sys
import warnings
from typing import Any, Iterator, Mapping

from .errors import error_of, invalid
from .session.messages import MAX_STATE_BYTES, LoaderState
from .session.samplers import LoaderOrder
from .session.source import REUSED, SourceStep, StepSource, batch_samples, source_step

_JSON, _TORCH = b"J", b"T"


def _dump(state: Any) -> bytes:
    """A loader's state; read back by _load, which runs no code that it might hold."""
    torch = sys.modules.get("torch")
    if torch is None:
        try:
            text = json.dumps(state)
            plain = json.loads(text) == state
        except (TypeError, ValueError):
            plain = False
        if not plain:
            raise invalid("the state of the data loader is not plain JSON, and torch is not there "
                          "to save it")
        return _JSON + text.encode()
    memory = io.BytesIO()
    torch.save(state, memory)
    return _TORCH + memory.getvalue()


def _load(data: bytes) -> Any:
    if data[:1] == _JSON:
        return json.loads(data[1:])
    import torch
    return torch.load(io.BytesIO(data[1:]), weights_only=True)


def _check_loadable(data: bytes) -> None:
    """InvalidArgument: a state that could be saved, and would fail where it is needed."""
    try:
        _load(data)
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        why = [line.strip() for line in lines if "nsupported" in line] or lines
        raise invalid("the state of the data loader can be saved, but not be loaded without "
                      "running code that it holds: what state_dict() returns may have numbers, "
                      "strings, lists, dicts and tensors in it (of an array "
                      "torch.from_numpy(array), of a numpy number its .item()): "
                      f"{why[0]}") from error


def _is_count(value: Any, least: int) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool) and bool(value >= least)


class DataLoaderSource:
    """The batches of an iterable, again from its beginning for every pass, as steps: of loader i of
    L, its k-th step is i + k L. Gives one batch, or several consecutive ones, to a step.

    A loader with state_dict and load_state_dict goes on by them, and its state travels as the
    loader's: at most 64 KiB, or InvalidArgument says how large it is. Any other goes back by
    starting over and skipping what was consumed: a restart at step n makes n steps in vain.

    Every pass has to be the same whenever it is made again. Samplers with set_epoch get the pass's
    number; generators, of the loader and of its samplers, are seeded with the seed that they came
    with, `seed` and the pass. (Random numbers that the data set draws in persistent_workers go on
    from pass to pass, and are others when a pass is made again.)

    Batches are kept until they are released, some steps later, and are not copied: a loader that
    writes the next batch into the tensors of the one before trains on wrong data. It is refused
    where it is seen.
    """

    def __init__(self, batches: Any, *, loader: int = 0, num_loaders: int = 1,
                 microbatches: int = 1, steps: int | None = None, seed: int = 0) -> None:
        """`microbatches` of a step; a pass that ends in the middle of a step leaves it out. `steps`
        of a pass, of all loaders together; None: this one's, times num_loaders."""
        if not hasattr(batches, "__iter__"):
            raise invalid(f"a {type(batches).__name__} is no data loader: it cannot be iterated")
        if isinstance(batches, Iterator):
            raise invalid(f"a {type(batches).__name__} can be iterated once only, but steps are "
                          "made again after a restart: give a list, a data loader, or an object "
                          "whose __iter__ starts over")
        if not _is_count(microbatches, 1) or not (steps is None or _is_count(steps, 0)):
            raise invalid(f"microbatches is {microbatches!r}, steps {steps!r}; from 1 on, and from "
                          "0 on, are possible")
        self._batches, self._loader, self._num_loaders = batches, loader, num_loaders
        self._microbatches, self._steps = microbatches, steps
        self._stateful = hasattr(batches, "state_dict") and hasattr(batches, "load_state_dict")
        self._iterator: Iterator[Any] | None = None
        self._pass = 0
        self._made = 0  # of this loader's steps, in this pass
        self._order = LoaderOrder(batches, seed)
        self._loadable = False  # a state of it has been read back

    # --- a StepSource

    def make(self, pass_: int, step: int) -> SourceStep | None:
        if self._iterator is None or pass_ != self._pass:
            self._begin(pass_)
        batches = self._take()
        if batches is None:
            return None
        self._made += 1
        return SourceStep(batches, state=self._state())

    def end_step(self, pass_: int) -> int:
        return self._made * self._num_loaders if self._steps is None else self._steps

    def rewind(self, pass_: int, step: int, state: LoaderState | None) -> None:
        if state is not None and self._stateful:
            kept = _load(state.state)
            if "loader" not in kept:
                raise error_of("FAILED_PRECONDITION", "the checkpoint was written with a data "
                               "loader that has no state_dict, and is to be resumed with a "
                               f"{type(self._batches).__name__}, which goes on by its own state: "
                               "resume with the loader that it was written with")
            self._batches.load_state_dict(kept["loader"])
            self._pass, self._made = pass_, kept["made"]
            self._iterator = iter(self._batches)
        else:
            self._begin(pass_)
        wanted = (step - self._loader) // self._num_loaders
        while self._made < wanted:
            if self._take() is None:
                raise error_of("OUT_OF_RANGE", f"the data loader ends after {self._made} steps of "
                               f"pass {pass_}, and is to go on behind {wanted}: is it another one?")
            self._made += 1

    # --- the loader

    def _begin(self, pass_: int) -> None:
        self._order.begin(pass_)
        self._iterator, self._pass, self._made = iter(self._batches), pass_, 0

    def _take(self) -> list[Mapping[str, Any]] | None:
        """The batches of one step; None: there are not so many left."""
        assert self._iterator is not None
        if self._steps is not None and \
                self._loader + self._made * self._num_loaders >= self._steps:
            return None
        batches: list[Mapping[str, Any]] = []
        samples: list[Any] = []  # of all but the last
        while len(batches) < self._microbatches:
            try:
                made = source_step(next(self._iterator))
            except StopIteration:
                if batches:
                    warnings.warn(f"pass {self._pass} ends with {len(batches)} of "
                                  f"{self._microbatches} microbatches of a step: left out",
                                  stacklevel=2)
                return None
            if self._microbatches > 1 and len(made.microbatches) != 1:
                raise invalid(f"the data loader gives {len(made.microbatches)} batches at a time, "
                              f"and microbatches is {self._microbatches}: leave it at 1")
            if samples != [batch_samples(batch) for batch in batches]:
                raise invalid(f"batch {len(batches)} of {self._microbatches} of a step was written "
                              "into the tensors of those before it: " + REUSED)
            batches.extend(made.microbatches)
            if self._microbatches == 1:
                break
            samples.append(batch_samples(batches[-1]))
        return batches

    def _state(self) -> bytes:
        if not self._stateful:
            # Nothing is read of it; but a server that restarted has to be told that there is one.
            return _JSON + json.dumps({"made": self._made}).encode()
        state = _dump({"made": self._made, "loader": self._batches.state_dict()})
        if len(state) > MAX_STATE_BYTES:
            raise invalid(f"the state of the data loader has {len(state)} bytes; at most "
                          f"{MAX_STATE_BYTES} can travel with a step: keep what is larger "
                          "elsewhere, and its name in the state")
        if not self._loadable:
            _check_loadable(state)
            self._loadable = True
        return state


def as_source(source: Any, **settings: Any) -> StepSource:
    """A StepSource as it is; anything else that can be iterated as a DataLoaderSource."""
    return source if isinstance(source, StepSource) else DataLoaderSource(source, **settings)

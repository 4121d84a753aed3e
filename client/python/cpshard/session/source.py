"""What a loader pushes: a source of steps."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Protocol, Sequence, Union, runtime_checkable

from ..errors import invalid
from ..tensors import dense, entries_of, is_tensor, is_torch, sample_of
from .messages import LoaderState, StepTotals


@dataclasses.dataclass
class SourceStep:
    """What a source makes of one step.

    microbatches: at least one batch, each a mapping of names to tensors [B, S, ...] or scalars.
        They are not copied, and must not change until the step is released: give every step tensors
        of its own. A loader that sees a change ends with InvalidArgument.
    totals: where the source knows them: then microbatches reach the ranks before the step is
        complete.
    state: what the source needs in order to go on behind this step, at most 64 KiB; comes back in
        rewind().
    """

    microbatches: Sequence[Mapping[str, Any]]
    totals: StepTotals | None = None
    state: bytes | None = None


REUSED = ("batches are kept until they are released, and are not copied: give every one tensors of "
          "its own, by .copy() or .clone()")


def batch_samples(batch: Mapping[str, Any]) -> dict[str, bytes]:
    """By which a change of one of its tensors shows; those of a device are left out."""
    return {name: sample_of(dense(name, value).data) for name, value in entries_of(batch)
            if is_tensor(value) and not (is_torch(value) and value.device.type != "cpu")}


# A batch alone is a step of one microbatch, without a state.
Made = Union[SourceStep, Mapping[str, Any], Sequence[Mapping[str, Any]]]


@runtime_checkable
class StepSource(Protocol):
    """Makes the steps of one data stream, in order: step i, i + L, i + 2L, ... of loader i of L.
    Called on one thread."""

    def make(self, pass_: int, step: int) -> Made | None:
        """The next step; None: it does not exist, and end_step() says where the data stream ends.
        Must be the same whenever it is made again: the server compares digests."""

    def end_step(self, pass_: int) -> int:
        """The first step that no loader of the data stream has; alike for all of them. Asked after
        make() has returned None."""

    def rewind(self, pass_: int, step: int, state: LoaderState | None) -> None:
        """The next make() is for `step` of `pass_`, which is not the one that would have followed.
        `state` is that of this loader's latest step before it; None: there is none, go to the start
        of the pass. What is raised ends the loader."""


def source_step(made: Made) -> SourceStep:
    """InvalidArgument: it is no step."""
    if isinstance(made, Mapping):
        return SourceStep([made])
    if isinstance(made, SourceStep):
        return made
    if isinstance(made, (list, tuple)) and all(isinstance(each, Mapping) for each in made):
        return SourceStep(made)
    raise invalid(f"a source made a {type(made).__name__}; a batch is a mapping of names to "
                  "tensors, and a step one or a list of them")

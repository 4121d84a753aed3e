"""What the order of a data loader depends on: its samplers and their generators. Nothing of torch
is imported here."""

from __future__ import annotations

import hashlib
import sys
from typing import Any

from ..errors import invalid

_SHUFFLING = ("RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler")
# Of the seeds that generators were given here, the seed that they came with: a loader that is
# wrapped a second time is to give the same again.
_CAME_WITH: dict[int, int] = {}


def samplers_of(loader: Any) -> list[Any]:
    """All samplers and batch samplers of a data loader, those inside of others too."""
    found, wanted = dict[int, Any](), [loader]
    while wanted:
        outer = wanted.pop()
        for name in ("batch_sampler", "sampler"):
            inner = getattr(outer, name, None)
            if inner is not None and id(inner) not in found:
                found[id(inner)] = inner
                wanted.append(inner)
    return list(found.values())


def replicas_of(loader: Any) -> tuple[int, Any] | None:
    """(number of replicas, rank) of a sampler that gives each of several replicas another part of
    the data; None: there is no such sampler."""
    for sampler in samplers_of(loader):
        replicas = getattr(sampler, "num_replicas", None)
        if isinstance(replicas, int) and replicas > 1:
            return replicas, getattr(sampler, "rank", None)
    return None


class LoaderOrder:
    """Makes the passes of a data loader the same whenever they are made again."""

    def __init__(self, loader: Any, seed: int) -> None:
        """InvalidArgument: a sampler that shuffles by what cannot be set: the global random numbers
        of torch, or a generator of another library."""
        self._loader, self._samplers, self._seed = loader, samplers_of(loader), seed
        for sampler in self._samplers:
            _check(sampler)
        self._generators: list[tuple[Any, int]] = []  # and the seed that it came with
        own = getattr(loader, "generator", None)
        for owner in (loader, *self._samplers):
            generator = getattr(owner, "generator", None)
            if not hasattr(generator, "manual_seed"):
                continue
            if any(generator is known for known, _ in self._generators):
                continue
            # torchdata's samplers make one where none was given, with a seed of the moment.
            made = type(owner).__module__.startswith("torchdata.") and generator is not own
            self._generators.append((generator, 0 if made else _came_with(generator)))

    def begin(self, pass_: int) -> None:
        """Before the loader is iterated: samplers learn the pass, generators are seeded."""
        for sampler in self._samplers:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(pass_)
        for generator, came_with in self._generators:
            text = f"{came_with} {self._seed} {pass_}"
            digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
            seed = int.from_bytes(digest, "little") >> 1
            _CAME_WITH[seed] = came_with
            generator.manual_seed(seed)
        # Workers that stay have an iterator that stays, and is not made anew for the pass.
        if getattr(self._loader, "persistent_workers", False) and \
                getattr(self._loader, "_iterator", None) is not None:
            self._draw_as_a_new_iterator()

    def _draw_as_a_new_iterator(self) -> None:
        """What an iterator takes from the generators when it is made: it begins the sampler, those
        of torchdata draw at that, and takes a seed for its workers. Then it begins the sampler
        again, as one that stays does too."""
        batch_sampler = self._loader.batch_sampler
        iter(self._loader.sampler if batch_sampler is None else batch_sampler)
        own = getattr(self._loader, "generator", None)
        if own is not None and any(getattr(sampler, "generator", None) is own
                                   for sampler in self._samplers):
            torch = sys.modules["torch"]
            torch.empty((), dtype=torch.int64).random_(generator=own)


def _came_with(generator: Any) -> int:
    seed = int(generator.initial_seed())
    return _CAME_WITH.get(seed, seed)


def _check(sampler: Any) -> None:
    data = sys.modules.get("torch.utils.data")
    kinds = tuple(getattr(data, name) for name in _SHUFFLING) if data else ()
    generator = getattr(sampler, "generator", None)
    if isinstance(sampler, kinds) and generator is None and not hasattr(sampler, "set_epoch"):
        raise invalid(f"the data loader shuffles by a {type(sampler).__name__} without a "
                      "generator, so that its batches are others when they are made again: give it "
                      "generator=torch.Generator()")
    if generator is not None and not hasattr(generator, "manual_seed"):
        raise invalid(f"the generator of the {type(sampler).__name__} is a "
                      f"{type(generator).__module__}.{type(generator).__name__}, which cannot be "
                      "seeded anew for a pass: give it a torch.Generator")

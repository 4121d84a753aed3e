"""cpshard.rank and cpshard.loader: the two sides of a training run's data."""

from __future__ import annotations

import logging
import os
import time
from typing import Any, Collection, Mapping, Sequence, Union

from .data import as_source
from .errors import error_of, invalid
from .executors import executor_number
from .options import Options, options_of
from .session.embedded_rank import EmbeddedRank
from .session.loader import Loader
from .session.messages import DEFAULT_STEP_BYTES, LoaderHello, OpenSession, ReaderStream, check_open
from .session.rank import Rank, RankStream
from .session.samplers import replicas_of
from .session.source import StepSource
from .session.train_state import State, check_state, hash_of, place
from .tensors import check_library
from .topology import Topology, group_of, topology

# One name is one data stream.
Streams = Union[str, RankStream, Sequence[Union[str, RankStream]]]
_LOG = logging.getLogger("cpshard")
# Those of a data loader, where they are not given.
_SETTINGS: dict[str, Any] = {"microbatches": 1, "steps": None, "seed": 0}


def _address(address: str | None) -> str:
    address = address or os.environ.get("CPSHARD_ADDRESS")
    if not address:
        raise invalid("no server is named: give its address, or set CPSHARD_ADDRESS; a rank "
                      "without a server is given a source")
    return address


def _check_used(by: str, **settings: Any) -> None:
    """InvalidArgument: one is given that nobody reads."""
    given = [name for name, value in settings.items() if value != _SETTINGS[name]]
    if given:
        raise invalid(f"{', '.join(given)} can be given for a data loader that this process "
                      f"iterates; {by}")


def _now(incarnation: int) -> int:
    return incarnation or time.time_ns() // 1000


def rank(address: str | None = None, *, options: Options, source: Any = None,
         streams: Streams | None = None, state: State | None = None, position: State | None = None,
         tensors: str = "numpy", prefetch: int = 2, timeout: float | None = None,
         max_step_bytes: int = DEFAULT_STEP_BYTES, keys: Union[str, Collection[str]] = (),
         fingerprint: str = "",
         data_epoch: int = 0, job: str = "", job_groups: int = 1, incarnation: int = 0,
         microbatches: int = 1, steps: int | None = None, seed: int = 0, executor: str = "auto",
         where: Topology | None = None,
         **place_of: Any) -> Union[Rank, EmbeddedRank]:
    """This rank's data loop:

        with cpshard.rank("host:7070", options=...) as loop:
            for batch, layout in loop:
                ...

    address: of the server; None: CPSHARD_ADDRESS. Or source: a data loader, or a mapping of them by
        data stream, which every rank then reads itself; no server is asked (libcpshard.so has to be
        there), and has to be the same for all ranks of a group. Both yield the same.
    options: how batches are sharded; all ranks alike.
    streams: data streams, by name or as RankStream; the first is that of the plain loop. None:
        "train", or those of the source.
    state: the checkpoint, from state(), that the whole group resumes from; None: the beginning.
    position: where this process goes on, if that is not where the generation began: a rank that
        restarts alone has it of itself or of a peer.
    tensors: "numpy" or "torch"; they may be written to.
    prefetch: steps beyond the one in hand. timeout: seconds that one step is waited for; None: as
        long as it takes. max_step_bytes: of a data stream that is given by name. keys: streams of a
        batch that are wanted of a server; none: all. microbatches, steps, seed: of a source's data
        loader, as cpshard.data.DataLoaderSource takes them; without a source they are refused.
    fingerprint: of the data set; a checkpoint of another one is refused. data_epoch: the trainer's
        own count; not interpreted. job, job_groups: groups that agree on the length of rows.
    incarnation: higher at every restart of the process; 0: the time.
    executor: who shards at the server; all ranks alike. "auto" leaves it to the server, "cpu",
        "cuda": it is refused where the server has none. A later generation may name another one: the
        bytes and checkpoints are the same. A rank with a source of its own shards on the CPU.
    where, or mesh, cp_rank, cp_size, tp_size, pp_size, group, reader, readers_per_rank, generation,
        attempt: which process this is, as topology() takes them.

    InvalidArgument, FailedPrecondition (an Error, also a ValueError or RuntimeError): arguments
    that cannot be, a checkpoint that does not fit. What a server refuses comes from the loop.
    """
    check_library(tensors)
    if where is not None and place_of:
        raise invalid(f"where says which process this is; {', '.join(place_of)} cannot be given "
                      "beside it")
    at = topology(job=job or None, **place_of) if where is None else where
    if isinstance(streams, (str, RankStream)):
        streams = [streams]
    keys = [keys] if isinstance(keys, str) else keys
    if not isinstance(keys, Collection) or not all(isinstance(key, str) for key in keys):
        raise invalid(f"keys are {keys!r}; names of a batch's streams are possible")
    message = options_of(options)
    executor_number(executor)
    if source is not None and executor == "cuda":
        raise error_of("FAILED_PRECONDITION", "a rank with a source of its own shards on the CPU; "
                       "executor cuda is a server's: give its address instead")
    sources = _by_stream(source, streams) if source is not None else {}
    if streams is not None and not streams:
        raise invalid("streams is empty: name a data stream, or leave it out")
    wanted = [each if isinstance(each, RankStream) else RankStream(each, max_step_bytes)
              for each in streams or list(sources) or ["train"]]
    resume = None if state is None else check_state(state, fingerprint, hash_of(message))
    own = resume if position is None else check_state(position, fingerprint, hash_of(message))
    for each in wanted:
        if own is not None and each.name not in own["streams"]:
            _LOG.warning("the checkpoint has no data stream '%s', which begins at its beginning; "
                         "it has %s", each.name, sorted(own["streams"]))
    starts = [ReaderStream(each.name, closed=each.closed or each.finished, finished=each.finished,
                           max_step_bytes=each.max_step_bytes) for each in wanted]
    opening = OpenSession(
        at.group, at.generation, at.attempt, at.cp_size, at.readers_per_rank, message, fingerprint,
        job, job_groups, {each.name: place(each, resume).next_step for each in starts}, at.reader,
        at.cp_rank, _now(incarnation), [place(each, own) for each in starts], executor)
    if source is None:
        _check_used("a rank without a source gets the steps that its loaders make: give it to "
                    "cpshard.loader", microbatches=microbatches, steps=steps, seed=seed)
        return Rank(_address(address), opening, prefetch=prefetch, keys=keys, timeout=timeout,
                    tensors=tensors, data_epoch=data_epoch)
    if address is not None:
        raise invalid(f"a rank reads the server at {address} or a source of its own, not both")
    if keys:
        raise invalid("keys are asked of a server; a rank with a source of its own gets all "
                      "streams of a batch")
    check_open(opening)
    for each in sources.values():
        _check_same_for_all(each, at)
    made = _sources(sources, microbatches=microbatches, steps=steps, seed=seed)
    return EmbeddedRank(opening, made, tensors=tensors, data_epoch=data_epoch)


def _check_same_for_all(source: Any, at: Topology) -> None:
    """A sampler may divide the data among the replicas of the job, not among ranks of a group."""
    found = None if isinstance(source, StepSource) else replicas_of(source)
    if found is not None and found != (at.dp_size, at.dp_rank):
        replicas, rank = found
        raise invalid(f"the sampler of the data loader divides the data among {replicas} replicas, "
                      f"for which this is {rank}, but all {at.cp_size} ranks of a group read the "
                      f"same: it may divide it among the groups of the job alone, num_replicas="
                      f"{at.dp_size}, rank={at.dp_rank} as far as this process knows (a mesh or "
                      "RANK and WORLD_SIZE tell it)")


def _by_stream(source: Any, streams: Sequence[Union[str, RankStream]] | None) -> dict[str, Any]:
    names = [each if isinstance(each, str) else each.name for each in streams or ()]
    if not isinstance(source, Mapping):
        source = {names[0] if names else "train": source}
    missing = [name for name in names if name not in source]
    if missing:
        raise invalid(f"data streams {missing} have no source; there are sources of {list(source)}")
    return dict(source)


def loader(source: Any, address: str | None = None, *, stream: str = "train",
           group: str | None = None, loader: int = 0, num_loaders: int = 1, generation: int = 0,
           incarnation: int = 0, microbatches: int = 1, steps: int | None = None, seed: int = 0,
           job: str | None = None, dp_rank: int = 0) -> Loader:
    """Pushes a data loader's batches to a server:

        with cpshard.loader(dataloader, "host:7070") as loader:
            loader.wait()

    source: a torch DataLoader, a torchdata StatefulDataLoader, anything that can be iterated anew,
        or a StepSource; or a mapping of them by data stream. Its batches are mappings of names to
        tensors [B, S, ...]; a list of mappings is a step of several microbatches. See
        cpshard.data.DataLoaderSource, which says what microbatches, steps and seed are. Batches are
        kept, not copied, until they are released: each has to have tensors of its own.
    address: of the server; None: CPSHARD_ADDRESS.
    group: None: "<job>/dp<dp_rank>", as the ranks of the replica name it by themselves.
    loader, num_loaders: this one makes every num_loaders-th step, from step `loader` on.
    generation: the readers' that it is started for; 0: whichever there is.
    incarnation: higher at every restart of the process; 0: the time.

    The loader runs on threads of its own; wait() blocks until the readers are done.
    """
    if group is None:
        group = group_of(job, dp_rank)
    hello = LoaderHello(group, loader, num_loaders, _now(incarnation), generation)
    sources = source if isinstance(source, Mapping) else {stream: source}
    made = _sources(sources, loader, num_loaders, microbatches=microbatches, steps=steps, seed=seed)
    return Loader(_address(address), hello, made)


def _sources(sources: Mapping[str, Any], loader: int = 0, num_loaders: int = 1,
             **settings: Any) -> dict[str, StepSource]:
    if sources and all(isinstance(each, StepSource) for each in sources.values()):
        _check_used("a StepSource makes its steps itself", **settings)
    return {name: as_source(each, loader=loader, num_loaders=num_loaders, **settings)
            for name, each in sources.items()}

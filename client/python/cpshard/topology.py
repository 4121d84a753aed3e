"""Which process of a job this one is: from torchrun's environment, from a DeviceMesh, or as
told."""

from __future__ import annotations

import dataclasses
import math
import operator
import os
import sys
from typing import Any, Mapping

from .errors import Error, invalid
from .session.messages import check_text


@dataclasses.dataclass(frozen=True)
class Topology:
    """A process' place among those that share batches.

    group: one context-parallel group of the job, "job7/dp3". reader: this process' seat in it.
    readers_per_rank: tensor- and pipeline-parallel peers get the same shard, each for itself.
    generation: of the launcher, one higher at every start of the whole group. attempt: what two
        launchers that open one generation differ by.
    dp_rank, dp_size: which of the job's groups.
    """

    group: str
    cp_rank: int = 0
    cp_size: int = 1
    reader: str = ""
    readers_per_rank: int = 1
    generation: int = 1
    attempt: str = ""
    dp_rank: int = 0
    dp_size: int = 1


@dataclasses.dataclass(frozen=True)
class _Place:
    cp: tuple[int, int]    # rank, size
    peer: tuple[int, int]  # among those of one rank
    dp: tuple[int, int]


_PEERS = ("pp", "tp")


def _row_major(axes: list[tuple[int, int]]) -> tuple[int, int]:
    """(rank, size) along several axes, the last one fastest."""
    rank = 0
    for at, size in axes:
        rank = rank * size + at
    return rank, math.prod(size for _, size in axes)


def _of_mesh(mesh: Any) -> _Place:
    """Of a DeviceMesh, or what looks like one: "cp" is the context-parallel axis, "tp" and "pp"
    hold peers of one rank, all others data-parallel replicas. An axis that is not there has size
    1."""
    names = mesh.mesh_dim_names
    if not names:
        raise invalid("the mesh has no mesh_dim_names: nothing tells which axis is 'cp'")
    axes = {name: (mesh[name].get_local_rank(), mesh[name].size()) for name in names}
    return _Place(axes.get("cp", (0, 1)), _row_major([axes[n] for n in names if n in _PEERS]),
                  _row_major([axes[n] for n in names if n not in (*_PEERS, "cp")]))


def _of_ranks(rank: int, world: int, cp: int, tp: int, pp: int) -> _Place:
    """Of RANK and WORLD_SIZE, the axes in the order pp, dp, cp, tp: neighbours are tensor-parallel
    peers, then ranks of one group."""
    if not 0 <= rank < world:
        raise invalid(f"RANK is {rank} of WORLD_SIZE {world}")
    if world % (cp * tp * pp):
        raise invalid(f"WORLD_SIZE is {world}, which is no multiple of cp_size {cp} * tp_size {tp} "
                      f"* pp_size {pp} = {cp * tp * pp}")
    dp = world // (cp * tp * pp)
    rest, tp_rank = divmod(rank, tp)
    rest, cp_rank = divmod(rest, cp)
    pp_rank, dp_rank = divmod(rest, dp)
    return _Place((cp_rank, cp), _row_major([(pp_rank, pp), (tp_rank, tp)]), (dp_rank, dp))


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name, "" if default is None else str(default))
    if not (text.isascii() and text.isdigit()):
        raise _missing(name, text)
    return int(text)


def _missing(name: str, text: str) -> Error:
    return invalid(f"{name} of the environment is '{text}', no number: start under torchrun, or "
                   "give cp_rank, cp_size and group, or a mesh")


def _size(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
        raise invalid(f"{name} is {value!r}; from 1 on is possible")
    return operator.index(value)


def _world(environment: Mapping[str, str]) -> int | None:
    """Processes of the job; None: nothing tells."""
    distributed = sys.modules.get("torch.distributed")
    if environment is os.environ and distributed is not None and distributed.is_initialized():
        return int(distributed.get_world_size())
    return _number(environment, "WORLD_SIZE") if "WORLD_SIZE" in environment else None


def _check_all_have_places(place: _Place, group: str | None, world: int | None, who: str,
                           instead: str) -> None:
    places = place.cp[1] * place.peer[1] * place.dp[1]
    if group is None and world is not None and world > places:
        raise invalid(f"{who} {places} places for the {world} processes of the job (WORLD_SIZE), "
                      f"so that several would take one: {instead}, or the group= that this process "
                      "is in")


def group_of(job: str | None, dp_rank: int, environment: Mapping[str, str] = os.environ) -> str:
    """The name of a replica's group. `job` None: the environment's."""
    check_text("job", job or "")
    run = environment.get("TORCHELASTIC_RUN_ID") or "none"  # "none": torchrun was given no name
    job = job or environment.get("CPSHARD_JOB") or (run if run != "none" else "job")
    return f"{job}/dp{dp_rank}"


def topology(*, mesh: Any = None, cp_rank: int | None = None, cp_size: int | None = None,
             tp_size: int = 1, pp_size: int = 1, group: str | None = None, job: str | None = None,
             reader: str | None = None, readers_per_rank: int | None = None,
             generation: int | None = None, attempt: str | None = None,
             environment: Mapping[str, str] = os.environ) -> Topology:
    """What is given wins; the rest comes of `mesh` where there is one, else of torchrun's RANK and
    WORLD_SIZE with cp_size, tp_size and pp_size (absent = 1), in the order pp, dp, cp, tp; with
    cp_rank and cp_size given, of neither.

    mesh: the whole one, for its other axes tell the replicas apart.
    group: "<job>/dp<replica>", the job being CPSHARD_JOB or TORCHELASTIC_RUN_ID, else "job".
    generation: CPSHARD_GENERATION, else one more than torchrun's restarts: a launcher that starts
    torchrun anew under one job name has to give it.

    InvalidArgument, with the numbers: sizes that do not fit; fewer places than processes, so that
    several would take one, where no group is given; several processes, and nothing says how many
    make up a CP group.
    """
    cp_size = None if cp_size is None else _size("cp_size", cp_size)
    tp_size, pp_size = _size("tp_size", tp_size), _size("pp_size", pp_size)
    if mesh is not None:
        place = _of_mesh(mesh)
        _check_all_have_places(place, group, _world(environment), "the mesh has",
                               "give the whole mesh")
    elif cp_rank is not None and (cp_size is not None or cp_rank == 0):
        place = _Place((cp_rank, cp_size or 1), (0, readers_per_rank or 1), (0, 1))
        _check_all_have_places(place, group, _world(environment),
                               "cp_size and readers_per_rank make",
                               "leave cp_rank out, for it comes of RANK")
    elif cp_size is None and (world := _world(environment) or 1) > 1:
        raise invalid(f"WORLD_SIZE is {world}, and nothing says how many of these processes make "
                      "up a context-parallel group: give cp_size (1: each is one for itself), or a "
                      "mesh")
    else:
        place = _of_ranks(_number(environment, "RANK"), _number(environment, "WORLD_SIZE"),
                          1 if cp_size is None else cp_size, tp_size, pp_size)
    rank = place.cp[0] if cp_rank is None else cp_rank
    size = place.cp[1] if cp_size is None else cp_size
    if mesh is not None and size != place.cp[1]:
        raise invalid(f"cp_size is {size}, but the mesh has {place.cp[1]} ranks on axis 'cp'")
    if not 0 <= rank < size:
        raise invalid(f"cp_rank is {rank} of cp_size {size}; 0 ... {size - 1} are possible")
    peers = place.peer[1] if readers_per_rank is None else readers_per_rank
    if reader is None:
        reader = f"rank{rank}" if peers == 1 else f"rank{rank}.{place.peer[0]}"
    if group is None:
        group = group_of(job, place.dp[0], environment)
    if generation is None:
        restarts = _number(environment, "TORCHELASTIC_RESTART_COUNT", 0)
        generation = _number(environment, "CPSHARD_GENERATION", restarts + 1)
    if attempt is None:
        attempt = environment.get("CPSHARD_ATTEMPT", "")
    return Topology(group, rank, size, reader, peers, generation, attempt, *place.dp)

"""Sharders of trainers, as `cpshard.verify` runs them: what layout they are of, and what they make
of a batch."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Mapping, NamedTuple

from .errors import error_of, invalid
from .tensors import is_torch

_OURS = "cpshard."
_KNOWN = (_OURS, "nemo_automodel.")  # whose functions of one name do one thing


class TrainerSharder(NamedTuple):
    """shard_batch: (cp_mesh, tp_mesh, batch, *, loss_mask, padding_token_id) -> (context factory,
    batch, layout). cp_mesh: None: no mesh, or one that is not known."""

    shard_batch: Callable[..., Any]
    cp_mesh: Any = None
    tp_mesh: Any = None
    loss_mask: Any = None
    padding_token_id: int | None = 0
    has_mesh: bool = False

    def ranks(self) -> list[int]:
        """Whose shards it makes: this process' own. Empty: any rank's."""
        if not self.has_mesh:
            return []
        return [0 if self.cp_mesh is None else int(self.cp_mesh.get_local_rank())]

    def cp_size(self) -> int | None:
        return None if self.cp_mesh is None else int(self.cp_mesh.size())

    def options(self) -> dict[str, Any]:
        """What it shards by. InvalidArgument: it does not tell."""
        made = _options_of(self.shard_batch, self.padding_token_id)
        if made is None:
            raise invalid(f"the sharder's shard_batch is {_name_of(self.shard_batch)}, which does "
                          "not tell how it shards: give the options= that are to do the same")
        return made

    def shard(self, batch: dict[str, Any], rank: int, size: int | None) -> dict[str, Any]:
        """The tensors of a rank. `batch` is the callback's to change."""
        mesh = self.cp_mesh
        if not self.has_mesh and size is not None:
            mesh = self._seat(rank, size)
        context, made, _ = self.shard_batch(mesh, self.tp_mesh, batch, loss_mask=self.loss_mask,
                                            padding_token_id=self.padding_token_id)
        if _is_of(self.shard_batch, _OURS):
            return dict(made)
        with context():  # others may shard there, and undo it behind
            return {name: value.detach().clone() if is_torch(value) else value
                    for name, value in made.items()}

    def _seat(self, rank: int, size: int) -> Any:
        if not _is_of(self.shard_batch, _OURS) or _in_a_group():
            raise invalid(f"{_name_of(self.shard_batch)} asks its mesh for a process group: give a "
                          "ContextParallelSharder that has the mesh; it is compared on its own "
                          "rank")
        return _Seat(rank, size)


class _Seat:
    """Looks like a mesh of one axis, on any rank."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size

    def get_local_rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size


def trainer_sharder(sharder: Any) -> TrainerSharder | None:
    """Of a ContextParallelSharder, of this package or of another with the same fields, or of its
    shard_batch callback; None: of any other callable."""
    callback = getattr(sharder, "shard_batch", None)
    if callable(callback):
        fields = {name: getattr(sharder, f"_{name}", None)
                  for name in ("cp_mesh", "tp_mesh", "loss_mask", "padding_token_id")}
        return TrainerSharder(callback, **fields, has_mesh=True)
    try:
        parameters = list(inspect.signature(sharder).parameters)
    except (TypeError, ValueError):
        return None
    return TrainerSharder(sharder) if parameters[:2] == ["cp_mesh", "tp_mesh"] else None


def _in_a_group() -> bool:
    from torch import distributed
    return bool(distributed.is_available() and distributed.is_initialized())


def _taken_apart(callback: Any) -> tuple[Any, dict[str, Any]]:
    """The function of a partial, and the keywords that it has."""
    keywords: dict[str, Any] = {}
    while isinstance(callback, functools.partial):
        keywords = {**callback.keywords, **keywords}
        callback = callback.func
    return callback, keywords


def _is_of(callback: Any, *packages: str) -> bool:
    function, _ = _taken_apart(callback)
    return str(getattr(function, "__module__", "")).startswith(packages)


def _name_of(callback: Any) -> str:
    function, _ = _taken_apart(callback)
    return str(getattr(function, "__qualname__", function))


def _options_of(callback: Any, padding_token_id: int | None) -> dict[str, Any] | None:
    function, keywords = _taken_apart(callback)
    known: dict[str, Callable[[int | None, Mapping[str, Any]], dict[str, Any]]] = {
        "shard_batch_identity": lambda *_: {"identity": {}},
        "shard_batch_contiguous": _contiguous,
        "shard_batch_load_balanced": lambda _, given: _round_robin(given),
        "shard_batch_aux_only": lambda _, given: _round_robin(given, keep_primary_full=True),
        "shard_batch_thd": _thd, "shard_batch_magi": _magi}
    make = known.get(_name_of(function)) if _is_of(function, *_KNOWN) else None
    return None if make is None else make(padding_token_id, keywords)


def _contiguous(padding: int | None, given: Mapping[str, Any]) -> dict[str, Any]:
    from .torch import layouts
    extras = layouts.extra_streams(given.get("extra_seq_keys"), given.get("extra_pad_values"))
    return layouts.with_layout(
        layouts.shared_options(padding, extras), "contiguous",
        pad_multiple=layouts.int_or_none(given.get("pad_multiple", 1)),
        keep_primary_full=None if given.get("shard_primary", True) else True)


def _round_robin(given: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    from .torch import layouts
    extras = layouts.extra_streams(given.get("extra_seq_buffers"))
    return layouts.with_layout(layouts.shared_options(None, extras), "round_robin", **fields)


def _thd(padding: int | None, given: Mapping[str, Any]) -> dict[str, Any]:
    from .torch import layouts
    chunks = given.get("num_chunks", 1)
    return layouts.with_layout(layouts.shared_options(padding), "thd",
                               num_chunks=chunks if chunks > 1 else None)


def _magi(padding: int | None, given: Mapping[str, Any]) -> dict[str, Any]:
    from .torch import layouts
    if given.get("num_chunks", 1) > 1:
        raise error_of("UNIMPLEMENTED", "shard_batch_magi in several chunks is no one layout")
    return layouts.with_layout(
        layouts.shared_options(padding), "magi",
        variant="CUSTOM" if given.get("custom") else "HF",
        domain=str(given.get("domain", "llm")).upper())

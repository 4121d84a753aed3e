"""Somebody else's shards of a batch beside ours: equal, or the first difference of every stream in
words (which rank, which token, what the value is instead).

    cpshard.verify(batch, {"round_robin": {}}, 4, shards).raise_on_difference()
    cpshard.verify(batch, sharder=mine).raise_on_difference()  # a ContextParallelSharder
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import tempfile
from typing import Any, Mapping, Sequence, Union

import numpy as np

from . import embedded
from .errors import Error, error_of, invalid
from .options import Options
from .sharders import TrainerSharder, trainer_sharder
from .tensors import ITEM_SIZES, DenseTensor, dense, entries_of, is_tensor, is_torch
from .types import Shard

# What a rank got: name -> tensor; other values are ignored.
Streams = Union[Mapping[str, Any], Shard]

class ShardsDiffer(AssertionError):
    """The text of a verification; `verification` has the rest."""

    def __init__(self, verification: Verification) -> None:
        super().__init__(verification.text)
        self.verification = verification


@dataclasses.dataclass(frozen=True)
class Verification:
    """equal: every stream of every rank compared is the same, byte by byte, and no label at an edge
        of a rank is wrong.
    text: a table of the streams, what differs and why, and a verdict.
    report: the same facts, as `cpshard verify --json` has them.
    """

    equal: bool
    text: str
    report: dict[str, Any]

    def raise_on_difference(self) -> None:
        """ShardsDiffer, an AssertionError with the text."""
        if not self.equal:
            raise ShardsDiffer(self)


def verify(batch: Mapping[str, Any], options: Options | None = None, cp_size: int | None = None,
           shards: Mapping[int, Streams] | Sequence[Streams] | None = None, *,
           sharder: Any = None, ranks: Sequence[int] = (),
           streams: Union[str, Sequence[str]] = ()) -> Verification:
    """Shards the batch by `options` and compares with what somebody else made of it.

    Args:
        batch, options, cp_size: as `embedded.plan`. Tensors of a device are fetched. options None:
            those of the sharder, and its mesh's cp_size, where it tells.
        shards: theirs, by rank, or of all ranks in order; of tensors on any device.
        sharder: makes theirs instead, of tensors of its own, so that it may change them in place.
            A ContextParallelSharder of `cpshard.torch`, or of a framework with the same fields: on
            its own rank; its loss mask counts as a stream. A callback `shard_batch` of theirs. Or
            any callable of (batch, cp_rank, cp_size), for each rank. The first two tell their
            options where their functions are `shard_batch_identity`, `_contiguous`,
            `_load_balanced`, `_aux_only`, `_thd` or `_magi`.
        ranks: to compare; empty = those of `shards` where it is a mapping, else all.
        streams: to compare, one name or several; empty = all of ours.

    Raises:
        cpshard.Error: what the layout refuses; InvalidArgument: neither shards nor sharder, or
        both, no options and a sharder that does not tell them, a rank that there is not; NotFound:
        a rank asked for whose shard is not there, a stream that the layout does not make.
    """
    if (shards is None) == (sharder is None):
        raise invalid("give either `shards` or `sharder`")
    streams = [streams] if isinstance(streams, str) else list(streams)
    trainers = None if sharder is None else trainer_sharder(sharder)
    if options is None:
        if trainers is None:
            raise invalid("no options are given, and " + (
                "shards do not tell theirs" if sharder is None else
                f"the sharder, a {type(sharder).__name__}, does not tell its own"))
        options = trainers.options()
    here = {name: _fetched(value) for name, value in batch.items()}
    if trainers is not None:
        cp_size, ranks = _place_of(trainers, cp_size, ranks)
        if trainers.loss_mask is not None:
            here["loss_mask"] = _fetched(trainers.loss_mask)
    plan = embedded.plan(here, options, cp_size)
    group = range(cp_size or 1)
    if wrong := [rank for rank in ranks if rank not in group]:
        raise invalid(f"ranks {wrong} are asked for; 0 ... {len(group) - 1} are possible")
    if trainers is not None:
        theirs: dict[int, Streams] = {rank: trainers.shard(_copy_of(batch), rank, cp_size)
                                      for rank in ranks or group}
    elif sharder is not None:
        theirs = {rank: sharder(_copy_of(batch), rank, len(group)) for rank in ranks or group}
    elif isinstance(shards, Mapping):
        theirs = dict(shards)
        ranks = ranks or [rank for rank in sorted(theirs) if rank in group]
    else:
        theirs = dict(enumerate(shards or ()))
    return _compared(plan, theirs, ranks or group, list(ranks), streams)


def _place_of(trainers: TrainerSharder, cp_size: int | None, ranks: Sequence[int]
              ) -> tuple[int | None, Sequence[int]]:
    """cp_size and ranks of a sharder that has a mesh; else as they are given."""
    own, size = trainers.ranks(), trainers.cp_size()
    if not own:
        return cp_size, ranks
    if cp_size not in (None, size) or not set(ranks) <= set(own):
        raise invalid(f"cp_size {cp_size} and ranks {list(ranks)} are asked for, and the sharder's "
                      f"mesh has cp_size {size} and this process rank {own[0]}: leave them out")
    return size, own


def _compared(plan: embedded.Plan, theirs: Mapping[int, Streams], wanted: Sequence[int],
              ranks: list[int], streams: list[str]) -> Verification:
    if missing := [rank for rank in wanted if rank not in theirs]:
        raise error_of("NOT_FOUND", f"there is no shard of ranks {missing}, but of ranks "
                       f"{sorted(theirs)}: name those to compare (ranks=), or check cp_size")
    with tempfile.TemporaryDirectory(prefix="cpshard-verify-") as folder:
        for rank, shard in theirs.items():
            _write(pathlib.Path(folder, f"rank{rank}.safetensors"), _tensors_of(shard))
        try:
            different, text, report = plan.verify(folder, ranks, streams)
        except Error as error:
            raise error.with_message(_in_our_words(error.message, folder)) from None
    return Verification(not different, _in_our_words(text, folder),
                        json.loads(_in_our_words(report, folder)))


def _in_our_words(text: str, folder: str) -> str:
    """Nobody has seen the files that are compared, nor has options of a command line."""
    text = text.replace(f"'{folder}'", "shards").replace(f"{folder}/", "").replace(folder, "shards")
    return text.replace("(--stream)", "(streams=)").replace("--stream", "streams=").replace(
        "--ranks", "ranks=")


def _fetched(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_fetched(item) for item in value]
    return value.detach().cpu() if is_torch(value) else value


def _copy_of(batch: Mapping[str, Any]) -> dict[str, Any]:
    def copied(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(copied(item) for item in value)
        if is_torch(value):
            return value.detach().clone().requires_grad_(value.requires_grad)
        return value.copy() if isinstance(value, np.ndarray) else value

    return {name: copied(value) for name, value in batch.items()}


def _tensors_of(shard: Streams) -> list[DenseTensor]:
    named = shard.batch if isinstance(shard, Shard) else shard
    if not isinstance(named, Mapping):
        raise invalid(f"a shard is a mapping of names to tensors; this is a {type(named).__name__}")
    if "__metadata__" in named:
        raise invalid("a stream is named '__metadata__', as shards in files cannot be: leave it "
                      "out, or name it otherwise")
    kept = {name: value for name, value in named.items()
            if is_tensor(value) or isinstance(value, (list, tuple)) and all(map(is_tensor, value))}
    return [dense(name, _fetched(value)) for name, value in entries_of(kept)]


def _write(path: pathlib.Path, tensors: list[DenseTensor]) -> None:
    """A safetensors file: length of the header, header, bytes without gaps, large elements first,
    so that all are aligned."""
    header, end = dict[str, Any](), 0
    tensors = sorted(tensors, key=lambda tensor: -ITEM_SIZES[tensor.dtype])
    for tensor in tensors:
        header[tensor.name] = {"dtype": tensor.dtype.upper(), "shape": list(tensor.dims),
                               "data_offsets": [end, end + tensor.nbytes]}
        end += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            tensor.data.tofile(file)

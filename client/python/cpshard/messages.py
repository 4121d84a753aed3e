"""The messages as values of the package. Only this module, frames.py and session/codec.py know
their fields."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterable, Mapping

import numpy as np

from .errors import Error, error_of
from .tensors import (DTYPE_NAMES, DTYPE_NUMBERS, Bytes, DenseTensor, dense, entries_of, is_tensor,
                      scalar_field, view)
from .types import Cut, Notice, RankLoad, Shard, ShardLayout, TokenCounts

ALIGNMENT = 64  # of tensors in a body, and of the ends of bodies
_EXTENTS = {1: "local", 2: "padded", 3: "whole"}
_ARRAYS = "_layout."  # entries that are the arrays of a large layout


@dataclasses.dataclass(frozen=True)
class Totals:
    """Of a whole batch, counted before the cut and already summed over the CP group; the same
    whichever ranks are asked for. None: not known.

    message: the whole cpshard.v1.Totals, with the balance of the ranks.
    """

    num_label_tokens: int | None
    num_tokens_excl_tail_pad: int | None
    message: Any


# --- batches out ----------------------------------------------------------------------------------


def add_entries(entries: Any, batch: Mapping[str, Any]) -> list[DenseTensor]:
    """Appends the batch to a message's entries, without places; its tensors, in that order."""
    tensors = []
    for name, value in entries_of(batch):
        if is_tensor(value):
            tensor = dense(name, value)
            entries.add(name=name, dtype=DTYPE_NUMBERS[tensor.dtype], dims=tensor.dims)
            tensors.append(tensor)
        else:
            field, scalar = scalar_field(name, value)
            setattr(entries.add(name=name).scalar, field, scalar)
    return tensors


def place_entries(entries: Any, tensors: list[DenseTensor]) -> tuple[list[Bytes | bytes], int]:
    """Gives all tensors their places: the pieces of the body, front to back without holes, and its
    size. Small tensors come first: the lengths of documents are small, and a server that has them
    can plan."""
    places, pieces, end = {}, list[Any](), 0
    for tensor in sorted(tensors, key=lambda tensor: tensor.nbytes):
        places[tensor.name] = end, tensor.nbytes
        if tensor.nbytes == 0:
            continue
        pieces.append(tensor.data)
        end += tensor.nbytes
        if gap := -end % ALIGNMENT:
            pieces.append(bytes(gap))
            end += gap
    for entry in entries:
        if entry.name in places:
            entry.offset, entry.nbytes = places[entry.name]
    return pieces, end


# --- shards in ------------------------------------------------------------------------------------


def shards_of(heads: Iterable[Any], memory: Bytes, library: str, executor: str) -> list[Shard]:
    """The shards whose tensors lie in `memory`, as windows on it. Shards that hold a stream whole
    share its bytes. `executor`: that the answer names. Internal: heads that do not fit the
    memory."""
    try:
        return [_shard_of(head, memory, library, executor) for head in heads]
    except Error:
        raise
    except (ValueError, KeyError, TypeError, RuntimeError) as error:  # of dtypes and shapes
        raise error_of("INTERNAL", f"the server sent what is no shard: {error!r}") from None


def _shard_of(head: Any, memory: Bytes, library: str, executor: str) -> Shard:
    batch, cuts, arrays = dict[str, Any](), dict[str, Cut](), dict[str, Any]()
    for entry in head.entries:
        if entry.HasField("scalar"):
            batch[entry.name] = getattr(entry.scalar, entry.scalar.WhichOneof("value"))
        elif entry.name.startswith(_ARRAYS):
            field = entry.name.removeprefix(_ARRAYS)
            arrays[field] = _tensor_of(entry, memory, "numpy" if field == "runs" else library)
        else:
            batch[entry.name] = _tensor_of(entry, memory, library)
            cuts[entry.name] = Cut(_EXTENTS[entry.extent], entry.seq_axis)
    load = load_of(head.load) if head.HasField("load") else None
    return Shard(batch, layout_of(head.layout, library, arrays), cuts, load, executor)


def _tensor_of(entry: Any, memory: Bytes, library: str) -> Any:
    if entry.offset + entry.nbytes > memory.size:
        raise error_of("INTERNAL", f"stream '{entry.name}' of a shard is said to end at byte "
                       f"{entry.offset + entry.nbytes} of {memory.size}")
    data = memory[entry.offset:entry.offset + entry.nbytes] if entry.nbytes else memory[:0]
    return view(data, DTYPE_NAMES[entry.dtype], tuple(entry.dims), library)


def _array_of(array: Any, library: str) -> Any:
    numbers = np.fromiter(array.values, np.int64, len(array.values))
    return view(numbers.view(np.uint8), "i64", tuple(array.shape), library)


def layout_of(layout: Any, library: str, arrays: Mapping[str, Any] | None = None) -> ShardLayout:
    """A ShardLayout message; `arrays` are those of its fields that came as entries."""
    arrays = arrays or {}

    def number(field: str) -> int | None:
        return getattr(layout, field) if layout.HasField(field) else None

    def array(field: str, kind: str) -> Any:
        if field in arrays:
            return arrays[field]
        return _array_of(getattr(layout, field), kind) if layout.HasField(field) else None

    shape = array("input_row_shape", "numpy")
    runs = arrays.get("runs")
    if runs is None:
        runs = np.array([(run.source, run.length) for run in layout.runs], np.int64).reshape(-1, 2)
    return ShardLayout(
        local_token_global_indices=array("local_token_global_indices", library),
        original_seq_len=number("original_seq_len"), padded_seq_len=number("padded_seq_len"),
        input_row_shape=None if shape is None else tuple(int(size) for size in shape),
        input_token_stream_positions=array("input_token_stream_positions", library),
        cp_rank=layout.cp_rank, cp_size=layout.cp_size, batch_digest=layout.batch_digest, runs=runs)


def load_of(load: Any) -> RankLoad:
    def number(message: Any, field: str) -> Any:
        return getattr(message, field) if message.HasField(field) else None

    tokens = TokenCounts(load.tokens.real, load.tokens.pad, number(load.tokens, "supervised"))
    return RankLoad(tokens, *(number(load, field) for field in (
        "causal_rows", "full_rows", "causal_documents", "full_documents")))


def notices_of(notices: Iterable[Any]) -> list[Notice]:
    return [Notice(notice.code, notice.text) for notice in notices]


def totals_of(message: Any) -> Totals:
    def number(field: str) -> int | None:
        return getattr(message, field) if message.HasField(field) else None

    return Totals(number("num_label_tokens"), number("num_tokens_excl_tail_pad"), message)


def check_ranks(shards: list[Shard], cp_size: int | None, ranks: Iterable[int]) -> None:
    """Internal: the shards are not those of these ranks (none = all)."""
    expected = list(ranks) or list(range(cp_size or 1))
    got = [shard.layout.cp_rank for shard in shards]
    if got != expected:
        raise error_of("INTERNAL", f"the server answers with shards of ranks {got}; those of ranks "
                       f"{expected} were asked for")



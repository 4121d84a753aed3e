"""Plans and shards in this process, without a server: cpshardd's own code, in libcpshard.so.

    plan = cpshard.embedded.plan({"input_ids": ids, "labels": labels}, "round_robin", cp_size=4)
    shard = plan.shard(rank)

Batches hold numpy arrays or torch tensors, read where they lie (one that is not contiguous is
copied first); outputs are new arrays of the same library, those of numpy parts of one block per
shard. torch is used only if the batch holds some.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import json
import os
from typing import Any, Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ._proto import service_pb2
from .errors import FailedPrecondition, invalid
from .libcpshard import (INDICES, POSITIONS, RUNS, WITH_DIGEST, WITH_TOTALS, CBytes, CCut, CStream,
                         bytes_of, call, loaded, take, take_numbers)
from .messages import Totals, layout_of, load_of, notices_of, totals_of
from .options import Options, options_of
from .tensors import (DTYPE_NAMES, DTYPE_NUMBERS, NUMPY_NAMES, TORCH_NAMES, DenseTensor, dense,
                      entries_of, is_tensor, is_torch, library_of, scalar_field)
from .types import Cut as StreamCut
from .types import Notice, Shard, ShardLayout

_ALIGNMENT = 64  # bytes, of outputs
_LOCAL = 1  # EXTENT_LOCAL
_EXTENTS = {1: "local", 2: "padded", 3: "whole"}
_OF_TORCH = {f"torch.{torch_name}": name for name, torch_name in TORCH_NAMES.items()}


@dataclasses.dataclass(frozen=True, eq=False)
class Cut:
    """How an output comes of one tensor of the batch, for callers that cut it themselves.

    First the source is given the shape `dims` (expanded where `broadcast`, else reshaped); then
    slot i takes the column of `axis` that the runs give it, or `fill`. Above one chunk the slots
    are those of chunk after chunk, and the output is [chunks, L, ...].

    source: name of the tensor.
    extent: "local", "padded", or "whole": the source as it is, without runs.
    axis: of dims, the columns. batch_axis: whose index is the row; -1: all are row 0.
    rows: how many lists of runs there are; 1: all rows alike.
    fill: a value of the source's dtype.
    runs: int64 [n, 2], first source column (-1 = fill) and length, in slot order.
    """

    source: str
    extent: str
    axis: int
    batch_axis: int
    broadcast: bool
    rows: int
    chunks: int
    dims: tuple[int, ...]
    fill: bool | int | float
    runs: NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class _Stream:
    """Of the tensors of a shard, the same for all ranks."""

    source: str | None
    writable: bool
    as_sent: bool


class Plan:
    """The plan of a batch, with views on its tensors: they must not change while it is used.
    Thread-safe."""

    def __init__(self, handle: ctypes.c_void_p, batch: _Entries, cp_size: int | None,
                 digest: bool) -> None:
        self._handle = handle
        self._free = loaded().cpshard_plan_free  # at interpreter exit the module may be gone
        self._batch = batch
        self._with = WITH_DIGEST if digest else 0
        self.cp_size = cp_size

    def __del__(self) -> None:
        if handle := getattr(self, "_handle", None):
            self._free(handle)

    # --- what is said of the batch

    @property
    def layouts(self) -> list[ShardLayout]:
        """Of all ranks."""
        return self._layouts

    @functools.cached_property
    def _layouts(self) -> list[ShardLayout]:
        return [self._layout(message) for message in self._reply.layouts]

    @functools.cached_property
    def _reply(self) -> Any:
        return self._reply_with(self._with)

    def _reply_with(self, flags: int) -> Any:
        every = (ctypes.c_int64 * (self.cp_size or 1))(*range(self.cp_size or 1))
        data = bytes_of("cpshard_plan_reply", self._handle, every, len(every), flags)
        return service_pb2.PlanLayoutReply.FromString(data)

    @property
    def notices(self) -> list[Notice]:
        """Of the layout. Those that come of counting tokens are in `report`."""
        return notices_of(self._reply.notices)

    @property
    def chosen(self) -> str:
        """Of the options `model`: the layout that they resolved to; else empty."""
        return str(self._reply.chosen)

    @property
    def reason(self) -> str:
        """Why it was chosen."""
        return str(self._reply.reason)

    @property
    def needs(self) -> list[str]:
        """Streams whose values the layout read."""
        return list(self._reply.needs)

    @property
    def row_need(self) -> int | None:
        """Columns that packed rows need by themselves (docs/WIRE.md, "Rows of one length")."""
        return self._reply.row_need if self._reply.HasField("row_need") else None

    @functools.cached_property
    def report(self) -> Any:
        """The cpshard.v1.PlanLayoutReply with totals, loads, documents and all notices; its layouts
        are without their arrays. One pass over labels and masks, the first time."""
        return self._reply_with(self._with | WITH_TOTALS)

    @property
    def totals(self) -> Totals:
        return totals_of(self.report.totals)

    @functools.cached_property
    def digest(self) -> int:
        """XXH3-64 of the batch: one pass over its bytes, the first time. FailedPrecondition: a
        tensor of a device."""
        digest = ctypes.c_uint64()
        call("cpshard_plan_digest", self._handle, ctypes.byref(digest))
        return digest.value

    # --- its shards

    def shard(self, rank: int, *, load: bool = False) -> Shard:
        """The shard of a rank; `load`: with what it has to work through."""
        [shard] = self.shards([rank], load=load)
        return shard

    def shards(self, ranks: Iterable[int] | None = None, *, load: bool = False) -> list[Shard]:
        """The shards of `ranks` (None = all), written in one pass over the batch.

        A stream that is handed on as it is, is the caller's own object; one that all ranks hold
        alike is one array for all of them. A stream that comes of a tensor that is not on the CPU
        has its entry in `cuts` but none in `batch`: see `cut`.

        Raises cpshard.Error: a rank that there is not or that is named twice; the shards of these
        ranks are over the limit of a batch.
        """
        wanted = range(self.cp_size or 1) if ranks is None else [int(rank) for rank in ranks]
        flags = self._with | (WITH_TOTALS if load else 0)
        heads = [service_pb2.Shard.FromString(
            bytes_of("cpshard_plan_shard", self._handle, rank, flags)) for rank in wanted]
        outputs: dict[str, Any] = {}  # those that the ranks share
        pointers: list[int | None] = []
        shards = [self._shard(head, outputs, pointers) for head in heads]
        if any(pointers):
            call("cpshard_plan_write", self._handle, (ctypes.c_int64 * len(wanted))(*wanted),
                  len(wanted), (ctypes.c_void_p * len(pointers))(*pointers), len(pointers))
        return shards

    def _shard(self, head: Any, shared: dict[str, Any], pointers: list[int | None]) -> Shard:
        """With outputs that are still to be written; appends where."""
        batch, cuts = dict[str, Any](), dict[str, StreamCut]()
        memory = _Memory(self._batch.library, head.entries)
        for entry in head.entries:
            name = entry.name
            if entry.HasField("scalar"):
                batch[name] = getattr(entry.scalar, entry.scalar.WhichOneof("value"))
                continue
            stream = self._streams[len(cuts)]
            cuts[name] = StreamCut(_EXTENTS[entry.extent], entry.seq_axis)
            pointer = None
            if stream.as_sent and stream.source is not None:
                batch[name] = self._batch.given[stream.source]
            elif stream.writable and name in shared:
                batch[name] = shared[name]
            elif stream.writable:
                dtype, dims = DTYPE_NAMES[entry.dtype], tuple(entry.dims)
                if cuts[name].extent == "local":
                    batch[name] = memory.tensor(dtype, dims, entry.nbytes)
                else:
                    batch[name] = shared[name] = _empty(dtype, dims, self._batch.library)
                pointer = _address(batch[name])
            pointers.append(pointer)
        load = load_of(head.load) if head.HasField("load") else None
        return Shard(batch, self._layout(head.layout), cuts, load, "cpu")

    @functools.cached_property
    def _streams(self) -> list[_Stream]:
        streams, found = list[_Stream](), CStream()
        while not loaded().cpshard_plan_stream(self._handle, len(streams), ctypes.byref(found),
                                               None):
            source = None if found.source is None else found.source.decode()
            streams.append(_Stream(source, bool(found.writable), bool(found.as_sent)))
        return streams

    def _layout(self, message: Any) -> ShardLayout:
        """With its arrays, which do not travel in messages."""
        arrays: dict[str, Any] = {"runs": self._array(message.cp_rank, RUNS).reshape(-1, 2)}
        if message.HasField("local_token_global_indices"):
            arrays["local_token_global_indices"] = _as_library(
                self._array(message.cp_rank, INDICES), message.local_token_global_indices.shape,
                self._batch.library)
        if message.HasField("input_token_stream_positions"):
            arrays["input_token_stream_positions"] = _as_library(
                self._positions, message.input_token_stream_positions.shape, self._batch.library)
        return layout_of(message, self._batch.library, arrays)

    def _array(self, rank: int, array: int) -> NDArray[np.int64]:
        values = CBytes()
        call("cpshard_plan_array", self._handle, rank, array, ctypes.byref(values))
        return take_numbers(values)

    @functools.cached_property
    def _positions(self) -> NDArray[np.int64]:
        return self._array(0, POSITIONS)  # of the batch: all ranks report the same

    def cut(self, stream: str, rank: int, row: int = 0) -> Cut | None:
        """How the output `stream` of a rank comes of one tensor of the batch, for what is on a
        device or has a gradient. None: it is computed, not cut.

        Raises cpshard.Error: no such stream, rank or row.
        """
        cut, runs = CCut(), CBytes()
        try:
            call("cpshard_plan_cut", self._handle, stream.encode(), rank, row, ctypes.byref(cut),
                 ctypes.byref(runs))
        except FailedPrecondition:
            return None
        source = cut.source.decode()
        return Cut(source, _EXTENTS[cut.extent], cut.axis, cut.batch_axis, bool(cut.broadcast),
                   cut.rows, cut.chunks, tuple(cut.dims[:cut.num_dims]),
                   _element(cut.fill, self._batch.dtypes[source]),
                   take_numbers(runs).reshape(-1, 2))

    def runs_of_ranks(self) -> Callable[[], list[NDArray[np.int64]]]:
        """What tells ShardLayout.runs of every rank, [n, 2] each, when it is called. It keeps the
        plan, but not the batch, which is let go: nothing is cut by this plan any more."""
        self._batch = _Entries({}, frozenset())
        return lambda: [self._array(rank, RUNS).reshape(-1, 2)
                        for rank in range(self.cp_size or 1)]

    def verify(self, ranks_dir: str | os.PathLike[str], ranks: Sequence[int] = (),
               streams: Sequence[str] = ()) -> tuple[bool, str, str]:
        """Compares DIR/rank<r>.safetensors with this plan's shards, of `ranks` and `streams` (empty
        = all): whether they differ, the text and the JSON of `cpshard verify`. For shards that are
        no files see cpshard.verifying."""
        different, text, report = ctypes.c_int32(), CBytes(), CBytes()
        names = (ctypes.c_char_p * len(streams))(*[name.encode() for name in streams])
        call("cpshard_plan_verify", self._handle, os.fsencode(ranks_dir),
              (ctypes.c_int64 * len(ranks))(*ranks), len(ranks), names, len(names),
              ctypes.byref(different), ctypes.byref(text), ctypes.byref(report))
        return bool(different.value), take(text).decode(), take(report).decode()


def plan(batch: Mapping[str, Any], options: Options, cp_size: int | None = None, *,
         ranks: Sequence[int] = (), digest: bool = False) -> Plan:
    """Plans a batch.

    Args:
        batch: name -> numpy array or torch tensor, list of them, bool, int, float or str; None is
            absent (D8). What is read of a tensor that requires grad are its values. One that is not
            on the CPU is planned by its shape; where the layout reads its values they are fetched.
        options: ShardingOptions as mapping, JSON text, name of a layout, or message.
        cp_size: None = no mesh, which is not a mesh of one (contract 1).
        ranks: whose shards are to fit the limit of a batch (empty = all).
        digest: layouts carry the digest of the batch: one pass over its bytes. Else it is 0.

    Raises:
        cpshard.Error of the kind that the layout refuses with, also a ValueError or
        NotImplementedError; the text names the stream and the numbers. FailedPrecondition: the
        layout reads the values of a tensor on the device "meta", which has none.
    """
    message = _options(options)
    entries = _Entries(batch, frozenset())
    request = _request(entries, message, cp_size, ranks)
    if elsewhere := entries.elsewhere():
        reply = service_pb2.PlanLayoutReply.FromString(
            bytes_of("cpshard_needs", request, len(request)))
        if fetched := elsewhere.intersection(reply.needs):
            entries = _Entries(batch, fetched)
    handle = ctypes.c_void_p()
    call("cpshard_plan_create", request, len(request),
          (ctypes.c_void_p * len(entries.pointers))(*entries.pointers), len(entries.pointers),
          ctypes.byref(handle))
    return Plan(handle, entries, cp_size, digest)


# --- batches as the library takes them ------------------------------------------------------------


class _Entries:
    """A batch taken apart. Keeps its tensors alive."""

    def __init__(self, batch: Mapping[str, Any], fetched: frozenset[str]) -> None:
        self.given: dict[str, Any] = dict(entries_of(batch))
        self.library = library_of(batch)
        self.dtypes: dict[str, str] = {}
        self.pointers: list[int | None] = []  # of the tensors, in order; None: not on the CPU
        self._dense: list[DenseTensor] = []
        for name, value in self.given.items():
            if not is_tensor(value):
                continue
            if is_torch(value) and value.device.type != "cpu":
                if name not in fetched:
                    self.dtypes[name] = _dtype_of(name, value)
                    self.pointers.append(None)
                    continue
                value = value.cpu()
            tensor = dense(name, value)
            self._dense.append(tensor)
            self.dtypes[name] = tensor.dtype
            self.pointers.append(_address(tensor.data))

    def elsewhere(self) -> frozenset[str]:
        """Tensors whose values could be fetched."""
        return frozenset(name for name, value in self.given.items()
                         if is_torch(value) and value.device.type not in ("cpu", "meta"))


def _dtype_of(name: str, tensor: Any) -> str:
    dtype = _OF_TORCH.get(str(tensor.dtype))
    if dtype is None:
        raise invalid(f"stream '{name}' is a tensor of {tensor.dtype}; {', '.join(_OF_TORCH)} can "
                      "be sharded")
    return dtype


def _request(batch: _Entries, options: Any, cp_size: int | None, ranks: Sequence[int]) -> bytes:
    request = service_pb2.PlanLayoutRequest(options=options)
    if isinstance(cp_size, bool):
        raise invalid(f"cp_size is {cp_size}; give a number of ranks, or None: no mesh")
    try:
        if cp_size is not None:
            request.cp_size = cp_size
        request.ranks.extend(ranks)
    except (TypeError, ValueError) as error:
        raise invalid(f"cp_size {cp_size!r}, ranks {list(ranks)!r}: {error}") from None
    for name, value in batch.given.items():
        entry = request.entries.add(name=name)
        if name in batch.dtypes:
            entry.dtype = DTYPE_NUMBERS[batch.dtypes[name]]
            entry.dims.extend(value.shape)
        else:
            field, scalar = scalar_field(name, value)
            setattr(entry.scalar, field, scalar)
    return bytes(request.SerializeToString())


def _options(options: Options) -> Any:
    """The message; of options that are equal it is made once."""
    if isinstance(options, Mapping):
        try:
            return _options_of_text(json.dumps(options))
        except (TypeError, ValueError):
            pass  # holds something that is not JSON: for options_of to say
    elif isinstance(options, str):
        return _options_of_text(options)
    return options_of(options)


@functools.lru_cache(maxsize=64)
def _options_of_text(text: str) -> Any:
    return options_of(text)


class _Memory:
    """For what a rank has for itself. Arrays of numpy lie in one block: from 4 MiB on numpy asks
    for huge pages, and fresh small ones cost more than what is written to them."""

    def __init__(self, library: str, entries: Iterable[Any]) -> None:
        self._library = library
        self._block = np.empty(0, np.uint8)
        self._end = 0
        if library == "numpy":
            size = sum(entry.nbytes + _ALIGNMENT for entry in entries if entry.extent == _LOCAL)
            self._block = np.empty(size, np.uint8)
            self._end = -_address(self._block) % _ALIGNMENT

    def tensor(self, dtype: str, dims: tuple[int, ...], nbytes: int) -> Any:
        """A new tensor [dims], whose values are anything."""
        if self._library != "numpy":
            return _empty(dtype, dims, self._library)
        data = self._block[self._end:self._end + nbytes]
        self._end += nbytes + -nbytes % _ALIGNMENT
        return data.view(NUMPY_NAMES[dtype]).reshape(dims)


def _empty(dtype: str, dims: tuple[int, ...], library: str) -> Any:
    """A new tensor [dims]. A batch without bfloat16 has no outputs of it."""
    if library == "torch":
        import torch
        return torch.empty(dims, dtype=getattr(torch, TORCH_NAMES[dtype]), device="cpu")
    return np.empty(dims, NUMPY_NAMES[dtype])


def _as_library(values: NDArray[np.int64], shape: Sequence[int], library: str) -> Any:
    if library == "torch":
        import torch
        return torch.from_numpy(values).reshape(tuple(shape))
    return values.reshape(tuple(shape))


def _address(array: Any) -> int:
    if isinstance(array, np.ndarray):
        return int(array.__array_interface__["data"][0])
    return int(array.data_ptr())


def _element(bits: int, dtype: str) -> bool | int | float:
    """The value of an element that is the low bytes of `bits`."""
    data = bits.to_bytes(8, "little")
    if dtype == "bf16":  # the upper half of an f32
        return float(np.frombuffer(bytes(2) + data[:2], np.float32)[0])
    kinds = {"bool": "?", "u8": "u1", "i8": "i1", "i16": "<i2", "i32": "<i4", "i64": "<i8",
             "f16": "<f2", "f32": "<f4", "f64": "<f8"}
    value: bool | int | float = np.frombuffer(data, kinds[dtype], 1)[0].item()
    return value

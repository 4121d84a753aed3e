"""A client of cpshardd for batches of any kind: one connection, calls that block."""

from __future__ import annotations

import dataclasses
import operator
import os
import threading
from typing import Any, Iterable, Iterator, Mapping, Sequence

import grpc

from ._proto import service_pb2
from .batch_stream import BatchStream
from .channel import MAX_UNARY_BYTES, check_process, error_of_rpc, open_channel, unary
from .errors import Error, error_of, invalid
from .executors import check_executor, check_knows_executors, executor_number
from .frames import OutgoingBatch, join, read, writable
from .messages import (Totals, add_entries, check_ranks, layout_of, notices_of, place_entries,
                       shards_of, totals_of)
from .options import Options, options_of
from .tensors import check_library, library_of
from .types import Notice, Shard, ShardLayout

_HEADER_ROOM = 64 << 10  # of a unary message, for all but its body
# A larger batch goes through a stream at once: its shards might not fit a unary reply.
_UNARY_BATCH_BYTES = 1 << 20
# What tokens and documents are counted by, where a request has room for it.
_COUNTED = ("seq_lens", "seq_lens_padded", "cu_seqlens", "cu_seqlens_padded", "labels",
            "padding_mask", "attention_mask", "_packed_seq_ids", "seq_idx", "position_ids")


@dataclasses.dataclass(frozen=True, eq=False)
class ServerInfo:
    """Who the server is and what it accepts.

    executor, executor_reason: who shards there where a request leaves it to the server, "cpu" or
        "cuda:0", and why.
    message: the whole cpshard.v1.GetServerInfoReply.
    """

    version: str
    instance_id: str
    layouts: list[str]
    capabilities: list[str]
    limits: Any
    message: Any
    executor: str
    executor_reason: str


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """The layout of a batch, without its shards.

    layouts: of the ranks asked for; empty where `needs` names streams whose values were not sent.
    chosen, reason: of the options `model`, the layout that they resolved to, and why.
    message: the whole cpshard.v1.PlanLayoutReply: loads, documents, streams of a shard.
    """

    layouts: list[ShardLayout]
    notices: list[Notice]
    needs: list[str]
    chosen: str
    reason: str
    totals: Totals | None
    message: Any


class Client:
    """Thread-safe. Connects lazily: a server that is away is Unavailable in the calls. Not for
    a fork of the process, which cannot connect itself either (FailedPrecondition).

    All calls raise cpshard.Error with the server's code and text; of this side's own:
    InvalidArgument: a batch or options that no server takes. DeadlineExceeded: `deadline` seconds
    have passed. Internal: the answer is broken, or is not of the ranks asked for.
    """

    def __init__(self, address: str, *, deadline: float = 30.0,
                 wait_for_ready: bool = False) -> None:
        """`address`: "host:port", "[v6]:port" or "unix:/path". `deadline`: seconds, of a call, or
        of a batch of a stream. `wait_for_ready`: wait for the server within the deadline."""
        if not hasattr(deadline, "__float__") or isinstance(deadline, bool) or not deadline > 0:
            raise invalid(f"the deadline is {deadline!r} seconds; above 0 is possible")
        self.address = address
        self._deadline, self._wait_for_ready = deadline, wait_for_ready
        self._channel = open_channel(address)
        self._calls = {name: unary(self._channel, name)
                       for name in ("GetServerInfo", "PlanLayout", "ShardBatch")}
        self._process = os.getpid()
        self._closed = False
        self._lock = threading.Lock()
        self._info: ServerInfo | None = None

    def close(self) -> None:
        """Ends what is under way."""
        if os.getpid() == self._process:  # a fork has the descriptors of its parent
            self._closed = True
            self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        check_process(self._process, f"the client of {self.address}")
        if self._closed:
            raise error_of("CANCELLED", f"the client of {self.address} has been closed")

    def _call(self, method: str, request: bytes) -> bytes:
        self._check_open()
        try:
            return bytes(self._calls[method](request, timeout=self._deadline,
                                             wait_for_ready=self._wait_for_ready))
        except grpc.RpcError as error:
            raise error_of_rpc(error) from None
        except ValueError as error:  # closed meanwhile, on another thread
            raise error_of("CANCELLED", f"the client of {self.address}: {error}") from None

    # --- the calls

    def info(self) -> ServerInfo:
        """Who the server is now."""
        reply, _ = read(service_pb2.GetServerInfoReply, self._call("GetServerInfo", b""))
        info = ServerInfo(reply.version, reply.instance_id, list(reply.layouts),
                          list(reply.capabilities), reply.limits, reply, reply.executor,
                          reply.executor_reason)
        with self._lock:
            self._info = info
        return info

    def plan(self, batch: Mapping[str, Any], options: Options, cp_size: int | None = None,
             ranks: Sequence[int] = ()) -> Plan:
        """The layouts of `ranks` (empty = all). Only what is read travels with its bytes: what the
        layout reads, and what its tokens are counted by as far as a call of 4 MiB has room for it.

        ResourceExhausted (an Error): what the layout reads, or the layouts, are over 4 MiB.
        """
        library = library_of(batch)
        plan = self._plan(batch, options, cp_size, ranks, (), library)
        if not plan.layouts and plan.needs:
            plan = self._plan(batch, options, cp_size, ranks, plan.needs, library)
        return plan

    def _plan(self, batch: Mapping[str, Any], options: Options, cp_size: int | None,
              ranks: Sequence[int], needs: Sequence[str], library: str) -> Plan:
        request = service_pb2.PlanLayoutRequest(options=options_of(options), cp_size=cp_size,
                                                ranks=check_numbers(cp_size, ranks))
        tensors = {tensor.name: tensor for tensor in add_entries(request.entries, batch)}
        sent, room = [], MAX_UNARY_BYTES - _HEADER_ROOM
        for name in dict.fromkeys((*needs, *_COUNTED)):
            if name in tensors and (name in needs or tensors[name].nbytes <= room):
                sent.append(tensors[name])
                room -= tensors[name].nbytes
        if room < 0:
            raise error_of("RESOURCE_EXHAUSTED", f"what the layout reads, {', '.join(needs)}, is "
                           f"{-room} bytes over what a call takes: shard the batch instead")
        pieces, _ = place_entries(request.entries, sent)
        reply, _ = read(service_pb2.PlanLayoutReply,
                        self._call("PlanLayout", join(request, pieces)))
        return Plan([layout_of(layout, library) for layout in reply.layouts],
                    notices_of(reply.notices), list(reply.needs), reply.chosen, reply.reason,
                    totals_of(reply.totals) if reply.HasField("totals") else None, reply)

    def shard(self, batch: Mapping[str, Any], options: Options, cp_size: int | None = None,
              ranks: Sequence[int] = (), *, tensors: str | None = None,
              executor: str = "auto") -> list[Shard]:
        """The shards of `ranks` (empty = all), in that order.

        batch: names to tensors [B, S, ...] or scalars; None is absent. Tensors that are dense and
            little endian are not copied but into the message.
        cp_size: None = no mesh, 1 = a mesh of one, which still pads.
        tensors: "numpy" or "torch"; None: as the batch's. They may be written to: the answer is
            copied once, out of the message into memory of its own, on which they are windows (a
            stream that several ranks hold whole is there once).
        executor: who shards it: "auto" leaves it to the server, "cpu", "cuda"; FailedPrecondition
            (an Error): the server has none such. The bytes are the same.
        """
        library = library_of(batch) if tensors is None else tensors
        check_library(library)
        out = OutgoingBatch(batch, options_of(options), cp_size, check_numbers(cp_size, ranks),
                            library, executor)
        if out.total_bytes <= _UNARY_BATCH_BYTES:
            try:
                return self._shard_unary(out)
            except Error as error:  # the reply may be too large for one message
                if error.code != "RESOURCE_EXHAUSTED":
                    raise
        with self._stream(executor, 1) as stream:
            return next(stream.run([out]))

    def _shard_unary(self, out: OutgoingBatch) -> list[Shard]:
        reply = self._call("ShardBatch", out.unary())
        head, body = read(service_pb2.ShardBatchReply, reply)
        shards = shards_of(head.shards, writable(body), out.library, head.executor)
        check_ranks(shards, out.cp_size, out.ranks)
        check_executor(out.executor, head.executor)
        return shards

    def shard_batches(self, batches: Iterable[Mapping[str, Any]], options: Options,
                      cp_size: int | None = None, ranks: Sequence[int] = (), *,
                      max_inflight: int = 4, tensors: str | None = None,
                      executor: str = "auto") -> Iterator[list[Shard]]:
        """The shards of every batch, in order, over one stream: up to `max_inflight` batches are
        under way, and are taken from `batches` ahead of time, on the caller's thread; what they are
        made of must not change until they are answered. A connection that breaks is made again, and
        what was not answered is sent again, for sharding has no memory. The error of one batch ends
        the iteration, and names it by its number, from 0 on. executor: as shard() takes it.
        """
        executor_number(executor)
        if max_inflight < 1:
            raise invalid(f"max_inflight is {max_inflight}; from 1 on is possible")
        message, ranks = options_of(options), check_numbers(cp_size, ranks)
        if tensors is not None:
            check_library(tensors)
        return self._run(
            (OutgoingBatch(batch, message, cp_size, ranks, tensors or library_of(batch), executor)
             for batch in batches), executor, max_inflight)

    def _run(self, batches: Iterable[OutgoingBatch], executor: str,
             max_inflight: int) -> Iterator[list[Shard]]:
        with self._stream(executor, max_inflight) as stream:
            yield from stream.run(batches)

    def _stream(self, executor: str, max_inflight: int) -> BatchStream:
        self._check_open()
        with self._lock:
            info = self._info
        info = info or self.info()
        check_knows_executors(executor, info.capabilities)
        return BatchStream(self._channel, info.limits, self._deadline, max_inflight)


def check_numbers(cp_size: int | None, ranks: Sequence[int]) -> tuple[int, ...]:
    """The ranks. InvalidArgument: one that cannot be."""
    size = None if cp_size is None else _index(cp_size)
    if cp_size is not None and (size is None or not 1 <= size < 1 << 32):
        raise invalid(f"cp_size is {cp_size!r}; from 1 on is possible, or None: no mesh")
    if not isinstance(ranks, Iterable):
        raise invalid(f"ranks are {ranks!r}; give a list of them")
    indices = []
    for given in ranks:
        rank = _index(given)
        if rank is None:
            raise invalid(f"rank {given!r} is asked for, which is no whole number")
        indices.append(rank)
        if not 0 <= rank < (cp_size or 1):
            raise invalid(f"rank {rank} is asked for, of cp_size {cp_size}: 0 ... "
                          f"{(cp_size or 1) - 1} are possible")
    return tuple(indices)


def _index(value: object) -> int | None:
    """A whole number, of numpy too; None: it is none."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    return operator.index(value)


def connect(address: str, *, deadline: float = 30.0, wait_for_ready: bool = False) -> Client:
    """A Client; see there."""
    return Client(address, deadline=deadline, wait_for_ready=wait_for_ready)

"""The connection to a server: its address, the options of the channel, errors of calls."""

from __future__ import annotations

import os
import re
import socket
import urllib.parse
from typing import Any

import grpc

from ._proto import rpc_pb2
from .errors import Error, error_of, invalid

# What gRPC for Python does at a fork unless told otherwise closes the child's copies of its sockets
# and lets threads go on in the child that write to their numbers, which others have by then: the
# tensors of a DataLoader's worker, for one. Read when gRPC is first used in the process.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

MAX_MESSAGE_BYTES = 8 << 20  # of any gRPC message, each way
MAX_UNARY_BYTES = 4 << 20    # of a ShardBatch or PlanLayout message, each way

_OPTIONS = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
            ("grpc.enable_http_proxy", 0),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.http2.max_pings_without_data", 0),  # any number, while a call waits
            ("grpc.max_reconnect_backoff_ms", 5_000)]
_LONGEST_PATH = 107  # of a unix socket
_HOST = re.compile(r"[A-Za-z0-9._-]+\Z")
_SERVICE = "/cpshard.v1.ShardService/"
_CONNECT_IN_A_FORK = ("gRPC does not work in a fork of a process that has used it; start workers with "
                      "multiprocessing's spawn or forkserver and connect in the worker")
_first_process: int | None = None  # who opened the first channel; a fork has the number of its parent


def target_of(address: str) -> str:
    """"host:port", "[v6]:port" or "unix:/path" (also "unix:///path") as gRPC takes it.
    InvalidArgument, with the reason: what is no address."""
    def refuse(why: str) -> Error:
        return invalid(f"server address '{address}': {why}; give host:port, [v6]:port or "
                       "unix:/path")

    if not isinstance(address, str):
        raise refuse(f"a {type(address).__name__} is no text")
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if path.startswith("//"):
            path = path.removeprefix("//")
            if not path.startswith("/"):
                raise refuse("unix:// is followed by an absolute path")
        if not 1 <= len(path.encode()) <= _LONGEST_PATH:
            raise refuse(f"its path has {len(path.encode())} bytes; 1 ... {_LONGEST_PATH} are "
                         "possible")
        if "\0" in path:
            raise refuse("its path holds a zero byte")
        return "unix:" + urllib.parse.quote(path, safe="/._-~")
    host, colon, port = address.rpartition(":")
    if not colon:
        raise refuse("no port")
    if not (_is_v6(host[1:-1]) if host[:1] == "[" and host[-1:] == "]" else _HOST.match(host)):
        raise refuse(f"'{host}' is no host")
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise refuse(f"port '{port}' is not 1 ... 65535")
    return address


def _is_v6(host: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except OSError:
        return False
    return True


def check_may_connect(address: str) -> str:
    """The address as gRPC takes it. InvalidArgument: it is none. FailedPrecondition: this is a fork of
    a process that has opened a channel, and a call would hang."""
    target = target_of(address)
    if _first_process not in (None, os.getpid()):
        raise error_of("FAILED_PRECONDITION", f"no connection to {address} from process "
                       f"{os.getpid()}, a fork of {_first_process}: {_CONNECT_IN_A_FORK}")
    return target


def open_channel(address: str) -> Any:
    """Errors: those of check_may_connect()."""
    global _first_process
    target = check_may_connect(address)
    _first_process = os.getpid()
    return grpc.insecure_channel(target, _OPTIONS)


def check_process(process: int, what: str) -> None:
    """FailedPrecondition: `what` was made by another process, and this is a fork of it."""
    if os.getpid() != process:
        raise error_of("FAILED_PRECONDITION", f"{what} was made in another process, {process}, and "
                       f"this is {os.getpid()}: {_CONNECT_IN_A_FORK}")


def unary(channel: Any, method: str) -> Any:
    """A callable of the method: serialised request in, serialised reply out."""
    return channel.unary_unary(_SERVICE + method)


def stream(channel: Any, method: str) -> Any:
    """Likewise for a stream each way."""
    return channel.stream_stream(_SERVICE + method)


# --- errors ---------------------------------------------------------------------------------------


def error_of_rpc(error: Any) -> Error:
    """What a call ended with, with the details that the server gave (docs/WIRE.md)."""
    reason, values, retry_after = "", {}, None
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        for detail in rpc_pb2.Status.FromString(value).details:
            kind = detail.type_url.rpartition("/")[2]
            if kind == "google.rpc.ErrorInfo":
                info = rpc_pb2.ErrorInfo.FromString(detail.value)
                if info.domain == "cpshard":
                    reason, values = info.reason, dict(info.metadata)
            elif kind == "google.rpc.RetryInfo":
                delay = rpc_pb2.RetryInfo.FromString(detail.value).retry_delay
                retry_after = delay.seconds + delay.nanos / 1e9
    return error_of(error.code().name, error.details() or "", reason, values, retry_after)


def error_of_status(status: Any) -> Error:
    """A BatchStatus: what a batch, or a request of a session, failed with."""
    retry_after = status.retry_after_ms / 1e3 if status.HasField("retry_after_ms") else None
    return error_of(status.code, status.message, status.reason, dict(status.values), retry_after)


def may_pass(error: Error) -> bool:
    """Whether the same may succeed at another time, or with another server at this address."""
    if error.code == "RESOURCE_EXHAUSTED":
        # A server says after how long there may be room, unless there never is.
        return not error.reason or error.retry_after is not None
    return error.code in ("CANCELLED", "UNKNOWN", "DEADLINE_EXCEEDED", "UNAVAILABLE", "DATA_LOSS",
                          "INTERNAL")  # of gRPC too, where a connection breaks at a bad moment

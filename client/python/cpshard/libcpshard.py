"""libcpshard.so (client/embedded/cpshard.h) by ctypes: its structures and calls, its errors as
exceptions. Only embedded.py uses it. Thread-safe; calls leave other threads of Python running."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Callable

import numpy as np
from numpy.typing import NDArray

from . import native
from .errors import error_of

OBJECT = "libcpshard.so"
ABI_VERSION = 1  # of cpshard.h

WITH_DIGEST, WITH_TOTALS = 1, 2
RUNS, INDICES, POSITIONS = 0, 1, 2


class CBytes(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class CStream(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("source", ctypes.c_char_p),
                ("writable", ctypes.c_int32), ("as_sent", ctypes.c_int32)]


class CCut(ctypes.Structure):
    _fields_ = [("source", ctypes.c_char_p), ("extent", ctypes.c_int32), ("axis", ctypes.c_int32),
                ("batch_axis", ctypes.c_int32), ("broadcast", ctypes.c_int32),
                ("rows", ctypes.c_int64), ("chunks", ctypes.c_int64),
                ("dims", ctypes.POINTER(ctypes.c_int64)), ("num_dims", ctypes.c_size_t),
                ("fill", ctypes.c_uint64)]


_LOCK = threading.Lock()
_LIBRARY: ctypes.CDLL | None = None


def loaded() -> ctypes.CDLL:
    """libcpshard.so. ImportError: it is missing, or of another version."""
    global _LIBRARY
    if _LIBRARY is None:
        with _LOCK:
            if _LIBRARY is None:
                _LIBRARY = _open()
    return _LIBRARY


def _open() -> ctypes.CDLL:
    path = native.find(OBJECT, "Build it with `ninja cpshard_embedded`")
    # Local: its Protocol Buffers and Abseil stay apart from those of others in the process.
    opened = ctypes.CDLL(str(path), os.RTLD_NOW | os.RTLD_LOCAL)
    if opened.cpshard_abi_version() != ABI_VERSION:
        raise ImportError(f"{path} has version {opened.cpshard_abi_version()} of the interface; "
                          f"this package speaks {ABI_VERSION}: build both of one source")
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    rank, number = ctypes.c_int64, ctypes.c_int32
    arguments: dict[str, list[Any]] = {
        "cpshard_needs": [ctypes.c_char_p, size, pointer, pointer],
        "cpshard_plan_create": [ctypes.c_char_p, size, pointer, size, pointer, pointer],
        "cpshard_plan_reply": [pointer, pointer, size, ctypes.c_uint32, pointer, pointer],
        "cpshard_plan_shard": [pointer, rank, ctypes.c_uint32, pointer, pointer],
        "cpshard_plan_array": [pointer, rank, number, pointer, pointer],
        "cpshard_plan_digest": [pointer, pointer, pointer],
        "cpshard_plan_stream": [pointer, size, pointer, pointer],
        "cpshard_plan_write": [pointer, pointer, size, pointer, size, pointer],
        "cpshard_plan_cut": [pointer, ctypes.c_char_p, rank, rank, pointer, pointer, pointer],
        "cpshard_plan_verify": [pointer, ctypes.c_char_p, pointer, size, pointer, size, pointer,
                                pointer, pointer, pointer],
    }
    for name, types in arguments.items():
        getattr(opened, name).argtypes = types
    for name in ("cpshard_free", "cpshard_plan_free"):
        getattr(opened, name).argtypes = [pointer]
        getattr(opened, name).restype = None
    return opened


def call(name: str, *arguments: Any) -> None:
    """A function of the library with its arguments but the last, `error`. Raises cpshard.Error."""
    error = ctypes.c_char_p()
    function: Callable[..., int] = getattr(loaded(), name)
    code = function(*arguments, ctypes.byref(error))
    if code:
        text = (error.value or b"").decode(errors="replace")
        loaded().cpshard_free(error)
        raise error_of(code, text)


def bytes_of(name: str, *arguments: Any) -> bytes:
    """What a function gives whose last output is a cpshard_bytes."""
    result = CBytes()
    call(name, *arguments, ctypes.byref(result))
    return take(result)


def take(result: CBytes) -> bytes:
    """A copy; frees what the library gave."""
    data = ctypes.string_at(result.data, result.size) if result.size else b""
    loaded().cpshard_free(result.data)
    return data


def take_numbers(result: CBytes) -> NDArray[np.int64]:
    """A copy of int64 [size / 8]; frees what the library gave."""
    numbers = np.empty(result.size // 8, np.int64)
    if result.size:
        ctypes.memmove(numbers.__array_interface__["data"][0], result.data, result.size)
    loaded().cpshard_free(result.data)
    return numbers

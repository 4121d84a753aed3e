"""What still runs when the process ends is ended before the interpreter is: a thread that is inside
of torch then would abort the process on its way back, and one of gRPC may keep a lock that the
interpreter waits for."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from typing import Any, Protocol

# That threads are waited for. One that never comes back, out of a source, must not hold up an exit.
LEAVE_SECONDS = 5.0


class Running(Protocol):
    def leave(self) -> None:
        """Ends it, without a wait. On the main thread, while others may still use it."""

    def join(self, give_up: float) -> None:
        """Waits for its threads, until `give_up` of the monotonic clock."""


_lock = threading.Lock()
_running: weakref.WeakSet[Any] = weakref.WeakSet()  # of Running
_registered = False


def end_at_exit(what: Running, anew: bool = False) -> None:
    """anew: before all that has been registered with atexit until now. So the workers of a
    DataLoader, which a source may wait for, are still there then."""
    global _registered
    with _lock:
        _running.add(what)
        if anew or not _registered:
            atexit.unregister(_end_all)
            atexit.register(_end_all)
            _registered = True


def _end_all() -> None:
    with _lock:
        running: list[Running] = list(_running)
    give_up = time.monotonic() + LEAVE_SECONDS
    for each in running:
        each.leave()
    for each in running:
        each.join(give_up)


def _in_a_fork() -> None:
    """What runs is of the parent."""
    global _lock, _running
    _lock, _running = threading.Lock(), weakref.WeakSet()


os.register_at_fork(after_in_child=_in_a_fork)


def join_until(thread: threading.Thread, give_up: float) -> None:
    """Unless it is the caller's own."""
    if thread is not threading.current_thread():
        thread.join(max(give_up - time.monotonic(), 0.0))

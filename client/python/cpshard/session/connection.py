"""A stream to a server that is kept up until something ends it: connect, greet, call; again after
every loss, with growing waits. What Loader and Rank have in common; each adds its ledger and what
it says."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from typing import Any, Callable, Iterable, Iterator

import grpc

from .._proto import service_pb2
from ..at_exit import end_at_exit, join_until
from ..channel import (check_may_connect, check_process, error_of_rpc, may_pass, open_channel, stream,
                       unary)
from ..errors import Error, error_of
from ..frames import read
from .clock import SessionClock

_GREETING_SECONDS = 15.0
_LOG = logging.getLogger("cpshard")


class SessionStream:
    """Thread-safe. Threads: the keeper, which connects and reads; a clock; gRPC's, which writes.

    Under the lock (`_changed`) nothing is done but what ledgers do: no copies, no calls.
    """

    def __init__(self, address: str, method: str) -> None:
        check_may_connect(address)
        self.address = address
        self._method = method
        self._changed = threading.Condition()
        self._clock = SessionClock()
        self._process = os.getpid()
        self._ended = False
        self._exits = False  # the process ends, and this with it
        self._outcome: Error | None = None   # what it ended with; None: well
        self._trouble: Error | None = None   # the last one; None: the connection is up
        self._channel: Any = None
        self._call: Any = None
        self._calls = 0
        self._threads = [threading.Thread(target=run, name=f"cpshard-{run.__name__.strip('_')}",
                                          daemon=True) for run in (self._keep, self._tick)]

    def _start(self) -> None:
        for thread in self._threads:
            thread.start()
        end_at_exit(self, anew=True)

    def leave(self) -> None:
        """At the end of the process."""
        self._exits = True
        self._end(error_of("CANCELLED", "the process ends"))

    def join(self, give_up: float) -> None:
        for thread in self._threads:
            join_until(thread, give_up)

    def _has_ended(self) -> bool:
        """For who waits, under the lock. A daemon's thread that would wake with the end of the
        process sleeps on: there is nobody for what it would raise."""
        while self._exits and threading.current_thread().daemon:
            self._changed.wait()
        return self._ended

    def _end(self, outcome: Error | None) -> None:
        """Ends it, if it has not ended: no further connection, no further message."""
        def end() -> None:
            if not self._ended:
                self._ended, self._outcome = True, outcome
        self._update(end)

    def _check_process(self) -> None:
        """FailedPrecondition: this is a fork of the process, without the threads and with the
        connection of another. To be asked before the lock, which may be held for ever."""
        check_process(self._process, f"the connection to {self.address}")

    def _warn(self, text: str) -> None:
        """Under the lock, which is let go of meanwhile: a log may block."""
        self._changed.release()
        try:
            _LOG.warning("%s", text)
        finally:
            self._changed.acquire()

    # --- for who inherits; under the lock but where it says otherwise

    def _postponed(self) -> bool:
        """Whether something waits to be tried again."""
        raise NotImplementedError

    def _owed(self) -> bool:
        """Whether the server owes something."""
        raise NotImplementedError

    def _try_again(self) -> None:
        raise NotImplementedError

    def _over(self) -> tuple[Error | None] | None:
        """The ledger tells of itself that it is over, and how."""
        return None

    def _connected(self) -> None:
        raise NotImplementedError

    def _disconnected(self) -> None:
        raise NotImplementedError

    def _take_messages(self) -> Iterable[bytes] | None:
        """What to write next, made outside of the lock; None: nothing now."""
        raise NotImplementedError

    def _is_final(self, error: Error, connected: bool) -> bool:
        return not may_pass(error)

    def _greeted(self, channel: Any, info: Any) -> None:
        """Without the lock. `info`: the reply of GetServerInfo. May ask the server for more; an
        error: the connection is not used."""

    def _on_message(self, message: bytes) -> None:
        """Without the lock, on the keeper's thread. An error ends it for good."""
        raise NotImplementedError

    # --- changes

    def _update(self, change: Callable[[], object]) -> None:
        """Changes something under the lock, then does what follows from the change."""
        with self._changed:
            change()
            self._settle()
            channel = self._channel if self._ended else None
        if channel is not None:
            channel.close()  # and with it all calls

    def _settle(self) -> None:
        over = self._over()
        if over is not None and not self._ended:
            self._ended, self._outcome = True, over[0]
        now = time.monotonic()
        self._clock.set_postponed(self._postponed(), now)
        self._clock.set_owed(self._owed(), now)
        self._changed.notify_all()

    # --- the connection

    def _keep(self) -> None:
        while not self._ended:
            try:
                error, connected = self._connect_and_read()
            except Exception as bug:  # of ours: whoever waits has to hear of it
                self._end(error_of("INTERNAL", f"{type(bug).__name__}: {bug}"))
                raise
            self._update(lambda: self._down(error, connected))

    def _down(self, error: Error, connected: bool) -> None:
        self._disconnected()
        wait = self._clock.disconnected(error.retry_after)
        how = "connection lost" if connected else "cannot connect"
        self._trouble = error.with_message(f"{self.address}: {how}: {error.message}")
        self._call = self._channel = None
        if not self._ended and self._is_final(error, connected):
            self._ended, self._outcome = True, error
            return
        give_up = time.monotonic() + wait
        self._changed.notify_all()
        while not self._ended and (left := give_up - time.monotonic()) > 0:
            self._changed.wait(left)

    def _connect_and_read(self) -> tuple[Error, bool]:
        """One connection, from its beginning to its end: what it ended with, and whether it was
        up."""
        connected = False
        channel = open_channel(self.address)
        try:
            with self._changed:
                self._channel = channel
            if self._ended:
                return error_of("CANCELLED", "it has ended"), False
            reply = unary(channel, "GetServerInfo")(b"", timeout=_GREETING_SECONDS)
            self._greeted(channel, read(service_pb2.GetServerInfoReply, reply)[0])
            call = self._open_call(channel)
            connected = True
            for message in call:
                self._on_message(message)
            return error_of("UNAVAILABLE", "the server has ended the stream"), True
        except grpc.RpcError as error:
            return error_of_rpc(error), connected
        except Error as error:
            if connected:  # the server sends what cannot be
                self._end(error)
            return error, connected
        except ValueError as error:  # a channel that was closed meanwhile
            return error_of("CANCELLED" if self._ended else "INTERNAL", str(error)), connected
        finally:
            channel.close()

    def _open_call(self, channel: Any) -> Any:
        def up() -> None:
            self._calls += 1
            self._clock.connected(time.monotonic())
            self._trouble = None
            self._connected()
        self._update(up)
        call = stream(channel, self._method)(self._messages(self._calls))
        with self._changed:
            self._call = call
        return call

    def _messages(self, number: int) -> Iterator[bytes]:
        """What gRPC writes on call `number`, taken by a thread of its own."""
        while True:
            with self._changed:
                while True:
                    if self._ended or number != self._calls or not self._clock.up:
                        return
                    messages = self._take_messages()
                    self._settle()
                    if messages is not None:
                        break
                    self._changed.wait()
            for message in messages:
                yield message
                self._clock.wrote(time.monotonic())  # it takes what is sent

    def _tick(self) -> None:
        with self._changed:
            while not self._ended:
                now = time.monotonic()
                if self._clock.take_again(now):
                    self._try_again()
                    self._settle()
                if self._clock.take_silence(now) and self._call is not None:
                    self._call.cancel()
                due = self._clock.next_event()
                self._changed.wait(None if due == math.inf else max(due - time.monotonic(), 0.001))
            channel = self._channel
        if channel is not None:  # a ledger may have ended it where nobody could hang up
            channel.close()

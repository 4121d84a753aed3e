"""The times of a session's client: when to connect, when to try again what was refused for now,
when a server has been silent for too long. Seconds of a monotonic clock, handed in."""

from __future__ import annotations

import math

from ..backoff import Backoff

_PAUSE = 0.2
# A server that owes an answer and gives no sign of life for so long is not waited for: nothing else
# notices one that stands still behind a unix socket.
SILENCE = 20.0


class SessionClock:
    """Not thread-safe."""

    def __init__(self, backoff: Backoff | None = None) -> None:
        self._backoff = backoff or Backoff()
        self.up = False
        self._heard = -math.inf
        self._owed = False
        self._pause = 0.0
        self._again_at = math.inf

    # --- connection

    def connected(self, now: float) -> None:
        self.up = True
        self._heard = now

    def disconnected(self, at_least: float | None = None) -> float:
        """How long to wait before the next connection. `at_least`: what the server asked for."""
        self.up = self._owed = False
        self._again_at = math.inf
        wait = self._backoff.next()
        return wait if at_least is None else max(wait, self._backoff.spread(at_least))

    def heard(self, now: float) -> None:
        """The server has said something: it works. (Connections that never get so far are made ever
        more slowly.)"""
        self._heard = now
        self._backoff.reset()

    def wrote(self, now: float) -> None:
        """It takes what is sent."""
        self._heard = now

    # --- what is outstanding

    def set_postponed(self, postponed: bool, now: float) -> None:
        """Something waits to be tried again, from now on, or not any more."""
        pause, self._pause = max(_PAUSE, self._pause), 0.0
        if not postponed:
            self._again_at = math.inf
        elif self._again_at == math.inf:
            self._again_at = now + self._backoff.spread(pause)

    def postpone_for(self, at_least: float) -> None:
        self._pause = at_least

    def take_again(self, now: float) -> bool:
        """True once: it is time."""
        if now < self._again_at:
            return False
        self._again_at = math.inf
        return True

    def set_owed(self, owed: bool, now: float) -> None:
        """The server owes something, from now on, or not any more."""
        if owed and not self._owed:
            self._heard = max(self._heard, now)
        self._owed = owed

    def take_silence(self, now: float) -> bool:
        """True once: it has been silent for too long."""
        if not (self.up and self._owed) or now < self._heard + SILENCE:
            return False
        self._heard = now
        return True

    def next_event(self) -> float:
        """When one of the above will be true."""
        if not self.up:
            return math.inf
        return min(self._again_at, self._heard + SILENCE if self._owed else math.inf)

"""Where the time goes while a trainer waits for a step."""

from __future__ import annotations

import dataclasses
import time

# Seconds that are waited before the log says for what, and between one time and the next.
FIRST_WARNING, NEXT_WARNING = 10.0, 60.0

STALL_PARTS = ("loader", "peer", "server", "copy")


@dataclasses.dataclass
class Stall:
    """Seconds that a trainer waited. What was there already costs nothing.

    loader: the step was not complete at the server: its loader was waited for.
    peer: ... or other ranks, to open or to consume.
    server: the server was away, or had the step and sent it.
    copy: from messages into this process' memory.
    """

    loader: float = 0.0
    peer: float = 0.0
    server: float = 0.0
    copy: float = 0.0

    @property
    def total(self) -> float:
        return self.loader + self.peer + self.server + self.copy

    def __iadd__(self, other: Stall) -> Stall:
        for part in STALL_PARTS:
            setattr(self, part, getattr(self, part) + getattr(other, part))
        return self

    def __sub__(self, other: Stall) -> Stall:
        return Stall(*(getattr(self, part) - getattr(other, part) for part in STALL_PARTS))


class WarningClock:
    """When a wait is to be told of in the log, again and again: nobody else says that it is one."""

    def __init__(self) -> None:
        self._due = time.monotonic() + FIRST_WARNING

    def left(self) -> float:
        """Seconds until the next time."""
        return max(self._due - time.monotonic(), 0.0)

    def take(self) -> bool:
        """True once: it is time."""
        if self.left() > 0:
            return False
        self._due = time.monotonic() + NEXT_WARNING
        return True


def who_is_in(waiting_for: str) -> str:
    """By the text that a server says it with: a loader, or else other ranks."""
    return "loader" if "loader" in waiting_for else "peer"


class WaitTally:
    """Adds up one wait. What passes before the server has said anything counts as what it says
    next; if it says nothing, as the loader's: a server that has a step sends it."""

    def __init__(self) -> None:
        self._stall, self._unknown = Stall(), 0.0

    def add(self, who: str | None, seconds: float) -> None:
        """`who`: a part of Stall; None: not known yet."""
        if who is None:
            self._unknown += seconds
            return
        if who != "server":
            seconds, self._unknown = seconds + self._unknown, 0.0
        setattr(self._stall, who, getattr(self._stall, who) + seconds)

    def finish(self, copied: float) -> Stall:
        """`copied`: what it took to copy what came meanwhile, which was counted as something
        else."""
        self._stall.loader += self._unknown
        for part in ("server", "loader", "peer"):
            moved = min(getattr(self._stall, part), copied)
            setattr(self._stall, part, getattr(self._stall, part) - moved)
            copied -= moved
            self._stall.copy += moved
        return self._stall

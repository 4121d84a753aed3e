"""How long to wait before the next try."""

from __future__ import annotations

import random

_FIRST, _LONGEST, _DOUBLINGS = 0.02, 2.0, 7


class Backoff:
    """Doubles from 20 ms to 2 s. Every wait is shortened by chance, up to half, so that the
    processes of a job do not come back to a restarted server all at once. Not thread-safe."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random()
        self._tries = 0

    def next(self) -> float:
        whole: float = min(_FIRST * 2 ** min(self._tries, _DOUBLINGS), _LONGEST)
        self._tries += 1
        return whole * (1.0 - 0.5 * self._chance.random())

    def reset(self) -> None:
        self._tries = 0

    def spread(self, wait: float) -> float:
        """A wait that somebody else asked for, up to a quarter longer."""
        return wait * (1.0 + 0.25 * self._chance.random())

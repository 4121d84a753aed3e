"""A source of choices that can be written down and replayed: what a generator is made of.

Every choice is one small number, and 0 stands for the simplest answer. A case is a function of its
list of numbers, so a smaller list is a simpler case that is as well-formed as the first one.
"""

import random
from typing import Optional, Sequence, TypeVar

T = TypeVar("T")


class Draw:
    """Draws from a random generator, or replays a list: what it lacks is 0, what is too large is
    cut. `taken` is the list that replays this draw."""

    def __init__(self, source: Optional[random.Random] = None, replay: Sequence[int] = ()):
        self._source = source
        self._replay = replay
        self.taken: list[int] = []

    def _number(self, limit: int, drawn: int) -> int:
        if self._source is None:
            position = len(self.taken)
            drawn = self._replay[position] if position < len(self._replay) else 0
        number = max(0, min(drawn, limit))
        self.taken.append(number)
        return number

    def _random(self, limit: int) -> int:
        return self._source.randint(0, limit) if self._source else 0

    def integer(self, low: int, high: int) -> int:
        """From low, the simplest, to high."""
        return low + self._number(high - low, self._random(high - low))

    def pick(self, options: Sequence[T]) -> T:
        """One of the options; the first is the simplest."""
        return options[self._number(len(options) - 1, self._random(len(options) - 1))]

    def chance(self, percent: int) -> bool:
        """False is the simplest."""
        drawn = bool(self._source) and self._source.randrange(100) < percent
        return self._number(1, int(drawn)) == 1

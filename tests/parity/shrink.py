"""Makes a failing case smaller by making its list of draws smaller."""

import itertools
from typing import Callable, Iterator, Optional, Sequence

Draws = list[int]
Cost = tuple[int, ...]
# Per list of draws the cost of its case, or None where the case does not fail (any more).
CostsOfFailing = Callable[[list[Draws]], list[Optional[Cost]]]

AT_ONCE = 500


def smaller(draws: Sequence[int]) -> Iterator[Draws]:
    """Lists that are shorter, or have a smaller number somewhere."""
    for size in (8, 4, 2, 1):
        for at in range(0, len(draws), max(1, size // 2)):
            yield [*draws[:at], *draws[at + size:]]
            yield [*draws[:at], *([0] * len(draws[at:at + size])), *draws[at + size:]]
    for at, number in enumerate(draws):
        for replaced in lower(number):
            yield [*draws[:at], replaced, *draws[at + 1:]]


def lower(number: int) -> set[int]:
    return {n for n in (0, number // 2, number - 1) if 0 <= n < number}


def smaller_and_shifted(draws: Sequence[int]) -> Iterator[Draws]:
    """A smaller number that leaves later draws over: it and a piece of those go at once."""
    for at, number in enumerate(draws):
        for replaced, size in itertools.product(lower(number), (1, 2, 3, 4, 6)):
            for cut in range(at + 1, len(draws) - size + 1):
                yield [*draws[:at], replaced, *draws[at + 1:cut], *draws[cut + size:]]


def shrink(draws: Draws, cost: Cost, costs_of_failing: CostsOfFailing,
           may_go_on: Callable[[], bool]) -> Draws:
    """The cheapest failing list that such steps lead to; asks for many lists at once."""
    going = True
    while going:
        going = False
        for step in (smaller, smaller_and_shifted):
            better = improve(step(draws), cost, costs_of_failing, may_go_on)
            if better is not None:
                cost, draws = better
                going = True
                break
    return draws


def improve(candidates: Iterator[Draws], cost: Cost, costs_of_failing: CostsOfFailing,
            may_go_on: Callable[[], bool]) -> Optional[tuple[Cost, Draws]]:
    """The cheapest of the first candidates that are cheaper; None: none of all is."""
    while may_go_on():
        tried = list(itertools.islice(candidates, AT_ONCE))
        if not tried:
            return None
        failing = [(found, candidate) for candidate, found in zip(tried, costs_of_failing(tried))
                   if found is not None and found < cost]
        if failing:
            return min(failing)
    return None

"""Compares cpshard with the real package on seeded random inputs.

parity.py --runner CONFORMANCE [--cases N] [--seed S] [--keep FOLDER] [LAYOUT...]

Per layout: generate inputs, execute the reference on them (real processes, a gloo mesh), write both
as lines of the golden corpus, and let tests/conformance compare cpshard with them. A mismatch is
made smaller and printed as one line of the corpus. Exit status 1: a mismatch, or something that a
layout allows and the run never reached.
"""

import argparse
import random
import sys
import time

import reference
from comparison import Comparison
from draw import Draw
from layouts import LAYOUTS, Layout
from shrink import shrink
from tally import Tally, table
from worlds import Worlds

AT_ONCE = 200  # cases per call of the runner
SHRINKING_S = 120
SHOWN = 5  # differences of a layout, besides the smallest
REACH_FROM = 40  # from so many cases on, all that a layout allows must have been reached


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runner", required=True, help="the program `conformance`")
    parser.add_argument("--cases", type=int, default=1000, help="per layout (1000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", metavar="FOLDER", help="where to keep all cases as a corpus")
    parser.add_argument("layouts", nargs="*", metavar="LAYOUT",
                        help="default: " + " ".join(layout.name for layout in LAYOUTS))
    arguments = parser.parse_args()
    unknown = set(arguments.layouts) - {layout.name for layout in LAYOUTS}
    if unknown:
        parser.error(f"no such layout: {' '.join(sorted(unknown))}")
    if arguments.cases < 1:
        parser.error("--cases must be positive")
    return arguments


def compare_layout(layout: Layout, cases: int, seed: int, comparison: Comparison) -> Tally:
    """Prints some differences, and one mismatch in full: the smallest that is found."""
    tally = Tally(layout)
    failing: list[tuple[int, list[int], str]] = []
    for start in range(0, cases, AT_ONCE):
        draws = [Draw(random.Random(f"{seed}/{layout.name}/{number}"))
                 for number in range(start, min(start + AT_ONCE, cases))]
        inputs = [layout.generate(draw) for draw in draws]
        for draw, result in zip(draws, comparison.run(inputs, start, tally)):
            if result.difference:
                failing.append((result.size, draw.taken, result.difference))
        if not tally.built:
            break
    failing.sort()
    for _, _, difference in failing[:SHOWN]:
        print(f"differs {layout.name}: {difference}")
    if failing:
        print_smallest(layout, *failing[0][:2], comparison)
    return tally


def print_smallest(layout: Layout, size: int, draws: list[int], comparison: Comparison) -> None:
    deadline = time.monotonic() + SHRINKING_S

    def costs_of_failing(candidates: list[list[int]]) -> list[tuple[int, ...] | None]:
        results = comparison.run([layout.generate(Draw(replay=c)) for c in candidates])
        return [(result.size, sum(candidate), len(candidate)) if result.difference else None
                for candidate, result in zip(candidates, results)]

    cost = (size, sum(draws), len(draws))
    draws = shrink(draws, cost, costs_of_failing, lambda: time.monotonic() < deadline)
    [result] = comparison.run([layout.generate(Draw(replay=draws))])
    print(f"MISMATCH {layout.name}: {result.difference}\n{result.line}", flush=True)


def main() -> int:
    arguments = parse_arguments()
    reference.prepare()
    chosen = [layout for layout in LAYOUTS
              if not arguments.layouts or layout.name in arguments.layouts]
    tallies = []
    with Worlds() as worlds:
        comparison = Comparison(worlds, arguments.runner, arguments.keep)
        for layout in chosen:
            started = time.monotonic()
            tallies.append(compare_layout(layout, arguments.cases, arguments.seed, comparison))
            print(f"{layout.name}: {time.monotonic() - started:.0f} s", flush=True)
    print(table(tallies))
    status = 1 if any(tally.failed for tally in tallies) else 0
    for tally in tallies:
        missing = tally.unreached()
        if tally.built and tally.cases >= REACH_FROM and missing:
            print(f"{tally.layout.name}: never reached {', '.join(missing)}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())

"""Plain sources: ASCII, no tabs, no trailing blanks, a newline at the end, nothing left unfinished,
no path of somebody's machine."""

import pathlib
import re
import sys

from source_tree import Violation, files, main

CHECKED = re.compile(r"\.(h|cc|cu|cuh|cmake|proto|py|md|sh)$|(^|/)CMakeLists\.txt$"
                     r"|^dev$|^\.ci/run$")
NO_TABS = re.compile(r"\.(h|cc|cu|cuh|cmake|py)$|(^|/)CMakeLists\.txt$")

# Written in pieces, so that this file keeps its own rules.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")
MACHINE_PATH = re.compile(r"(?<![\w.~$}])/(?:(?:root|home|work)/|farm\b)")


def check_text(path, data):
    """Violations in one file, given as bytes."""
    found = []

    def report(number, rule, text):
        found.append(Violation(path, number, rule, text))

    lines = data.decode("latin-1").split("\n")
    if data and not data.endswith(b"\n"):
        report(len(lines), "newline-at-end", "the last line has no newline; add one")
    for number, line in enumerate(lines, 1):
        foreign = re.search(r"[^\x00-\x7f]", line)
        if foreign:
            report(number, "ascii", f"column {foreign.start() + 1} is not ASCII; spell it in ASCII "
                   "(in a string: an escape)")
        if "\t" in line and NO_TABS.search(path):
            report(number, "tabs", "indented or aligned with a tab; use spaces")
        if line != line.rstrip():
            report(number, "trailing-blanks", "ends with blanks or a carriage return; remove them")
        unfinished = UNFINISHED.search(line)
        if unfinished:
            report(number, "unfinished", f"says {unfinished.group(0)}; finish it or file an issue")
        machine = MACHINE_PATH.search(line)
        if machine:
            report(number, "machine-path", f"names {machine.group(0)}...; use a path from the "
                   "repository root, a temporary directory or an argument")
    return found


def check(root):
    root = pathlib.Path(root)
    return [violation for path in files(root) if CHECKED.search(path)
            for violation in check_text(path, (root / path).read_bytes())]


if __name__ == "__main__":
    sys.exit(main(__doc__, check))

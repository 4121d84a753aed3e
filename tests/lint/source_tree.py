"""Which files the lint tests look at, and how they report what they find."""

import argparse
import os
import pathlib
import subprocess
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Not entered where there is no git to say what is ignored; other build trees are called build-*.
NOT_SOURCES = {"build", "__pycache__"}


class Violation(NamedTuple):
    path: str  # from the root of the tree, with slashes
    line: int
    rule: str
    text: str  # what is wrong, and the way out

    def __str__(self):
        return f"{self.path}:{self.line}: [{self.rule}] {self.text}"


def files(root):
    """Paths, from `root`, of the tracked files and of those that git does not ignore, sorted."""
    root = pathlib.Path(root)
    if (root / ".git").exists():
        # safe.directory: root runs the tests in a checkout that belongs to somebody else.
        command = ["git", "-c", "safe.directory=*", "-C", str(root), "ls-files", "-z",
                   "--cached", "--others", "--exclude-standard"]
        try:
            listing = subprocess.run(command, check=True, capture_output=True).stdout
            names = set(listing.decode().split("\0")) - {""}
            return sorted(name for name in names if (root / name).is_file())
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"git ls-files did not work ({error}); walking the tree", file=sys.stderr)
    return sorted(walk(root))


def walk(root):
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if name not in NOT_SOURCES
                    and not name.startswith("build-") and (name == ".ci" or name[0] != ".")]
        for name in names:
            yield (pathlib.Path(folder) / name).relative_to(root).as_posix()


def main(description, check):
    """Runs check(root) -> list of Violation over the tree named on the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("root", nargs="?", default=ROOT, help="the tree (default: this checkout)")
    violations = check(parser.parse_args().root)
    for violation in violations:
        print(violation)
    print(f"{len(violations)} violations" if violations else "no violations")
    return 1 if violations else 0

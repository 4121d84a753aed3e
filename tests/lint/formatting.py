"""Formats the C++ sources (--fix) or checks that they are formatted, as .clang-format says."""

import argparse
import re
import shutil
import subprocess
import sys

from source_tree import ROOT, files

VERSION = 14  # Debian 12's; others format a few lines differently
SKIPPED = 77  # ctest's SKIP_RETURN_CODE


def find_clang_format():
    """The program of the right version, or why there is none: (program, reason)."""
    found = "none"
    for name in (f"clang-format-{VERSION}", "clang-format"):
        program = shutil.which(name)
        if program:
            text = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
            found = text.strip()
            if re.search(rf"version {VERSION}\.", text):
                return program, ""
    return None, f"needs clang-format {VERSION} (Debian: clang-format), found {found}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fix", action="store_true", help="format in place")
    fix = parser.parse_args().fix
    program, reason = find_clang_format()
    if program is None:
        print(f"formatting: {reason}")
        return 1 if fix else SKIPPED
    sources = [path for path in files(ROOT) if re.search(r"\.(h|cc|cuh?)$", path)]
    if not sources:
        print("no sources")
        return 0
    if fix:
        subprocess.run([program, "-i", *sources], cwd=ROOT, check=True)
        print(f"{len(sources)} files formatted")
        return 0
    checked = subprocess.run([program, "--dry-run", "-Werror", *sources], cwd=ROOT,
                             capture_output=True, text=True)
    if checked.returncode == 0:
        print(f"{len(sources)} files are formatted")
        return 0
    lines = re.findall(r"^(.+?:\d+):\d+: ", checked.stderr, re.MULTILINE)
    print("\n".join(dict.fromkeys(lines)) or checked.stderr)
    print("not formatted; the way out: ./dev format")
    return 1


if __name__ == "__main__":
    sys.exit(main())

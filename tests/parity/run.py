"""Runs parity.py with the Python of .venv-torch: run.py [ARG...]

`./dev parity` and `./dev test full` make .venv-torch. Without it: exit status 77, ctest's
SKIP_RETURN_CODE.
"""

import os
import pathlib
import sys

SKIPPED = 77
HERE = pathlib.Path(__file__).resolve().parent
PYTHON = HERE.parents[1] / ".venv-torch" / "bin" / "python"

if __name__ == "__main__":
    if not os.access(PYTHON, os.X_OK):
        print("skipped: no Python environment .venv-torch in the checkout; ./dev parity makes it")
        sys.exit(SKIPPED)
    os.execv(PYTHON, [str(PYTHON), "-B", str(HERE / "parity.py"), *sys.argv[1:]])

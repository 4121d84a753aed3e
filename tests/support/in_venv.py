"""Runs a test with the Python of .venv: in_venv.py SCRIPT [ARG...]

`./dev test` makes .venv from tests/requirements.txt. Without it the test is skipped: exit status
77, ctest's SKIP_RETURN_CODE.
"""

import os
import pathlib
import sys

SKIPPED = 77
PYTHON = pathlib.Path(__file__).resolve().parents[2] / ".venv" / "bin" / "python"

if __name__ == "__main__":
    if not os.access(PYTHON, os.X_OK):
        print("skipped: no Python environment .venv in the checkout; ./dev test makes it")
        sys.exit(SKIPPED)
    os.execv(PYTHON, [str(PYTHON), "-B", *sys.argv[1:]])

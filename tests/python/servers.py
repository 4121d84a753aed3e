"""A cpshardd for the time of a test, the one that CPSHARDD names."""

import contextlib
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from live_server import LiveServer  # noqa: E402

CPSHARDD = os.environ.get("CPSHARDD", "cpshardd")


@contextlib.contextmanager
def serving(*arguments, address=None):
    """A LiveServer on a socket of its own, or at `address`."""
    with tempfile.TemporaryDirectory(prefix="cpshard-") as folder:
        listen = address or f"unix:{folder}/server.sock"
        with LiveServer(CPSHARDD, f"--listen={listen}", *arguments) as server:
            yield server.wait_until_listening()

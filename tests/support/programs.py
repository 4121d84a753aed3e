"""The programs under test, from the folder CPSHARD_BIN, and what the tests ask of every run."""

import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import unittest
from typing import NamedTuple

import grpc

from live_server import LiveServer
from safetensors_file import Tensor, write

BIN = pathlib.Path(os.environ["CPSHARD_BIN"])
SERVER = BIN / "cpshardd"
RUN_SECONDS = 60

# Sanitizers cost memory and time; limits on these are multiplied.
SLACK = 8 if b"__asan_init" in SERVER.read_bytes() else 1

STATUS = {code.name: code.value[0] for code in grpc.StatusCode}
USAGE = 64

# The environment of the programs: nothing of the caller's reaches them by chance, no GPU either.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith("CPSHARD_")} | {"CUDA_VISIBLE_DEVICES": ""}


class Run(NamedTuple):
    status: int  # negative: ended by that signal
    out: str
    err: str
    peak_bytes: int  # resident memory


def run(program, *arguments, environment=None):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen([str(program), *map(str, arguments)], stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=err,
                                   env={**ENVIRONMENT, **(environment or {})})
        watch = threading.Timer(RUN_SECONDS, os.kill, (process.pid, signal.SIGKILL))
        watch.start()
        _, status, usage = os.wait4(process.pid, 0)  # tells what this one process used
        watch.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "backslashreplace"))
        return Run(process.returncode, *texts, usage.ru_maxrss * 1024)


def cpshard(*arguments):
    return run(BIN / "cpshard", *arguments)


def cpshardd(*arguments, environment=None):
    """For runs that end by themselves."""
    return run(SERVER, *arguments, environment=environment)


def write_batch(path, batch):
    """A batch as a file: scalars go to the metadata, as JSON unless they are strings."""
    tensors = {name: value for name, value in batch.items() if isinstance(value, Tensor)}
    metadata = {name: value if isinstance(value, str) else str(value).lower()
                for name, value in batch.items() if not isinstance(value, Tensor)}
    return write(path, tensors, metadata or None)


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class ProgramTest(unittest.TestCase):
    """A test with a temporary folder, `self.folder`."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cpshard-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, *arguments, count=1, environment=None):
        """A server that is killed at the end of the test if it still runs then."""
        server = LiveServer(SERVER, *arguments, environment={**ENVIRONMENT, **(environment or {})})
        self.addCleanup(server.__exit__)
        return server.wait_until_listening(count)

    def succeeds(self, result):
        self.assertEqual(result.status, 0, result.err)
        return result

    def refused(self, result, code, *texts):
        """One line `error: CODE: text` with all of `texts`, and the code's number as the status."""
        self.assertEqual(result.status, STATUS[code], result)
        self.assertRegex(result.err, rf"\Aerror: {code}: [^\x00-\x1f\x7f]+\n\Z")
        for text in texts:
            self.assertIn(text, result.err)

    def usage_error(self, result, text):
        self.assertEqual(result.status, USAGE, result)
        self.assertIn(text, result.err)


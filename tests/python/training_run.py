"""A training run of real processes - a server, loaders, ranks - in which any may be killed and
started again."""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

SUPPORT = pathlib.Path(__file__).resolve().parents[1] / "support"
sys.path.insert(0, str(SUPPORT))
from live_server import LiveServer  # noqa: E402

CPSHARDD = os.environ.get("CPSHARDD", "cpshardd")
PROCESS = pathlib.Path(__file__).with_name("session_process.py")
PATIENCE = 60


class TrainingRun:
    """lines: of every rank, what it has said of the steps that it consumed, whichever process."""

    def __init__(self, ranks=2, loaders=2, columns=30, pace=0.04):
        self.ranks, self.loaders, self.columns, self.pace = ranks, loaders, columns, pace
        self.folder = tempfile.TemporaryDirectory(prefix="cpshard-run-")
        self.address = f"unix:{self.folder.name}/server.sock"
        self.generation = 1
        self.lines = collections.defaultdict(list)
        self._processes, self._incarnations = {}, collections.Counter()
        self._changed = threading.Condition()
        self.server = None

    def __enter__(self):
        self.start_server()
        return self

    def __exit__(self, *_):
        for name in list(self._processes):
            self.kill(name)
        self.server.__exit__()
        self.folder.cleanup()

    # --- the server

    def start_server(self):
        path = pathlib.Path(self.address.removeprefix("unix:"))
        path.unlink(missing_ok=True)
        self.server = LiveServer(CPSHARDD, f"--listen={self.address}").wait_until_listening()

    def kill_server(self):
        self.server.process.kill()
        self.server.__exit__()

    # --- loaders and ranks

    def start_all(self, **rank_settings):
        for index in range(self.loaders):
            self.start_loader(index)
        for rank in range(self.ranks):
            self.start_rank(rank, **rank_settings)

    def start_loader(self, index):
        self._start(f"loader {index}", "loader", {
            "loader": index, "num_loaders": self.loaders, "columns": self.columns,
            "generation": self.generation})

    def start_rank(self, rank, **settings):
        self._start(f"rank {rank}", "rank", {
            "cp_rank": rank, "cp_size": self.ranks, "generation": self.generation,
            "pace": self.pace, **settings})

    def _start(self, name, kind, settings):
        self._incarnations[name] += 1
        settings |= {"address": self.address, "incarnation": self._incarnations[name]}
        process = subprocess.Popen(
            [sys.executable, "-B", str(PROCESS), kind, json.dumps(settings)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        reader = threading.Thread(target=self._read, args=(name, process), daemon=True)
        self._processes[name] = (process, reader)
        reader.start()

    def _read(self, name, process):
        for line in process.stdout:
            with self._changed:
                self.lines[name].append(json.loads(line))
                self._changed.notify_all()

    def kill(self, name):
        """SIGKILL; what it had said by then is in `lines`."""
        process, reader = self._processes.pop(name)
        process.kill()
        process.wait()
        reader.join()
        process.stdout.close()
        process.stderr.close()

    def wait_for_steps(self, name, count):
        with self._changed:
            there = self._changed.wait_for(lambda: len(self.lines[name]) >= count, PATIENCE)
        assert there, f"{name} has consumed {len(self.lines[name])} of {count} steps"

    def check_in_the_middle(self, steps):
        """No rank has come to its end."""
        assert all(len(self.lines[f"rank {rank}"]) < steps for rank in range(self.ranks))

    def finish(self):
        """Waits for the end of all: AssertionError, with what it said, of one that did not end
        well."""
        for name in sorted(self._processes):
            process, reader = self._processes.pop(name)
            try:
                status = process.wait(PATIENCE)
            finally:
                process.kill()
                reader.join()
            assert status == 0, f"{name} ended with {status}: {process.stderr.read()}"
            process.stdout.close()
            process.stderr.close()

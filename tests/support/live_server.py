"""A cpshardd for the time of a test.

As a program: live_server.py CPSHARDD tcp|unix COMMAND... starts the server on a free port of
127.0.0.1 or on a socket in a temporary folder, runs the command, stops the server with SIGTERM and
ends with the command's exit status - or 1 when the server's is not 0. In the command {address} is
the server's address and {python} the Python that runs this.
"""

import os
import pathlib
import queue
import signal
import subprocess
import sys
import tempfile
import threading

START_SECONDS = 20
STOP_SECONDS = 35


class LiveServer:
    """A running server: `addresses` as it prints them; `log` is a file with its standard error.
    `environment`: all of it, absent = the caller's. `stderr`: where its log goes instead."""

    def __init__(self, program, *arguments, environment=None, stderr=None):
        self.log = tempfile.NamedTemporaryFile(prefix="cpshardd-", suffix=".log")
        self.process = subprocess.Popen(
            [str(program), *map(str, arguments)], stdout=subprocess.PIPE,
            stderr=stderr or self.log, env=environment, text=True)
        self.addresses = []
        self._lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def wait_until_listening(self, count=1):
        """Waits for `count` addresses. RuntimeError: the server ends before that."""
        while len(self.addresses) < count:
            line = self._lines.get(timeout=START_SECONDS)
            if line is None:
                raise RuntimeError(f"cpshardd ended with {self.process.wait()}: {self.log_text()}")
            if line.startswith("listening on "):
                self.addresses.append(line.split(" on ", 1)[1].strip())
        return self

    @property
    def address(self):
        return self.addresses[0]

    def log_text(self):
        return pathlib.Path(self.log.name).read_text()

    def signal(self, number):
        os.kill(self.process.pid, number)

    def stop(self):
        """SIGTERM, then the exit status; a server that does not end is killed (status -9)."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


def main(program, transport, *command):
    with tempfile.TemporaryDirectory(prefix="cpshard-") as folder:
        listen = "127.0.0.1:0" if transport == "tcp" else f"unix:{folder}/server.sock"
        with LiveServer(program, f"--listen={listen}") as server:
            server.wait_until_listening()
            names = {"{address}": server.address, "{python}": sys.executable}
            for name, value in names.items():
                command = [part.replace(name, value) for part in command]
            status = subprocess.run(command).returncode
            stopped = server.stop()
            clean = stopped == 0 and '"buffers_out":"0"' in server.log_text()
            if not clean:
                print(f"cpshardd ended with {stopped} after SIGTERM: {server.log_text()}")
            return status or (0 if clean else 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

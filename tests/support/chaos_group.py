"""One group of real processes: a cpshardd, loaders and ranks that are those of `cpshard demo
--chaos`, one of which is killed or stopped at a moment that another one waits for.

Loaders and ranks say where they are, one JSON object a line (client/cli/demo/chaos_report.h), and
wait at the moments of `holds` ("step/train/0/7") until they are told to go on.
"""

import json
import queue
import signal
import subprocess
import tempfile
import threading

from live_server import LiveServer
from programs import BIN, ENVIRONMENT, SERVER, SLACK

RANKS = 4
SILENCE = 60 * SLACK  # seconds without a word of any process


class Member:
    """A process, of which nothing is left when the next one of its name begins."""

    def __init__(self, name, arguments, environment, events):
        self.name = name
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [str(BIN / "cpshard"), *map(str, arguments)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.errors, env=environment)
        self.reader = threading.Thread(target=self._read, args=(events,), daemon=True)
        self.reader.start()

    def _read(self, events):
        for line in self.process.stdout:
            if line.endswith(b"\n"):  # else a kill has cut it off
                events.put((self, json.loads(line)))
        events.put((self, None))

    def go_on(self):
        try:
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended

    def error_text(self):
        self.errors.seek(0)
        return self.errors.read().decode("utf-8", "backslashreplace")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.errors.close()


def moment_of(line):
    return f"{line['event']}/{line['stream']}/{line['pass']}/{line['step']}"


class ChaosGroup:
    """`work`: options of the processes. `holds`: moments by the name of the process, "rank 0".

    `consumed`: per rank the addresses (stream, pass, step) in the order of its reports.
    `shards`: by (stream, pass, step, microbatch, rank) the digests of batch and shard, as first
    reported. `differences`: what ranks found, and digests that were reported twice and differ.
    """

    def __init__(self, folder, work, holds=None):
        self.address = f"unix:{folder}/server.sock"
        self.words = [f"--{name.replace('_', '-')}={value}" for name, value in work.items()]
        self.loaders = work["loaders"]
        self.holds = holds or {}
        self.failpoints = {}  # name -> CPSHARD_FAILPOINTS of the process (core/batch/failpoint.h)
        self.members = {}
        self.consumed = {rank: [] for rank in range(RANKS)}
        self.shards = {}
        self.differences = []
        self.longest_wait = 0.0  # of a rank for one step
        self.server = None
        self.states = {}
        self._been = set()  # names and moments
        self._done = set()
        self._events = queue.Queue()

    # --- processes

    def start(self):
        self.start_server()
        for number in range(self.loaders):
            self.start_member(f"loader {number}")
        for number in range(RANKS):
            self.start_member(f"rank {number}")

    def start_server(self):
        # A server that drains waits for ranks that train, for so long; and one that comes back while
        # the last ones close waits for those whom the one before has answered.
        self.server = LiveServer(SERVER, f"--listen={self.address}", "--ahead-steps=4",
                                 "--shutdown-seconds=2", "--rank-timeout-seconds=15",
                                 environment=ENVIRONMENT).wait_until_listening()

    def start_member(self, name):
        self._done.discard(name)
        kind, number = name.split()
        arguments = [f"demo-chaos-{kind}", f"--{kind}={number}", f"--server={self.address}",
                     *self.words, *(f"--hold={moment}" for moment in self.holds.get(name, ()))]
        if name in self.states:
            arguments.append(f"--state={self.states[name]}")
        environment = dict(ENVIRONMENT)
        if name in self.failpoints:
            environment["CPSHARD_FAILPOINTS"] = self.failpoints[name]
        self.members[name] = Member(name, arguments, environment, self._events)

    def kill(self, name):
        """SIGKILL. What it said before counts."""
        if name == "server":
            self.server.__exit__()
            return
        self.members[name].process.kill()
        self.wait_for_death(name)

    def start_again(self, name):
        """It waits at no moment any more, and dies at no failpoint."""
        self.holds.pop(name, None)
        self.failpoints.pop(name, None)
        if name == "server":
            self.start_server()
        else:
            self.start_member(name)

    def go_on(self, name):
        """It waits at a moment, or is about to."""
        self.members[name].go_on()

    def signal(self, name, number):
        process = self.server.process if name == "server" else self.members[name].process
        process.send_signal(number)

    def end(self):
        """Leaves nothing behind."""
        for member in self.members.values():
            if not member.process.stdout.closed:
                member.close()
        if self.server is not None:
            self.server.__exit__()

    # --- what they say

    def wait_for(self, name, moment):
        """Until this process has been at this moment."""
        while (name, moment) not in self._been:
            self._take()

    def wait_for_death(self, name):
        """Its exit status."""
        process = self.members[name].process
        while not process.stdout.closed:
            self._take()
        return process.returncode

    def finish(self):
        """Until all loaders and ranks have ended, with exit status 0."""
        while len(self._done) < self.loaders + RANKS:
            self._take()

    def _take(self):
        try:
            member, line = self._events.get(timeout=SILENCE)
        except queue.Empty:
            raise AssertionError(f"no process said anything for {SILENCE} s; rank 0 to 3 consumed "
                                 f"{[len(steps) for steps in self.consumed.values()]} steps; "
                                 f"the server said: {self.server.log_text()}") from None
        if line is None:
            self._ended(member)
            return
        self._been.add((member.name, moment_of(line)))
        if member.name.startswith("rank"):
            self._add(member.name, line)

    def _ended(self, member):
        status = member.process.wait()
        if status == 0:
            self._done.add(member.name)
        elif status != -signal.SIGKILL:
            raise AssertionError(f"{member.name} ended with {status}: {member.error_text()}")
        member.close()

    def _add(self, name, line):
        rank = int(name.split()[1])
        self.states[name] = line["state"]
        if line["event"] != "step":
            return
        address = (line["stream"], line["pass"], line["step"])
        self.consumed[rank].append(address)
        self.longest_wait = max(self.longest_wait, line["waited"])
        if line["difference"]:
            self.differences.append(f"{name}, {address}: {line['difference']}")
        for number, digests in enumerate(zip(line["batches"], line["shards"])):
            first = self.shards.setdefault((*address, number, rank), digests)
            if first != digests:
                self.differences.append(f"{name}, {address}: {digests} after {first}")

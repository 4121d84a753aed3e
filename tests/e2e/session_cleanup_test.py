"""However a call of a session ends - cancelled, past its deadline, its peer killed, the server shut
down - the server lets go of everything that it held for the call, and of all the rest once the
group is over."""

import pathlib
import signal
import subprocess
import sys
import time
import unittest

import grpc

import session_child
from session_calls import CALLS, OPTIONS, batch_of
from session_test import SessionTest
from sessions import Loader, end_sessions, open_group
from stream_case import SETTLE_SECONDS
from stubs import session_pb2


def held_by_calls(counters):
    return {name: getattr(counters, name) for name in ("sessions", "loaders")
            if getattr(counters, name)}


def held_by_groups(counters):
    return {name: getattr(counters, name) for name in ("session_bytes", "buffers_out", "bytes_out")
            if getattr(counters, name)}


class CleanUp(SessionTest):
    def check_clean(self, served, call):
        served.wait_for(self, lambda counters: not held_by_calls(counters))
        if call == "half_a_batch":  # nothing has landed
            served.wait_for(self, lambda counters: counters.buffers_out == 0)
        end_sessions(served.stub)
        served.wait_for(self, lambda counters: not held_by_groups(counters))

    def child(self, served, name):
        child = subprocess.Popen(
            [sys.executable, "-B", session_child.__file__, served.address, name],
            stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def test_calls_that_are_cancelled(self):
        for name, begin in CALLS.items():
            with self.subTest(call=name):
                served = self.serve()
                begin(served.stub, 60).cancel()
                self.check_clean(served, name)

    def test_calls_that_are_past_their_deadline(self):
        for name, begin in CALLS.items():
            with self.subTest(call=name):
                served = self.serve()
                call = begin(served.stub, 2)
                self.assertEqual(self.code_of(call), "DEADLINE_EXCEEDED")
                self.check_clean(served, name)

    def test_calls_whose_peer_is_killed(self):
        children = []
        for name in CALLS:
            served = self.serve()
            children.append((name, served, self.child(served, name)))
        for name, served, child in children:
            with self.subTest(call=name):
                self.assertEqual(child.stdout.readline(), "waiting\n")
                child.kill()
                self.check_clean(served, name)

    def stopped_reader(self, served):
        """A process that is stopped while shards are sent to it."""
        loader = Loader(served.stub)
        child = self.child(served, "many_wants")
        self.assertEqual(child.stdout.readline(), "waiting\n")
        group = session_pb2.DumpGroupRequest(group="g")
        while served.stub.DumpGroup(group, timeout=10).group.readers[0].wants < 6:
            time.sleep(0.01)
        child.send_signal(signal.SIGSTOP)
        for step in range(6):
            loader.credit(step)
            self.assertFalse(loader.push(step, batch_of(30_000)).HasField("status"))
        loader.cancel()
        self.assertGreater(served.counters().sessions, 0)

    def test_a_reader_that_is_stopped_is_cut_off_when_another_generation_opens(self):
        served = self.serve("--stall-seconds=600")
        self.stopped_reader(served)
        end_sessions(served.stub)
        served.wait_for(self, lambda counters: not held_by_calls(counters))
        served.wait_for(self, lambda counters: not held_by_groups(counters))

    def test_a_reader_that_is_stopped_is_cut_off_after_the_stall_time(self):
        served = self.serve("--stall-seconds=2")
        others = open_group(served.stub, OPTIONS, group="other")
        self.stopped_reader(served)
        loader = Loader(served.stub, group="other")
        loader.push(0, batch_of(), epoch=loader.position().epoch)
        for reader in others:  # meanwhile
            self.assertIsNone(reader.shards(reader.want(0))[0].status)
            reader.cancel()
        loader.cancel()
        served.wait_for(self, lambda counters: not held_by_calls(counters), 2 + SETTLE_SECONDS)
        self.assertEqual(served.counters().streams_stalled, 1)

    def test_calls_of_a_server_that_shuts_down(self):
        for name, begin in CALLS.items():
            with self.subTest(call=name):
                served = self.serve("--shutdown-seconds=2")
                call = begin(served.stub, 60)
                begun = time.monotonic()
                served.server.signal(signal.SIGTERM)
                code = self.code_of(call)
                self.assertIn(code, ("UNAVAILABLE", "CANCELLED"))
                self.assertEqual(served.server.process.wait(20), 0)
                if name != "half_a_batch" and name != "idle_pull":
                    self.assertEqual(code, "UNAVAILABLE")
                    self.assertLess(time.monotonic() - begun, 2, "it waited for its grace")
                log = pathlib.Path(served.server.log.name).read_text()
                self.assertIn('"buffers_out":"0"', log)

    def code_of(self, call):
        try:
            return call.code().name
        except grpc.RpcError as error:
            return error.code().name


if __name__ == "__main__":
    unittest.main()

"""A server that loses its device, again and again, and is started again each time: streams and
sessions end with the bytes of a run in which nothing happens. The device is an emulated one.

CPSHARD_SEED: that of a run that failed.
"""

import os
import pathlib
import random
import subprocess
import unittest

from device_server import ON_DEVICE, DeviceTest, lines_of
from kill_matrix_test import WORK, Running, expected_order
from live_server import LiveServer
from programs import BIN, ENVIRONMENT, SLACK

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
SEED = os.environ.get("CPSHARD_SEED") or str(random.randrange(10**9))
DEVICE_LOST = 86
LOSSES = 4  # of a run of the corpus, TIMES one after the other ...
TIMES, MOST_BETWEEN = 3, 150  # ... which has over 1,000 batches: it outlasts them
MOMENTS = [("before the first step", "opened//0/0"),
           ("after 3 steps", "step/train/0/2"),
           ("after a step of a validation pass", "step/validation/0/0")]


class OnDevice(Running):
    """A group whose server shards on a device."""

    def start_server(self):
        self.lost = pathlib.Path(self.folder.name) / "lost"
        self.server = LiveServer(
            ON_DEVICE, f"--listen={self.address}", "--ahead-steps=4", "--executor=cuda",
            "--shutdown-seconds=2", "--rank-timeout-seconds=15",
            environment={**ENVIRONMENT, "CPSHARD_STAND_IN_LOST": str(self.lost)})
        self.server.wait_until_listening()

    def lose_device(self):
        """With the next batch; then the server ends, and is started again."""
        self.lost.touch()

    def start_again_when_lost(self):
        status = self.server.process.wait(30 * SLACK)
        self.lost.unlink()
        log = self.server.log_text()
        self.server.__exit__()
        self.start_server()
        return status, log


class Sessions(unittest.TestCase):
    def check_equal(self, group, expected):
        self.assertEqual(group.differences, [])
        for steps in group.consumed.values():
            self.assertEqual(steps, expected_order(WORK))
        self.assertEqual(group.shards, expected)

    def test_ranks_get_what_they_would_have_got_of_a_server_on_the_cpu(self):
        with Running(WORK, []) as group:
            group.start()
            group.finish()
            expected = group.shards
        with OnDevice(WORK, []) as group:
            group.start()
            group.finish()
            self.check_equal(group, expected)
        for words, moment in MOMENTS:
            with self.subTest(when=words), OnDevice(WORK, [("rank 0", moment)]) as group:
                group.start()
                group.wait_for("rank 0", moment)
                group.lose_device()
                group.go_on("rank 0")
                status, log = group.start_again_when_lost()
                self.assertEqual(status, DEVICE_LOST, log)
                group.finish()
                self.check_equal(group, expected)
                group.check_nothing_is_held(self)
                print(f"device lost {words}: equal, longest wait {group.longest_wait:.2f} s",
                      flush=True)


class Streams(DeviceTest):
    def test_a_client_sends_its_batches_again_and_the_corpus_passes(self):
        print(f"CPSHARD_SEED={SEED}", flush=True)
        choice = random.Random(SEED)
        address = f"unix:{self.folder}/server"
        served = self.serve_device(address=address)
        corpus = sorted(map(str, GOLDEN.glob("*.json*")))
        client = subprocess.Popen(
            [BIN / "conformance", "--corpus", *TIMES * corpus, "--server", address, "--stream"],
            stdout=subprocess.PIPE, text=True)
        self.addCleanup(client.stdout.close)
        self.addCleanup(client.kill)
        for _ in range(LOSSES):
            answered = choice.randrange(MOST_BETWEEN)
            served.wait_for(self, lambda counters: counters.batches_sharded >= answered)
            self.lost.touch()
            status = served.server.process.wait(30 * SLACK)
            self.assertEqual(status, DEVICE_LOST, served.server.log_text())
            self.assertEqual(len(lines_of(served.server, "the CUDA device is lost")), 1)
            self.assertIn('"buffers_out":"0"', served.server.log_text())
            self.lost.unlink()
            served = self.serve_device(address=address)
        said, _ = client.communicate(timeout=120 * SLACK)
        self.assertEqual(client.returncode, 0, said)
        self.assertRegex(said.splitlines()[-1], r"\A[0-9]{4,} passed, 0 failed, ")
        print(said.splitlines()[-1], flush=True)


if __name__ == "__main__":
    unittest.main()

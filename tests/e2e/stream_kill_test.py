"""Seeded rounds of clients that cancel, run out of time, are killed or stopped and killed, at any
moment of a batch: afterwards the server holds nothing and answers rightly.

CPSHARD_ROUNDS: how many, 150 by default. CPSHARD_SEED: those of a run that failed.
"""

import concurrent.futures
import multiprocessing
import os
import random
import signal
import time
import unittest

import dying_client
from programs import SLACK
from stream_case import StreamTest, held

ROUNDS = int(os.environ.get("CPSHARD_ROUNDS", "150"))
SEED = os.environ.get("CPSHARD_SEED") or str(random.randrange(10**9))
AT_ONCE = 3  # clients


class Kills(StreamTest):
    def run_client(self, address, seed):
        """ROUNDS of a client, then it is killed; every second time it was stopped before."""
        choice = random.Random(f"kill {seed}")
        here, there = self.context.Pipe()
        process = self.context.Process(target=dying_client.main, args=(address, seed, there))
        process.start()
        there.close()
        try:
            phase = here.recv() if here.poll(60 * SLACK) else None
        except EOFError:
            phase = None
        time.sleep(choice.uniform(0, 0.02))
        if phase and choice.random() < 0.5:
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(choice.uniform(0, 0.2))
        process.kill()
        process.join()
        return phase

    def test_clients_that_end_badly_leave_nothing_behind(self):
        print(f"CPSHARD_SEED={SEED} CPSHARD_ROUNDS={ROUNDS}", flush=True)
        # Forked from a process that has no channels, and the stubs at hand.
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["dying_client"])
        served = self.serve(listen=f"127.0.0.1:0,unix:{self.folder}/s", count=2)
        addresses = served.server.addresses
        clients = range(ROUNDS // (dying_client.ROUNDS + 1))
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            phases = list(pool.map(
                lambda number: self.run_client(addresses[number % 2], f"{SEED}-{number}"), clients))
        self.assertEqual([number for number in clients if phases[number] is None], [],
                         "clients that did not come to their last round")
        served.wait_for(self, lambda counters: not held(counters) and counters.connections == 1)
        self.assertEqual(served.counters().streams_stalled, 0)
        self.check_stream(served.stream())
        other = self.serve_client(addresses[1])
        self.check_stream(other)
        self.assertEqual(served.server.stop(), 0)

    def serve_client(self, address):
        channel, _ = dying_client.connect(address)
        self.addCleanup(channel.close)
        return self._served[0].stream(channel)


if __name__ == "__main__":
    unittest.main()

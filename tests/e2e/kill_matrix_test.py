"""Server, loader and rank, killed or stopped for a while at chosen moments of a training run with
validation: every rank consumes the same steps, in the same order, each once, with the same bytes as
in a run in which nothing happens.

CPSHARD_ROUNDS: how many runs with several blows, 5 by default. CPSHARD_SEED: that of a run that
failed.
"""

import os
import pathlib
import random
import signal
import tempfile
import time
import unittest

from chaos_group import RANKS, ChaosGroup
from programs import BIN
from stubs import connect, service_pb2

ROUNDS = int(os.environ.get("CPSHARD_ROUNDS", "5"))
SEED = os.environ.get("CPSHARD_SEED") or str(random.randrange(10**9))
WORK = {"loaders": 3, "steps": 16, "microbatches": 2, "validate_every": 5, "validation_steps": 3,
        "length": 510}
# What a rank waits at: the words for it, and the moment.
MOMENTS = [("before the first step", "opened//0/0"),
           ("after 4 steps", "step/train/0/3"),
           ("after a step of a validation pass", "step/validation/0/0"),
           ("at the end of a validation pass", "end/validation/1/3"),
           ("between two passes", "left/validation/1/0"),
           ("one step before the end", "step/train/0/14"),
           ("at the end", "end/train/0/16")]
# Batches of several frames: the blow falls while they are on their way.
LARGE = {"loaders": 3, "steps": 8, "microbatches": 2, "length": 25_000}
BLOWS = [("kill", "server"), ("kill", "server and rank 1"), ("kill", "server and loader 0"),
         ("kill", "server and rank 2 and rank 3 and loader 1"), ("kill", "rank 1 and loader 2"),
         ("kill", "rank 1"), ("kill", "rank 2"), ("kill", "loader 0"), ("kill", "loader 2"),
         ("stop", "server"), ("stop", "rank 3"), ("stop", "loader 1"), ("drain", "server")]
WORDS = {"kill": "SIGKILL", "stop": "SIGSTOP", "drain": "SIGTERM"}
# Of a build with -DCPSHARD_FAILPOINTS=ON.
FAILPOINTS = [("loader 1", "after_hello"), ("loader 1", "after_push_frame"),
              ("loader 1", "before_ack"), ("loader 1", "after_ack"), ("rank 1", "after_open"),
              ("rank 1", "after_delivery"), ("rank 1", "before_commit")]
HAS_FAILPOINTS = b"CPSHARD_FAILPOINTS" in (BIN / "cpshard").read_bytes()


def expected_order(work):
    """The steps of one rank: training, and now and then a pass of validation."""
    order, passes = [], 0
    for step in range(work["steps"]):
        order.append(("train", 0, step))
        if "validate_every" in work and (step + 1) % work["validate_every"] == 0:
            order += [("validation", passes, number) for number in range(work["validation_steps"])]
            passes += 1
    return order


class KillMatrix(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"CPSHARD_SEED={SEED}", flush=True)
        cls.choice = random.Random(SEED)
        cls.fault_free = cls.run_without_faults(WORK)

    @staticmethod
    def run_without_faults(work):
        with Running(work, []) as group:
            group.start()
            group.finish()
        return group

    def check_equal(self, group, fault_free):
        self.assertEqual(group.differences, [])
        for rank in range(RANKS):
            self.assertEqual(group.consumed[rank], expected_order(group.work), f"rank {rank}")
        self.assertEqual(group.shards, fault_free.shards)

    def check_cell(self, act, victim, words, moment, waits="rank 0", fault_free=None):
        """`act` is done to the victim when `waits` is at the moment, and lets that go on."""
        fault_free = fault_free or self.fault_free
        with self.subTest(victim=victim, act=act.__name__, when=words), \
             Running(fault_free.work, [(waits, moment)]) as group:
            group.start()
            away = self.strike(group, act, victim, waits, moment)
            self.check_rest(group, fault_free)
            print(f"{victim} {WORDS[act.__name__]} {words}: equal, "
                  f"{len(group.consumed[0])} steps x {RANKS} ranks, away {away:.2f} s, "
                  f"longest wait {group.longest_wait:.2f} s", flush=True)

    def strike(self, group, act, victim, waits, moment):
        """How long it took."""
        group.wait_for(waits, moment)
        begin = time.monotonic()
        act(group, victim, waits)
        return time.monotonic() - begin

    def check_rest(self, group, fault_free):
        group.finish()
        self.check_equal(group, fault_free)
        group.check_nothing_is_held(self)

    def check_all(self, act, victim):
        for words, moment in MOMENTS:
            self.check_cell(act, victim, words, moment)

    # --- what is done to the victim

    def kill(self, group, victims, waits):
        if not group.at_end:
            group.go_on(waits)
            time.sleep(self.choice.uniform(0, 0.03))  # anywhere in what follows
        for victim in victims.split(" and "):
            group.kill(victim)
        time.sleep(self.choice.uniform(0, 0.3))
        for victim in victims.split(" and "):
            group.start_again(victim)
        # All ranks close now. A server that died while it answers them would leave some of them
        # waiting for those that have gone: nobody can know that.
        if group.at_end:
            group.go_on(waits)

    def stop(self, group, victim, waits):
        group.signal(victim, signal.SIGSTOP)
        group.go_on(waits)
        time.sleep(self.choice.choice([0.5, 0.5, 0.5, 1, 2]))
        group.signal(victim, signal.SIGCONT)

    def drain(self, group, victim, waits):
        group.signal(victim, signal.SIGTERM)
        group.go_on(waits)
        self.assertEqual(group.server.stop(), 0, group.server.log_text())
        group.kill(victim)
        group.start_again(victim)

    # --- the matrix

    def test_a_run_without_faults_is_in_order_and_as_the_contract_says(self):
        self.check_equal(self.fault_free, self.fault_free)
        self.assertEqual(len(self.fault_free.shards),
                         len(expected_order(WORK)) * WORK["microbatches"] * RANKS)

    def test_a_server_that_is_killed_and_started_again_changes_nothing(self):
        self.check_all(self.kill, "server")

    def test_a_server_that_drains_and_is_started_again_changes_nothing(self):
        self.check_all(self.drain, "server")

    def test_a_server_that_stands_still_for_a_while_changes_nothing(self):
        self.check_all(self.stop, "server")

    def test_a_loader_that_is_killed_and_started_again_changes_nothing(self):
        self.check_all(self.kill, "loader 1")

    def test_a_loader_that_stands_still_for_a_while_changes_nothing(self):
        self.check_all(self.stop, "loader 1")

    def test_a_rank_that_is_killed_and_goes_on_from_its_own_state_changes_nothing(self):
        self.check_all(self.kill, "rank 1")

    def test_a_rank_that_stands_still_for_a_while_changes_nothing(self):
        self.check_all(self.stop, "rank 1")

    def test_a_kill_in_the_middle_of_large_batches_changes_nothing(self):
        fault_free = self.run_without_faults(LARGE)
        for victim in ("server", "loader 1", "rank 1"):
            self.check_cell(self.kill, victim, "while a loader makes step 4", "making/train/0/4",
                            "loader 1", fault_free)

    @unittest.skipUnless(HAS_FAILPOINTS, "built without failpoints")
    def test_a_kill_at_a_failpoint_changes_nothing(self):
        for victim, place in FAILPOINTS:
            once = place in ("after_hello", "after_open")  # of every connection
            times = 1 if once else self.choice.randint(1, 8)
            with self.subTest(victim=victim, place=place, times=times), \
                 Running(WORK, []) as group:
                group.failpoints[victim] = f"{place}=kill@{times}"
                group.start()
                self.assertEqual(group.wait_for_death(victim), -signal.SIGKILL)
                group.start_again(victim)
                self.check_rest(group, self.fault_free)
                print(f"{victim} killed at {place}, time {times}: equal", flush=True)

    def test_blow_after_blow_changes_nothing(self):
        for number in range(ROUNDS):
            choice = self.choice = random.Random(f"{SEED}-{number}")
            steps = sorted(choice.sample(range(WORK["steps"]), 4))
            moments = [("rank 0", f"step/train/0/{step}") for step in steps]
            told = []
            with self.subTest(round=number, blows=told), Running(WORK, moments) as group:
                group.start()
                for waits, moment in moments:
                    act, victim = choice.choice(BLOWS)
                    self.strike(group, getattr(self, act), victim, waits, moment)
                    told.append(f"{victim} {WORDS[act]} at {moment}")
                self.check_rest(group, self.fault_free)
                print(f"{'; '.join(told)}: equal, longest wait {group.longest_wait:.2f} s",
                      flush=True)

    def test_a_rank_that_goes_on_from_an_older_state_is_seen(self):
        """What is checked here would tell: step 3 is there again, and is consumed twice."""
        moment = "step/train/0/3"
        with Running(WORK, [("rank 1", moment)]) as group:
            group.start()
            group.wait_for("rank 1", "step/train/0/2")
            older = group.states["rank 1"]
            group.wait_for("rank 1", moment)
            group.kill("rank 1")
            group.states["rank 1"] = older
            group.start_again("rank 1")
            group.finish()
            with self.assertRaises(self.failureException):
                self.check_equal(group, self.fault_free)
            order = expected_order(WORK)
            self.assertEqual(group.consumed[1], order[:4] + order[3:])


class Running(ChaosGroup):
    """A ChaosGroup for the time of a `with`, in a folder of its own. Rank 0 waits at the end, too,
    until all blows have fallen: a process that is started again finds the others still there."""

    def __init__(self, work, moments):
        self.work = work
        self.end_moment = f"end/train/0/{work['steps']}"
        self.at_end = ("rank 0", self.end_moment) in moments  # a blow falls there
        holds = {"rank 0": {self.end_moment}}
        for name, moment in moments:
            holds.setdefault(name, set()).add(moment)
        self.folder = tempfile.TemporaryDirectory(prefix="cpshard-test-")
        text = pathlib.Path(self.folder.name) / "text.txt"
        text.write_text("".join(f"{number} bottles of beer on the wall.\n"
                                for number in range(2_000)))
        super().__init__(self.folder.name, work, holds)
        self.words.append(str(text))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
        self.folder.cleanup()

    def finish(self):
        if not self.at_end:
            self.wait_for("rank 0", self.end_moment)
            self.go_on("rank 0")
        super().finish()

    def check_nothing_is_held(self, test):
        channel, stub = connect(self.address)
        with channel:
            limit = time.monotonic() + 5
            while True:
                now = stub.GetServerInfo(service_pb2.GetServerInfoRequest()).counters
                held = {name: getattr(now, name)
                        for name in ("sessions", "loaders", "streams", "batches", "buffers_out")}
                if not any(held.values()):
                    return
                test.assertLess(time.monotonic(), limit, held)
                time.sleep(0.02)


if __name__ == "__main__":
    unittest.main()

"""`cpshard demo --chaos`: whatever the seed, killed processes change nothing; its processes end
with it."""

import re
import signal
import subprocess
import time
import unittest

from processes import children, command_line
from programs import BIN, ENVIRONMENT, SLACK, ProgramTest, cpshard, run

TEXT = "".join(f"{number} bottles of beer on the wall.\n" for number in range(2_000))
KILLED = re.compile(r"^(server|loader (\d)|rank (\d)) +step (\d+) of rank (\d) +"
                    r"(\d+\.\d\d) s +(\d+\.\d\d) s$", re.MULTILINE)


class Chaos(ProgramTest):
    def setUp(self):
        super().setUp()
        self.text = self.folder / "text.txt"
        self.text.write_text(TEXT)
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()

    def chaos(self, *arguments):
        result = run(BIN / "cpshard", "demo", "--chaos", *arguments, self.text,
                     environment={"TMPDIR": str(self.temporary)})
        self.assertEqual(list(self.temporary.iterdir()), [])
        return result

    def check_equal(self, result, steps):
        self.succeeds(result)
        self.assertRegex(result.out, r"\nverdict +EQUAL\nbuffers out: 0\n\Z")
        kills = KILLED.findall(result.out)
        self.assertEqual(sorted(kill[0].split()[0] for kill in kills),
                         ["loader", "rank", "server"], result.out)
        for kill in kills:
            self.assertLess(int(kill[3]), steps)
            self.assertGreater(float(kill[5]), 0)  # it was away
        return [kill[:5] for kill in kills]

    def test_a_server_a_loader_and_a_rank_are_killed_and_every_shard_is_equal(self):
        kills = [self.check_equal(self.chaos(f"--seed={seed}"), 40) for seed in (1, 2, 3)]
        self.assertNotEqual(kills[0], kills[1])

    def test_a_seed_makes_the_same_plan_again(self):
        first, second = (self.chaos("--seed=5", "--steps=30", "--loaders=2") for _ in range(2))
        self.assertEqual(self.check_equal(first, 30), self.check_equal(second, 30))

    def test_its_table_fits_a_terminal_of_80_columns(self):
        out = self.succeeds(self.chaos("--seed=4", "--steps=30")).out
        table = out[out.index("\nkilled "):]
        self.assertEqual([line for line in table.split("\n") if len(line) > 80], [])

    def test_too_few_steps_and_options_without_chaos_are_usage_errors(self):
        self.usage_error(cpshard("demo", "--chaos", "--steps=29"), "--steps")
        self.usage_error(cpshard("demo", "--seed=1"), "--chaos")
        self.usage_error(cpshard("demo", "--chaos", "--kill-loader=1"), "--kill-loader")

    def test_its_processes_are_not_shown(self):
        self.assertNotIn("demo-chaos", self.succeeds(cpshard("--help")).out)

    def check_that_all_end(self, number):
        """With the demo, when it gets this signal."""
        demo = subprocess.Popen([BIN / "cpshard", "demo", "--chaos", "--steps=1000", self.text],
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL,
                                env=ENVIRONMENT | {"TMPDIR": str(self.temporary)})
        limit = time.monotonic() + 30 * SLACK
        try:
            while len(started := children(demo.pid)) < 9:
                self.assertIsNone(demo.poll(), "the demo ended")
                self.assertLess(time.monotonic(), limit)
                time.sleep(0.01)
        finally:
            demo.send_signal(number)
            demo.wait(10 * SLACK)
        while any("cpshard" in word for pid in started for word in command_line(pid)):
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.01)

    def test_ctrl_c_ends_all_of_its_processes_and_leaves_nothing(self):
        self.check_that_all_end(signal.SIGINT)
        self.assertEqual(list(self.temporary.iterdir()), [])

    def test_no_process_outlives_a_demo_that_is_killed(self):
        self.check_that_all_end(signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()

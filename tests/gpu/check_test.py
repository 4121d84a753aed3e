"""tests/gpu/check with programs in place of gpu_check: what it prints, reports and exits with. The
last ones are the rehearsal of gpu_check itself, which GPU_CHECK_REHEARSAL names."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).resolve().parent / "check"
PASS = {"name": "a", "verdict": "PASS", "reason": ""}
FAIL = {"name": "b", "verdict": "FAIL", "reason": "0.50 x a plain copy, goal 0.9"}
SKIP = {"name": "device", "verdict": "SKIP", "reason": "no usable CUDA device"}
GOAL = {"name": "job", "verdict": "PASS", "reason": "0.95 x a plain copy", "goal": 0.9}
ROW = {"what": "1M ids; cp 8", "gb_per_s": [1, 2, 3]}
TORCH = "torch.ops.cpshard.shard_streams"

# In place of what may be installed.
NO_TORCH = "raise ModuleNotFoundError('none here')\n"


class Check(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        (self.path / "torch.py").write_text(NO_TORCH, encoding="utf-8")

    def program(self, body):
        """A gpu_check that is this Python: `part` is what it is to do, `say` writes its report."""
        path = self.path / "gpu_check"
        path.write_text(f"""#!{sys.executable}
import json, os, sys, time
part = sys.argv[sys.argv.index('--parts') + 1]
def say(*items, rows=(), device='one'):
    with open(sys.argv[sys.argv.index('--json') + 1], 'w') as out:
        json.dump({{'device': device, 'items': items, 'rows': rows}}, out)
PASS, FAIL, SKIP, GOAL, ROW = {PASS}, {FAIL}, {SKIP}, {GOAL}, {ROW}
{body}
""", encoding="utf-8")
        path.chmod(0o755)
        return path

    def check(self, program, *arguments, **environment):
        """(exit status, what was printed, report)"""
        report = self.path / "out.json"
        done = subprocess.run(
            [sys.executable, "-B", CHECK, "--json", report, *arguments], text=True,
            env={**os.environ, "PYTHONPATH": str(self.path), "GPU_CHECK": str(program),
                 **environment},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        written = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else None
        return done.returncode, done.stdout, written

    def verdicts(self, report):
        return {item["name"]: item["verdict"] for item in report["items"]}

    def test_all_passed_is_0_and_every_part_is_done_once(self):
        status, printed, report = self.check(self.program(
            "say(PASS | {'name': part}, rows=[ROW] if part == 'speed' else [])"))
        self.assertEqual(status, 0, printed)
        self.assertIn("4 PASS, 0 FAIL, 1 SKIP", printed)
        self.assertEqual(list(self.verdicts(report)), ["suites", "corpus", "speed", TORCH, "lost"])
        self.assertIn("no torch: none here", report["items"][3]["reason"])
        self.assertEqual(report["rows"], [ROW])
        self.assertEqual(report["device"], "one")
        self.assertEqual(set(report), {"date", "driver", "device", "items", "rows"})

    def test_a_failed_item_is_1_and_what_comes_after_it_is_done(self):
        status, printed, report = self.check(self.program(
            "say(FAIL if part == 'suites' else PASS); sys.exit(part == 'suites')"))
        self.assertEqual(status, 1, printed)
        self.assertIn("3 PASS, 1 FAIL, 1 SKIP", printed)
        self.assertEqual(len(report["items"]), 5)

    def test_what_failed_or_was_skipped_is_said_again_at_the_end_and_goals_are_counted(self):
        status, printed, _ = self.check(self.program(
            "say(FAIL | {'goal': 0.9}, GOAL) if part == 'speed' else say(PASS)\n"
            "sys.exit(part == 'speed')"))
        self.assertEqual(status, 1, printed)
        end = printed.split("-- all")[1]
        self.assertIn("FAIL  b: 0.50 x a plain copy, goal 0.9", end)
        self.assertIn(f"SKIP  {TORCH}: no torch", end)
        self.assertIn("goals: 1 met, 1 missed, 4 not measured", end)

    def test_an_exit_status_that_its_items_do_not_say_is_a_failed_item(self):
        for said in (1, 3, 139):
            with self.subTest(said=said):
                status, printed, report = self.check(self.program(
                    f"say(PASS)\nif part == 'corpus': sys.exit({said})"))
                self.assertEqual(status, 1, printed)
                self.assertIn(f"FAIL  part corpus: ended with {said}", printed)
                self.assertEqual(len(report["items"]), 6)

    def test_no_device_is_77_and_nothing_else_is_asked(self):
        status, printed, report = self.check(self.program("say(SKIP); sys.exit(77)"))
        self.assertEqual(status, 77, printed)
        self.assertEqual(self.verdicts(report), {"device": "SKIP"})

    def test_a_part_that_dies_costs_that_part_and_what_it_had_reported_stays(self):
        for said, how in (("say(PASS)", "ended with -9"), ("", "ended with -9 and without a report"),
                          ("open(sys.argv[-1], 'w').write('{')", "-9 and without a report")):
            with self.subTest(said=said):
                status, printed, report = self.check(self.program(
                    "if part != 'speed':\n    say(PASS | {'name': part}); sys.exit(0)\n"
                    f"{said}\nos.kill(os.getpid(), 9)"))
                self.assertEqual(status, 1, printed)
                self.assertEqual(self.verdicts(report) | {"a": "PASS"}, {
                    "suites": "PASS", "corpus": "PASS", "a": "PASS", "part speed": "FAIL",
                    TORCH: "SKIP", "lost": "PASS"})
                self.assertIn(how, printed)

    def test_one_that_hangs_is_stopped_with_its_children_and_the_report_is_there_before(self):
        child = self.path / "child"
        status, printed, report = self.check(self.program(
            "say(PASS)\nif part == 'suites': sys.exit(0)\n"
            f"if os.fork() == 0: open({str(child)!r}, 'w').write(str(os.getpid()))\n"
            "time.sleep(100)"), "--timeout", "3")
        self.assertEqual(status, 1, printed)
        self.assertNotIn("Traceback", printed)
        self.assertRegex(printed, "part corpus: not done after .* s, and stopped")
        self.assertIn("part lost: not begun: no time was left", printed)
        self.assertEqual(report["items"][0], PASS)
        state = pathlib.Path(f"/proc/{child.read_text(encoding='utf-8')}/stat")
        self.assertTrue(not state.exists() or ") Z " in state.read_text(encoding="utf-8"))

    def test_one_that_is_not_there_or_may_not_be_executed_is_named(self):
        status, printed, _ = self.check(self.path / "nothing")
        self.assertEqual(status, 1)
        self.assertIn(f"no gpu_check at {self.path / 'nothing'}", printed)
        program = self.program("")
        program.chmod(0o644)
        status, printed, _ = self.check(program)
        self.assertEqual(status, 1)
        self.assertIn(f"{program} may not be executed", printed)

    def test_without_speed_there_is_no_such_part(self):
        status, printed, report = self.check(self.program("say(PASS | {'name': part})"),
                                             "--no-speed")
        self.assertEqual(status, 0, printed)
        self.assertEqual(list(self.verdicts(report)), ["suites", "corpus", TORCH, "lost"])

    def with_torch(self, text, **environment):
        (self.path / "torch.py").write_text(text, encoding="utf-8")
        return self.check(self.program("say(PASS | {'name': part})"), **environment)

    def test_whatever_torch_does_the_rest_is_reported(self):
        for text, said in (("raise OSError('libcudart.so.13')", f"{TORCH}: OSError: libcudart.so"),
                           ("import os; os.kill(os.getpid(), 11)", "part torch: ended with -11")):
            with self.subTest(text=text):
                status, printed, report = self.with_torch(text)
                self.assertEqual(status, 1, printed)
                self.assertIn(f"FAIL  {said}", printed)
                self.assertEqual(self.verdicts(report)["lost"], "PASS")

    def test_a_torch_library_that_is_named_has_to_be_there(self):
        status, printed, report = self.with_torch(
            "class cuda: is_available = lambda: True\n__version__ = '2.11'\n"
            "class ops:\n    def load_library(path): open(path)\n",
            CPSHARD_TORCH_LIBRARY=str(self.path / "no.so"))
        self.assertEqual(status, 1, printed)
        self.assertIn(f"FAIL  {TORCH}: FileNotFoundError", printed)
        self.assertEqual(report["torch"], "2.11")

    def rehearsal(self):
        named = os.environ.get("GPU_CHECK_REHEARSAL")
        if not named:
            self.skipTest("GPU_CHECK_REHEARSAL names no program")
        path = self.path / "gpu_check"
        path.write_text(f"#!/bin/sh\nexec '{named}' --rehearse --gtest_filter='GpuMemory.*' "
                        "\"$@\"\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def test_the_report_of_gpu_check_itself_is_read_and_has_every_row(self):
        status, printed, report = self.check(self.rehearsal())
        self.assertEqual(status, 0, printed)
        self.assertEqual(len(report["rows"]), 45)
        self.assertEqual(self.verdicts(report)["a lost device"], "PASS")
        self.assertIn("goals: 0 met, 0 missed, 6 not measured", printed)
        self.assertIn("cpshard ", report["build"])
        for row in report["rows"]:
            least, median, most = row["ratio"]
            self.assertTrue(0 < least <= median <= most, row)

    def test_a_device_that_cannot_be_used_is_a_failure_and_none_at_all_is_not(self):
        status, printed, report = self.check(self.rehearsal(), CPSHARD_STAND_IN_ABSENT="none here")
        self.assertEqual(status, 77, printed)
        self.assertEqual(self.verdicts(report), {"device": "SKIP"})
        status, printed, report = self.check(self.rehearsal(),
                                             CPSHARD_STAND_IN_UNUSABLE="driver 12.8, runtime 13.0")
        self.assertEqual(status, 1, printed)
        self.assertEqual(self.verdicts(report)["device"], "FAIL")
        self.assertIn("FAIL  device: driver 12.8, runtime 13.0", printed)

    def test_a_device_that_leaves_bytes_out_fails_every_row_with_where(self):
        status, printed, report = self.check(self.rehearsal(), CPSHARD_STAND_IN_WRONG="1")
        self.assertEqual(status, 1, printed)
        for row in report["rows"]:
            self.assertEqual(row["verdict"], "FAIL")
            self.assertIn("not what the CPU's executor makes", row["reason"])

    def test_a_device_that_is_lost_fails_the_rows_with_its_text(self):
        status, printed, report = self.check(self.rehearsal(),
                                             CPSHARD_STAND_IN_LOSE_AFTER="0")
        self.assertEqual(status, 1, printed)
        lost = [row for row in report["rows"] if "lost" in row["reason"]]
        self.assertEqual(len(lost), 45, printed)


if __name__ == "__main__":
    unittest.main()

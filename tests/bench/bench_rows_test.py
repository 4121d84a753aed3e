"""How ./dev bench judges rows and shows them."""

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import bench_rows
import everything

HERE = pathlib.Path(__file__).resolve().parent


def stats(median, least=None, most=None):
    return {"median": median, "min": least or median, "max": most or median}


def core_row(goals, value=stats(8.0), ratio=stats(0.9), anchor="short"):
    return {"group": "thd", "name": "plan", "value": value, "unit": "us", "anchor": anchor,
            "of_anchor": ratio, "goals": goals}


def core(*rows):
    return bench_rows.core_rows({"rows": list(rows)})


def stream_row(name, goals, **figures):
    row = {"name": name, "batch_bytes": 17_000_000, "goals": goals,
           "gb_per_second": stats(2.0), "cpu_seconds_per_gb": stats(0.6), "of_raw_touch": None}
    return row | figures


class Judging(unittest.TestCase):
    def test_a_median_on_its_goal_meets_it_and_one_beyond_does_not(self):
        for goal, met in (({"figure": "value", "at_most": 8}, True),
                          ({"figure": "value", "at_most": 7.9}, False),
                          ({"figure": "of_anchor", "at_least": 0.9}, True),
                          ({"figure": "of_anchor", "at_least": 0.91}, False)):
            with self.subTest(goal):
                self.assertIs(core(core_row([goal]))[0]["met"], met)

    def test_the_median_counts_and_not_the_extremes(self):
        goal = {"figure": "value", "at_most": 8}
        self.assertTrue(core(core_row([goal], stats(8, 1, 900)))[0]["met"])
        self.assertFalse(core(core_row([goal], stats(9, 1, 900)))[0]["met"])

    def test_all_goals_of_a_row_must_be_met(self):
        goals = [{"figure": "value", "at_most": 8}, {"figure": "of_anchor", "at_least": 2}]
        self.assertFalse(core(core_row(goals))[0]["met"])

    def test_a_row_without_goals_is_not_judged(self):
        self.assertIsNone(core(core_row([]))[0]["met"])

    def test_a_stream_has_a_row_for_every_goal_with_its_own_anchor(self):
        rows = bench_rows.stream_rows({"rows": [stream_row(
            "cpshardd", [{"figure": "of_raw_touch", "at_least": 0.75},
                         {"figure": "cpu_of_raw", "at_most": 1.6},
                         {"figure": "cpu_seconds_per_gb", "at_most": 0.5}],
            of_raw_touch=stats(0.8), cpu_of_raw=stats(2.1))]})
        self.assertEqual([(row["anchor"], row["unit"], row["met"]) for row in rows],
                         [("R_touch", "GB/s", True), ("R", "CPU s/GB", False),
                          ("", "CPU s/GB", False)])
        self.assertEqual(rows[1]["value"], stats(0.6))
        self.assertEqual(rows[1]["ratio"], stats(2.1))

    def test_ratios_to_the_reference_are_taken_inside_a_round(self):
        row = {"case": "thd", "size": {"rows": 1, "length": 8, "cp_size": 2}, "goal": 5.0,
               "theirs": [10.0, 40.0, 12.0], "ours": [1.0, 5.0, 4.0]}  # 10, 8, 3 times
        (made,) = bench_rows.reference_rows([row])
        self.assertEqual(made["ratio"], {"median": 8, "min": 3, "max": 10})
        self.assertTrue(made["met"])
        self.assertIsNone(bench_rows.reference_rows([row | {"goal": None}])[0]["met"])


class Table(unittest.TestCase):
    def test_every_line_has_as_many_columns_of_the_same_width(self):
        rows = core(core_row([{"figure": "value", "at_most": 8}], stats(12345.6)), core_row([]))
        lines = bench_rows.table(rows).splitlines()
        self.assertEqual(len(lines), 4)
        self.assertEqual(len({len(line) for line in lines}), 1)
        self.assertEqual({line.count("|") for line in lines}, {8})
        self.assertIn("12,346 (12,346-12,346) us", lines[2])
        self.assertIn("<= 8 us", lines[2])
        self.assertIn("NOT MET", lines[2])

    def test_the_summary_counts_rows_with_goals_alone(self):
        rows = core(core_row([{"figure": "value", "at_most": 8}]),
                    core_row([{"figure": "value", "at_most": 1}]), core_row([]))
        self.assertEqual(bench_rows.summary(rows), "2 rows with goals: 1 met, 1 not met")


class Everything(unittest.TestCase):
    """With stand-ins for the programs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cpshard-bench-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program("cpshardd", 'print("cpshardd 1.2.3\\ncommit: abc\\nbuild: Release\\n'
                                 'compiler: GNU 12")')
        self.prints("cpshard_session_bench", {"rows": []})

    def program(self, name, text):
        path = self.folder / name
        path.write_text(f"#!{sys.executable}\n{text}\n")
        path.chmod(0o755)

    def prints(self, name, report, status=0):
        self.program(name, "import pathlib, sys\n"
                           "path = pathlib.Path(sys.argv[sys.argv.index('--json') + 1])\n"
                           f"path.write_text({json.dumps(report)!r})\n"
                           f"sys.exit({status})")

    def run_all(self, *arguments):
        return subprocess.run([sys.executable, "-B", HERE / "everything.py", "--bin", self.folder,
                               "--out", self.folder / "out", *arguments], capture_output=True,
                              text=True, timeout=60)

    def test_goals_that_are_not_met_are_no_failure(self):
        self.prints("cpshard_bench", {"rows": [core_row([{"figure": "value", "at_most": 1}])]})
        self.prints("cpshard_stream_bench", {"rows": []})
        done = self.run_all()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("1 rows with goals: 0 met, 1 not met", done.stdout)
        report = json.loads((self.folder / "out" / "bench.json").read_text())
        self.assertEqual(report["machine"]["commit"], "abc")
        self.assertEqual([row["met"] for row in report["rows"]], [False])

    def test_a_program_that_fails_leaves_the_rows_of_the_others(self):
        self.prints("cpshard_bench", {"rows": [core_row([])]}, status=3)
        self.prints("cpshard_stream_bench", {"rows": [stream_row("R", [])]})
        done = self.run_all()
        self.assertEqual(done.returncode, 1)
        self.assertIn("core: ended with 3", done.stdout)
        report = json.loads((self.folder / "out" / "bench.json").read_text())
        self.assertEqual([row["part"] for row in report["rows"]], ["stream"])

    def test_rows_of_sessions_are_judged_as_those_of_the_core(self):
        self.prints("cpshard_bench", {"rows": []})
        self.prints("cpshard_stream_bench", {"rows": []})
        row = core_row([{"figure": "of_anchor", "at_least": 0.9}])
        self.prints("cpshard_session_bench", {"rows": [row]})
        self.run_all()
        [row] = json.loads((self.folder / "out" / "bench.json").read_text())["rows"]
        self.assertEqual((row["part"], row["goals"][0]["figure"]), ("session", "ratio"))

    def test_the_table_of_the_last_run_is_printed_again(self):
        self.prints("cpshard_bench", {"rows": [core_row([{"figure": "value", "at_most": 9}]),
                                               core_row([]) | {"name": "without a goal"}]})
        self.prints("cpshard_stream_bench", {"rows": []})
        self.assertEqual(self.run_all("--table").returncode, 1)  # there is none yet
        self.run_all()
        again = self.run_all("--table").stdout
        self.assertIn("| thd: plan", again)
        self.assertNotIn("without a goal", again)
        self.assertIn("without a goal", self.run_all("--table", "--all").stdout)


class ShownFacts(unittest.TestCase):
    def test_a_quick_run_says_so(self):
        report = {"machine": {"processor": "P", "cores": 2, "load_before": 0.1, "version": "v",
                              "commit": "c", "build": "b", "compiler": "g"},
                  "quick": True, "rows": []}
        with contextlib.redirect_stdout(io.StringIO()) as out:
            everything.show(report)
        self.assertIn("; quick", out.getvalue())


if __name__ == "__main__":
    unittest.main()

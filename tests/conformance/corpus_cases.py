"""What the tests of the conformance runner share: cases, and runs of the runner over them."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

RUNNER, GOLDEN = sys.argv[1], pathlib.Path(sys.argv[2])


def golden(where):
    """The case (file stem, id) of the golden corpus."""
    stem, wanted = where
    for line in (GOLDEN / f"{stem}.jsonl").read_text().splitlines():
        case = json.loads(line)
        if case["id"] == wanted:
            return case
    raise AssertionError(f"{wanted} is not in {stem}.jsonl")


def tensor(dtype, data, shape=None):
    return {"dtype": dtype, "shape": [len(data)] if shape is None else shape, "data": data}


def identity_case(sent, expected, **fields):
    return {
        "id": "own-1", "backend": "identity", "cp_size": 1, "args": {}, "batch": {"x": sent},
        "ranks": [{"rank": 0, "outputs": {"x": expected}, "layout": None}],
        "product": {"same": True}, **fields,
    }


def run_files(paths, *flags):
    command = [RUNNER, "--corpus", *map(str, paths), *flags]
    return subprocess.run(command, capture_output=True, text=True)


def run_lines(lines, *flags, suffix="jsonl"):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / f"case.{suffix}"
        path.write_text("\n".join(lines) + "\n")
        return run_files([path], *flags)


def run(case, *flags):
    return run_lines([json.dumps(case)], *flags)


class RunnerTest(unittest.TestCase):
    def passes(self, case, *flags):
        result = run(case, *flags)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stdout.splitlines()[-1], "1 passed, 0 failed")
        return result

    def fails(self, case, text=""):
        result = run(case)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertEqual(result.stdout.splitlines()[-1], "0 passed, 1 failed")
        failure = [line for line in result.stdout.splitlines() if line.startswith("FAILED ")]
        self.assertEqual(len(failure), 1, result.stdout)
        self.assertIn(case.get("id", "case:1"), failure[0])
        self.assertIn(text, failure[0])

    def each_fails(self, wrong):
        """`wrong`: cases and the texts that their failures must hold; all in one run."""
        cases = [{**case, "id": f"{case['id']}#{number}"}
                 for number, (case, _) in enumerate(wrong)]
        result = run_lines([json.dumps(case) for case in cases])
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertEqual(result.stdout.splitlines()[-1], f"0 passed, {len(wrong)} failed")
        failures = [line for line in result.stdout.splitlines() if line.startswith("FAILED ")]
        self.assertEqual(len(failures), len(wrong))
        for case, (_, text), failure in zip(cases, wrong, failures):
            with self.subTest(case=case["id"], text=text):
                self.assertTrue(failure.startswith(f"FAILED {case['id']} "), failure)
                self.assertIn(text, failure)

    def is_skipped(self, case, reason):
        result = run(case)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn(f"{reason}): {case['id']}\n", result.stdout)
        self.assertEqual(result.stdout.splitlines()[-1], "0 passed, 0 failed, 1 skipped")


def main():
    unittest.main(argv=sys.argv[:1])

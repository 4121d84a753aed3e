"""The conformance runner must fail when a case is wrong, and say which.

Usage: mutation_test.py RUNNER GOLDEN_DIR

Cases of the golden corpus are changed one thing at a time and run alone, each in a temporary file.
A wrong expectation must end in exit status 1 and the case's id; an expectation that is missing or
garbage must not change what the product answers (so it is not read before the answer).
"""

import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

RUNNER, GOLDEN = sys.argv[1], pathlib.Path(sys.argv[2])

SAME = ("contiguous", "contiguous-0001")  # product: as the reference
DECIDED = ("round_robin", "round_robin-0002")  # product: its own ranks (D2)
REFUSED = ("contiguous", "contiguous-0005")
LIBRARY = ("curated", "A4")


def golden(where):
    stem, wanted = where
    for line in (GOLDEN / f"{stem}.jsonl").read_text().splitlines():
        case = json.loads(line)
        if case["id"] == wanted:
            return case
    raise AssertionError(f"{wanted} is not in {stem}.jsonl")


def identity_case(tensor, expected):
    return {
        "id": "own-1", "backend": "identity", "cp_size": 1, "args": {}, "batch": {"x": tensor},
        "ranks": [{"rank": 0, "outputs": {"x": expected}, "layout": None}],
        "product": {"same": True},
    }


def tensor(dtype, data):
    return {"dtype": dtype, "shape": [len(data)], "data": data}


def run_lines(lines, *flags):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "case.jsonl"
        path.write_text("\n".join(lines) + "\n")
        command = [RUNNER, "--corpus", str(path), *flags]
        return subprocess.run(command, capture_output=True, text=True)


def run(case, *flags):
    return run_lines([json.dumps(case)], *flags)


def expected_ranks(case):
    return case["product"].get("expect", case)["ranks"]


def leaf_list(data):
    while isinstance(data[0], list):
        data = data[0]
    return data


class Runner(unittest.TestCase):
    def passes(self, case):
        result = run(case)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stdout.splitlines()[-1], "1 passed, 0 failed")

    def fails(self, case, text=""):
        result = run(case)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertEqual(result.stdout.splitlines()[-1], "0 passed, 1 failed")
        failure = [line for line in result.stdout.splitlines() if line.startswith("FAILED ")]
        self.assertEqual(len(failure), 1, result.stdout)
        self.assertIn(case.get("id", "case:1"), failure[0])
        self.assertIn(text, failure[0])

    def test_unchanged_cases_pass(self):
        for where in (SAME, DECIDED, REFUSED, LIBRARY):
            self.passes(golden(where))

    def test_every_changed_expectation_fails(self):
        for where in (SAME, DECIDED):
            for rank in (0, -1):
                for name in expected_ranks(golden(where))[rank]["outputs"]:
                    for mutate in MUTATIONS:
                        case = golden(where)
                        mutate(expected_ranks(case)[rank], name)
                        with self.subTest(case=case["id"], name=name, mutation=mutate.__name__):
                            self.fails(case, f"stream {name}")

    def test_gradients_are_compared(self):
        case = golden(("curated", "D11"))
        self.passes(case)
        case["ranks"][0]["outputs"]["d_sum/d_full_inputs_embeds"]["data"][0][3][0] = 1.0
        self.fails(case, "d_full_inputs_embeds, index [0, 3, 0]: got 0, want 1")

    def test_wrong_values_of_a_library_function_fail(self):
        case = golden(LIBRARY)
        case["ranks"][3]["outputs"]["indices"]["data"][0] += 1
        self.fails(case, "rank 3, stream indices, index [0]: got 6, want 7")

    def test_an_added_key_fails(self):
        case = golden(SAME)
        case["ranks"][0]["outputs"]["more"] = tensor("i64", [1])
        self.fails(case, "stream more: got nothing, want i64 [1]")

    def test_a_null_key_is_an_absent_key(self):
        case = golden(SAME)
        case["ranks"][0]["outputs"]["more"] = {"value": None}
        self.passes(case)

    def test_scalars_are_compared_with_their_type(self):
        sent, layout = {"value": 2}, [{"rank": 0, "outputs": {}, "layout": None}]
        for expected, ok in ((2, True), (3, False), (2.0, False), ("2", False), (True, False)):
            case = identity_case(sent, {"value": expected})
            self.passes(case) if ok else self.fails(case, "stream x")
        case = identity_case(sent, sent)
        case["ranks"] = layout
        self.fails(case, "stream x: got integer 2, want nothing")

    def test_layouts_are_compared(self):
        for change in ({"original_seq_len": 9}, {"padded_seq_len": 17}, {"padded_seq_len": None},
                       {"input_row_shape": [1, 2]}, {"surprise": 1}):
            case = golden(SAME)
            case["ranks"][1]["layout"].update(change)
            self.fails(case, "layout")
        case = golden(SAME)
        case["ranks"][1]["layout"] = None
        self.fails(case, "rank 1, layout original_seq_len: got 8, want none")

    def test_ranks_are_compared(self):
        case = golden(SAME)
        case["ranks"].pop()
        self.fails(case, "ranks: got 8, want 7")
        case = golden(SAME)
        case["ranks"][0], case["ranks"][1] = case["ranks"][1], case["ranks"][0]
        self.fails(case, "rank 0")

    def test_status_codes_are_compared(self):
        case = golden(REFUSED)
        case["product"]["expect"]["error"] = "FAILED_PRECONDITION"
        self.fails(case, "got INVALID_ARGUMENT")
        case["product"]["expect"]["error"] = "INVALID"
        self.fails(case, "unknown code")
        case = golden(SAME)
        case["product"]["expect"] = {"error": "INVALID_ARGUMENT"}
        self.fails(case, "got shards of 8 ranks, want INVALID_ARGUMENT")
        case = golden(REFUSED)
        del case["product"]["expect"]
        self.fails(case, "the reference raises")

    def test_floats_are_compared_by_bits(self):
        nan, inf = float("nan"), float("inf")
        for dtype, data in (("f32", [nan, -0.0, inf, -inf, 0.1]), ("f64", [nan, -0.0, 5e-324, 0.1]),
                            ("f16", [nan, -0.0, 65504.0, 2.0**-24, 2.0**-14]),
                            ("bf16", [nan, -0.0, 3.3895313892515355e38, 2.0**-133])):
            self.passes(identity_case(tensor(dtype, data), tensor(dtype, data)))
            for position in range(len(data)):
                other = copy.copy(data)
                other[position] = 0.0
                self.fails(identity_case(tensor(dtype, data), tensor(dtype, other)),
                           f"index [{position}]")

    def test_malformed_values_fail(self):
        for bad in (tensor("i64", [1.0]), tensor("i64", [True]), tensor("u8", [256]),
                    tensor("i8", [-129]), tensor("bool", [2]), tensor("f32", ["1"]),
                    tensor("f99", [1]), {"dtype": "i64", "shape": [2], "data": [1]},
                    {"dtype": "i64", "shape": [1], "data": [[1]]}, {"dtype": "i64", "shape": [1]},
                    {"dtype": "i64", "shape": [0], "data": [1]}, {"what": 1}, 7, []):
            self.fails(identity_case(bad, tensor("i64", [1])), "malformed case")
            self.fails(identity_case(tensor("i64", [1]), bad), "cannot compare")

    def test_malformed_cases_fail(self):
        for field in ("id", "backend", "cp_size", "args", "batch"):
            case = golden(SAME)
            del case[field]
            self.fails(case, field)
        case = golden(SAME)
        case["args"]["surprise"] = 1
        self.fails(case, "args.surprise: unknown argument")
        case = golden(SAME)
        case["backend"] = "unheard_of"
        self.fails(case, "unknown backend 'unheard_of'")

    def test_unreadable_lines_fail_and_the_rest_is_run(self):
        good = json.dumps(golden(SAME))
        for bad in (good[:-1], "not json", "[1, 2]", '"text"', "7", '{"id": "a", "id": "b"}',
                    "[" * 100000, "\x00"):
            result = run_lines([bad, good])
            self.assertEqual(result.returncode, 1, bad[:40])
            self.assertIn("FAILED case:1", result.stdout)
            self.assertEqual(result.stdout.splitlines()[-1], "1 passed, 1 failed")

    def test_the_answer_does_not_depend_on_the_expectation(self):
        for where in (SAME, DECIDED, REFUSED, LIBRARY):
            answer = self.answer_of(golden(where))
            for field in ("ranks", "product"):
                for garbage in (None, [], "garbage", 7, {"same": False, "expect": 1},
                                [{"rank": 0, "outputs": 1, "layout": 2}]):
                    case = golden(where)
                    case[field] = garbage
                    self.assertEqual(self.answer_of(case), answer)
                case = golden(where)
                del case[field]
                self.assertEqual(self.answer_of(case), answer)
            case = golden(where)
            case["product"], case["ranks"] = None, None
            self.fails(case, "cannot compare")

    def answer_of(self, case):
        answers = [line for line in run(case, "--verbose").stdout.splitlines()
                   if line.startswith(f"answer {case['id']}: ")]
        self.assertEqual(len(answers), 1)
        return answers[0]

    def test_skipped_cases_never_count_as_passed(self):
        for change, reason in (({"backend": "te_thd"}, "not built yet: backend te_thd"),
                               ({"words": True}, "described in words"),
                               ({"product": {"same": False, "expect": None}}, "expect is null")):
            case = golden(SAME)
            case.update(change)
            result = run(case)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stdout, re.escape(reason) + r"\): contiguous-0001\n")
            self.assertEqual(result.stdout.splitlines()[-1], "0 passed, 0 failed, 1 skipped")

    def test_only_selects_ids(self):
        lines = [json.dumps(golden(where)) for where in (SAME, LIBRARY)]
        self.assertEqual(run_lines(lines, "--only", "A4").stdout.splitlines()[-1],
                         "1 passed, 0 failed")
        result = run_lines(lines, "--only", "A4", "nowhere")
        self.assertEqual(result.returncode, 1)
        self.assertIn("FAILED nowhere", result.stdout)

    def test_wrong_usage_exits_64(self):
        for flags in ([], ["--corpus"], ["--corpus", str(GOLDEN / "absent.jsonl")],
                      ["--corpus", str(GOLDEN / "identity.jsonl"), "--what"]):
            self.assertEqual(subprocess.run([RUNNER, *flags], capture_output=True).returncode, 64)


def changed_value(rank, name):
    value = rank["outputs"][name]
    leaf = leaf_list(value["data"])
    leaf[-1] = not leaf[-1] if value["dtype"] == "bool" else leaf[-1] + 1


def changed_dtype(rank, name):
    value = rank["outputs"][name]
    value["dtype"] = {"i64": "i32", "i32": "i64", "f32": "f64", "bool": "u8"}[value["dtype"]]


def changed_shape(rank, name):
    value = rank["outputs"][name]
    value["shape"], value["data"] = [1] + value["shape"], [value["data"]]


def dropped_key(rank, name):
    del rank["outputs"][name]


def scalar_instead(rank, name):
    rank["outputs"][name] = {"value": 1}


MUTATIONS = (changed_value, changed_dtype, changed_shape, dropped_key, scalar_instead)

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

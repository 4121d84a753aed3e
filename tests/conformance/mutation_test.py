"""The conformance runner must fail when a case is wrong, and say which.

Usage: mutation_test.py RUNNER GOLDEN_DIR

Cases of the golden corpus are changed one thing at a time and run from a temporary file.
A wrong expectation must end in exit status 1 and the case's id; an expectation that is missing or
garbage must not change what the product answers (so it is not read before the answer).
"""

import copy
import json
import subprocess

from corpus_cases import (GOLDEN, RUNNER, RunnerTest, golden, identity_case, main, run, run_lines,
                          tensor)

SAME = ("contiguous", "contiguous-0001")  # product: as the reference
DECIDED = ("round_robin", "round_robin-0002")  # product: its own ranks (D2)
REFUSED = ("contiguous", "contiguous-0005")
LIBRARY = ("curated", "A4")
TE_LIBRARY = ("curated", "A11")
PACKED = ("curated", "H1")  # te_thd: lengths that every rank holds whole, scalars of each rank
PACKED_DECIDED = ("curated", "H7")  # float ids stay floats (D7)
PACKED_CHUNKS = ("te_thd", "te_thd-0106")  # two chunks on 8 ranks, mask and scalars kept (D16)
CONVERTED = ("curated", "G1")  # thd_convert
CONVERTED_CHUNKS = ("thd", "thd-0023")  # thd_chunks
PACKED_REFUSED = ("te_thd", "te_thd-0001")
UNREAL = ("curated", "A13")  # the TE formula refuses
IN_FORWARD = ("curated", "F3")
IN_FORWARD_REFUSED = ("in_forward", "in_forward_contig-0003")  # axis out of range
TOKENS = ("curated", "R12")  # shard_token_tensor, rows that are flattened
TOKENS_DECIDED = ("curated", "R17")  # D3: true slots in product.expect.args, which is an input
TOKENS_REFUSED = ("curated", "R15")
GATHERED = ("gather_token_tensor", "gather_token_tensor-0034")  # by positions, 4 ranks
GATHER_REFUSED = ("gather_token_tensor", "gather_token_tensor-0086")
JOINED = ("gather_sequence", "gather_sequence-0004")
HALO = ("gather_sequence", "gather_sequence-0025")
DISPATCHED = ("magi", "magi-0057")  # magi_partition
DISPATCH_REPORT = ("curated", "Q10")  # magi_layout
MULTIPLE = ("curated", "I14")  # dsv4_multiple
TARGETS = ("mtp", "mtp-0033")  # mtp_inputs
BLOCKS = ("blockdiag", "blockdiag-0002")  # with state
MAGI = ("magi", "magi-0032")  # with state
MAGI_DECIDED = ("magi", "magi-0102")  # D3, D4: the reference's state

PASSING = (SAME, DECIDED, REFUSED, LIBRARY, TE_LIBRARY, PACKED, PACKED_DECIDED, PACKED_CHUNKS,
           CONVERTED, CONVERTED_CHUNKS, PACKED_REFUSED, UNREAL, IN_FORWARD, IN_FORWARD_REFUSED,
           DISPATCHED, DISPATCH_REPORT, MULTIPLE, TARGETS, BLOCKS, MAGI, MAGI_DECIDED, TOKENS,
           TOKENS_REFUSED, GATHERED, GATHER_REFUSED, JOINED, HALO)


def expected_ranks(case):
    return case["product"].get("expect", case)["ranks"]


class Runner(RunnerTest):
    def test_unchanged_cases_pass(self):
        for where in (*PASSING, TOKENS_DECIDED):
            self.passes(golden(where))

    def test_every_changed_expectation_fails(self):
        for where in (SAME, DECIDED, TE_LIBRARY, PACKED, PACKED_DECIDED, PACKED_CHUNKS, CONVERTED,
                      CONVERTED_CHUNKS, IN_FORWARD, DISPATCHED, MULTIPLE, TARGETS, BLOCKS, MAGI,
                      MAGI_DECIDED, TOKENS, TOKENS_DECIDED, GATHERED, JOINED, HALO):
            self.each_fails(changed(where, "outputs", "stream", expected_ranks))

    def test_every_changed_state_fails(self):
        for where in (BLOCKS, MAGI, MAGI_DECIDED):
            self.each_fails(changed(where, "state", "state, stream", lambda case: case["ranks"]))

    def test_a_state_of_its_own_comes_before_the_reference_s(self):
        case = golden(MAGI_DECIDED)
        for own, reference in zip(expected_ranks(case), case["ranks"]):
            own["state"], reference["state"] = reference["state"], {}
        self.passes(case)
        expected_ranks(case)[1]["state"]["pad_size"]["value"] = 0
        self.fails(case, "rank 1, state, stream pad_size: got integer 2, want integer 0")

    def test_chunks_of_a_dispatch_are_compared(self):
        for damage in (lambda chunks: chunks.append({"value": 16}), lambda chunks: chunks.pop(),
                       lambda chunks: chunks[0].update(value=15)):
            case = golden(DISPATCHED)
            damage(case["ranks"][1]["outputs"]["chunks_of_rank"]["list"])
            self.fails(case, "rank 1, stream chunks_of_rank.")

    def test_targets_of_every_depth_are_compared(self):
        wrong = []
        for name in ("input_ids", "position_ids", "targets", "valid_masks"):
            for depth in range(2):
                for mutate in MUTATIONS:
                    case = golden(TARGETS)
                    values = case["ranks"][0]["outputs"][name]["list"]
                    entry = {"outputs": {f"{name}.{depth}": values[depth]}}
                    mutate(entry, f"{name}.{depth}")
                    rest = {f"{name}.{i}": value for i, value in enumerate(values) if i != depth}
                    del case["ranks"][0]["outputs"][name]
                    case["ranks"][0]["outputs"].update(rest | entry["outputs"])
                    wrong.append((case, f"rank 0, stream {name}.{depth}"))
        self.each_fails(wrong)

    def test_the_report_of_a_dispatch_is_compared(self):
        for rank in range(2):
            for change in ({"padded_seq_len": 4}, {"original_seq_len": 4},
                           {"input_row_shape": [2, 2]}, {"local_token_global_indices": None}):
                case = golden(DISPATCH_REPORT)
                case["ranks"][rank]["layout"].update(change)
                self.fails(case, f"rank {rank}, layout {next(iter(change))}")

    def test_gradients_are_compared(self):
        case = golden(("curated", "D11"))
        self.passes(case)
        case["ranks"][0]["outputs"]["d_sum/d_full_inputs_embeds"]["data"][0][3][0] = 1.0
        self.fails(case, "d_full_inputs_embeds, index [0, 3, 0]: got 0, want 1")

    def test_gradients_of_every_rank_are_compared(self):
        key = "d_sum/d_full_inputs_embeds"
        cases = [case for case in cases_of("round_robin")
                 if case["args"].get("primary_requires_grad")]
        self.assertEqual(len(cases), 5)
        wrong = []
        for case in cases:
            for rank, entry in enumerate(expected_ranks(case)):
                for leaf in (0, -1):
                    for position in (0, -1):
                        other = copy.deepcopy(case)
                        value = expected_ranks(other)[rank]["outputs"][key]
                        leaf_lists(value)[leaf][position] += 1
                        wrong.append((other, f"rank {rank}, stream {key}"))
        self.each_fails(wrong)

    def test_a_gradient_that_a_backend_does_not_have_is_not_passed_over(self):
        case = golden(PACKED)
        case["args"]["primary_requires_grad"] = True
        self.passes(case)
        case["ranks"][0]["outputs"]["d_sum/d_full_inputs_embeds"] = tensor("f32", [1.0])
        self.fails(case, "stream d_sum/d_full_inputs_embeds: got nothing, want f32 [1]")

    def test_wrong_values_of_a_library_function_fail(self):
        case = golden(LIBRARY)
        case["ranks"][3]["outputs"]["indices"]["data"][0] += 1
        self.fails(case, "rank 3, stream indices, index [0]: got 6, want 7")

        case = golden(TE_LIBRARY)
        case["ranks"][3]["outputs"]["indices"]["dtype"] = "i64"
        self.fails(case, "rank 3, stream indices: got i32 [6], want i64 [6]")

    def test_packed_layouts_are_compared(self):
        for change, text in (
                ({"padded_seq_len": 7}, "layout padded_seq_len: got 8, want 7"),
                ({"original_seq_len": 8}, "layout original_seq_len: got none, want 8"),
                ({"input_row_shape": [2, 4]}, "layout input_row_shape"),
                ({"input_row_shape": None}, "layout input_row_shape"),
                ({"local_token_global_indices": tensor("i32", [1, 2, 5, 7])},
                 "layout local_token_global_indices"),
                ({"local_token_global_indices": tensor("i32", [[1, 2, 5, 6]], [1, 4])},
                 "layout local_token_global_indices"),
                ({"local_token_global_indices": None}, "layout local_token_global_indices"),
                ({"input_token_stream_positions": tensor("i64", [[0]], [1, 1])},
                 "layout input_token_stream_positions")):
            case = golden(PACKED)
            case["ranks"][1]["layout"].update(change)
            self.fails(case, f"rank 1, {text}")
        case = golden(PACKED_CHUNKS)  # chunks report no layout
        expected_ranks(case)[0]["layout"] = {"padded_seq_len": 16}
        self.fails(case, "rank 0, layout padded_seq_len: got none, want 16")

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
        for where in PASSING:
            cases = [golden(where)]
            for field in ("ranks", "product"):
                for garbage in (None, [], "garbage", 7, {"same": False, "expect": 1},
                                [{"rank": 0, "outputs": 1, "layout": 2}]):
                    cases.append({**golden(where), field: garbage})
                cases.append(golden(where))
                del cases[-1][field]
            self.assertEqual(len(set(self.answers_of(cases))), 1)
            case = {**golden(where), "product": None, "ranks": None}
            self.fails(case, "cannot compare")

    def answers_of(self, cases):
        lines = run_lines([json.dumps(case) for case in cases], "--verbose").stdout.splitlines()
        answers = [line for line in lines if line.startswith(f"answer {cases[0]['id']}: ")]
        self.assertEqual(len(answers), len(cases))
        return answers

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


def changed(where, member, kind, ranks_of):
    """The case with one value of the first or the last rank's `member` changed, and its name."""
    wrong = []
    for rank in sorted({0, len(ranks_of(golden(where))) - 1}):
        for name, value in ranks_of(golden(where))[rank][member].items():
            if "list" in value:
                continue
            for mutate in MUTATIONS if "dtype" in value else SCALAR_MUTATIONS:
                case = golden(where)
                mutate({"outputs": ranks_of(case)[rank][member]}, name)
                wrong.append((case, f"rank {rank}, {kind} {name}"))
    return wrong


def cases_of(stem):
    return [json.loads(line) for line in (GOLDEN / f"{stem}.jsonl").read_text().splitlines()]


def leaf_lists(value):
    """The innermost lists of a tensor's data, in order."""
    lists = [value["data"]]
    while isinstance(lists[0][0], list):
        lists = [inner for outer in lists for inner in outer]
    return lists


def bumped(number):
    return not number if isinstance(number, bool) else number + 1


def changed_value(rank, name):
    value = rank["outputs"][name]
    if value["shape"]:
        leaf = leaf_lists(value)[-1]
        leaf[-1] = bumped(leaf[-1])
    else:
        value["data"] = bumped(value["data"])


def changed_dtype(rank, name):
    value = rank["outputs"][name]
    value["dtype"] = {"i64": "i32", "i32": "i64", "f32": "f64", "bf16": "f32",
                      "bool": "u8"}[value["dtype"]]
    if value["dtype"] == "u8":
        value["data"] = json.loads(json.dumps(value["data"]).replace("true", "1")
                                   .replace("false", "0"))


def changed_shape(rank, name):
    value = rank["outputs"][name]
    value["shape"], value["data"] = [1] + value["shape"], [value["data"]]


def dropped_key(rank, name):
    del rank["outputs"][name]


def renamed_key(rank, name):
    rank["outputs"][name + "_"] = rank["outputs"].pop(name)


def scalar_instead(rank, name):
    rank["outputs"][name] = {"value": 1}


def other_scalar(rank, name):
    value = rank["outputs"][name]["value"]
    rank["outputs"][name] = {"value": value + "x" if isinstance(value, str) else value + 1}


def other_type(rank, name):
    value = rank["outputs"][name]["value"]
    rank["outputs"][name] = {"value": float(value) if isinstance(value, int) else 1}


def as_text(rank, name):
    value = rank["outputs"][name]["value"]
    rank["outputs"][name] = {"value": value.upper() if isinstance(value, str) else str(value)}


def as_bool(rank, name):
    rank["outputs"][name] = {"value": bool(rank["outputs"][name]["value"])}


def tensor_instead(rank, name):
    rank["outputs"][name] = {"dtype": "i64", "shape": [], "data": 1}


MUTATIONS = (changed_value, changed_dtype, changed_shape, dropped_key, renamed_key, scalar_instead)
SCALAR_MUTATIONS = (other_scalar, other_type, as_text, as_bool, tensor_instead, dropped_key,
                    renamed_key)

if __name__ == "__main__":
    main()

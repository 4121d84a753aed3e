"""The conformance runner reads the corpus format as the corpus's README says.

Usage: format_test.py RUNNER GOLDEN_DIR

Synthetic cases, mostly of the layout identity (what goes in comes out) and of library functions.
"""

import copy
import json
import re

from corpus_cases import (GOLDEN, RunnerTest, golden, identity_case, main, run, run_lines, tensor)

UNBUILT = "vision_frames"  # a backend that the runner knows and cannot drive yet
ONE = tensor("i64", [1])


def unbuilt_case(**fields):
    """A verb's case, skipped by name - if it can be read."""
    case = {"id": "own-1", "backend": UNBUILT, "cp_size": 2, "args": {}, "batch": {"x": ONE},
            "ranks": [{"rank": rank, "outputs": {}, "layout": None} for rank in range(2)],
            "product": {"same": True}}
    return {**case, **fields}


def sync_case(values, ranks, **fields):
    """Two replicas of one rank each, driven through the layout identity."""
    case = identity_case({"per_replica": values}, None, dp_size=2)
    case["ranks"] = [{"rank": rank, "cp_rank": 0, "dp_rank": rank, "outputs": {"x": value},
                      "layout": None} for rank, value in enumerate(ranks)]
    return {**case, **fields}


class Values(RunnerTest):
    def test_zero_dimensional_tensors_hold_a_bare_number(self):
        seven = tensor("i32", 7, [])
        self.passes(identity_case(seven, seven))
        self.fails(identity_case(seven, tensor("i32", 8, [])), "index []: got 7, want 8")
        self.fails(identity_case(seven, tensor("i32", [7])), "got i32 [], want i32 [1]")
        self.fails(identity_case(tensor("i32", [7], []), ONE), "nested deeper than the shape")

    def test_empty_tensors_have_their_shape_and_no_data(self):
        for shape, data in (([0], []), ([2, 0], [[], []]), ([2, 0], []), ([0, 3], [])):
            self.passes(identity_case(tensor("f32", data, shape), tensor("f32", data, shape)))
        self.fails(identity_case(tensor("f32", [], [0, 3]), tensor("f32", [], [0, 4])),
                   "got f32 [0, 3], want f32 [0, 4]")

    def test_lists_are_numbered_entries(self):
        sent = {"list": [ONE, {"value": "two"}]}
        self.passes(identity_case(sent, sent))
        for other in ({"list": [ONE]}, {"list": [ONE, {"value": "too"}]},
                      {"list": [ONE, {"value": "two"}, ONE]}, {"list": [{"value": "two"}, ONE]}):
            self.fails(identity_case(sent, other), "stream x.")

    def test_records_are_compared_field_by_field_and_null_fields_are_absent(self):
        record = {"struct": "Context", "ids": ONE, "size": 3, "on": True, "none": None,
                  "group": "<cp_group>", "mesh_group": {"value": "anything"}}
        self.passes(identity_case(record, record))
        case = identity_case(ONE, record)
        case["batch"] = {"x.ids": ONE, "x.size": {"value": 3}, "x.on": {"value": True}}
        self.passes(case)
        for field, other in (("ids", tensor("i64", [2])), ("size", 4), ("size", 3.0), ("on", 1),
                             ("size", None), ("none", 0)):
            case["ranks"][0]["outputs"]["x"] = {**record, field: other}
            self.fails(case, f"stream x.{field}")

    def test_process_groups_never_travel(self):
        for group in ({"value": "<cp_group>"}, {"value": None}):
            case = identity_case(ONE, ONE)
            case["ranks"][0]["outputs"]["process"] = group
            self.passes(case)
        case["ranks"][0]["outputs"]["cp_group"] = {"value": 7}
        self.passes(case)
        case["ranks"][0]["outputs"]["process"] = {"value": "cp_group"}
        self.fails(case, "stream process: got nothing, want string 'cp_group'")

    def test_one_expectation_can_differ_between_ranks(self):
        case = identity_case(ONE, {"per_rank": [ONE, ONE]}, cp_size=2)
        case["ranks"].append({**case["ranks"][0], "rank": 1})
        self.passes(case)
        case["ranks"][1]["outputs"]["x"] = {"per_rank": [ONE, tensor("i64", [2])]}
        self.fails(case, "rank 1, stream x, index [0]: got 1, want 2")
        case["ranks"][1]["outputs"]["x"] = {"per_rank": [ONE]}
        self.fails(case, "'per_rank' has no number 1")

    def test_a_batch_that_differs_between_ranks_cannot_be_sent(self):
        case = identity_case({"per_rank": [ONE]}, ONE)
        self.is_skipped(case, "cannot be sent: a value differs between ranks")

    def test_every_replica_has_a_batch_and_ranks_of_its_own(self):
        two = tensor("i64", [2])
        self.passes(sync_case([ONE, two], [ONE, two]))
        self.fails(sync_case([ONE, two], [ONE, ONE]), "rank 1, stream x, index [0]: got 2, want 1")
        self.fails(sync_case([ONE, two], [ONE]), "ranks: got 2, want 1")
        self.fails(sync_case([ONE], [ONE, two]), "malformed case: value 'x': 'per_replica'")
        self.fails(identity_case({"per_replica": [ONE]}, ONE), "malformed case: value 'x'")
        for count in (0, -1, True, "2", 2.0, 1 << 40):
            self.fails(sync_case([ONE, two], [ONE, two], dp_size=count), "field 'dp_size'")


class Cases(RunnerTest):
    def test_the_loss_mask_argument_is_a_stream(self):
        case = identity_case(ONE, ONE, loss_mask_arg=tensor("i64", [5]))
        self.fails(case, "stream loss_mask: got i64 [1], want nothing")
        case["ranks"][0]["outputs"]["loss_mask"] = tensor("i64", [5])
        self.passes(case)
        case["batch"]["loss_mask"] = ONE
        self.fails(case, "malformed case: a loss_mask both in batch and as argument")

    def test_the_buffer_of_the_loss_mask_is_the_loss_mask(self):
        case = identity_case(ONE, ONE, loss_mask_arg=ONE)
        case["ranks"][0]["outputs"]["loss_mask(buffer)"] = ONE
        self.passes(case)

    def test_a_missing_pad_id_is_0_and_null_is_none(self):
        case = golden(("thd", "thd-0085"))  # without lengths: zeros are padding
        self.assertEqual(case["args"], {"padding_token_id": 0})
        self.passes(case)
        case["args"] = {}
        self.passes(case)
        case["args"] = {"padding_token_id": None}
        self.fails(case, "got INVALID_ARGUMENT")
        case["args"] = {"padding_token_id": 5}
        self.fails(case, "got ")

    def test_an_argument_of_the_expectation_is_an_input(self):
        case = golden(("contiguous", "contiguous-0001"))
        explicit, laid_over = copy.deepcopy(case), copy.deepcopy(case)
        explicit["args"]["min_padded_len"] = 64
        laid_over["product"]["expect"] = {"args": {"min_padded_len": 64},
                                          "ranks_as_reference": True}
        self.assertNotEqual(answer_of(self, laid_over), answer_of(self, case))
        self.assertEqual(answer_of(self, laid_over), answer_of(self, explicit))

    def test_arguments_of_hidden_collectives_are_ignored(self):
        case = golden(("contiguous", "contiguous-0001"))
        case["args"].update({"sync_packed_length": True, "peer_max_length": 64})
        self.passes(case)

    def test_ranks_as_reference_are_the_reference(self):
        case = identity_case(ONE, ONE)
        case["product"] = {"same": False, "decision": "D14", "expect": {"ranks_as_reference": True}}
        self.passes(case)
        case["ranks"][0]["outputs"]["x"] = tensor("i64", [2])
        self.fails(case, "index [0]: got 1, want 2")
        case["product"]["expect"] = {"ranks_as_reference": False}
        self.fails(case, "neither error nor ranks")
        case["product"]["expect"] = {"ranks": identity_case(ONE, ONE)["ranks"]}
        self.passes(case)

    def test_a_refusal_of_one_entry_stands_for_every_rank(self):
        case = golden(("decisions", "decision-0057"))
        self.assertEqual([list(entry) for entry in case["ranks"]], [["rank", "error"]])
        self.passes(case)
        case["product"] = {"same": True}
        self.fails(case, "the reference raises, and product names no error")

    def test_layout_fields_that_are_null_are_absent(self):
        case = identity_case(ONE, ONE)
        case["ranks"][0]["layout"] = {"original_seq_len": None, "padded_seq_len": None,
                                      "local_token_global_indices": None, "input_row_shape": None,
                                      "input_token_stream_positions": None}
        self.passes(case)
        case["ranks"][0]["layout"]["input_row_shape"] = [1]
        self.fails(case, "layout input_row_shape: got none, want shape [1] values [1]")
        del case["ranks"][0]["layout"]
        self.fails(case, "field 'layout' is missing")

    def test_state_is_compared_in_process(self):
        case = identity_case(ONE, ONE)
        case["ranks"][0]["state"] = {"row_offset": {"value": None}}
        self.passes(case)
        case["ranks"][0]["state"] = {"row_offset": {"value": 0}}
        self.fails(case, "rank 0, state, stream row_offset: got nothing, want integer 0")
        case["ranks"][0]["state"] = [1]
        self.fails(case, "cannot compare")

    def test_a_conversion_has_neither_indices_nor_a_layout(self):
        case = golden(("curated", "G1"))
        self.passes(case)
        case["ranks"][0]["outputs"]["_thd_local_indices"] = ONE
        self.fails(case, "stream _thd_local_indices: got nothing, want i64 [1]")
        case = golden(("curated", "G1"))
        case["ranks"][0]["layout"] = {"padded_seq_len": 12}
        self.fails(case, "layout padded_seq_len: got none, want 12")
        case = golden(("curated", "G1"))
        case["backend"], case["cp_size"] = "te_thd", 1
        self.fails(case, "stream _thd_local_indices: got i64 [12], want nothing")
        case["backend"] = "thd_convert"
        self.fails(case, "cp_size must be null")

    def test_no_mesh_is_not_a_mesh_of_one(self):
        case = golden(("identity", "identity-0001"))
        for cp_size in ("1", 1.0, True):
            case["cp_size"] = cp_size
            self.fails(case, "field 'cp_size' must be an integer or null")

    def test_members_that_nobody_would_read_fail(self):
        for damage in (lambda case: case.update(surprise=1),
                       lambda case: case.update(words="yes"),
                       lambda case: case["ranks"][0].update(surprise=1),
                       lambda case: case["product"].update(surprise=1),
                       lambda case: case["product"].update(expect={"surprise": 1})):
            case = identity_case(ONE, ONE)
            damage(case)
            self.fails(case)

    def test_arguments_of_the_te_formula_are_checked(self):
        for damage in ({"cu_seqlens_padded": [0, 8.0]}, {"cu_seqlens_padded": 8},
                       {"cu_seqlens_padded": None}, {"total_tokens": "24"}, {"total_tokens": None},
                       {"total_tokens": 1 << 40}, {"surprise": 1}):
            case = golden(("curated", "A11"))
            case["args"].update(damage)
            self.fails(case, "malformed case")
        for damage in ({"cu_seqlens_padded": []}, {"cu_seqlens_padded": [0]},
                       {"cu_seqlens_padded": [0, 24, 8]}, {"cu_seqlens_padded": [1, 24]},
                       {"total_tokens": -24}, {"total_tokens": 32}):
            case = golden(("curated", "A11"))
            case["args"].update(damage)
            self.fails(case, "got INVALID_ARGUMENT")
            case["product"]["expect"] = {"error": "INVALID_ARGUMENT"}
            self.passes(case)


    def test_arguments_of_in_forward_sharding_are_checked(self):
        for damage in ({"seq_dim": "1"}, {"seq_dim": 1.0}, {"pad_value": "0"}, {"pad_value": [0]},
                       {"pad_multiple": 4.0}, {"pad_multiple": 1 << 40}, {"grad": 1},
                       {"surprise": 1}):
            case = golden(("curated", "F3"))
            case["args"].update(damage)
            self.fails(case, "malformed case")
        for batch in ({}, {"x": ONE}, {"tensor": ONE, "x": ONE},
                      {"tensor": ONE, "x": {"value": 1}}, {"tensor": {"value": 1}}):
            case = golden(("curated", "F3"))
            case["batch"] = batch
            self.fails(case, "malformed case: the batch must hold one entry")
        case = golden(("curated", "F1"))
        case["args"]["pad_multiple"] = 4  # of contiguous alone
        self.fails(case, "malformed case: args.pad_multiple: unknown argument")

    def test_arguments_of_the_token_verbs_are_checked(self):
        for damage in ({"seq_dim": "0"}, {"seq_dim": 1.0}, {"fill": "0"}, {"grad": 1},
                       {"trim": True}, {"map": "spiral"}, {"layout": 8}, {"surprise": 1},
                       {"layout": {"indices": [[0, 1]]}}, {"layout": {"indices": [[0], [-1]]}}):
            case = golden(("curated", "R11"))
            case["args"].update(damage)
            self.fails(case, "malformed case")
        for batch in ({}, {"x": ONE}, {"t": ONE, "local": ONE}, {"weight": ONE},
                      {"t": {"value": 1}}, {"t": ONE, "x": {"value": 1}}):
            case = golden(("curated", "R11"))
            case["batch"] = batch
            self.fails(case, "malformed case: the batch must hold")
        for indices in ([[0, 1], [2, 9]], [[0, 1], [2, 1 << 62]]):  # beyond the four columns
            case = golden(("curated", "R15"))
            case["args"]["layout"]["indices"] = indices
            case["batch"]["t"] = tensor("f32", [1.0, 2.0, 3.0, 4.0])
            self.passes(case)

    def test_arguments_of_the_gathers_are_checked(self):
        gather = ("gather_token_tensor", "gather_token_tensor-0034")
        for where, damage in ((gather, {"trim": 1}), (gather, {"grad": True}),
                              (gather, {"seq_dim": None}), (gather, {"surprise": 1}),
                              (("gather_sequence", "gather_sequence-0004"), {"op": "gpt"}),
                              (("gather_sequence", "gather_sequence-0004"), {"op": None}),
                              (("gather_sequence", "gather_sequence-0004"), {"history": 1}),
                              (("gather_sequence", "gather_sequence-0025"), {"history": "2"}),
                              (("gather_sequence", "gather_sequence-0025"), {"dim": 1})):
            case = golden(where)
            case["args"].update(damage)
            self.fails(case, "malformed case")
        case = golden(gather)
        case["batch"]["local"]["per_rank"].pop()
        self.fails(case, "'per_rank' has no number 3")

    def test_arguments_of_the_dispatch_are_checked(self):
        for damage in ({"doc_lens": 16}, {"doc_lens": [1.5]}, {"doc_lens": None},
                       {"doc_lens": [1 << 40]}, {"doc_lens": [1 << 62, 1 << 62]},
                       {"chunk_size_arg": None}, {"chunk_size_arg": 1 << 62},
                       {"true_indices": 1}, {"surprise": 1}):
            case = golden(("curated", "Q1"))
            case["args"].update(damage)
            self.fails(case, "malformed case")
        for damage in ({"doc_lens": []}, {"doc_lens": [1]}, {"doc_lens": [-16]},
                       {"chunk_size_arg": 0}):
            case = golden(("curated", "Q1"))
            case["args"].update(damage)
            self.fails(case, "got INVALID_ARGUMENT")

    def test_indices_whose_report_is_asked_for_are_checked(self):
        for indices in (None, [], 7, [[0, 1]], [[0, 1], [2]], [[0, 1], [[2, 3]]], [[0], [-1]],
                        [["0"], ["1"]], [[[0], [1]], [[2], [3]]]):
            case = golden(("curated", "Q10"))
            case["args"]["local_indices"] = indices
            self.fails(case, "malformed case")
        case = golden(("curated", "Q10"))
        case["batch"] = {"input_ids": ONE}
        self.fails(case, "malformed case: magi_layout needs input_ids [B, S]")


class Skipped(RunnerTest):
    def test_they_never_count_as_passed(self):
        for change, reason in (({}, f"not built yet: backend {UNBUILT}"),
                               ({"words": True}, "described in words"),
                               ({"product": {"same": False, "expect": None, "why": "not derived"}},
                                'cannot be sent: expect is null, "not derived"')):
            self.is_skipped(unbuilt_case(**change), reason)

    def test_they_must_be_readable(self):
        bad = {"dtype": "i64", "shape": [2], "data": [1]}
        rank = {"rank": 0, "outputs": {}, "layout": None}
        decided = {"same": False, "expect": {"ranks": [{**rank, "outputs": {"y": bad}}]}}
        for change, text in (
                ({"batch": {"x": bad}}, "value 'x'"),
                ({"batch": {"x": {"per_rank": [ONE]}}}, "'per_rank' has no number 1"),
                ({"batch": {"x": {"per_rank": [ONE, bad]}}}, "value 'x'"),
                ({"batch": {"x": {"unheard": 1}}}, "unknown encoding"),
                ({"loss_mask_arg": bad}, "value 'loss_mask'"),
                ({"ranks": [{**rank, "outputs": {"y": bad}}]}, "value 'y'"),
                ({"ranks": [{**rank, "layout": {"surprise": 1}}]}, "no such field"),
                ({"ranks": [{**rank, "state": {"z": bad}}]}, "value 'z'"),
                ({"ranks": [{**rank, "rank": 1}]}, "field 'rank'"),
                ({"ranks": None}, "field 'ranks'"),
                ({"product": None}, "field 'product'"),
                ({"product": {"same": True, "expect": {"error": "NO_CODE"}}}, "unknown code"),
                ({"product": decided}, "value 'y'"),
                ({"product": {"same": False, "expect": None}, "batch": {"x": bad}}, "value 'x'")):
            self.fails(unbuilt_case(**change), text)

    def test_values_that_differ_between_ranks_are_read_for_every_rank(self):
        self.is_skipped(unbuilt_case(batch={"x": {"per_rank": [ONE, {"value": None}]}}),
                        f"not built yet: backend {UNBUILT}")

    def test_layouts_as_arguments_must_be_readable(self):
        good = {"original": 7, "padded": 8, "indices": [[0, 1], [2, 3]], "indices_dtype": "i32",
                "row_shape": [2, 4], "input_token_stream_positions": [[0, 1, -1], [3, 4, -1]]}
        for layout in (good, {}, None, {"indices": None}, {**good, "indices": [[0]]}):
            for name in ("contiguous", "round_robin", "identity", None):
                self.is_skipped(unbuilt_case(args={"layout": layout, "map": name}), UNBUILT)
        for bad in ({"original": "7"}, {"padded": 8.0}, {"indices": [0, 1]}, {"indices": []},
                    {"indices": [[0.5]]}, {"indices_dtype": "i16"}, {"row_shape": 2},
                    {"row_shape": [[2]]}, {"input_token_stream_positions": [0]},
                    {"input_token_stream_positions": [[0], [1, 2]]}, {"surprise": 1}):
            self.fails(unbuilt_case(args={"layout": {**good, **bad}}),
                       f"args.layout.{next(iter(bad))}")
        self.fails(unbuilt_case(args={"layout": [1]}), "args.layout")
        self.fails(unbuilt_case(args={"map": "diagonal"}), "args.map")


class Vectors(RunnerTest):
    TEXT = (GOLDEN / "magi_vectors.json").read_text()

    def unreadable(self, text, message=""):
        result = run_lines([text], suffix="json")
        self.assertIn(message, result.stdout)
        self.assertEqual(result.stdout.splitlines()[-1], "0 passed, 1 failed")

    def test_each_is_a_case(self):
        names = [vector["name"] for vector in json.loads(self.TEXT)]
        result = run_lines([self.TEXT], "--verbose", suffix="json")
        self.assertEqual(re.findall("^answer (.*?): ", result.stdout, re.MULTILINE), names)
        self.assertEqual(result.stdout.splitlines()[-1], f"{len(names)} passed, 0 failed")
        result = run_lines([self.TEXT], "--only", names[3], suffix="json")
        self.assertEqual(result.stdout.splitlines()[-1], "1 passed, 0 failed")

    def test_they_must_be_readable(self):
        vectors = json.loads(self.TEXT)
        for field in vectors[0]:
            damaged = copy.deepcopy(vectors)
            damaged[3][field] = 1.5
            self.unreadable(json.dumps(damaged), f"vector 3: field '{field}'")
            del damaged[3][field]
            self.unreadable(json.dumps(damaged), f"vector 3: field '{field}'")
        for garbage in ("", "{}", "[1]", self.TEXT[:-9]):
            self.unreadable(garbage)

    def test_numbers_that_do_not_fit_together_fail(self):
        for field, value in (("q_ranges", [[0, 4096], [0, 4096]]), ("q_ranges", [[4096]]),
                             ("q_ranges", [[0, 4097]]), ("k_ranges", [[4096, 0]]),
                             ("k_ranges", [[-1, 4096]]), ("mask_types", []), ("areas", [1] * 9),
                             ("chunk_size", 0), ("chunk_size", 511), ("cp_size", 3),
                             ("cp_size", -1), ("total_seqlen", 1 << 40), ("uneven", True),
                             ("split_sizes", [2048, 2048])):
            damaged = json.loads(self.TEXT)
            damaged[3][field] = value
            self.unreadable(json.dumps(damaged), "vector 3: field '")

    def test_every_number_is_compared(self):
        for number, vector in enumerate(json.loads(self.TEXT)):
            for field in ("areas", "partitions", "loads", "split_sizes"):
                if vector[field] is None:
                    continue
                damaged = json.loads(self.TEXT)
                values = damaged[number][field]
                if field == "partitions":
                    values[0], values[1] = values[1], values[0]
                else:
                    values[-1] += 1
                result = run_lines([json.dumps(damaged)], suffix="json")
                self.assertIn(f"FAILED {vector['name']} ", result.stdout)
                self.assertEqual(result.stdout.splitlines()[-1], "14 passed, 1 failed")

    def test_areas_of_causal_documents_follow_from_the_mask(self):
        damaged = json.loads(self.TEXT)
        vector = damaged[3]  # one document of 4096 tokens in chunks of 512
        vector["q_ranges"] = vector["k_ranges"] = [[0, 4000]]
        result = run_lines([json.dumps(damaged)], suffix="json")
        self.assertIn(f"FAILED {vector['name']} [case/dispatch]: areas: ", result.stdout)


def answer_of(test, case):
    answers = [line for line in run(case, "--verbose").stdout.splitlines()
               if line.startswith(f"answer {case['id']}: ")]
    test.assertEqual(len(answers), 1)
    return answers[0]


if __name__ == "__main__":
    main()

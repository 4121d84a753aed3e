"""The layouts of models through the programs, one small batch each, in process, over a stream and
as a unary call: the three agree, every rank holds what contract sections 4.8 to 4.18 and 7 say, and
what was cut comes back."""

import json
import unittest

import grpc
import numpy as np

from programs import cpshard, files_of, write_batch
from safetensors_file import Tensor, read, tensor
from stream_case import StreamTest
from stubs import json_format, request_of, service_pb2, shards_of

NONE = -1000


def i64(values):
    return tensor("I64", values)


def i32(values):
    return tensor("I32", values)


def bools(text):
    """"110 001": rows of true and false."""
    return tensor("BOOL", [[mark == "1" for mark in row] for row in text.split()])


def tokens(*rows):
    """ids as given, and labels 100 above them."""
    return {"input_ids": i64(rows), "labels": i64(np.array(rows) + 100)}


ROW = tokens([11, 12, 13, 14, 15, 16])
TWO_ROWS = tokens([11, 12, 13, 14, 15, 16], [21, 22, 23, 24, 25, 26])
# Two documents of 3 and 2 tokens, one column of padding between them; one of 4.
REPACKED = TWO_ROWS | {"seq_lens": i64([[3, 2], [4, NONE]]),
                       "seq_lens_padded": i64([[4, 2], [4, NONE]])}
# For layouts that flatten rows: documents of 3 and 4 tokens, one of 7, in rows of 8.
FLAT = tokens(range(10, 18), range(20, 28)) | {
    "position_ids": i64([[0, 1, 2, 3, 0, 1, 2, 3], range(8)]),
    "seq_lens": i64([[3, 4], [7, NONE]]), "seq_lens_padded": i64([[4, 4], [8, NONE]])}
PAD = {"padding_token_id": "0"}


class Layouts(StreamTest):
    def shard(self, batch, options, cp):
        """The folder of the shards, once all ways to them are found to give the same."""
        source = write_batch(self.folder / "batch.safetensors", batch)
        served = self.serve()
        arguments = ["shard", f"--cp={cp}", "--options", json.dumps(options), "--in", source]
        here, there = self.folder / "here", self.folder / "there"
        self.succeeds(cpshard(*arguments, "--out", here))
        self.succeeds(cpshard(*arguments, "--out", there, "--server", served.address))
        self.assertEqual(files_of(here), files_of(there))
        reply = served.stub.ShardBatch(request_of(batch, options, cp), timeout=10)
        plan = self.succeeds(cpshard("plan", *arguments[1:], "--json")).out
        self.assertEqual(json_format.Parse(plan, service_pb2.PlanLayoutReply()).totals, reply.totals)
        for rank, tensors in enumerate(shards_of(reply)):
            files, _ = read(here / f"rank{rank}.safetensors")
            self.assertEqual(set(tensors), set(files))
            for name, value in tensors.items():
                self.assertTrue(value.same(files[name]), f"rank {rank}, {name}")
        self.shards, self.cp = here, cp
        self.layouts = json.loads((here / "layouts.json").read_text())
        return here

    def check(self, name, *want):
        """The stream as every rank holds it; one value: the same on all of them."""
        for rank in range(self.cp):
            tensors, metadata = read(self.shards / f"rank{rank}.safetensors")
            value = want[rank if len(want) > 1 else 0]
            if isinstance(value, Tensor):
                self.assertTrue(tensors[name].same(value),
                                f"rank {rank}, {name}: {tensors[name]}, not {value}")
            else:
                text = value if isinstance(value, str) else json.dumps(value)
                self.assertEqual(metadata[name], text, f"rank {rank}, {name}")

    def check_absent(self, *names):
        for rank in range(self.cp):
            tensors, metadata = read(self.shards / f"rank{rank}.safetensors")
            self.assertEqual([name for name in names if name in tensors or name in metadata], [])

    def check_layout(self, **want):
        """Fields that every rank reports; None: it does not. Integers, or lists of rows."""
        for layout in self.layouts:
            for name, value in want.items():
                field = layout.get(name)
                if isinstance(value, list):
                    got = np.array(field["values"], "i8").reshape([int(n) for n in field["shape"]])
                    self.assertEqual(got.tolist(), value, name)
                else:
                    self.assertEqual(field if field is None else int(field), value, name)

    def check_columns(self, *want):
        """What slots the ranks have."""
        for layout, columns in zip(self.layouts, want, strict=True):
            got = [int(run["source"]) + i for run in layout["runs"]
                   for i in range(int(run["length"]))]
            self.assertEqual(got, columns)

    def run_gather(self, name, *more):
        out = self.folder / "gathered.safetensors"
        result = cpshard("gather", "--layouts", self.shards / "layouts.json", "--in", self.shards,
                         "--stream", name, "--out", out, *more)
        return result, out

    def gather(self, name, *more):
        result, out = self.run_gather(name, *more)
        self.succeeds(result)
        return read(out)[0][name]

    def check_gather(self, name, want, *more):
        got = self.gather(name, *more)
        self.assertTrue(got.same(want), f"{name} {more}: {got}, not {want}")

    def check_repacked_gather(self):
        """Columns 3 of the first row and 4, 5 of the second were dropped."""
        self.check_layout(padded_seq_len=8, original_seq_len=None, input_token_stream_positions=[
            [0, 1, 2, -1, 4, 5], [0, 1, 2, 3, -1, -1]])
        self.check_gather("input_ids", i64([[11, 12, 13, 0, 15, 16, 0, 0],
                                            [21, 22, 23, 24, 0, 0, 0, 0]]))
        self.check_gather("input_ids", i64([[11, 12, 13, -7, 15, 16],
                                            [21, 22, 23, 24, -7, -7]]), "--trim", "--fill=-7")
        self.check_gather("labels", i64([[111, 112, 113, 9, 115, 116],
                                         [121, 122, 123, 124, 9, 9]]), "--trim", "--fill=9")
        refused, _ = self.run_gather("input_ids", "--trim")
        self.refused(refused, "INVALID_ARGUMENT", "fill")

    def test_deepseek_v4_lays_documents_out_anew(self):
        self.shard(REPACKED, {"deepseek_v4": {}} | PAD, 2)
        self.check("input_ids", i64([[11, 12, 13, 0], [21, 22, 23, 24]]),
                   i64([[15, 16, 0, 0], [0, 0, 0, 0]]))
        self.check("labels", i64([[111, 112, 113, -100], [121, 122, 123, 124]]),
                   i64([[115, 116, -100, -100], [-100] * 4]))
        self.check("position_ids", i64([[0, 1, 2, 3]] * 2), i64([[0, 1, 0, 0], [0] * 4]))
        self.check("packed_seq_ids", i64([[1] * 4] * 2), i64([[2, 2, 0, 0], [0] * 4]))
        self.check("padding_mask", bools("0001 0000"), bools("0011 1111"))
        self.check("seq_lens", i64([[3, 2], [4, NONE]]))
        self.check("seq_lens_padded", i64([[4, 2], [4, NONE]]))
        self.check("qkv_format", "thd")
        self.check_repacked_gather()

    def test_deepseek_v4_rows_are_as_long_as_those_of_another_group(self):
        self.shard(REPACKED, {"deepseek_v4": {}, "min_padded_len": "10"} | PAD, 2)
        self.check_layout(padded_seq_len=12)  # a multiple of 2 * 2
        self.check("padding_mask", bools("000100 000011"), bools("111111 111111"))

    def test_deepseek_v4_at_one_rank_leaves_the_batch_alone(self):
        self.shard(REPACKED, {"deepseek_v4": {}} | PAD, 1)
        for name, value in REPACKED.items():
            self.check(name, value)
        self.check_layout(padded_seq_len=None)

    def test_deepseek_v41_aligns_documents_and_turns_the_mask_round(self):
        self.shard(REPACKED, {"deepseek_v41": {"packed_alignment": "4"}}, 2)
        self.check("input_ids", i64([[11, 12, 13, 0], [21, 22, 23, 24]]),
                   i64([[15, 16, 0, 0], [0] * 4]))
        self.check("position_ids", i64([[0, 1, 2, 0], [0, 1, 2, 3]]), i64([[0, 1, 0, 0], [0] * 4]))
        self.check("packed_seq_ids", i64([[1, 1, 1, 0], [1] * 4]), i64([[2, 2, 0, 0], [0] * 4]))
        self.check("attention_mask", bools("1110 1111"), bools("1100 0000"))
        self.check_absent("seq_lens", "seq_lens_padded", "padding_mask", "qkv_format")
        self.check_repacked_gather()

    def test_gemma4_leaves_the_ids_whole(self):
        batch = TWO_ROWS | {"attention_mask": i64([[1] * 5 + [0], [1] * 6])}
        self.shard(batch, {"gemma4": {}}, 2)
        self.check("input_ids", batch["input_ids"])
        self.check("_packed_seq_ids", i64([[1] * 4] * 2), i64([[1, 0, 0, 0], [1, 1, 0, 0]]))
        self.check("padding_mask", bools("0000 0000"), bools("0111 0011"))
        self.check("position_ids", i64([[0, 1, 2, 3]] * 2), i64([[4, 5, 6, 7]] * 2))
        self.check_absent("attention_mask")
        for name in batch.keys() - {"attention_mask"}:
            self.check_gather(name, batch[name], "--trim")

    def test_kimi_has_a_record_of_the_documents_or_three_entries(self):
        batch = TWO_ROWS | {"seq_lens": i64([[3, 2], [3, 3]]),
                            "seq_lens_padded": i64([[4, 2], [3, 3]])}
        for variant, prefix in (("LINEAR", "kimi_packed_context."), ("K3", "kimi_packed_")):
            with self.subTest(variant):
                self.folder = self.folder / variant
                self.folder.mkdir()
                self.shard(batch, {"kimi": {"variant": variant}} | PAD, 4)
                documents = i32([[1, 1, 1, 1, 2, 2, 0, 0], [1, 1, 1, 2, 2, 2, 0, 0]])
                self.check(prefix + "doc_ids", documents)
                self.check(prefix + "seq_start", 0, 2, 4, 6)
                self.check(prefix + "cp_size", 4)
                self.check("padding_mask", *[bools("00 00")] * 3, bools("11 11"))
                self.check("position_ids", *[i64([[at, at + 1]] * 2) for at in (0, 2, 4, 6)])
                self.check_absent("seq_lens", "seq_lens_padded")
                self.check_gather(prefix + "doc_ids", documents)
                self.check_gather("labels", batch["labels"], "--trim")

    def test_glm5_next_has_a_record_and_positions_of_zero_on_padding(self):
        batch = ROW | {"cu_seqlens": i32([0, 2, 6])}
        self.shard(batch, {"glm5_next": {"keep_primary_full": True}}, 4)
        record = "glm5_next_packed_context."
        self.check("input_ids", ROW["input_ids"])
        self.check(record + "doc_ids", i32([[1, 1, 2, 2, 2, 2, 0, 0]]))
        self.check(record + "seq_start", 0, 2, 4, 6)
        self.check(record + "cp_size", 4)
        self.check(record + "original_seq_len", 6)
        self.check("position_ids", *[i64([positions]) for positions in
                                     ([0, 1], [2, 3], [4, 5], [0, 0])])
        self.check_absent("cu_seqlens")
        self.check_gather("labels", ROW["labels"], "--trim")

    def test_glm_dsa_cuts_the_converted_stream_into_slices(self):
        self.shard(FLAT | {"pixel_values": tensor("F32", [1, 2])}, {"glm_dsa": {}}, 2)
        self.check("input_ids", i64(range(10, 18)), i64(range(20, 28)))
        self.check("cu_seqlens", i32([0, 3, 7, 14]))
        self.check("cu_seqlens_padded", i32([0, 4, 8, 16]))
        self.check("max_seqlen", i32(7))
        self.check("glm_dsa_cp_query_indices", i32(range(8)), i32(range(8, 16)))
        self.check("padding_mask", tensor("BOOL", [0, 0, 0, 1, 0, 0, 0, 0]),
                   tensor("BOOL", [0] * 7 + [1]))
        self.check("cp_rank", 0, 1)
        self.check_absent("pixel_values", "seq_lens", "seq_lens_padded")
        self.check_layout(padded_seq_len=16, local_token_global_indices=None)
        self.check_gather("labels", FLAT["labels"], "--trim")

    def test_mimo_has_the_partition_and_the_places_of_images(self):
        chunks = {"_vlm_pp_media_chunks": tensor("F32", [[1, 2], [3, 4]])}
        batch = FLAT | chunks | {"qkv_format": "thd"}
        self.shard(batch, {"mimo": {"image_token_id": "13", "video_token_id": "27"}}, 2)
        columns = [[0, 3, 4, 7, 8, 9, 14, 15], [1, 2, 5, 6, 10, 11, 12, 13]]
        self.check("_mimo_thd_local_indices", *map(i64, columns))
        self.check_columns(*columns)
        flat = FLAT["input_ids"].array.ravel()
        self.check("_mimo_global_image_mask", tensor("BOOL", flat == 13))
        self.check("_mimo_global_video_mask", tensor("BOOL", flat == 27))
        self.check("input_ids", *[i64(flat[own]) for own in columns])
        self.check("_vlm_pp_media_chunks", chunks["_vlm_pp_media_chunks"])
        self.check_absent("_thd_local_indices")
        self.check_gather("labels", FLAT["labels"], "--trim")

    def test_qwen3_8_has_the_whole_ids_in_a_record(self):
        self.shard(ROW | {"cu_seqlens": i32([0, 2, 6])}, {"qwen3_8": {}} | PAD, 2)
        record = "_qwen3_8_flash_next_cp_context."
        whole = i64([[11, 12, 13, 14, 15, 16, 0, 0]])
        self.check("input_ids", i64([[11, 12, 13, 14]]), i64([[15, 16, 0, 0]]))
        self.check("padding_mask", bools("0000"), bools("0011"))
        self.check(record + "global_input_ids", whole)
        self.check(record + "global_padding_mask", bools("00000011"))
        self.check(record + "global_cu_seqlens", i64([0, 2, 6]))
        self.check(record + "rank", 0, 1)
        self.check(record + "size", 2)
        self.check(record + "local_sequence_start", 0, 4)
        self.check(record + "local_sequence_length", 4)
        self.check_absent("cu_seqlens")
        self.check_gather(record + "global_input_ids", whole)
        self.check_gather("input_ids", ROW["input_ids"], "--trim")

    def test_block_diagonal_cuts_the_visual_rows_by_their_tokens(self):
        visual = tensor("F32", [[1, 2], [3, 4], [5, 6]])
        batch = ROW | {"_packed_seq_ids": i64([[1, 1, 2, 2, 2, 0]]),
                       "visual_pos_masks": bools("011001"), "_deepstack_visual_embeds.0": visual,
                       "_deepstack_visual_embeds.1": i32([[7], [8], [9]])}
        self.shard(batch, {"block_diagonal": {}} | PAD, 2)
        self.check("_packed_seq_ids", i64([[1, 1, 2, 2]]), i64([[2, 0, 0, 0]]))
        self.check("padding_mask", bools("0000"), bools("0111"))
        self.check("visual_pos_masks", bools("0110"), bools("0100"))
        self.check("_deepstack_visual_embeds.0", tensor("F32", [[1, 2], [3, 4]]),
                   tensor("F32", [[5, 6]]))
        self.check("_deepstack_visual_embeds.1", i32([[7], [8]]), i32([[9]]))
        self.check_absent("position_ids")
        self.check_gather("input_ids", ROW["input_ids"], "--trim")
        # Its rows are no tokens: no layout of tokens puts them together.
        refused, _ = self.run_gather("_deepstack_visual_embeds.0")
        self.refused(refused, "FAILED_PRECONDITION", "_deepstack_visual_embeds.0")

    def test_magi_deals_out_chunks_of_a_row(self):
        row = tokens([11, 12, 13, 14, 15])  # 5 chunks of a token, and one of padding
        self.shard(row, {"magi": {"variant": "HF"}}, 2)
        self.check("input_ids", i64([[11, 12, 15]]), i64([[13, 14, 0]]))
        self.check("labels", i64([[111, 112, 115]]), i64([[113, 114, -100]]))
        self.check("position_ids", i64([[0, 1, 4]]), i64([[2, 3, 4]]))
        self.check_layout(original_seq_len=5, padded_seq_len=6, input_row_shape=None)
        self.check_columns([0, 1, 4], [2, 3, 5])  # D3: the true slots
        for name, value in row.items():
            self.check_gather(name, value, "--trim")

    def test_magi_without_padding_reports_a_row_shape(self):
        self.shard(ROW, {"magi": {"variant": "HF"}}, 2)
        self.check("input_ids", i64([[12, 13, 16]]), i64([[11, 14, 15]]))
        self.check_layout(original_seq_len=None, padded_seq_len=6, input_row_shape=[1, 6])
        self.check_gather("labels", ROW["labels"], "--trim")

    def test_magi_deals_out_chunks_of_packed_documents(self):
        row = tokens(range(10, 18))
        batch = row | {"seq_lens": i64([[4, 4]]), "qkv_format": "thd", "step": 7}
        self.shard(batch, {"magi": {"variant": "CUSTOM"}}, 2)
        self.check("input_ids", i64([14, 15, 16, 17]), i64([10, 11, 12, 13]))
        self.check("position_ids", i64([4, 5, 6, 7]), i64([0, 1, 2, 3]))
        self.check("qkv_format", "thd")
        self.check_absent("step", "seq_lens")
        self.check_layout(padded_seq_len=8, input_row_shape=[1, 8])
        self.check_gather("labels", row["labels"], "--trim")

    def test_magi_that_leaves_a_batch_alone_reports_no_layout(self):
        self.shard(TWO_ROWS, {"magi": {"variant": "CUSTOM", "domain": "VLM"}}, 2)
        self.check("input_ids", TWO_ROWS["input_ids"])
        self.check_layout(padded_seq_len=None, local_token_global_indices=None)

    def test_an_explicit_partition_may_be_uneven(self):
        options = {"explicit": {"ranks": [
            {"runs": [{"source": "4", "length": "4"}, {"source": "0", "length": "1"}]},
            {"runs": [{"source": "1", "length": "3"}]}]}} | PAD
        self.shard(TWO_ROWS, options, 2)
        self.check("input_ids", i64([[15, 16, 0, 0, 11], [25, 26, 0, 0, 21]]),
                   i64([[12, 13, 14], [22, 23, 24]]))
        self.check("position_ids", i64([[4, 5, 6, 7, 0]] * 2), i64([[1, 2, 3]] * 2))
        self.check_layout(original_seq_len=6, padded_seq_len=8)
        self.check_columns([4, 5, 6, 7, 0], [1, 2, 3])
        for name, value in TWO_ROWS.items():
            self.check_gather(name, value, "--trim")

    def test_a_rank_of_an_explicit_partition_may_hold_nothing(self):
        options = {"explicit": {"ranks": [{}, {"runs": [{"length": "6"}]}]}}
        self.shard(TWO_ROWS, options, 2)
        self.check("input_ids", tensor("I64", [], (2, 0)), TWO_ROWS["input_ids"])
        self.check_gather("labels", TWO_ROWS["labels"], "--trim")

    def test_documents_cut_head_and_tail_without_padding_are_uneven(self):
        row = tokens(range(10, 17)) | {"position_ids": i64([[0, 1, 2, 3, 4, 0, 1]]),
                                       "seq_lens": i64([[5, 2]])}
        self.shard(row, {"document_head_tail": {}}, 2)
        columns = [[0, 1, 4], [2, 5, 3, 6]]
        self.check_columns(*columns)
        self.check("input_ids", *[i64(np.array(own) + 10) for own in columns])
        self.check("cu_seqlens", i32([0, 5, 7]))
        self.check("cp_rank", 0, 1)
        self.check_layout(padded_seq_len=7, input_row_shape=[1, 7])
        for name in ("input_ids", "labels", "position_ids"):
            self.check_gather(name, row[name], "--trim")


class Models(StreamTest):
    """Options that name a model: what they resolve to is said, in process and by a server."""

    def ways(self, command, options, batch, *more):
        """The results of the command in process and through a server."""
        source = write_batch(self.folder / "batch.safetensors", batch)
        arguments = [command, "--cp=2", "--options", json.dumps(options), "--in", source, *more]
        out = ["--out", self.folder / "out"] if command == "shard" else []
        return [cpshard(*arguments, *out, *server)
                for server in ([], ["--server", self.serve().address])]

    def test_a_plan_says_in_one_line_what_was_chosen_and_why(self):
        for model, chosen, why in (
                ({}, "round_robin", "cp_size is 2; the model has no hook"),
                ({"family": "GEMMA4"}, "gemma4", "the hook of model gemma4 chose it")):
            with self.subTest(chosen):
                for result in self.ways("plan", {"model": model}, TWO_ROWS):
                    first = self.succeeds(result).out.splitlines()[0]
                    self.assertEqual(first, f"resolved to layout {chosen}: {why}")
                for result in self.ways("plan", {"model": model}, TWO_ROWS, "--json"):
                    plan = json.loads(self.succeeds(result).out)
                    self.assertEqual((plan["chosen"], plan["reason"]), (chosen, why))

    def test_what_was_chosen_is_said_where_the_layout_refuses_the_batch(self):
        packed = FLAT | {"qkv_format": "thd"}  # D18
        texts = ("resolved to layout round_robin", "cp_size is 2", "'qkv_format = thd'",
                 "cannot keep documents apart", "document_head_tail")
        for command in ("plan", "shard"):
            for result in self.ways(command, {"model": {}}, packed):
                self.refused(result, "INVALID_ARGUMENT", *texts)
        with self.assertRaises(grpc.RpcError) as raised:
            self.serve().stub.ShardBatch(request_of(packed, {"model": {}}, 2), timeout=10)
        for text in texts:
            self.assertIn(text, raised.exception.details())

    def test_what_a_model_would_make_is_asked_for(self):
        for command in ("plan", "shard"):
            for result in self.ways(command, {"model": {"family": "QWEN3_VL"}}, TWO_ROWS):
                self.refused(result, "UNIMPLEMENTED", "resolved to layout round_robin",
                             "'position_ids'", "[3, B, S]")


if __name__ == "__main__":
    unittest.main()

"""What a server says of a batch beside its shards: totals and loads, the same by every way and
counted here once more; what padding costs; where tokens go; bounds at 4,096 ranks."""

import json
import unittest

import grpc
import numpy as np

from programs import cpshard, write_batch
from safetensors_file import tensor
from stream_case import StreamTest
from streams import frames, packed
from stubs import json_format, options_of, request_of, service_pb2, types_pb2

IGNORED = -100


def i64(values):
    return tensor("I64", values)


def tokens(rows, length, **more):
    """Labels of which every fifth does not count, nor do the last three of a row."""
    ids = np.arange(rows * length).reshape(rows, length)
    labels = np.where(ids % 5 == 0, IGNORED, ids)
    labels[:, length - 3:] = IGNORED
    return {"input_ids": i64(ids), "labels": i64(labels)} | more


def documents(*lengths):
    """One row of them; the padded lengths are multiples of 8."""
    padded = [-(-length // 8) * 8 for length in lengths]
    batch = tokens(1, sum(padded))
    batch["position_ids"] = i64([[i for length in padded for i in range(length)]])
    return batch | {"seq_lens": i64([lengths]), "seq_lens_padded": i64([padded])}


MASK = i64([[1] * 17 + [0] * 5, [1] * 22])
CASES = (
    ("contiguous", tokens(2, 22, attention_mask=MASK), {"contiguous": {}, "padding_token_id": "0"}, 4),
    ("round_robin", tokens(2, 22), {"round_robin": {}}, 4),
    ("aux_only", tokens(2, 22), {"round_robin": {"keep_primary_full": True}}, 3),
    ("identity", tokens(2, 22), {"identity": {}}, 2),
    ("no layout", {"x": i64([1, 2, 3])}, {"identity": {}}, None),
    ("thd", documents(5, 16, 3), {"thd": {}}, 4),
    ("thd at 1", documents(5, 16, 3), {"thd": {}}, 1),
    ("head and tail", documents(8, 16), {"document_head_tail": {}}, 3),
    ("uneven", tokens(1, 8), {"explicit": {"ranks": [{"runs": [{"length": "7"}]},
                                                     {"runs": [{"source": "7", "length": "1"}]}]}}, 2),
    ("deepseek_v4", documents(5, 16, 3), {"deepseek_v4": {}, "padding_token_id": "0"}, 2))


class Totals(StreamTest):
    def in_process(self, batch, options, cp):
        source = write_batch(self.folder / "batch.safetensors", batch)
        out = self.succeeds(cpshard("plan", f"--cp={cp or 'none'}", "--options",
                                    json.dumps(options), "--in", source, "--json")).out
        return json_format.Parse(out, service_pb2.PlanLayoutReply())

    def test_totals_and_loads_are_the_same_by_every_way(self):
        served = self.serve()
        stream = served.stream()
        for number, (name, batch, options, cp) in enumerate(CASES):
            with self.subTest(name):
                plan = self.in_process(batch, options, cp)
                reply = served.stub.ShardBatch(request_of(batch, options, cp), timeout=10)
                stream.send(*frames(number, packed(batch, options, cp), chunk=128))
                answer = stream.answer(number)
                self.assertIsNone(answer.status, answer.status)
                self.assertEqual(reply.totals, plan.totals)
                self.assertEqual(answer.begin.totals, plan.totals)
                self.assertEqual(list(reply.notices), list(plan.notices))
                self.assertEqual(list(answer.begin.notices), list(plan.notices))
                for shards in (reply.shards, answer.shards):
                    self.assertEqual([shard.load for shard in shards if shard.HasField("load")],
                                     list(plan.loads))
                self.assertEqual(plan.totals.summed_over, types_pb2.SUMMED_OVER_CP_GROUP)

    def test_labels_are_counted_before_the_cut(self):
        served = self.serve()
        for name, batch, options, cp in CASES:
            if "labels" not in batch:
                continue
            with self.subTest(name):
                totals = served.stub.ShardBatch(request_of(batch, options, cp, [0]),
                                                timeout=10).totals
                labels = batch["labels"].array
                self.assertEqual(totals.num_label_tokens, np.sum(labels != IGNORED))
                kept = sum(max((i + 1 for i in range(len(row)) if row[i] != IGNORED), default=0)
                           for row in labels)
                self.assertEqual(totals.num_tokens_excl_tail_pad, kept)

    def test_loads_of_the_ranks_add_up_to_the_totals(self):
        served = self.serve()
        for name, batch, options, cp in CASES:
            reply = served.stub.ShardBatch(request_of(batch, options, cp), timeout=10)
            if name in ("identity", "no layout"):
                continue  # every rank holds everything
            with self.subTest(name):
                for field in ("real", "pad", "supervised"):
                    self.assertEqual(sum(getattr(shard.load.tokens, field) for shard in reply.shards),
                                     getattr(reply.totals.tokens, field), field)
                for field in ("causal_rows", "full_rows"):
                    areas = [getattr(shard.load, field) for shard in reply.shards]
                    area = getattr(reply.totals.balance, field)
                    self.assertAlmostEqual(sum(areas), area.scheduled)
                    self.assertAlmostEqual(max(areas) * len(areas) / sum(areas), area.imbalance)

    def test_a_server_plans_what_the_command_line_plans(self):
        served = self.serve()
        for name, batch, options, cp in CASES:
            with self.subTest(name):
                source = write_batch(self.folder / "batch.safetensors", batch)
                command = ["plan", f"--cp={cp or 'none'}", "--options", json.dumps(options),
                           "--in", source]
                for more in ([], ["--json"]):
                    self.assertEqual(
                        self.succeeds(cpshard(*command, *more)).out,
                        self.succeeds(cpshard(*command, *more, "--server", served.address)).out)

    def test_a_batch_beyond_a_call_is_planned_without_the_numbers_that_found_no_room(self):
        served = self.serve()
        source = write_batch(self.folder / "batch.safetensors", tokens(1, 600_000))
        out = self.succeeds(cpshard("plan", "--cp=2", "--options", '{"round_robin": {}}', "--in",
                                    source, "--server", served.address, "--json")).out
        plan = json.loads(out)
        self.assertEqual([notice["code"] for notice in plan["notices"]], ["not_counted"])
        self.assertIn("'labels'", plan["notices"][0]["text"])
        self.assertNotIn("num_label_tokens", plan["totals"])
        self.assertEqual(plan["totals"]["tokens"]["real"], "600000")

    def test_heads_of_4096_ranks_fit_their_frames(self):
        served = self.serve()
        batch = tokens(1, 8192)  # support/streams.py holds every header to 64 KiB
        stream = served.stream()
        stream.send(*frames(1, packed(batch, {"round_robin": {}}, 4096)))
        answer = stream.answer(1)
        self.assertIsNone(answer.status, answer.status)
        self.assertEqual(len(answer.shards), 4096)
        self.assertEqual(sum(shard.load.tokens.real for shard in answer.shards), 8192)
        self.assertGreater(answer.num_frames, 2)
        plan = json.loads(self.succeeds(cpshard("plan", "--cp=4096", "--options",
                                                '{"round_robin": {}}', "--len=8192", "--server",
                                                served.address, "--json")).out)
        self.assertEqual(len(plan["loads"]), 4096)
        text = self.succeeds(cpshard("plan", "--cp=4096", "--options", '{"round_robin": {}}',
                                     "--len=8192", "--server", served.address)).out
        self.assertLess(len(text.splitlines()), 60)

    # --- lengths and places ----------------------------------------------------------------------

    def test_lengths_are_answered_with_what_padding_costs_them(self):
        served = self.serve()
        request = service_pb2.PlanLayoutRequest(options=options_of({"thd": {}}), cp_size=4,
                                                document_lengths=[8, 4, 17])
        reply = served.stub.PlanLayout(request, timeout=10)
        self.assertEqual(reply, service_pb2.PlanLayoutReply(pad_costs=service_pb2.PadCosts(
            document_multiple=8, document_term="2 * cp_size = 8", row_multiple=8,
            row_term="2 * cp_size = 8", padded=[8, 8, 24], row=40)))
        for door in ([], ["--server", served.address]):
            command = ["plan", "--cp=4", "--options", '{"thd": {}}', "--docs=8,4,17", *door]
            out = self.succeeds(cpshard(*command)).out
            lines = [line.split() for line in out.splitlines()]
            for line in (["0", "8", "8", "0"], ["1", "4", "8", "4"], ["2", "17", "24", "7"],
                         ["all", "29", "40", "11"], ["row", "40", "40", "0"]):
                self.assertIn(line, lines)
            self.assertIn("a multiple of 2 * cp_size = 8", out)
            plan = json_format.Parse(self.succeeds(cpshard(*command, "--json")).out,
                                     service_pb2.PlanLayoutReply())
            self.assertEqual(plan, reply)
            self.refused(cpshard("plan", "--cp=none", "--options", '{"round_robin": {}}', "--docs=8",
                                 *door), "INVALID_ARGUMENT", "needs a mesh")
            many = ",".join(["5"] * 5000)
            text = self.succeeds(cpshard("plan", "--cp=4", "--options", '{"thd": {}}',
                                         f"--docs={many}", *door)).out
            self.assertLess(len(text.splitlines()), 40)

    def test_tokens_and_slots_are_found(self):
        served = self.serve()
        batch = documents(5, 16, 3)  # padded to 8, 16 and 8: chunks of 2, 4 and 2 at 2 ranks
        request = service_pb2.PlanLayoutRequest()
        request.MergeFromString(request_of(batch, {"thd": {}}, 2).SerializeToString())
        request.queries.add().token.token = 9
        request.queries.add().slot.rank = 0
        place = served.stub.PlanLayout(request, timeout=10).answers
        # Token 9 is the second of document 1: the head chunk of rank 0, behind the 4 slots of
        # document 0.
        self.assertEqual([(held.rank, held.slot) for held in place[0].place.held], [(0, 5)])
        self.assertEqual((place[0].document.index, place[0].document.position,
                          place[0].document.real), (1, 1, 16))
        self.assertEqual([(held.rank, held.slot) for held in place[0].previous.held], [(0, 4)])
        self.assertEqual((place[1].place.source.row, place[1].place.source.token), (0, 0))
        request.queries.add().token.token = 32
        with self.assertRaises(grpc.RpcError) as outside:
            served.stub.PlanLayout(request, timeout=10)
        self.assertEqual(outside.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("query 2", outside.exception.details())


if __name__ == "__main__":
    unittest.main()

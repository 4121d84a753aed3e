"""`cpshard explain`: where a token went and where a slot came from, in the files of the shards.

Expected places are worked out by hand, or by the tokens themselves: the id of token t of row r is
100 r + t + 1, so that an id that stands in a slot says whose slot it is."""

import json
import unittest

import numpy as np

from programs import ProgramTest, cpshard, write_batch
from safetensors_file import read, tensor, write

ROUND_ROBIN = {"round_robin": {}}
SENTINEL = -1000


def batch_of(positions, **more):
    positions = np.array(positions)
    rows, length = positions.shape
    ids = 100 * np.arange(rows)[:, None] + np.arange(length) + 1
    return {"input_ids": tensor("I64", ids), "labels": tensor("I64", ids + 1),
            "position_ids": tensor("I64", positions)} | more


def packed(real, padded):
    """Rows of documents of these lengths, positions starting anew."""
    positions = [np.concatenate([np.arange(n) for n in row]) for row in padded]
    return batch_of(positions, seq_lens=tensor("I64", real), seq_lens_padded=tensor("I64", padded))


# Documents of 4 and 2 tokens, and one of 6. Round robin over two ranks pads the rows to 8 columns;
# rank 0 holds columns 0 1 6 7, rank 1 columns 2 3 4 5.
ROWS = batch_of([[0, 1, 2, 3, 0, 1], [0, 1, 2, 3, 4, 5]],
                embeds=tensor("F32", np.arange(2 * 6 * 20) / 4, (2, 6, 20)),
                padding_mask=tensor("BOOL", np.zeros((2, 6))))
ROWS_OPTIONS = ROUND_ROBIN | {"extra_streams": [{"name": "embeds"}]}


class ExplainTest(ProgramTest):
    def shard(self, batch, options, cp, name="shards", ranks=None):
        source = write_batch(self.folder / f"{name}.safetensors", batch)
        out = self.folder / name
        more = () if ranks is None else ("--ranks", ranks)
        self.succeeds(cpshard("shard", "--cp", cp, "--options", json.dumps(options), "--in",
                              source, "--out", out, *more))
        return out

    def explain(self, shards, *arguments):
        return cpshard("explain", "--layouts", shards / "layouts.json", "--in", shards, *arguments)

    def json(self, shards, *arguments):
        return json.loads(self.succeeds(self.explain(shards, *arguments, "--json")).out)

    def token(self, shards, row, token):
        return self.json(shards, "--row", row, "--token", token)

    def slot(self, shards, rank, slot, *more):
        return self.json(shards, "--rank", rank, "--slot", slot, *more)

    def lines(self, shards, *arguments):
        """The texts by their labels, and that they begin in one column."""
        lines = self.succeeds(self.explain(shards, *arguments)).out.splitlines()
        found, begins = {}, set()
        for line in filter(None, lines):
            label, text = line.split("  ", 1)
            begins.add(len(line) - len(text.lstrip()))
            self.assertNotIn(label, found)
            found[label] = text.strip()
        self.assertEqual(len(begins), 1, lines)
        return found

    def refused_explain(self, shards, code, arguments, *texts):
        result = self.explain(shards, *arguments)
        self.refused(result, code, *texts)
        self.assertEqual(result.out, "")

    def comes_back(self, shards, rows, length, dropped=(), flattened=False):
        """Every token is where its id stands, and the slot leads back to it."""
        for row in range(rows):
            for token in range(length):
                place = self.token(shards, row, token)
                self.assertEqual((place["row"], place["token"]), (row, token))
                if (row, token) in dropped:
                    self.assertEqual((place["held"], place["column"]), ([], None))
                    continue
                self.assertEqual(place["streams"]["input_ids"]["values"], [100 * row + token + 1])
                held = place["held"][0]
                more = () if flattened else ("--row", row)
                self.assertEqual(self.slot(shards, held["rank"], held["slot"], *more), place)


class Tokens(ExplainTest):
    def test_a_token_is_shown_with_its_slot_its_document_and_its_neighbours(self):
        lines = self.lines(self.shard(ROWS, ROWS_OPTIONS, 2), "--row=0", "--token=1")
        self.assertEqual(lines["row"], "0 of 2")
        self.assertEqual(lines["token"], "1 of 6")
        self.assertEqual(lines["column"], "1 of 8")
        self.assertEqual(lines["rank"], "0 of 2")
        self.assertEqual(lines["slot"], "1 of 4")
        self.assertEqual(lines["document"], "0 of 2 by position_ids: columns 0 ... 3")
        self.assertEqual(lines["position"], "1 of 4")
        self.assertEqual(lines["input_ids"], "2")
        self.assertEqual(lines["labels"], "3")
        self.assertEqual(lines["padding_mask"], "false")
        self.assertEqual(lines["embeds"], "[5, 5.25, 5.5, 5.75, 6, 6.25, 6.5, 6.75, ... 20 in all]")
        self.assertEqual(lines["previous"], "token 0: rank 0, slot 0, input_ids 1")
        self.assertEqual(lines["next"], "token 2: rank 1, slot 0 (another rank), input_ids 3")

    def test_neighbours_are_of_the_same_document(self):
        shards = self.shard(ROWS, ROWS_OPTIONS, 2)
        self.assertIn("ends here", self.lines(shards, "--row=0", "--token=3")["next"])
        self.assertIn("begins here", self.lines(shards, "--row=0", "--token=4")["previous"])
        self.assertEqual(self.token(shards, 1, 3)["next"]["token"], 4)

    def test_a_slot_is_shown_with_its_token(self):
        shards = self.shard(ROWS, ROWS_OPTIONS, 2)
        place = self.slot(shards, 1, 3, "--row=1")
        self.assertEqual((place["row"], place["token"], place["column"]), (1, 5, 5))
        self.assertEqual(place["document"]["position"], 5)
        self.assertEqual(place["streams"]["labels"]["values"], [107])
        self.assertEqual(self.slot(shards, 1, 3)["row"], 0)

    def test_a_slot_of_padding_has_no_token(self):
        lines = self.lines(self.shard(ROWS, ROWS_OPTIONS, 2), "--rank=0", "--slot=2")
        self.assertIn("padding", lines["token"])
        self.assertEqual(lines["column"], "6 of 8")
        self.assertIn("padding", lines["document"])
        self.assertEqual(lines["labels"], "-100")
        self.assertEqual(lines["padding_mask"], "true")
        self.assertNotIn("next", lines)

    def test_every_token_comes_back_from_its_slot(self):
        for cp, options in ((2, ROUND_ROBIN), (3, {"contiguous": {}, "padding_token_id": 0}),
                            ("none", {"identity": {}}), (2, {"identity": {}}),
                            (2, {"contiguous": {"keep_primary_full": True},
                                 "padding_token_id": 0})):
            with self.subTest(cp=cp, options=options):
                name = f"{cp}{list(options)[0]}{len(json.dumps(options))}"
                batch = {name: ROWS[name] for name in ("input_ids", "labels", "position_ids")}
                self.comes_back(self.shard(batch, options, cp, name), 2, 6)

    def test_what_every_rank_holds_is_on_every_rank(self):
        shards = self.shard({"input_ids": ROWS["input_ids"]}, {"identity": {}}, 3)
        self.assertEqual(self.token(shards, 1, 2)["held"],
                         [{"rank": rank, "slot": 2} for rank in range(3)])
        self.assertIn("each of 3", self.lines(shards, "--row=1", "--token=2")["rank"])
        self.assertEqual(self.slot(shards, 2, 2)["rank"], 2)

    def test_streams_that_were_not_cut_are_shown_as_such(self):
        shards = self.shard(ROWS, {"round_robin": {"keep_primary_full": True}}, 2)
        lines = self.lines(shards, "--row=0", "--token=1")
        self.assertEqual(lines["input_ids"], "2  (whole)")
        self.assertEqual(lines["labels"], "3")
        self.assertEqual(lines["next"], "token 2: rank 1, slot 0 (another rank), input_ids 3")
        self.assertNotIn("input_ids", self.lines(shards, "--rank=0", "--slot=2"))

    def test_positions_of_three_axes_are_shown_together(self):
        positions = np.stack([ROWS["position_ids"].array + 10 * axis for axis in range(3)])
        batch = ROWS | {"position_ids": tensor("I64", positions)}
        lines = self.lines(self.shard(batch, ROWS_OPTIONS, 2), "--row=1", "--token=4")
        self.assertEqual(lines["position_ids"], "[4, 14, 24]")

    def test_positions_that_all_rows_share_do_not_say_how_many_rows_there_are(self):
        # 64 bits beside 32: they stand first in the files.
        narrow = {name: tensor("I32", ROWS[name].array) for name in ("input_ids", "labels")}
        shared = np.arange(6)[None]
        for layout, positions in (("round_robin", np.stack([shared] * 3)),
                                  ("contiguous", np.stack([shared] * 3)), ("glm5_next", shared)):
            with self.subTest(layout=layout):
                batch = narrow | {"position_ids": tensor("I64", positions)}
                options = {layout: {}, "padding_token_id": 0}
                self.comes_back(self.shard(batch, options, 2, name=layout), 2, 6)


class Documents(ExplainTest):
    # Rows of 16 columns over two ranks: documents of 5 on 8 and 8 on 8, then 3 on 4 and 12 on 12.
    PACKED = packed([[5, 8], [3, 12]], [[8, 8], [4, 12]])

    def test_packed_rows_are_explained_in_the_rows_that_were_sent(self):
        shards = self.shard(self.PACKED, {"thd": {}}, 2)
        self.comes_back(shards, 2, 16, flattened=True)
        place = self.token(shards, 1, 4)
        self.assertEqual(place["column"], 20)
        self.assertEqual(place["document"], {"index": 3, "begin": 20, "real": 12, "length": 12,
                                             "position": 0, "padding": False,
                                             "from": "cu_seqlens"})

    def test_the_padding_mask_tells_what_of_a_document_is_padding(self):
        shards = self.shard(self.PACKED, {"thd": {}}, 2)
        lines = self.lines(shards, "--row=0", "--token=4")
        self.assertEqual(lines["document"],
                         "0 of 4 by cu_seqlens: columns 0 ... 7, the last 3 padding")
        self.assertEqual(lines["position"], "4 of 5")
        self.assertIn("ends here", lines["next"])
        lines = self.lines(shards, "--row=0", "--token=6")
        self.assertEqual(lines["position"], "6: padding behind its 5 tokens")

    def test_slots_of_chunks_are_counted_on(self):
        shards = self.shard(self.PACKED, {"thd": {"num_chunks": 2}}, 2)
        place = self.slot(shards, 1, 10)  # [1, 2] of [2, 8]
        self.assertEqual(place["chunk"], 1)
        self.assertEqual(place["streams"]["input_ids"]["values"],
                         [int(read(shards / "rank1.safetensors")[0]["input_ids"].array[1, 2])])
        # Of 4 and 12 columns rank 1 holds 1 2 and 7 ... 12.
        self.assertEqual((place["column"], place["source_known"], place["token"]), (7, False, 23))
        self.assertEqual(place["document"]["begin"], 4)
        self.assertIn("[1, 2] of [2, 8]", self.lines(shards, "--rank=1", "--slot=10")["slot"])

    def test_rows_that_were_laid_out_anew(self):
        batch = packed([[3, 2, SENTINEL], [1, 2, 2]], [[3, 3, SENTINEL], [2, 2, 2]])
        batch = packed_with_ids(batch)
        shards = self.shard(batch, {"deepseek_v4": {"pad_multiple": 4}, "padding_token_id": 0}, 2)
        self.comes_back(shards, 2, 6, dropped={(0, 5), (1, 1)})
        place = self.token(shards, 1, 4)  # the third document, its first token
        self.assertEqual(place["column"], 8)
        self.assertEqual(place["document"]["position"], 0)
        self.assertEqual((place["document"]["real"], place["document"]["length"]), (2, 4))
        self.assertIn("dropped", self.lines(shards, "--row=0", "--token=5")["column"])

    def test_where_no_stream_tells_the_row_is_one_document(self):
        batch = {name: ROWS[name] for name in ("input_ids", "labels")}
        shards = self.shard(batch, {"identity": {}}, 2)
        lines = self.lines(shards, "--row=0", "--token=5")
        self.assertIn("no stream tells", lines["document"])
        self.assertEqual(lines["position"], "5 of 6")


    def test_documents_are_told_by_streams_that_were_not_cut(self):
        lines = self.lines(self.shard(ROWS, {"identity": {}}, 2), "--row=0", "--token=5")
        self.assertEqual(lines["document"], "1 of 2 by position_ids: columns 4 ... 5")

    def test_ids_and_positions_that_the_layout_makes_of_whole_rows_tell_no_documents(self):
        ids = tensor("I64", [[1, 1, 1, 1, 2, 2], [1, 1, 1, 1, 1, 1]])
        batch = {name: ROWS[name] for name in ("input_ids", "labels")}
        for name, options, batch in (
                ("made_ids", {"gemma4": {}, "padding_token_id": 0},
                 batch | {"position_ids": ROWS["position_ids"]}),
                ("made_by_mask", {"kimi": {"variant": "K3"}, "padding_token_id": 0},
                 batch | {"position_ids": ROWS["position_ids"],
                          "attention_mask": tensor("I64", [[1, 1, 0, 1, 1, 1], [1] * 6])}),
                ("made_positions", {"kimi": {"variant": "K3"}, "padding_token_id": 0},
                 batch | {"_packed_seq_ids": ids}),
                ("linear", {"kimi": {"variant": "LINEAR"}, "padding_token_id": 0},
                 batch | {"_packed_seq_ids": ids})):
            with self.subTest(name):
                lines = self.lines(self.shard(batch, options, 2, name))
                self.assertTrue(lines["documents of row 0"].startswith("2 by "), lines)
                self.assertIn("columns 0 ... 3, 4 ... 5", lines["documents of row 0"])

    def test_positions_that_count_a_stream_of_rows_do_not_tell_the_rows(self):
        batch = packed([[8], [8]], [[8], [8]]) | {"qkv_format": "thd"}
        lines = self.lines(self.shard(batch, {"magi": {"variant": "CUSTOM", "domain": "LLM"}}, 2))
        self.assertIn("as one stream", lines["rows"])
        self.assertTrue(lines["documents"].startswith("1 by position_ids"), lines)


def packed_with_ids(batch):
    """Rows of six tokens whose lengths do not fill them."""
    rows = batch_of(np.tile(np.arange(6), (2, 1)))
    return rows | {name: batch[name] for name in ("seq_lens", "seq_lens_padded")}


class SomeRanks(ExplainTest):
    def test_a_place_on_another_rank_is_said_to_be_there(self):
        shards = self.shard(ROWS, ROWS_OPTIONS, 2, ranks="1")
        lines = self.lines(shards, "--row=0", "--token=0")
        self.assertEqual(lines["rank"], "not in the file, which has 1 of 2 ranks")
        self.assertEqual(lines["column"], "0 of 8")
        self.assertNotIn("slot", lines)
        self.assertNotIn("input_ids", lines)
        self.assertIn("unknown", lines["document"])
        lines = self.lines(shards, "--row=0", "--token=2")
        self.assertEqual((lines["rank"], lines["slot"], lines["input_ids"]),
                         ("1 of 2", "0 of 4", "3"))

    def test_boundaries_that_every_rank_has_tell_documents_all_the_same(self):
        shards = self.shard(Documents.PACKED, {"thd": {}}, 2, ranks="0")
        place = self.token(shards, 0, 1)  # the last one of the head of a document
        self.assertEqual(place["document"]["from"], "cu_seqlens")
        self.assertEqual((place["next"]["token"], place["next"]["held"]), (2, []))

    def test_a_slot_of_a_rank_that_is_not_there_is_refused(self):
        shards = self.shard(ROWS, ROWS_OPTIONS, 2, ranks="1")
        self.refused_explain(shards, "NOT_FOUND", ("--rank=0", "--slot=0"), "rank 0",
                             "1 of 2 ranks")


class Summary(ExplainTest):
    def test_without_a_token_the_layout_is_shown(self):
        shards = self.shard(ROWS, ROWS_OPTIONS, 2)
        lines = self.lines(shards)
        self.assertEqual(lines["rows"], "2 of 6 tokens, padded to 8 columns")
        self.assertEqual(lines["ranks"], "2 of 2, 4 slots each")
        self.assertEqual(lines["rank 0"], "4 slots in 2 runs: columns 0 ... 1, 6 ... 7")
        self.assertEqual(lines["rank 1"], "4 slots in 1 run: columns 2 ... 5")
        self.assertEqual(lines["documents of row 0"],
                         "2 by position_ids: columns 0 ... 3, 4 ... 5")
        self.assertEqual(lines["documents of row 1"], "1 by position_ids: columns 0 ... 5")

    def test_as_json_it_holds_every_run_and_document(self):
        summary = self.json(self.shard(Documents.PACKED, {"thd": {}}, 2))
        self.assertEqual(summary["ranks"][1]["runs"], [[2, 4], [10, 4], [17, 2], [23, 6]])
        self.assertEqual(summary["documents"],
                         [{"chunk": 0, "row": 0, "from": "cu_seqlens",
                           "spans": [[0, 5, 8], [8, 8, 8], [16, 3, 4], [20, 12, 12]]}])

    def test_chunks_have_documents_of_their_own(self):
        lines = self.lines(self.shard(Documents.PACKED, {"thd": {"num_chunks": 2}}, 2))
        self.assertEqual(lines["rows"],
                         "1 of 32 tokens (the rows as one stream), in 2 chunks of 16")
        self.assertIn("0 ... 3, 4 ... 15", lines["documents of chunk 1"])

    def test_much_is_shown_in_part(self):
        lengths = [4] * 200
        shards = self.shard(packed([lengths], [lengths]), {"thd": {}}, 2)
        self.assertIn("and 188 more", self.lines(shards)["documents"])


class BadInput(ExplainTest):
    def setUp(self):
        super().setUp()
        self.shards = self.shard(ROWS, ROWS_OPTIONS, 2)
        self.layouts = self.shards / "layouts.json"

    def test_rows_without_columns_are_not_gone_through(self):
        none = tensor("I64", [], (2**40, 0))
        shards = self.shard({"input_ids": none, "labels": none, "position_ids": none},
                            ROUND_ROBIN, 2, name="none")
        self.assertIn("1099511627776 of 0 tokens", self.lines(shards)["rows"])
        self.assertEqual(self.json(shards)["documents"], [])

    def test_places_outside_of_the_batch(self):
        for arguments, texts in (
                (("--row=2", "--token=0"), ("row 2", "0 ... 1")),
                (("--row=-1", "--token=0"), ("row -1", "0 ... 1")),
                (("--row=0", "--token=6"), ("token 6", "0 ... 5")),
                (("--row=0", "--token=-1"), ("token -1", "0 ... 5")),
                (("--row", "0", "--token", "-1"), ("token -1", "0 ... 5")),
                (("--rank=2", "--slot=0"), ("rank 2", "0 ... 1")),
                (("--rank=-1", "--slot=0"), ("rank -1", "0 ... 1")),
                (("--rank=1", "--slot=4"), ("slot 4", "0 ... 3")),
                (("--rank=1", "--slot=-1"), ("slot -1", "0 ... 3")),
                (("--rank=1", "--slot=0", "--row=2"), ("row 2", "0 ... 1")),
                (("--row=0", f"--token={2**63 - 1}"), ("0 ... 5",))):
            with self.subTest(arguments):
                self.refused_explain(self.shards, "INVALID_ARGUMENT", arguments, *texts)

    def test_questions_that_are_none(self):
        for arguments, text in ((("--row=0",), "--row"), (("--token=0",), "--row"),
                                (("--rank=0",), "--slot"), (("--slot=0",), "--rank"),
                                (("--row=0", "--token=0", "--rank=0", "--slot=0"), "exclu"),
                                (("--row=0", "--token=0", "--slot=0"), ""),
                                (("--row=x", "--token=0"), "x"), (("--row=", "--token=0"), ""),
                                (("--row=1.5", "--token=0"), "1.5")):
            with self.subTest(arguments):
                self.usage_error(self.explain(self.shards, *arguments), text)

    def test_a_rank_file_that_is_not_there(self):
        (self.shards / "rank1.safetensors").unlink()
        self.refused_explain(self.shards, "NOT_FOUND", ("--row=0", "--token=2"),
                             "rank1.safetensors")

    def test_layouts_of_another_batch(self):
        other = self.shard(ROWS | {"labels": ROWS["input_ids"]}, ROWS_OPTIONS, 2, "other")
        self.layouts.write_bytes((other / "layouts.json").read_bytes())
        self.refused_explain(self.shards, "FAILED_PRECONDITION", ("--row=0", "--token=2"),
                             "is of batch")
        mixed = json.loads((other / "layouts.json").read_text())
        (other / "layouts.json").write_text(
            json.dumps([mixed[0], mixed[1] | {"batch_digest": "1"}]))
        self.refused_explain(other, "FAILED_PRECONDITION", ("--row=0", "--token=2"),
                             "ranks 0 and 1", "digest")

    def test_layouts_and_files_of_different_chunks(self):
        chunked = self.shard(Documents.PACKED, {"thd": {"num_chunks": 2}}, 2, "chunked")
        whole = self.shard(Documents.PACKED, {"thd": {}}, 2, "flat")
        (chunked / "layouts.json").write_bytes((whole / "layouts.json").read_bytes())
        # The chunked files under the flat layout: [2, 8] is not 16 slots.
        self.refused_explain(chunked, "FAILED_PRECONDITION", ("--rank=0", "--slot=0"), "slots")

    def test_files_without_streams(self):
        path = self.shards / "rank0.safetensors"
        _, metadata = read(path)
        write(path, {}, metadata)
        self.refused_explain(self.shards, "FAILED_PRECONDITION", (), "rank0.safetensors",
                             "no stream")

    def test_streams_that_do_not_go_with_the_layout(self):
        path = self.shards / "rank0.safetensors"
        tensors, metadata = read(path)
        shorter = tensor("I64", tensors["labels"].array[:, :3])
        write(path, tensors | {"labels": shorter}, metadata)
        self.refused_explain(self.shards, "FAILED_PRECONDITION", (), "labels", "4 slots")
        notes = json.loads(metadata["_cpshard.streams"])
        notes["labels"]["seq_axis"] = 2
        write(path, tensors, metadata | {"_cpshard.streams": json.dumps(notes)})
        self.refused_explain(self.shards, "INVALID_ARGUMENT", (), "labels", "axis 2")

    def test_layouts_that_hold_nothing(self):
        self.layouts.write_text("[]")
        self.refused_explain(self.shards, "INVALID_ARGUMENT", (), "no layout")
        self.layouts.unlink()
        self.refused_explain(self.shards, "NOT_FOUND", (), "layouts.json")

    def test_runs_that_are_no_layout(self):
        good = json.loads(self.layouts.read_text())
        for runs in ([{"source": 6, "length": 4}], [{"source": 2, "length": -1}],
                     [{"source": 2, "length": 3}, {"source": 4, "length": 1}],
                     [{"source": -1, "length": 4}], [{"source": 2**62, "length": 4}]):
            with self.subTest(runs):
                self.layouts.write_text(json.dumps([good[0], good[1] | {"runs": runs}]))
                self.refused_explain(self.shards, "INVALID_ARGUMENT", ("--row=0", "--token=0"),
                                     "rank 1")

    def test_layouts_with_holes_or_of_more_columns_than_there_are(self):
        good = json.loads(self.layouts.read_text())
        for length in (9, 2**40, 2**60):
            with self.subTest(length):
                self.layouts.write_text(json.dumps([layout | {"padded_seq_len": str(length)}
                                                    for layout in good]))
                self.refused_explain(self.shards, "FAILED_PRECONDITION", (),
                                     f"columns 8 ... {length - 1} of {length}")
        shards = self.shard(ROWS, {"identity": {}}, 2, "whole")
        layouts = json.loads((shards / "layouts.json").read_text())
        for layout in layouts:
            layout.update(padded_seq_len=str(2**40), runs=[{"source": 0, "length": 2**40}])
        (shards / "layouts.json").write_text(json.dumps(layouts))
        self.refused_explain(shards, "FAILED_PRECONDITION", (), f"rows of {2**40} columns")

    def test_the_file_of_another_rank_does_not_go_with_its_layout(self):
        path = self.shards / "rank1.safetensors"
        tensors, metadata = read(path)
        for name, cut, texts in (
                ("slots", tensors["position_ids"].array[:, :3], ("position_ids", "4 slots")),
                ("rows", tensors["position_ids"].array[:1], ("1 rows", "rank 0 2"))):
            with self.subTest(name):
                alone = {"position_ids": tensor("I64", cut)}
                write(path, alone, metadata)
                self.refused_explain(self.shards, "FAILED_PRECONDITION", (), "rank1.safetensors",
                                     *texts)

    def test_a_file_that_holds_no_layouts_is_named(self):
        self.layouts.write_bytes(b"\0")
        self.refused_explain(self.shards, "INVALID_ARGUMENT", (), "layouts.json", "not JSON")

    def test_files_of_another_tool_are_read_by_their_shapes(self):
        want = self.token(self.shards, 1, 4)
        for rank in (0, 1):
            path = self.shards / f"rank{rank}.safetensors"
            write(path, read(path)[0])
        self.assertEqual(self.token(self.shards, 1, 4), want)


if __name__ == "__main__":
    unittest.main()

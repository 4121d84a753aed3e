"""`cpshard verify`: shards of a trainer's own sharder - here a few lines of numpy - beside ours,
right ones and ones with a fault planted."""

import json
import unittest

import numpy as np

from programs import USAGE, ProgramTest, cpshard, write_batch
from safetensors_file import encode_raw, tensor, write

ROUND_ROBIN = {"round_robin": {}, "padding_token_id": 0}
ROWS, LENGTH, PADDED, CP = 2, 28, 32, 4
DOCUMENTS = (6, 22)  # of every row


def batch_of():
    """Ids tell where they belong; labels are the next id of the same document."""
    ids = 1000 * np.arange(ROWS)[:, None] + 10 + np.arange(LENGTH)
    labels = np.full_like(ids, -100)
    labels[:, :-1] = ids[:, 1:]
    labels[:, np.cumsum(DOCUMENTS) - 1] = -100
    positions = np.concatenate([np.arange(length) for length in DOCUMENTS])
    return {"input_ids": tensor("I64", ids), "labels": tensor("I64", labels),
            "position_ids": tensor("I64", np.tile(positions, (ROWS, 1))),
            "padding_mask": tensor("BOOL", np.zeros(ids.shape))}


FILLS = {"input_ids": 0, "labels": -100, "position_ids": 0, "padding_mask": True}


def columns_of(rank):
    """Round robin, as its definition says."""
    chunk = PADDED // (2 * CP)
    first, last = rank * chunk, (2 * CP - 1 - rank) * chunk
    return np.r_[first:first + chunk, last:last + chunk]


def shards_of(batch):
    """As a trainer would write it."""
    shards = []
    for rank in range(CP):
        shard = {}
        for name, (dtype, array) in batch.items():
            padded = np.pad(array, ((0, 0), (0, PADDED - LENGTH)), constant_values=FILLS[name])
            shard[name] = tensor(dtype, padded[:, columns_of(rank)])
        shards.append(shard)
    return shards


class Verify(ProgramTest):
    def setUp(self):
        super().setUp()
        self.batch = batch_of()
        self.shards = shards_of(self.batch)
        self.source = write_batch(self.folder / "batch.safetensors", self.batch)
        self.theirs = self.folder / "theirs"

    def verify(self, *more, options=ROUND_ROBIN, cp=CP):
        self.theirs.mkdir(exist_ok=True)
        for rank, shard in enumerate(self.shards):
            write(self.theirs / f"rank{rank}.safetensors", shard, {"format": "pt"})
        return self.run_verify(*more, options=options, cp=cp)

    def run_verify(self, *more, options=ROUND_ROBIN, cp=CP):
        return cpshard("verify", "--cp", cp, "--options", json.dumps(options), "--in", self.source,
                       "--ranks-dir", self.theirs, *more)

    def differs(self, *more, **arguments):
        """The findings of a run that finds a difference, as JSON and as text."""
        found = self.verify("--json", *more, **arguments)
        self.assertEqual((found.status, found.err), (1, ""))
        text = self.run_verify(*more, **arguments)
        self.assertEqual((text.status, text.err), (1, ""))
        findings = json.loads(found.out)
        self.assertEqual(findings["verdict"], "DIFFERENT")
        findings["streams"] = {stream["name"]: stream for stream in findings["streams"]}
        return findings, text.out

    def unequal(self, findings):
        return [name for name, stream in findings["streams"].items()
                if stream["verdict"] != "EQUAL"]

    def test_right_shards_are_equal_without_any_metadata_of_ours(self):
        result = self.succeeds(self.verify())
        self.assertRegex(result.out, r"(?m)^labels +i64 +\[2, 8\] +local +EQUAL$")
        self.assertIn("verdict: EQUAL", result.out)
        findings = json.loads(self.succeeds(self.verify("--json")).out)
        self.assertEqual([stream["verdict"] for stream in findings["streams"]], ["EQUAL"] * 4)
        # Eight runs in a row, one of them padding alone, and those of rank 3 side by side.
        self.assertEqual(findings["edges"]["shard_edges"], {"checked": 2 * 12, "wrong": 0})
        self.assertEqual(findings["edges"]["document_ends"], {"checked": 4, "wrong": 0})
        self.assertEqual(findings["edges"]["labels"], "next_id")

    def test_what_cpshard_shard_writes_is_equal_to_it(self):
        self.succeeds(cpshard("shard", "--cp", CP, "--options", json.dumps(ROUND_ROBIN), "--in",
                              self.source, "--out", self.theirs))
        self.succeeds(self.run_verify())

    def test_swapped_ranks_are_caught_and_explained(self):
        self.shards[1], self.shards[2] = self.shards[2], self.shards[1]
        findings, text = self.differs()
        self.assertEqual(findings["streams"]["input_ids"]["cause"],
                         {"code": "ranks_permuted", "text": "ranks 1 and 2 are swapped"})
        first = findings["streams"]["input_ids"]["first"]
        self.assertEqual((first["rank"], first["index"], first["expected"], first["found"]),
                         (1, [0, 0], "14", "18"))
        self.assertIn("that is token 8 of row 0, which belongs to rank 2 slot 0", first["meaning"])
        self.assertEqual(findings["streams"]["labels"]["differing"],
                         [{"rank": rank, "differing": 16, "elements": 16} for rank in (1, 2)])
        self.assertIn("input_ids: ranks 1 and 2 are swapped", text)

    def test_a_label_shifted_across_a_document_edge_is_caught_and_explained(self):
        labels = np.roll(self.batch["input_ids"].array, -1, axis=1)
        labels[:, -1] = -100
        self.shards = shards_of({**self.batch, "labels": tensor("I64", labels)})
        findings, text = self.differs()
        self.assertEqual(self.unequal(findings), ["labels"])
        first = findings["streams"]["labels"]["first"]
        self.assertEqual((first["expected"], first["found"]), ("-100", "16"))
        self.assertEqual(findings["streams"]["labels"]["cause"]["code"], "document_ends")
        self.assertEqual((first["place"]["row"], first["place"]["token"]), (0, 5))
        self.assertEqual(first["place"]["held"], [{"rank": 1, "slot": 1}])
        self.assertIn("the first of document 1: the label crosses the end of document 0",
                      first["meaning"])
        self.assertEqual(findings["edges"]["document_ends"], {"checked": 4, "wrong": 2})
        self.assertEqual(findings["edges"]["first"]["why"], "document 0 ends here")
        self.assertRegex(text, r"document ends +4 checked, 2 wrong")
        self.assertIn("rank 1 at [0, 1], slot 1 <- token 5 of row 0, document 0 position 5", text)

    def test_a_pad_counted_as_real_is_caught_and_explained(self):
        padding = self.shards[0]["padding_mask"].array.copy()
        padding[:, -4:] = False  # columns 28 ... 31
        self.shards[0]["padding_mask"] = tensor("BOOL", padding)
        findings, text = self.differs()
        self.assertEqual(self.unequal(findings), ["padding_mask"])
        self.assertEqual(findings["streams"]["padding_mask"]["cause"]["code"], "padding")
        self.assertEqual(findings["streams"]["padding_mask"]["differing"],
                         [{"rank": 0, "differing": 8, "elements": 16}])
        self.assertIn("padding_mask: padding counted as real: 8 elements", text)
        self.assertIn("rank 0 at [0, 4], slot 4 <- padding, padded column 28", text)

    def test_labels_shifted_after_the_cut_are_wrong_at_shard_edges(self):
        for shard in self.shards:
            rolled = np.roll(shard["input_ids"].array, -1, axis=1)
            shard["labels"] = tensor("I64", np.where(shard["labels"].array == -100, -100, rolled))
        findings, _ = self.differs("--stream", "labels")
        edges = findings["edges"]
        # Of every row columns 3, 7, 11, where heads end, and 19, 23, where tails do.
        self.assertEqual(edges["shard_edges"]["wrong"], 2 * 5)
        self.assertEqual(edges["document_ends"]["wrong"], 0)
        self.assertIn("shifted after the cut", edges["first"]["meaning"])

    def test_another_layout_is_recognised(self):
        findings, text = self.differs(options={"contiguous": {}, "padding_token_id": 0})
        self.assertEqual(findings["streams"]["labels"]["cause"]["code"], "another_partition")
        self.assertEqual(findings["streams"]["padding_mask"]["cause"],
                         findings["streams"]["labels"]["cause"])  # not ranks 0 and 3 swapped
        self.assertIn("round robin: rank r has chunks r and 2 * cp_size - 1 - r", text)

    def test_other_dtypes_and_shapes_are_named_and_looked_through(self):
        for shard in self.shards:
            shard["labels"] = tensor("I32", shard["labels"].array)
            shard["input_ids"] = tensor("I64", shard["input_ids"].array, (ROWS, 8, 1))
        findings, text = self.differs()
        self.assertEqual(findings["streams"]["labels"]["cause"]["text"], "equal but for the dtype")
        self.assertEqual(findings["streams"]["input_ids"]["cause"]["text"],
                         "equal but for the shape")
        self.assertIn("i32[2, 8] where ours is i64[2, 8]", text)
        self.assertIn("i64[2, 8, 1] where ours is i64[2, 8]", text)

    def test_streams_of_one_side_alone_are_listed(self):
        for shard in self.shards:
            shard["rewards"] = tensor("F32", [0.5])
        findings = json.loads(self.succeeds(self.verify("--json")).out)
        self.assertEqual(findings["extra_streams"],
                         [{"name": "rewards", "dtype": "f32", "shape": [1]}])
        for shard in self.shards[2:]:
            del shard["position_ids"]
        findings, text = self.differs()
        self.assertEqual(findings["streams"]["position_ids"]["absent_in_ranks"], [2, 3])
        self.assertIn("position_ids: not in the files of ranks 2-3", text)
        self.succeeds(self.verify("--stream", "labels", "--stream", "input_ids"))

    def test_names_in_their_files_give_the_terminal_no_commands(self):
        for shard in self.shards:
            shard["\x1b[31mred\x07"] = tensor("I64", np.zeros((1, 2)))
        text = self.verify().out
        self.assertIn("[31mred", text)
        self.assertEqual([c for c in text if c < " " and c != "\n"], [])

    def test_some_ranks_alone_can_be_compared(self):
        self.shards = self.shards[:2]
        self.refused(self.verify(), "NOT_FOUND", "no file of ranks 2-3", "--ranks")
        self.succeeds(self.run_verify("--ranks", "1"))
        self.succeeds(self.run_verify("--ranks", "1,0"))

    def test_shards_of_another_group_are_named(self):
        findings, text = self.differs(cp=2)
        self.assertEqual(findings["surplus_ranks"], [2, 3])
        self.assertIn("there are files of ranks 2-3 too", text)
        self.assertIn("8 slots where ours has 14",
                      findings["streams"]["input_ids"]["cause"]["text"])

    def test_files_that_cannot_be_compared_are_refused(self):
        self.refused(self.run_verify(), "NOT_FOUND", str(self.theirs))
        self.theirs.mkdir()
        self.refused(self.run_verify(), "NOT_FOUND", "rank0.safetensors")
        self.verify()
        for name, content in (("empty", b""), ("short", b"\x08"),
                              ("no header", encode_raw(b"{", b""))):
            with self.subTest(name):
                (self.theirs / "rank2.safetensors").write_bytes(content)
                self.refused(self.run_verify(), "INVALID_ARGUMENT", "rank2.safetensors")
        (self.theirs / "rank2.safetensors").unlink()
        (self.theirs / "rank2.safetensors").mkdir()
        self.refused(self.run_verify(), "NOT_FOUND", "rank2.safetensors")

    def test_files_without_tensors_miss_every_stream(self):
        self.shards = [{} for _ in self.shards]
        findings, _ = self.differs()
        self.assertEqual({stream["verdict"] for stream in findings["streams"].values()},
                         {"MISSING"})
        self.assertIn("no labels", findings["edges"]["not_probed"])

    def test_a_batch_of_another_shape_differs_in_length(self):
        self.verify()
        longer = {name: tensor(dtype, np.tile(array, (1, 2)))
                  for name, (dtype, array) in self.batch.items()}
        write_batch(self.source, longer)
        result = self.run_verify()
        self.assertEqual((result.status, result.err), (1, ""))
        self.assertIn("i64[2, 8] where ours is i64[2, 14]", result.out)

    def test_what_is_asked_for_wrongly_is_refused(self):
        self.refused(self.verify("--stream", "label"), "NOT_FOUND", "'label'", "labels")
        self.refused(self.run_verify("--ranks", "4"), "INVALID_ARGUMENT", "4")
        self.refused(self.run_verify("--ranks", "1,1"), "INVALID_ARGUMENT", "1")
        self.refused(self.run_verify(options={}), "INVALID_ARGUMENT", "layout")
        self.usage_error(self.run_verify("--server", "unix:/nowhere"), "--server")
        self.assertEqual(cpshard("verify", "--cp", 2, "--options", "{}").status, USAGE)

    def test_without_a_mesh_the_only_file_is_compared(self):
        self.shards = [self.batch]
        self.succeeds(self.verify(options={"identity": {}}, cp="none"))
        self.shards = [{**self.batch, "labels": self.batch["input_ids"]}]
        findings, text = self.differs(options={"identity": {}}, cp="none")
        self.assertEqual(self.unequal(findings), ["labels"])
        self.assertIn("edges: not probed", text)


if __name__ == "__main__":
    unittest.main()

"""What `cpshard shard` writes beside the tensors, and what `cpshard gather` makes of files that
another tool wrote or that do not belong together."""

import json
import threading
import unittest

import numpy as np

from programs import STATUS, ProgramTest, cpshard, write_batch
from restatement import restate
from safetensors_file import read, tensor, write

ROUND_ROBIN = {"round_robin": {}}


def batch_of(rows=2, length=30, first=0):
    count = rows * length
    return {"input_ids": tensor("I64", np.arange(first, first + count), (rows, length)),
            "labels": tensor("I64", np.arange(count), (rows, length)),
            "position_ids": tensor("I64", np.arange(3 * count), (3, rows, length)),
            "by_token": tensor("F32", np.arange(length)),
            "zeros": tensor("U8", np.zeros(count), (rows, length)),
            "pixel_values": tensor("F32", np.arange(12), (3, 4))}


OPTIONS = {"contiguous": {}, "padding_token_id": 0,
           "extra_streams": [{"name": "by_token", "seq_axis": 0}, {"name": "zeros"}]}


class RankFiles(ProgramTest):
    def shard(self, batch, options, cp, name="shards", *more):
        source = write_batch(self.folder / f"{name}.safetensors", batch)
        out = self.folder / name
        self.succeeds(cpshard("shard", "--cp", cp, "--options", json.dumps(options), "--in",
                              source, "--out", out, *more))
        return out

    def shard_to(self, out):
        source = write_batch(self.folder / "batch.safetensors", batch_of())
        return cpshard("shard", "--cp=2", "--options", json.dumps(ROUND_ROBIN), "--in", source,
                       "--out", out)

    def gather(self, shards, name, *more):
        return cpshard("gather", "--layouts", shards / "layouts.json", "--in", shards, "--stream",
                       name, "--out", self.folder / "out.safetensors", *more)

    def gathered(self, shards, name, *more):
        self.succeeds(self.gather(shards, name, *more))
        return read(self.folder / "out.safetensors")[0][name]

    def refused_gather(self, code, shards, name, *texts, more=()):
        (self.folder / "out.safetensors").unlink(missing_ok=True)
        before = set(self.folder.rglob("*"))
        self.refused(self.gather(shards, name, *more), code, *texts)
        self.assertEqual(set(self.folder.rglob("*")), before)

    def as_another_tool(self, batch, options, cp):
        """Files with tensors alone, and layouts with plain numbers and the contract's fields."""
        want, folder = restate(batch, options, cp), self.folder / "other"
        folder.mkdir()
        layouts = []
        for rank, shard in enumerate(want.shards):
            write(folder / f"rank{rank}.safetensors", shard)
            breaks = np.flatnonzero(np.diff(want.columns[rank]) != 1) + 1
            runs = [{"source": int(run[0]), "length": len(run)}
                    for run in np.split(want.columns[rank], breaks)]
            layouts.append({"original_seq_len": want.original_len, "cp_rank": rank, "runs": runs,
                            "padded_seq_len": want.padded_len, "cp_size": cp})
        (folder / "layouts.json").write_text(json.dumps(layouts))
        return folder, want

    def test_layouts_are_an_array_with_numbers_as_strings_and_zeros_printed(self):
        shards = self.shard(batch_of(), ROUND_ROBIN, 4)
        layouts = json.loads((shards / "layouts.json").read_text())
        for rank, layout in enumerate(layouts):
            digest = layout.pop("batch_digest")
            _, metadata = read(shards / f"rank{rank}.safetensors")
            self.assertEqual(digest, metadata["_cpshard.batch_digest"])
            head, tail = {"source": str(4 * rank)}, {"source": str(28 - 4 * rank)}
            runs = [head | {"length": "4"}, tail | {"length": "4"}]
            if rank == 3:  # its chunks are neighbours
                self.assertIn(layout["runs"], (runs, [{"source": "12", "length": "8"}]))
                layout["runs"] = runs
            self.assertEqual(layout, {"original_seq_len": "30", "padded_seq_len": "32",
                                      "cp_rank": rank, "cp_size": 4, "runs": runs})
        self.assertEqual(len(layouts), 4)

    def test_a_batch_without_a_sequence_has_no_layout_and_is_gathered_whole(self):
        batch = {"pixel_values": tensor("F32", np.arange(12), (3, 4))}
        shards = self.shard(batch, {"identity": {}}, 2)
        for rank, layout in enumerate(json.loads((shards / "layouts.json").read_text())):
            del layout["batch_digest"]
            self.assertEqual(layout, {"cp_rank": rank, "cp_size": 2, "runs": []})
        self.assertTrue(self.gathered(shards, "pixel_values").same(batch["pixel_values"]))

    def test_the_digest_tells_batches_apart(self):
        digests = []
        for name, first in (("one", 0), ("same", 0), ("other", 1)):
            shards = self.shard(batch_of(first=first), ROUND_ROBIN, 2, name)
            digests.append(json.loads((shards / "layouts.json").read_text())[0]["batch_digest"])
        self.assertEqual(digests[0], digests[1])
        self.assertNotEqual(digests[0], digests[2])

    def test_some_ranks_can_be_made_but_not_gathered(self):
        shards = self.shard(batch_of(), ROUND_ROBIN, 4, "shards", "--ranks", "0,3")
        self.assertEqual({path.name for path in shards.iterdir()},
                         {"rank0.safetensors", "rank3.safetensors", "layouts.json"})
        whole = self.shard(batch_of(), ROUND_ROBIN, 4, "all")
        for rank in (0, 3):
            name = f"rank{rank}.safetensors"
            self.assertEqual((shards / name).read_bytes(), (whole / name).read_bytes())
        self.refused_gather("FAILED_PRECONDITION", shards, "input_ids", "missing: 1, 2")

    def tree(self):
        return {path: path.is_file() and path.read_bytes() for path in self.folder.rglob("*")}

    def test_of_two_that_write_to_one_folder_at_once_one_does(self):
        source = write_batch(self.folder / "batch.safetensors", batch_of())
        names = {f"rank{rank}.safetensors" for rank in range(64)} | {"layouts.json"}
        for number in range(20):
            out, results = self.folder / f"new{number}" / "out", []

            def shard():
                results.append(cpshard("shard", "--cp=64", "--options", json.dumps(ROUND_ROBIN),
                                       "--in", source, "--out", out))

            writers = [threading.Thread(target=shard) for _ in range(2)]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
            won, lost = sorted(results)
            self.succeeds(won)
            self.refused(lost, "FAILED_PRECONDITION", str(out))
            self.assertEqual({path.name for path in out.iterdir()}, names)
            self.assertEqual(len(json.loads((out / "layouts.json").read_text())), 64)
            for rank in range(64):
                self.assertIn("labels", read(out / f"rank{rank}.safetensors")[0])

    def test_folders_that_are_missing_are_made_and_an_empty_one_is_used(self):
        names = {"rank0.safetensors", "rank1.safetensors", "layouts.json"}
        (self.folder / "empty").mkdir()
        for name in ("empty", "a/b/c", "d/"):
            self.succeeds(self.shard_to(f"{self.folder}/{name}"))
            self.assertEqual({path.name for path in (self.folder / name).iterdir()}, names)

    def test_a_shard_that_fails_leaves_nothing(self):
        (self.folder / "file").write_text("precious")
        (self.folder / "full").mkdir()
        (self.folder / "full" / "precious").write_text("precious")
        (self.folder / "hidden" / ".partial").mkdir(parents=True)
        write_batch(self.folder / "batch.safetensors", batch_of())
        before = self.tree()
        for name in ("file", "file/out", "file/a/b", "full", "full/precious/out", "hidden"):
            with self.subTest(name):
                self.refused(self.shard_to(self.folder / name), "FAILED_PRECONDITION",
                             str(self.folder / name))
                self.assertEqual(self.tree(), before)
        # A name that no folder can have, below folders that would be made for it.
        with self.subTest("a name too long"):
            result = self.shard_to(self.folder / "a" / "b" / ("x" * 256))
            self.assertIn(result.status, STATUS.values(), result)
            self.assertNotEqual(result.status, 0)
            self.assertEqual(self.tree(), before)

    def test_a_gather_reads_what_another_tool_wrote(self):
        folder, want = self.as_another_tool(batch_of(), OPTIONS, 4)
        for name, more in (("input_ids", []), ("position_ids", []), ("zeros", []),
                           ("pixel_values", []), ("by_token", ["--seq-axis", 0]),
                           ("by_token", ["--seq-axis=-1"]), ("input_ids", ["--seq-axis=-1"])):
            with self.subTest(name=name, more=more):
                self.assertTrue(self.gathered(folder, name, *more).same(want.padded[name]))

    def test_equal_shards_of_another_tool_are_still_put_together_on_a_negative_axis(self):
        folder, want = self.as_another_tool(batch_of(length=32), OPTIONS, 4)
        self.assertTrue(self.gathered(folder, "zeros", "--seq-axis=-1").same(want.padded["zeros"]))

    def test_layouts_may_stand_in_any_order(self):
        folder, want = self.as_another_tool(batch_of(), ROUND_ROBIN, 4)
        layouts = json.loads((folder / "layouts.json").read_text())
        (folder / "layouts.json").write_text(json.dumps(layouts[::-1]))
        self.assertTrue(self.gathered(folder, "labels").same(want.padded["labels"]))

    def test_shards_of_two_batches_are_not_put_together(self):
        shards = self.shard(batch_of(), ROUND_ROBIN, 2)
        other = self.shard(batch_of(first=1), ROUND_ROBIN, 2, "other")
        (shards / "rank1.safetensors").write_bytes((other / "rank1.safetensors").read_bytes())
        self.refused_gather("FAILED_PRECONDITION", shards, "input_ids", "rank1.safetensors")

    def test_shards_that_do_not_fit_their_layouts_are_refused(self):
        folder, want = self.as_another_tool(batch_of(), OPTIONS, 4)
        shard = dict(want.shards[1])
        shard["input_ids"] = tensor("I64", np.zeros((2, 6)))
        shard["labels"] = tensor("I32", np.zeros((2, 8)))
        write(folder / "rank1.safetensors", shard)
        self.refused_gather("FAILED_PRECONDITION", folder, "input_ids", "input_ids", "rank 1",
                            " 6 ", " 8 ")
        self.refused_gather("INVALID_ARGUMENT", folder, "labels", "labels", "i32", "i64")
        self.refused_gather("INVALID_ARGUMENT", folder, "input_ids", "input_ids", "axis 5",
                            more=["--seq-axis=5"])

    def test_layouts_that_do_not_make_a_whole_are_refused(self):
        folder, _ = self.as_another_tool(batch_of(), ROUND_ROBIN, 2)
        good = json.loads((folder / "layouts.json").read_text())

        def with_layouts(change, code, *texts):
            layouts = json.loads(json.dumps(good))
            changed = change(layouts)
            layouts = layouts if changed is None else changed
            (folder / "layouts.json").write_text(json.dumps(layouts))
            with self.subTest(texts=texts):
                self.refused_gather(code, folder, "input_ids", *texts)

        with_layouts(lambda all: all[:1], "FAILED_PRECONDITION", "missing: 1")
        with_layouts(lambda all: [], "INVALID_ARGUMENT", "no layout")
        with_layouts(lambda all: {"a": 1}, "INVALID_ARGUMENT", "array")
        with_layouts(lambda all: [all[0], all[0]], "FAILED_PRECONDITION", "rank 0", "twice")
        with_layouts(lambda all: all[1].update(padded_seq_len=36), "FAILED_PRECONDITION", "36")
        with_layouts(lambda all: all[1].update(cp_rank=7), "INVALID_ARGUMENT", "cp_rank 7")
        with_layouts(lambda all: all[1].update(surprise=7), "INVALID_ARGUMENT", "surprise")
        with_layouts(lambda all: all[1]["runs"][0].update(source=0), "FAILED_PRECONDITION", "once")
        with_layouts(lambda all: all[1]["runs"][0].update(length=-1), "INVALID_ARGUMENT", "-1")
        with_layouts(lambda all: all[1]["runs"][0].update(length=2**62), "INVALID_ARGUMENT",
                     str(2**62))
        with_layouts(lambda all: all[1].update(cp_size=2**32 - 1), "FAILED_PRECONDITION",
                     str(2**32 - 1))

    def test_a_stream_that_is_not_there_is_named(self):
        shards = self.shard(batch_of(), ROUND_ROBIN, 2)
        self.refused_gather("NOT_FOUND", shards, "nothing", "nothing", "rank0.safetensors")
        (shards / "rank1.safetensors").unlink()
        self.refused_gather("NOT_FOUND", shards, "labels", "rank1.safetensors")
        (shards / "layouts.json").unlink()
        self.refused_gather("NOT_FOUND", shards, "labels", "layouts.json")

    def test_a_gather_that_cannot_write_says_so(self):
        shards = self.shard(batch_of(), ROUND_ROBIN, 2)
        result = cpshard("gather", "--layouts", shards / "layouts.json", "--in", shards, "--stream",
                         "labels", "--out", self.folder / "absent" / "out.safetensors")
        self.refused(result, "NOT_FOUND", "absent")


if __name__ == "__main__":
    unittest.main()

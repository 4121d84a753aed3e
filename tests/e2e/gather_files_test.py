"""What `cpshard gather` does to the files around its output, and what files nested too deep or with
wrong notes on their streams get."""

import json
import os
import unittest

import numpy as np

from programs import ProgramTest, cpshard, write_batch
from safetensors_file import encode_raw, read, tensor, write

DEPTH = 300000
BATCH = {"input_ids": tensor("I64", np.arange(12), (2, 6)),
         "labels": tensor("I64", 100 + np.arange(12), (2, 6))}


def nested(before, after=""):
    """JSON nested DEPTH deep between `before` and `after`: arrays and objects, open and closed."""
    for opening, inner, closing in (("[", "", "]"), ('{"a":', "1", "}")):
        yield before + opening * DEPTH
        yield before + opening * DEPTH + inner + closing * DEPTH + after


class GatherFiles(ProgramTest):
    def setUp(self):
        super().setUp()
        self.source = write_batch(self.folder / "batch.safetensors", BATCH)
        self.shards = self.folder / "shards"
        self.succeeds(self.shard(self.source, '{"round_robin": {}}', self.shards))
        self.layouts = self.shards / "layouts.json"
        self.target = self.folder / "target"
        self.target.mkdir()
        self.out = self.target / "out.safetensors"

    def shard(self, source, options, out):
        return cpshard("shard", "--cp=2", "--options", options, "--in", source, "--out", out)

    def gather(self, out=None):
        return cpshard("gather", "--layouts", self.layouts, "--in", self.shards, "--stream",
                       "labels", "--trim", "--out", out or self.out)

    def gather_refused(self, *texts):
        self.out.unlink(missing_ok=True)  # of a gather that was not refused
        self.refused(self.gather(), "INVALID_ARGUMENT", *texts)
        self.assertEqual(list(self.target.iterdir()), [])

    def is_gathered(self):
        self.assertTrue(self.out.is_file() and not self.out.is_symlink())
        self.assertTrue(read(self.out)[0]["labels"].same(BATCH["labels"]))

    def test_a_file_that_was_there_is_replaced(self):
        self.out.write_text("old")
        self.succeeds(self.gather())
        self.is_gathered()
        self.assertEqual(list(self.target.iterdir()), [self.out])

    def test_a_file_named_like_a_partial_one_is_left_alone(self):
        partial = self.target / "out.safetensors.partial"
        precious = self.folder / "precious"
        for make in ("file", "link", "link to nothing", "folder"):
            with self.subTest(make):
                precious.write_text("precious")
                if make == "file":
                    partial.write_text("precious")
                elif make == "folder":
                    partial.mkdir()
                else:
                    if make == "link to nothing":
                        precious.unlink()
                    partial.symlink_to(precious)
                self.succeeds(self.gather())
                self.is_gathered()
                self.assertEqual(set(self.target.iterdir()), {self.out, partial})
                self.assertEqual(partial.is_symlink(), make.startswith("link"))
                self.assertEqual(precious.exists(), make != "link to nothing")
                if make in ("file", "link"):
                    self.assertEqual(partial.read_text(), "precious")
                partial.rmdir() if make == "folder" else partial.unlink()
                self.out.unlink()

    def test_the_file_has_the_mode_that_the_umask_leaves(self):
        for mask in (0o000, 0o022, 0o027, 0o077):
            self.addCleanup(os.umask, os.umask(mask))
            self.succeeds(self.gather())
            self.assertEqual(self.out.stat().st_mode & 0o7777, 0o666 & ~mask)
            self.is_gathered()
            self.out.unlink()

    def test_an_output_that_is_a_folder_is_left_as_it_was(self):
        self.out.mkdir()
        (self.target / "neighbour").write_text("precious")
        for content in ("an empty folder", "a full folder"):
            with self.subTest(content):
                if content == "a full folder":
                    (self.out / "precious").write_text("precious")
                before = set(self.folder.rglob("*"))
                result = self.gather()
                self.assertGreater(result.status, 0, result)
                self.assertRegex(result.err, r"\Aerror: [A-Z_]+: [^\n]*out.safetensors[^\n]*\n\Z")
                self.assertEqual(set(self.folder.rglob("*")), before)
                self.assertEqual((self.target / "neighbour").read_text(), "precious")

    def test_layouts_nested_too_deep_are_refused(self):
        texts = [*nested(""), *nested('[{"cp_size": 2, "runs": ', "}]"),
                 *nested('[{"cp_size": 2, "runs": [{"length": ', "}]}]"),
                 *nested('[{"surprise": ', "}]")]
        for number, text in enumerate(texts):
            with self.subTest(number=number, text=text[:60]):
                self.layouts.write_text(text)
                self.gather_refused()

    def test_options_nested_too_deep_are_refused(self):
        file = self.folder / "options.json"
        texts = [*nested(""), *nested('{"round_robin": ', "}"), *nested('{"extra_streams": ', "}"),
                 *nested('{"round_robin": {}, "surprise": ', "}")]
        for number, text in enumerate(texts):
            with self.subTest(number=number, text=text[:60]):
                file.write_text(text)
                self.refused(self.shard(self.source, file, self.target / "out"),
                             "INVALID_ARGUMENT")
                self.assertEqual(list(self.target.iterdir()), [])

    def test_headers_nested_too_deep_are_refused(self):
        good = '{"labels": {"dtype": "I64", "shape": [1, 6], "data_offsets": [0, 48]}, '
        texts = [*nested(""), *nested('{"__metadata__": ', "}"),
                 *nested(good + '"__metadata__": {"x": ', "}}"), *nested(good + '"x": ', "}"),
                 *nested('{"labels": {"dtype": "I64", "data_offsets": [0, 48], "shape": ', "}}")]
        for number, text in enumerate(texts):
            with self.subTest(number=number, text=text[:60]):
                data = encode_raw(text.encode(), bytes(48))
                self.source.write_bytes(data)
                self.refused(self.shard(self.source, '{"round_robin": {}}', self.target / "out"),
                             "INVALID_ARGUMENT")
                (self.shards / "rank0.safetensors").write_bytes(data)
                self.gather_refused()

    def test_notes_that_do_not_say_how_a_stream_was_cut_are_refused(self):
        path = self.shards / "rank0.safetensors"
        tensors, metadata = read(path)
        good = json.loads(metadata["_cpshard.streams"])
        self.assertEqual(good["labels"], {"extent": "local", "seq_axis": 1})
        labels = [{"extent": extent, "seq_axis": 1} for extent in (
            "surprise", "", "LOCAL", "local ", 7, None, ["local"], {"local": 1})]
        labels += [{"extent": extent, "seq_axis": axis} for extent in ("local", "padded")
                   for axis in (-1, 1.0, 1.5, "1", None, True, [1], {}, 65, 2**32 + 1, 2**63,
                                2**64)]
        labels += [{}, {"seq_axis": 1}, {"extent": "local"}, {"extent": "padded"}, None, 7, "local",
                   ["local", 1]]
        for number, entry in enumerate(labels):
            with self.subTest(number=number, entry=str(entry)[:80]):
                text = json.dumps(good | {"labels": entry})
                write(path, tensors, metadata | {"_cpshard.streams": text})
                self.gather_refused("rank0.safetensors", "_cpshard.streams")
        for text in ("", "not json", "[]", "7", "null", json.dumps(good)[:-1]):
            with self.subTest(text=text):
                write(path, tensors, metadata | {"_cpshard.streams": text})
                self.gather_refused("rank0.safetensors", "_cpshard.streams")
        write(path, tensors, metadata)
        self.succeeds(self.gather())
        self.is_gathered()

    def test_notes_nested_too_deep_are_refused(self):
        path = self.shards / "rank0.safetensors"
        tensors, metadata = read(path)
        texts = [*nested('{"labels": ', "}"), *nested('{"labels": {"extent": ', "}}"),
                 *nested('{"labels": {"extent": "local", "seq_axis": ', "}}")]
        for number, text in enumerate(texts):
            with self.subTest(number=number, text=text[:60]):
                write(path, tensors, metadata | {"_cpshard.streams": text})
                self.gather_refused("rank0.safetensors", "_cpshard.streams", "deeper")

    def test_an_axis_that_the_stream_does_not_have_is_refused(self):
        for rank in (0, 1):
            path = self.shards / f"rank{rank}.safetensors"
            tensors, metadata = read(path)
            streams = json.loads(metadata["_cpshard.streams"])
            streams["labels"]["seq_axis"] = 2
            write(path, tensors, metadata | {"_cpshard.streams": json.dumps(streams)})
        self.gather_refused("labels", "axis 2")


if __name__ == "__main__":
    unittest.main()

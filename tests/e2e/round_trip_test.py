"""`cpshard shard`, then `cpshard gather` of every stream: the shards are those of a restatement in
numpy, what comes back is what was sent, and a server makes the same files, byte for byte."""

import json
import unittest

import numpy as np

import safetensors_file
from programs import ProgramTest, cpshard, files_of, write_batch
from restatement import restate
from safetensors_file import DTYPES, Tensor, bf16, read, tensor

RANDOM = np.random.default_rng(7)


def random_tensor(dtype, *shape):
    return safetensors_file.random_tensor(RANDOM, dtype, *shape)


def counted(dtype, rows, length):
    """Element = 1000 * row + column + 1, so a misplaced token shows where it came from."""
    return tensor(dtype, 1000 * np.arange(rows)[:, None] + np.arange(length) + 1)


def basic(rows, length):
    return {"input_ids": counted("I64", rows, length), "labels": counted("I64", rows, length)}


def with_masks(rows, length):
    return basic(rows, length) | {
        "padding_mask": random_tensor("BOOL", rows, length),
        "loss_mask": random_tensor("F32", rows, length),
        "position_ids": counted("I32", rows, length),
        "pixel_values": random_tensor("F32", 5, 7), "scale": random_tensor("F64"),
        "step": 7, "is_last": True, "ratio": "0.5", "padded_number": "007", "dataset": "web"}


def every_dtype(rows, length):
    """One extra stream of every dtype, on the axes 0, 1 and 2 in turn."""
    batch, extras = basic(rows, length), []
    for number, dtype in enumerate(DTYPES):
        axis = number % 3
        shape = [(length, 3), (rows, length, 2), (2, rows, length)][axis]
        name = f"extra_{dtype.lower()}"
        batch[name] = random_tensor(dtype, *shape)
        extras.append({"name": name, "seq_axis": axis - len(shape) if number % 2 else axis})
    return batch, extras


def embeddings(rows, length):
    return {"inputs_embeds": random_tensor("BF16", rows, length, 6),
            "labels": bf16(np.arange(rows * length).reshape(rows, length)),
            "position_ids": tensor("I64", np.arange(3 * rows * length).reshape(3, rows, length))}


def one_position_row(rows, length):
    return basic(rows, length) | {"position_ids": counted("I64", 1, length),
                                  "padding_mask": tensor("I64", np.zeros((rows, length)))}


def attended(rows, length, dtype):
    """With an attention mask: 2-D numbers, 4-D bool, or 4-D additive."""
    batch = basic(rows, length)
    if dtype == "I64":
        return batch | {"attention_mask": tensor(dtype, RANDOM.integers(-1, 2, (rows, length)))}
    square = RANDOM.integers(0, 2, (rows, 2, length, length))
    return batch | {"attention_mask": tensor(dtype, square if dtype == "BOOL" else -1e9 * square)}


class RoundTrip(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.number = 0

    def setUp(self):
        super().setUp()
        socket = self.folder / "server.sock"
        self.addresses = self.start(f"--listen=127.0.0.1:0,unix:{socket}", count=2).addresses

    def shard(self, batch, options, cp, name, *more):
        out = self.folder / name
        self.succeeds(cpshard("shard", f"--cp={cp or 'none'}", "--options", json.dumps(options),
                              "--in", self.folder / "batch.safetensors", "--out", out, *more))
        return out

    def gather(self, shards, name, *more):
        out = self.folder / "gathered.safetensors"
        self.succeeds(cpshard("gather", "--layouts", shards / "layouts.json", "--in", shards,
                              "--stream", name, "--out", out, *more))
        tensors, _ = read(out)
        self.assertEqual(list(tensors), [name])
        return tensors[name]

    def assert_same(self, got, want, what):
        self.assertTrue(got.same(want), f"{what}: got {got}, want {want}")

    def check_shards(self, shards, batch, want):
        scalars = {name: value if isinstance(value, str) else json.dumps(value)
                   for name, value in batch.items() if not isinstance(value, Tensor)}
        for rank, expected in enumerate(want.shards):
            got, metadata = read(shards / f"rank{rank}.safetensors")
            self.assertEqual(set(got), set(expected))
            for name, value in expected.items():
                self.assert_same(got[name], value, f"rank {rank}, {name}")
            own = {name for name in metadata if name.startswith("_cpshard.")}
            self.assertIn("_cpshard.batch_digest", own)
            self.assertEqual({name: metadata[name] for name in set(metadata) - own}, scalars)
        names = {f"rank{rank}.safetensors" for rank in range(len(want.shards))} | {"layouts.json"}
        self.assertEqual(set(files_of(shards)), names)

    def check(self, batch, options, cp):
        for path in self.folder.glob("**/*.safetensors"):
            path.unlink()
        self.number += 1
        write_batch(self.folder / "batch.safetensors", batch)
        shards = self.shard(batch, options, cp, f"shards{self.number}")
        want = restate(batch, options, cp)
        self.check_shards(shards, batch, want)
        for address in self.addresses:
            again = self.shard(batch, options, cp, f"again{self.number}", "--server", address)
            self.assertEqual(files_of(shards), files_of(again), address)
            for path in again.iterdir():
                path.unlink()
            again.rmdir()
        for name, padded in want.padded.items():
            self.assert_same(self.gather(shards, name), padded, f"gathered {name}")
            trimmed = padded
            if name in want.axes:
                columns = np.arange(want.original_len)
                trimmed = Tensor(padded.dtype, np.take(padded.array, columns, want.axes[name]))
            back = self.gather(shards, name, "--trim")
            self.assert_same(back, trimmed, f"gathered and trimmed {name}")
            if name in batch and back.array.shape == batch[name].array.shape:
                self.assert_same(back, batch[name], f"{name} as it was sent")

    def test_contiguous_with_and_without_padding(self):
        for length in (30, 32):
            self.check(with_masks(2, length), {"contiguous": {}, "padding_token_id": 9}, 4)
        self.check(with_masks(1, 25), {"contiguous": {"pad_multiple": 5},
                                       "padding_token_id": -1}, 3)

    def test_round_robin_with_and_without_padding(self):
        for length in (30, 32):
            self.check(with_masks(2, length), {"round_robin": {}, "padding_token_id": 9}, 4)
        self.check(with_masks(3, 7), {"round_robin": {}}, 1)

    def test_a_primary_that_every_rank_keeps_whole(self):
        for layout in ("contiguous", "round_robin"):
            self.check(with_masks(2, 13), {layout: {"keep_primary_full": True}}, 2)

    def test_identity_returns_everything_as_it_was_sent(self):
        for cp in (None, 1, 3):
            self.check(with_masks(2, 5), {"identity": {}}, cp)

    def test_extra_streams_of_every_dtype_on_every_axis(self):
        batch, extras = every_dtype(2, 11)
        self.check(batch, {"round_robin": {}, "extra_streams": extras}, 2)
        for extra in extras:
            extra.update({"float_pad": 1.5} if "f" in extra["name"][6:] else {"int_pad": 1})
        self.check(batch, {"contiguous": {}, "padding_token_id": 0, "extra_streams": extras}, 2)

    def test_embeddings_float_labels_and_positions_of_three_axes(self):
        for layout in ("contiguous", "round_robin"):
            self.check(embeddings(2, 9), {layout: {}}, 2)

    def test_one_row_of_positions_serves_all_rows(self):
        for layout in ("contiguous", "round_robin"):
            self.check(one_position_row(3, 9), {layout: {}, "padding_token_id": 0}, 2)

    def test_attention_masks_become_padding_masks_on_contiguous_only(self):
        for dtype in ("I64", "BOOL", "F32"):
            for layout in ("contiguous", "round_robin"):
                self.check(attended(2, 6, dtype), {layout: {}, "padding_token_id": 0}, 2)

    def test_an_attention_mask_that_is_a_scalar_is_in_no_shard(self):
        mask = {"padding_mask": random_tensor("BOOL", 2, 6)}
        for more, options in (({}, {"round_robin": {}}),
                              ({}, {"round_robin": {"keep_primary_full": True}}),
                              (mask, {"contiguous": {}, "padding_token_id": 0})):
            batch = basic(2, 6) | more | {"step": 7, "attention_mask": "text"}
            write_batch(self.folder / "batch.safetensors", batch)
            self.number += 1
            del batch["attention_mask"]
            for door, where in enumerate(([], ["--server", self.addresses[0]])):
                shards = self.shard(batch, options, 2, f"scalar{self.number}-{door}", *where)
                self.check_shards(shards, batch, restate(batch, options, 2))

    def test_a_loss_mask_stands_in_for_labels_on_contiguous(self):
        batch = with_masks(2, 10)
        del batch["labels"]
        self.check(batch, {"contiguous": {}, "padding_token_id": 0}, 2)

    def test_what_a_layout_does_not_read_may_have_any_shape(self):
        odd = {"attention_mask": tensor("I64", np.ones((3, 1, 2, 2))), "media": tensor("U8", [7])}
        self.check(basic(2, 6) | odd, {"round_robin": {}}, 2)
        mask = {"padding_mask": random_tensor("BOOL", 2, 6)}
        self.check(basic(2, 6) | odd | mask, {"contiguous": {}, "padding_token_id": 0}, 2)
        wide = {"attention_mask": tensor("BOOL", RANDOM.integers(0, 2, (2, 1, 6, 9)))}
        self.check(basic(2, 6) | wide, {"contiguous": {}, "padding_token_id": 0}, 2)

    def test_what_only_padding_would_make_wrong_is_taken_where_none_is_needed(self):
        unsigned = {"input_ids": random_tensor("U8", 2, 8), "labels": random_tensor("U8", 2, 8)}
        for options in ({"contiguous": {}}, {"contiguous": {}, "padding_token_id": -1},
                        {"round_robin": {}}):
            self.check(unsigned, options, 2)

    def test_document_lengths_pass_where_the_layout_takes_them(self):
        packed = basic(2, 6) | {"seq_lens": tensor("I64", [[4, 2], [6, -1000]])}
        self.check(packed | {"qkv_format": "thd"}, {"contiguous": {}, "padding_token_id": 0}, 2)
        self.check(packed | {"qkv_format": "thd"}, {"identity": {}}, 2)
        self.check(basic(2, 6) | {"qkv_format": "bshd"}, {"round_robin": {}}, 2)

    def test_an_extra_that_the_layout_handles_anyway_is_ignored(self):
        extras = [{"name": "labels", "seq_axis": 0}, {"name": "padding_mask"}]
        for layout in ("contiguous", "round_robin"):
            self.check(with_masks(2, 7), {layout: {}, "padding_token_id": 3,
                                          "extra_streams": extras + [{"name": "input_ids"}]}, 2)
        # With the primary left whole its name is a stream like any other.
        self.check(with_masks(2, 7), {"contiguous": {"keep_primary_full": True},
                                      "extra_streams": [{"name": "input_ids", "int_pad": 5}]}, 2)

    def test_names_and_texts_may_hold_any_character(self):
        names = ("\u00e9t\u00e9", "a b/../c", "q\"\\'", "lines\n\r\t\x01", "n" * 128, "\U0001f600")
        batch = basic(2, 6) | {name: counted("I32", 2, 6) for name in names}
        texts = {"k\u00e9\n": "v\u2028\n\"", "negative_zero": "-0", "too_big": str(2**64),
                 "smallest": -2**63, "True": "True", "empty": ""}
        self.check(batch | texts, {"round_robin": {}, "extra_streams": [
            {"name": name} for name in names[:3]]}, 2)

    def test_no_rows_and_no_columns(self):
        for rows, length in ((0, 10), (2, 0), (0, 0)):
            for options in ({"contiguous": {}, "padding_token_id": 0}, {"round_robin": {}},
                            {"round_robin": {"keep_primary_full": True}}, {"identity": {}}):
                self.check(basic(rows, length), options, 2)


if __name__ == "__main__":
    unittest.main()

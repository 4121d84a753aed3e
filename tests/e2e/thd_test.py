"""Packed documents (layout thd) through the programs: files, unary calls and streams all give the
shards of a restatement in numpy, and what comes back is what was sent."""

import json
import pathlib
import unittest

import numpy as np

import safetensors_file
from programs import SLACK, cpshard, files_of, write_batch
from restatement_thd import SENTINEL, restate_thd
from safetensors_file import DTYPES, Tensor, read, tensor
from stream_case import StreamTest
from streams import frames, packed
from stubs import json_format, request_of, service_pb2, types_pb2

RANDOM = np.random.default_rng(11)
THD = {"thd": {}}
CHUNKED = {"thd": {"num_chunks": 2}}
LENGTHS = ("seq_lens", "seq_lens_padded")


def random_tensor(dtype, *shape):
    return safetensors_file.random_tensor(RANDOM, dtype, *shape)


def lengths(dtype, rows):
    width = max(map(len, rows))
    return tensor(dtype, [[*row, *[SENTINEL] * (width - len(row))] for row in rows])


def packed_rows(real, padded, dtype="I64", length_dtype="I64"):
    """Rows of documents of these lengths; tokens and labels count, positions start anew."""
    length = sum(padded[0])
    tokens = np.arange(len(padded) * length).reshape(-1, length)
    positions = [np.concatenate([np.arange(n) for n in row] + [np.zeros(length - sum(row))])
                 for row in padded]
    return {"input_ids": tensor(dtype, tokens), "labels": tensor(dtype, tokens + 1),
            "position_ids": tensor(dtype, positions), "seq_lens": lengths(length_dtype, real),
            "seq_lens_padded": lengths(length_dtype, padded)}


# Over up to 4 ranks; documents of 0, and padding inside and at the end of rows.
REAL = [[5, 16, 7], [24, 0, 3, 0], [8, 8, 8], [31]]
PADDED = [[8, 16, 8], [24, 0, 8, 0], [8, 8, 16], [32]]
PACKED = packed_rows(REAL, PADDED)
MORE = {"pixel_values": random_tensor("F32", 3, 5), "step": 7, "dataset": "web",
        "attention_mask": tensor("I64", np.ones((4, 32))),
        "padding_mask": tensor("BOOL", np.ones((4, 32))), "max_seqlen": tensor("I64", [3, 4])}
ABSORBED = packed_rows([[8, 16, 5]], [[8, 16, 8]])
EMBEDDINGS = PACKED | {"input_ids": random_tensor("BF16", 4, 32, 3)}


def without(batch, *names):
    return {name: value for name, value in batch.items() if name not in names}


def alike(dtype):
    return packed_rows(REAL, PADDED, dtype, "I16" if dtype != "I32" else "I32")


# name, batch, options, cp_size
CASES = (
    ("documents", PACKED, THD, 4),
    ("documents over 2 ranks", PACKED | MORE, THD, 2),
    ("converted", PACKED | MORE, THD, 1),
    ("converted without a mesh", PACKED | MORE, THD, None),
    ("no padded lengths", without(packed_rows(PADDED, PADDED), "seq_lens_padded"), THD, 2),
    ("equal lengths", packed_rows(PADDED, PADDED), THD, 2),
    ("absorption", ABSORBED, THD, 2),
    ("absorption at one rank", ABSORBED, THD, 1),
    ("embeddings", EMBEDDINGS, THD, 2),
    ("embeddings at one rank", EMBEDDINGS, THD, 1),
    ("narrow dtypes", alike("I16"), THD, 2),
    ("narrow dtypes at one rank", alike("I32"), THD, None),
    ("labels of two numbers", PACKED | {"labels": random_tensor("I32", 4, 32, 2)}, THD, 4),
    ("chunks", PACKED | MORE, CHUNKED, 4),
    ("a chunk per row", PACKED | MORE, {"thd": {"num_chunks": 4}}, 2),
    ("chunks at one rank", PACKED | MORE, CHUNKED, 1),
    ("chunks without a mesh", without(PACKED, "position_ids") | MORE, CHUNKED, None),
    ("chunks of embeddings", EMBEDDINGS, CHUNKED, 2),
    ("a short last row", packed_rows([[8, 8], [5]], [[8, 8], [8]]), THD, 1),
    ("by value", {"input_ids": tensor("I32", [[5, 6, 7, 8], [9, 1, 0, 0]]),
                  "labels": tensor("I64", np.arange(8), (2, 4))},
     THD | {"padding_token_id": "0"}, 1),
    ("by value, in chunks", {"input_ids": tensor("I64", [[5, 6, 0, 0], [9, 1, 2, 0]]),
                             "labels": tensor("I64", np.arange(8), (2, 4)),
                             "position_ids": tensor("I64", np.arange(8), (2, 4))},
     CHUNKED | {"padding_token_id": "0"}, None),
    ("three axes of positions", PACKED | {
        "position_ids": tensor("I64", np.arange(384), (3, 4, 32))}, THD, 1),
    ("lengths of one row as [n]", packed_rows([[5, 8]], [[8, 8]]) | {
        "seq_lens": tensor("I64", [5, 8]), "seq_lens_padded": tensor("I32", [8, 8])}, THD, 2))


def restated(batch, options, cp):
    own = {name: int(value) if name == "padding_token_id" else value
           for name, value in options.items()}
    return restate_thd(batch, own, cp)


def entries_of(shard, body):
    """name -> Tensor or scalar, of a shard as it came."""
    values = {}
    for entry in shard.entries:
        if entry.HasField("scalar"):
            values[entry.name] = getattr(entry.scalar, entry.scalar.WhichOneof("value"))
            continue
        dtype = types_pb2.DType.Name(entry.dtype).removeprefix("DTYPE_")
        data = bytes(body[entry.offset:entry.offset + entry.nbytes])
        array = np.frombuffer(data, DTYPES[dtype]).reshape(tuple(entry.dims))
        values[entry.name] = Tensor(dtype, array)
    return values


def peak_bytes(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024


def columns_of(layout):
    runs = [np.arange(run.source, run.source + run.length) for run in layout.runs]
    return np.concatenate(runs).tolist()


class Thd(StreamTest):
    def check_values(self, got, want, what):
        self.assertEqual(set(got), set(want), what)
        for name, value in want.items():
            if isinstance(value, Tensor):
                self.assertTrue(got[name].same(value), f"{what}, {name}: {got[name]}, not {value}")
            else:
                self.assertEqual(got[name], value, f"{what}, {name}")

    def check_layout(self, layout, want, rank):
        self.assertEqual(columns_of(layout), want.columns[rank].tolist())
        self.assertEqual((layout.cp_rank, layout.cp_size), (rank, len(want.columns)))
        self.assertFalse(layout.HasField("original_seq_len"))
        self.assertFalse(layout.HasField("input_token_stream_positions"))
        reported = [layout.HasField(name) for name in
                    ("local_token_global_indices", "input_row_shape", "padded_seq_len")]
        self.assertEqual(reported, [want.chunks == 1] * 3)
        if want.chunks == 1:
            self.assertEqual(list(layout.local_token_global_indices.values),
                             want.columns[rank].tolist())
            self.assertEqual(list(layout.input_row_shape.values), list(want.rows))
            self.assertEqual(layout.padded_seq_len, want.rows[0] * want.rows[1])

    def check_reply(self, reply, want, ranks):
        """`reply`: a ShardBatchReply, or an answer of a stream."""
        for rank, shard in zip(ranks, reply.shards, strict=True):
            self.check_layout(shard.layout, want, rank)
            self.check_values(entries_of(shard, reply.body), want.shards[rank], f"rank {rank}")
            for entry in shard.entries:
                if entry.HasField("scalar"):
                    continue
                cut = entry.name in want.axes
                self.assertEqual(entry.extent, types_pb2.EXTENT_LOCAL if cut
                                 else types_pb2.EXTENT_WHOLE)
                self.assertEqual(entry.seq_axis, want.axes.get(entry.name, 0), entry.name)

    def test_unary_calls_and_streams_give_the_restated_shards(self):
        served = self.serve()
        stream = served.stream()
        number = 0
        for name, batch, options, cp in CASES:
            want = restated(batch, options, cp)
            everyone = list(range(cp or 1))
            for ranks in ([], everyone[::-1][:2]):
                with self.subTest(name, ranks=ranks):
                    request = request_of(batch, options, cp, ranks)
                    reply = served.stub.ShardBatch(request, timeout=10)
                    self.check_reply(reply, want, ranks or everyone)
                    # Lengths first, or last: the server plans when it has them.
                    for order in (LENGTHS, [key for key in batch if key not in LENGTHS]):
                        number += 1
                        first = {key: batch[key] for key in order if key in batch}
                        sent = packed(first | batch, options, cp, ranks)
                        stream.send(*frames(number, sent, chunk=64 << number % 4))
                        self.check_reply(stream.answer(number), want, ranks or everyone)

    def test_plans_are_those_of_the_shards(self):
        served = self.serve()
        for name, batch, options, cp in CASES:
            with self.subTest(name):
                want = restated(batch, options, cp)
                source = write_batch(self.folder / "batch.safetensors", batch)
                command = ["plan", f"--cp={cp or 'none'}", "--options", json.dumps(options),
                           "--in", source]
                local = self.succeeds(cpshard(*command, "--json"))
                remote = self.succeeds(cpshard(*command, "--json", "--server", served.address))
                self.assertEqual(local.out, remote.out)
                self.assertEqual(self.succeeds(cpshard(*command)).out,
                                 self.succeeds(cpshard(*command, "--server", served.address)).out)
                plan = json_format.Parse(local.out, service_pb2.PlanLayoutReply())
                for rank, layout in enumerate(plan.layouts):
                    self.check_layout(layout, want, rank)
                self.assertEqual(len(plan.layouts), cp or 1)
                reads = [key for key in LENGTHS if key in batch] or ["input_ids"]
                self.assertEqual(list(plan.needs), reads)
                tensors = {key: value for key, value in want.shards[0].items()
                           if isinstance(value, Tensor)}
                self.assertEqual({each.name: list(each.dims) for each in plan.streams},
                                 {key: list(value.array.shape) for key, value in tensors.items()})

    def test_a_plan_without_the_lengths_says_that_it_reads_them(self):
        served = self.serve()
        request = service_pb2.PlanLayoutRequest()
        request.MergeFromString(request_of(PACKED, THD, 2).SerializeToString())
        request.ClearField("body")
        for entry in request.entries:
            entry.offset = entry.nbytes = 0
        reply = served.stub.PlanLayout(request, timeout=10)
        self.assertEqual(reply, service_pb2.PlanLayoutReply(needs=LENGTHS))

    def shard(self, batch, options, cp, out, *more):
        source = write_batch(self.folder / "batch.safetensors", batch)
        self.succeeds(cpshard("shard", f"--cp={cp or 'none'}", "--options", json.dumps(options),
                              "--in", source, "--out", out, *more))
        return out

    def gather(self, shards, name, *more):
        out = self.folder / "gathered.safetensors"
        result = cpshard("gather", "--layouts", shards / "layouts.json", "--in", shards,
                         "--stream", name, "--out", out, *more)
        return result if result.status else read(out)[0][name]

    def check_files(self, shards, batch, want):
        for rank, expected in enumerate(want.shards):
            tensors, metadata = read(shards / f"rank{rank}.safetensors")
            scalars = {key: value for key, value in metadata.items() if "cpshard" not in key}
            text = {key: value if isinstance(value, (str, Tensor)) else json.dumps(value)
                    for key, value in expected.items()}
            self.check_values(tensors | scalars, text, f"rank {rank}")
        for name, full in want.full.items():
            self.assertTrue(self.gather(shards, name).same(full), name)
            trimmed = self.gather(shards, name, "--trim")
            if want.chunks > 1:
                self.refused(trimmed, "FAILED_PRECONDITION", "trim")
            elif want.axes[name] == 0:
                rows = full.array.reshape(want.rows + full.array.shape[1:])
                self.assertTrue(trimmed.same(Tensor(full.dtype, rows)), name)
        for name in set(want.shards[0]) - set(want.axes):
            value = want.shards[0][name]
            if isinstance(value, Tensor):
                self.assertTrue(self.gather(shards, name).same(value), name)

    def test_files_of_the_command_line_are_gathered_again(self):
        served = self.serve()
        for number, (name, batch, options, cp) in enumerate(CASES):
            with self.subTest(name):
                want = restated(batch, options, cp)
                here = self.shard(batch, options, cp, self.folder / f"here{number}")
                there = self.shard(batch, options, cp, self.folder / f"there{number}",
                                   "--server", served.address)
                self.assertEqual(files_of(here), files_of(there))
                self.check_files(here, batch, want)

    def test_a_gather_reads_layouts_and_tensors_without_our_notes(self):
        shards = self.shard(PACKED, THD, 2, self.folder / "shards")
        for path in shards.glob("*.safetensors"):
            tensors, _ = read(path)
            write_batch(path, tensors)
        want = restated(PACKED, THD, 2)
        for name, full in want.full.items():
            self.assertTrue(self.gather(shards, name).same(full), name)  # axis 0: input_row_shape
        self.assertTrue(self.gather(shards, "input_ids", "--trim").same(PACKED["input_ids"]))
        self.assertTrue(self.gather(shards, "cu_seqlens").same(want.shards[0]["cu_seqlens"]))

    def test_many_documents_make_layouts_that_come_as_entries(self):
        """A rank holds a run of 8 tokens in every one of 2,048 documents: 32 KB of runs."""
        served = self.serve()
        documents = [[16] * 1024] * 2
        batch = packed_rows(documents, documents)
        want = restated(batch, THD, 2)
        stream = served.stream()
        stream.send(*frames(1, packed(batch, THD, 2)))
        answer = stream.answer(1)
        names = {entry.name for shard in answer.sent for entry in shard.entries}
        self.assertLessEqual({"_layout.runs", "_layout.local_token_global_indices"}, names)
        self.check_reply(answer, want, range(2))
        # The C++ client of the stream puts them together too.
        here = self.shard(batch, THD, 2, self.folder / "here")
        there = self.shard(batch, THD, 2, self.folder / "there", "--server", served.address)
        self.assertEqual(files_of(here), files_of(there))
        self.check_files(here, batch, want)

    @unittest.skipIf(SLACK > 1, "measures memory, of which sanitizers take more")
    def test_documents_without_tokens_take_a_bounded_memory(self):
        served = self.serve()
        stream = served.stream()
        before = peak_bytes(served.server)
        tokens = {name: tensor("U8", np.zeros((1, 8))) for name in ("input_ids", "labels")}
        for number, count in enumerate((2**22 + 1, 2**22)):
            lengths_of_one = np.zeros((1, count), "i2")
            lengths_of_one[0, -1] = 8
            batch = tokens | {"seq_lens": Tensor("I16", lengths_of_one)}
            stream.send(*frames(number, packed(batch, THD, 1)))
            answer = stream.answer(number)
            if count > 2**22:  # documents times ranks
                self.check_refused(answer, "INVALID_ARGUMENT", "seq_lens", count, 2**22)
                self.assertLess(peak_bytes(served.server) - before, 8 * count)
        boundaries = entries_of(answer.shards[0], answer.body)["cu_seqlens"].array
        self.assertEqual((boundaries.shape, boundaries.sum()), ((count + 1,), 8))
        # 60 for plan and answer as such, the rest for the documents in them.
        self.assertLess(peak_bytes(served.server) - before, 130 * count)

    def test_a_length_and_documents_can_be_planned(self):
        served = self.serve()
        doors = ([], ["--server", served.address])
        command = ["plan", "--cp=2", "--options", json.dumps(THD), "--len=24", "--json"]
        for door in doors:
            plan = json.loads(self.succeeds(cpshard(*command, "--docs=8,12,4", *door)).out)
            self.assertEqual([[int(index) for index in
                               layout["local_token_global_indices"]["values"]]
                              for layout in plan["layouts"]],
                             [[0, 1, 6, 7, 8, 9, 10, 17, 18, 19, 20, 23],
                              [2, 3, 4, 5, 11, 12, 13, 14, 15, 16, 21, 22]])
            self.assertEqual(plan["needs"], list(LENGTHS))
            # Lengths are a matter of the layout: others do not read them, but are judged by them.
            other = ["plan", "--cp=2", "--options", '{"round_robin": {}}', "--len=24", "--json", *door]
            whole = json.loads(self.succeeds(cpshard(*other)).out)
            split = json.loads(self.succeeds(cpshard(*other, "--docs=8,16")).out)
            self.assertEqual(whole["layouts"], split["layouts"])
            self.assertEqual(split["totals"]["documents"], "2")
            # Rank 0 has columns 0..5 and 18..23, of documents of 8 and 16: 21 + 81 of 172 pairs.
            self.assertEqual([load["causal_documents"] for load in split["loads"]], [102, 70])
            self.refused(cpshard(*other, "--docs=8,17"), "INVALID_ARGUMENT", "25", "24")
            self.refused(cpshard(*command, "--docs=8,10,6", *door), "INVALID_ARGUMENT",
                         "document 1", "10", "2 * cp_size = 4", "pad")
            self.refused(cpshard(*command, "--docs=8,20", *door), "INVALID_ARGUMENT", "28", "24")
            self.refused(cpshard(*command, *door), "INVALID_ARGUMENT", "seq_lens")
            alone = ["plan", "--cp=1", "--options", json.dumps(THD), "--len=24", *door]
            self.refused(cpshard(*alone), "INVALID_ARGUMENT", "input_ids", "--docs")
            self.succeeds(cpshard(*alone, "--docs=7,17"))
        for docs in ("8,", "-4", "a", "8,-1000"):
            self.usage_error(cpshard(*command, f"--docs={docs}"), "--docs")
        self.usage_error(cpshard("plan", "--cp=2", "--options", json.dumps(THD), "--in=x",
                                 "--docs=8"), "--in")


if __name__ == "__main__":
    unittest.main()

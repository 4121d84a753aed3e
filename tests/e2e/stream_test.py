"""Good streams: whatever the frames, the shards are those of tests/support/restatement.py, under
the right id, and the credit comes back."""

import random
import threading
import unittest

import numpy as np

from bad_messages import field
from restatement import restate
from safetensors_file import bf16, tensor
from stream_case import StreamTest, good_batch
from streams import CHUNK, MAX_CHUNK, Packed, frames, packed
from stubs import request_of, service_pb2, shards_of, types_pb2
from work import GOOD, OPTIONS, is_right

EXTRAS = {"mask": tensor("BOOL", np.arange(60) % 3 == 0, (2, 30)),
          "image": tensor("F32", np.arange(24) / 7, (2, 3, 4)), "step": 7, "name": "\u00e9"}
CUT = {"extra_streams": [{"name": "mask"}]}
IMAGES = {"inputs_embeds": bf16(np.arange(2 * 30 * 5).reshape(2, 30, 5)),
          "labels": tensor("I32", np.arange(60), (2, 30)),
          "position_ids": tensor("I64", np.arange(180), (3, 2, 30))}
CONTIGUOUS = {"contiguous": {"pad_multiple": 7}, "padding_token_id": 5}

# Batch, options, cp_size.
CASES = [(batch, options, cp) for cp in (1, 2, 4) for batch, options in (
    (GOOD, {"identity": {}}),
    (GOOD | EXTRAS, {"identity": {}}),
    (GOOD | EXTRAS, {"round_robin": {}} | CUT),
    (GOOD, {"round_robin": {"keep_primary_full": True}}),
    (IMAGES, {"round_robin": {}}),
    (GOOD | EXTRAS, CONTIGUOUS | CUT),
    (GOOD, {"contiguous": {"keep_primary_full": True}}),
    (GOOD | {"padding_mask": EXTRAS["mask"]}, {"contiguous": {}, "padding_token_id": 1}),
    (IMAGES, CONTIGUOUS))] + [(GOOD | EXTRAS, {"identity": {}}, None)]


def wide_batch(columns=200_000):
    """Two rows; 32 bytes per column."""
    ids = np.arange(2 * columns, dtype="<i8").reshape(2, columns)
    return {"input_ids": tensor("I64", ids), "labels": tensor("I64", ids[::-1] * 3)}


def in_odd_order(frame):
    """The bytes of a BatchFrame with the body first and the other fields from the last to the
    first, an unknown one among them."""
    body = frame.body
    frame.ClearField("body")
    data = field(15, body) + field(900, b"x" * 70)
    for number, name in ((8, "cancel"), (6, "last"), (4, "offset"), (3, "begin"),
                         (2, "frame_seq"), (1, "batch_id")):
        part = service_pb2.BatchFrame()
        if number == 3 and frame.HasField("begin"):
            part.begin.CopyFrom(frame.begin)
        elif number != 3:
            setattr(part, name, getattr(frame, name))
        data += part.SerializeToString()
    return data


class GoodStreams(StreamTest):
    def check_answer(self, answer, batch, options, cp, ranks=()):
        self.assertIsNone(answer.status, answer.status)
        want = restate(batch, options, cp)
        shards = shards_of(answer)
        scalars = {name for name, value in batch.items() if not hasattr(value, "array")}
        ranks = ranks or range(cp or 1)
        self.assertEqual([layout.cp_rank for layout in answer.layouts], list(ranks))
        for shard, got, rank in zip(answer.shards, shards, ranks, strict=True):
            self.assertEqual(set(got), set(want.shards[rank]) - scalars)
            for name, value in got.items():
                self.assertTrue(value.same(want.shards[rank][name]), (name, rank))
            self.assertEqual({entry.name for entry in shard.entries if entry.HasField("scalar")},
                             scalars)
            runs = [np.arange(run.source, run.source + run.length) for run in shard.layout.runs]
            self.assertEqual(np.concatenate(runs).tolist(), want.columns[rank].tolist())

    def test_shards_are_those_of_a_restatement_of_the_layouts(self):
        stream = self.serve(listen="127.0.0.1:0").stream()
        for number, (batch, options, cp) in enumerate(CASES):
            stream.send(*frames(number, packed(batch, options, cp), (64, CHUNK)[number % 2]))
        for number, case in enumerate(CASES):
            with self.subTest(number=number):
                self.check_answer(stream.answer(number), *case)

    def test_ranks_come_in_the_order_asked_for(self):
        stream = self.serve().stream()
        for number, ranks in enumerate(((0,), (3, 1), (2, 0, 3, 1))):
            stream.send(*frames(number, packed(GOOD, OPTIONS, 4, ranks)))
            self.check_answer(stream.answer(number), GOOD, OPTIONS, 4, ranks)

    def test_bodies_may_have_any_size_up_to_4_mib(self):
        batch = wide_batch()
        stream = self.serve().stream()
        for number, chunk in enumerate((MAX_CHUNK, CHUNK, 1 << 20, 192 << 10)):
            stream.send(*frames(number, packed(batch, OPTIONS, 4), chunk))
        for number in range(4):
            self.check_answer(stream.answer(number), batch, OPTIONS, 4)
        stream.send(*frames(9, good_batch(), 64))
        self.check_right(stream.answer(9))

    def test_frames_without_a_body_may_stand_between_the_others(self):
        stream = self.serve().stream()
        made = []
        for frame in frames(1, good_batch(), 512):
            made += [service_pb2.BatchFrame(batch_id=1), frame]
            frame.last = False
        made[0].begin.CopyFrom(made[1].begin)
        made[1].ClearField("begin")
        made.append(service_pb2.BatchFrame(batch_id=1, last=True))
        for seq, frame in enumerate(made):
            frame.frame_seq = seq
        stream.send(*made)
        self.check_right(stream.answer(1))

    def test_fields_of_a_frame_may_come_in_any_order(self):
        batch = wide_batch()
        stream = self.serve().stream()
        for number, (sent, case) in enumerate((
                (frames(0, packed(batch, OPTIONS, 2), 1 << 20), (batch, OPTIONS, 2)),
                (frames(1, good_batch(), 512), (GOOD, OPTIONS, 4)))):
            stream.total_bytes[number] = sent[0].begin.total_bytes
            stream.send(*map(in_odd_order, sent))
            self.check_answer(stream.answer(number), *case)

    def test_tensors_lie_anywhere_and_what_is_between_them_is_ignored(self):
        stream = self.serve().stream()
        begin, data = good_batch()
        ids, labels = data[:480], data[512:992]
        begin.entries[0].offset, begin.entries[1].offset = 640, 64
        begin.total_bytes = 640 + 480  # not rounded up
        data = b"\xff" * 64 + labels + b"\xff" * (640 - 64 - 480) + ids
        for number, chunk in enumerate((64, CHUNK)):
            stream.send(*frames(number, Packed(begin, data), chunk))
            self.check_right(stream.answer(number))

    def test_batches_alternate_frame_by_frame(self):
        batches = [(wide_batch(1000 + 64 * number), options, cp) for number, (options, cp)
                   in enumerate([(OPTIONS, 2), (CONTIGUOUS, 3), ({"identity": {}}, None)] * 4)]
        stream = self.serve().stream()
        waiting = [frames(number, packed(*case), 4096) for number, case in enumerate(batches)]
        shuffle = random.Random(7)
        while waiting:
            some = shuffle.choice(waiting)
            stream.send(some.pop(0))
            waiting = [each for each in waiting if each]
        for number in reversed(range(len(batches))):
            self.check_answer(stream.answer(number), *batches[number])
        self.assertEqual(stream.unread(), [])

    def test_an_id_is_free_again_once_it_is_answered(self):
        stream = self.serve().stream()
        for number in (0, 7, 2**64 - 1):
            for _ in range(3):
                self.check_stream(stream, number)
        stream.send(*frames(5, packed(GOOD, {}, 4)))
        self.check_refused(stream.answer(5), "INVALID_ARGUMENT", "layout", retry=False)
        self.check_stream(stream, 5)

    def test_batches_without_bytes_are_answered(self):
        stream = self.serve().stream()
        batch = {"input_ids": tensor("U8", np.zeros((0, 9))),
                 "labels": tensor("I16", np.zeros((0, 9)))}
        self.assertEqual(packed(batch, OPTIONS, 2).begin.total_bytes, 0)
        stream.send(*frames(1, packed(batch, OPTIONS, 2)))
        self.check_answer(stream.answer(1), batch, OPTIONS, 2)

    def test_what_the_unary_call_says_of_empty_batches_the_stream_says_too(self):
        served = self.serve()
        stream = served.stream()
        for number, shape in enumerate(((2, 0), (0, 0), (1, 1))):
            batch = {name: tensor("I64", np.ones(shape)) for name in ("input_ids", "labels")}
            for options in (OPTIONS, CONTIGUOUS, {"identity": {}}):
                reply = served.stub.ShardBatch(request_of(batch, options, 2), timeout=10)
                stream.send(*frames(number, packed(batch, options, 2)))
                answer = stream.answer(number)
                self.assertIsNone(answer.status, answer.status)
                self.assertEqual(answer.layouts, [shard.layout for shard in reply.shards])
                for got, want in zip(shards_of(answer), shards_of(reply), strict=True):
                    self.assertEqual(set(got), set(want))
                    self.assertTrue(all(got[name].same(want[name]) for name in want))

    def test_scalars_of_every_kind_come_back_on_every_shard(self):
        scalars = {"yes": True, "no": False, "least": -2**63, "zero": 0, "half": 0.5,
                   "text": "\u00e9\n" * 1000, "empty": ""}
        stream = self.serve().stream()
        batch = packed(GOOD | scalars, OPTIONS, 2)
        stream.send(*frames(1, batch))
        sent = {entry.name: entry.scalar for entry in batch.begin.entries
                if entry.HasField("scalar")}
        for shard in stream.answer(1).shards:
            self.assertEqual({entry.name: entry.scalar for entry in shard.entries
                              if entry.HasField("scalar")}, sent)

    def test_heads_of_many_ranks_take_many_frames(self):
        stream = self.serve().stream()
        batch = GOOD | {f"e{number}": tensor("U8", [number]) for number in range(20)}
        stream.send(*frames(1, packed(batch, OPTIONS, 512)))
        answer = stream.answer(1)
        self.assertGreater(answer.num_frames, 3)
        self.check_answer(answer, batch, OPTIONS, 512)
        self.assertTrue(all(entry.extent == types_pb2.EXTENT_WHOLE
                            for entry in answer.shards[0].entries if entry.name[0] == "e"))

    def test_the_digest_is_that_of_the_unary_call(self):
        served = self.serve()
        stream = served.stream()
        reply = served.stub.ShardBatch(request_of(GOOD | EXTRAS, OPTIONS, 2), timeout=10)
        for number, turn in enumerate((1, -1)):  # whatever the order that tensors arrive in
            batch = dict(list((GOOD | EXTRAS).items())[::turn])
            stream.send(*frames(number, packed(batch, OPTIONS, 2), 64))
            self.assertEqual({layout.batch_digest for layout in stream.answer(number).layouts},
                             {reply.shards[0].layout.batch_digest})

    def test_many_streams_and_unary_calls_go_on_at_once(self):
        served = self.serve("--workers=2")
        failures = []

        def client(seed):
            try:
                stream, number = served.stream(), 0
                for number in range(10):
                    stream.send(*frames(number, good_batch(), 64 << seed % 5))
                    failures.extend([] if is_right(stream.answer(number)) else [(seed, number)])
                reply = served.stub.ShardBatch(request_of(GOOD, OPTIONS, 4), timeout=20)
                failures.extend([] if is_right(reply) else [seed])
                stream.end()
                failures.extend([] if stream.read_to_end().value[0] == 0 else [seed])
            except Exception as error:  # of a thread: unittest would not see it
                failures.append(error)

        threads = [threading.Thread(target=client, args=(seed,)) for seed in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_the_stream_ends_well_when_the_client_ends_it(self):
        for send in (0, 1, 5):
            stream = self.serve().stream()
            for number in range(send):
                stream.send(*frames(number, good_batch()))
            stream.end()
            self.assertEqual(stream.read_to_end().name, "OK")
            for number in range(send):
                self.check_right(stream.answer(number))

    def test_a_stub_of_the_generator_will_do(self):
        served = self.serve()
        sent = [frame for number in range(3) for frame in frames(number, good_batch(), 256)]
        answers = {frame.batch_id: frame
                   for frame in served.stub.ShardBatches(iter(sent), timeout=20)}
        self.assertEqual(sorted(answers), [0, 1, 2])  # of one frame each
        self.assertTrue(all(is_right(answer) for answer in answers.values()))


if __name__ == "__main__":
    unittest.main()

"""Every broken rule of a stream: the right code and numbers, for that batch alone. Good batches are
half sent on the same stream and on another while it happens, and come out right."""

import pathlib
import tempfile
import unittest

import bad_batches
import bad_layouts
import bad_frames
from bad_frames import BAD
from live_server import LiveServer
from programs import ENVIRONMENT, SERVER, SLACK
from stream_case import Served, StreamTest, good_batch, large_batch
from streams import frames, packed
from stubs import service_pb2
from work import GOOD, OPTIONS

SMALL = SLACK * (256 << 20)  # bytes that no refusal may use


class BadFrames(StreamTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory(prefix="cpshard-test-")
        cls.addClassCleanup(folder.cleanup)
        server = LiveServer(SERVER, f"--listen=unix:{folder.name}/s", environment=ENVIRONMENT)
        cls.addClassCleanup(server.__exit__)
        cls.served = Served(server.wait_until_listening())
        cls.addClassCleanup(cls.served.channel.close)

    def setUp(self):
        super().setUp()
        self._served.append(self.served)
        self.served.streams.clear()
        self.good = frames(1, good_batch(), 256)

    def check_server(self):
        """It lives, has not grown and holds no batch."""
        self.assertIsNone(self.served.server.process.poll(), "the server ended")
        self.served.wait_for(self, lambda counters: counters.buffers_out == counters.batches == 0)
        status = pathlib.Path(f"/proc/{self.served.server.process.pid}/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        self.assertLess(int(peak.split()[1]) * 1024, 2 * SMALL)

    def begin_good(self, *streams):
        for stream in streams:
            stream.send(*self.good[:2])

    def finish_good(self, *streams):
        for stream in streams:
            stream.send(*self.good[2:])
            self.check_right(stream.answer(1))

    def test_a_bad_batch_is_refused_and_the_stream_goes_on(self):
        for row in bad_frames.ROWS:
            with self.subTest(row.name):
                stream, other = self.served.stream(), self.served.stream()
                self.begin_good(stream, other)
                stream.send(*row.messages)
                answer = stream.answer(row.batch_id)
                self.check_refused(answer, row.code, *row.texts, retry=False)
                self.assertEqual(answer.num_frames, 1)
                self.finish_good(stream, other)
                self.check_stream(stream, row.batch_id)
                self.assertEqual(stream.unread(), [], "one answer for one batch")
                self.check_server()
                stream.end()
                self.assertEqual(stream.read_to_end().name, "OK")

    def test_what_the_unary_calls_refuse_is_refused_alike(self):
        stream = self.served.stream()
        for row in bad_batches.ROWS + bad_layouts.ROWS:
            with self.subTest(row.name):
                sent = frames(BAD, packed(row.batch, row.options, row.cp, row.ranks))
                if sent[0].ByteSize() - len(sent[0].body) > 60 << 10:
                    continue  # a header over the limit is another row
                stream.send(*sent)
                self.check_refused(stream.answer(BAD), row.code, *row.texts, retry=False)
        self.check_stream(stream)
        self.check_server()

    def test_a_message_that_names_no_batch_ends_the_stream(self):
        for row in bad_frames.ENDING:
            with self.subTest(row.name):
                stream, other = self.served.stream(), self.served.stream()
                self.begin_good(stream, other)
                stream.send(*self.good[2:], *frames(3, good_batch(), 64)[:5])
                if row.code == "RESOURCE_EXHAUSTED":  # gRPC itself ends the call, at once
                    self.check_right(stream.answer(1))
                stream.send(*row.messages)
                code = stream.read_to_end()
                self.assertEqual(code.name, row.code, stream.call.details())
                for text in row.texts:
                    self.assertIn(text, stream.call.details())
                if row.code != "RESOURCE_EXHAUSTED":
                    self.check_right(stream.answer(1))
                self.finish_good(other)
                self.check_server()

    def test_batches_that_were_complete_are_answered_before_the_stream_ends(self):
        stream = self.served.stream()
        sent = frames(4, large_batch(16))
        stream.send(*self.good, *sent, b"\xff" * 100)
        self.assertEqual(stream.read_to_end().name, "INVALID_ARGUMENT")
        self.check_right(stream.answer(1))
        self.assertIsNone(stream.answer(4).status)

    def test_a_stream_that_ends_in_the_middle_of_a_batch_says_so(self):
        stream = self.served.stream()
        stream.send(*self.good, *frames(BAD, good_batch(), 256)[:2])
        stream.end()
        self.assertEqual(stream.read_to_end().name, "OK")
        self.check_right(stream.answer(1))
        self.check_refused(stream.answer(BAD), "INVALID_ARGUMENT", "512", "1024", retry=False)
        self.check_server()

    def test_a_batch_that_is_begun_again_while_it_is_answered_fails(self):
        stream = self.served.stream()
        stream.send(*frames(BAD, large_batch(64)))
        stream.read()
        stream.send(*frames(BAD, good_batch()))
        self.check_refused(stream.answer(BAD), "INVALID_ARGUMENT", "again", retry=False)
        self.check_stream(stream, BAD)
        self.assertEqual(stream.unread(), [])
        self.check_server()

    def test_a_frame_after_the_last_fails_the_batch_or_stands_alone(self):
        after = service_pb2.BatchFrame(batch_id=BAD, frame_seq=32, offset=64 << 20,
                                       body=bytes(64), last=True)
        stream = self.served.stream()
        stream.send(*frames(BAD, large_batch(64)))
        stream.read()
        stream.send(after)
        self.check_refused(stream.answer(BAD), "INVALID_ARGUMENT", "32", "after the last")
        self.check_stream(stream, BAD)
        stream.send(after)
        self.check_refused(stream.answer(BAD), "INVALID_ARGUMENT", "32", "not begun")
        self.check_stream(stream, BAD)
        self.assertEqual(stream.unread(), [])
        self.check_server()

    def test_refused_batches_that_never_end_are_counted(self):
        stream = self.served.stream()
        for number in range(1025):
            stream.send(*frames(number, packed(GOOD, {}, 4), 256)[:1])
            if number % 32 == 31:
                self.check_stream(stream, 5000)
        self.assertEqual(stream.read_to_end().name, "RESOURCE_EXHAUSTED")
        self.assertIn("1024", stream.call.details())
        for number in range(1025):
            self.check_refused(stream.answer(number), "INVALID_ARGUMENT", "layout")
        self.check_server()

    def test_refused_batches_that_end_are_forgotten(self):
        stream = self.served.stream()
        for number in range(1500):
            stream.send(*frames(number, packed(GOOD, {}, 4), 512))
            self.check_refused(stream.answer(number), "INVALID_ARGUMENT", "layout")
        self.check_stream(stream)

    def test_a_batch_at_every_limit_is_taken(self):
        names = [f"{number:0128}" for number in range(254)]
        batch = GOOD | {name: GOOD["labels"] for name in names}
        stream = self.served.stream()
        stream.send(*frames(BAD, packed(batch, OPTIONS, 4), 64 << 10))
        answer = stream.answer(BAD)
        self.assertIsNone(answer.status, answer.status)
        self.assertEqual([len(shard.entries) for shard in answer.shards], [257] * 4)


if __name__ == "__main__":
    unittest.main()

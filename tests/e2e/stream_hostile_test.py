"""Peers that mean harm: what they send costs a server much more than them. The others are answered
meanwhile, memory stays bounded, and what was held for the peer is let go. Limits are generous: what
is guarded against took many seconds, or gigabytes."""

import time
import unittest

import grpc

from bad_messages import field
from hostile import (Flood, begun_and_cancelled, long_heads_batch, padded_batch, peak_bytes,
                     planning_batch, slowest)
from programs import SLACK
from stream_case import StreamTest, good_batch, large_batch
from streams import MAX_HEADER, METHOD, Stream, frames
from stubs import UNLIMITED, connect, service_pb2

PROMPT = 3 * SLACK  # seconds within which others are answered
BAD = 2  # the id of the hostile peer's batch


class HostileTest(StreamTest):
    def channel(self, served):
        """A connection of its own."""
        channel, _ = connect(served.address)
        self.addCleanup(channel.close)
        return channel

    def check_grows_less_than(self, served, mib, do):
        """The server's memory, at its peak."""
        self.check_stream(served.stream())
        before = peak_bytes(served.server.process)
        do()
        grown = peak_bytes(served.server.process) - before
        self.assertLess(grown, SLACK * (mib << 20))

    def check_shares_large(self, channel, mib=16):
        """A batch of another connection, answered at once."""
        stream = Stream(channel, timeout=4 * PROMPT)
        stream.send(*frames(1, large_batch(mib)))
        self.assertIsNone(stream.answer(1).status)
        stream.end()
        self.assertEqual(stream.read_to_end(), grpc.StatusCode.OK)


class Time(HostileTest):
    def check_begins(self, served, messages):
        """They are not refused for something else."""
        stream = served.stream()
        stream.send(*messages)
        self.check_refused(stream.answer(1), "CANCELLED")

    def test_begins_that_take_long_to_plan_delay_nobody(self):
        served = self.serve()

        def ask():
            channel, stub = connect(served.address)
            with channel:
                stub.GetServerInfo(service_pb2.GetServerInfoRequest(), timeout=4 * PROMPT)

        messages = begun_and_cancelled(planning_batch())
        self.check_begins(served, messages)
        with Flood(served.address, 4, messages) as flood:
            self.assertLess(slowest(4, ask), PROMPT)
            self.assertGreater(flood.answers, 0)

    def test_large_frames_of_batches_that_are_given_up_do_not_hold_the_workers(self):
        served = self.serve()
        batch = planning_batch()
        batch.begin.total_bytes += 1 << 20
        batch.begin.entries[0].offset = batch.begin.total_bytes - 64
        messages = begun_and_cancelled(batch, bytes(1 << 20))
        self.check_begins(served, messages)

        def ask():
            stream = served.stream()
            stream.send(*frames(1, good_batch()))
            self.check_right(stream.answer(1))
            stream.end()

        with Flood(served.address, 2, messages) as flood:
            self.assertLess(slowest(4, ask), PROMPT)
            self.assertGreater(flood.answers, 0)


class Memory(HostileTest):
    def test_heads_that_repeat_a_long_text_are_made_as_they_are_read(self):
        served = self.serve()
        stream = served.stream()

        def do():
            batch = long_heads_batch(60_000)
            for number in range(12):  # each answer has 234 MiB of heads
                stream.send(*frames(number, batch))
            served.wait_for(self, lambda counters: counters.batches_sharded == 13, 20)
            time.sleep(0.5)
            for _ in range(100):
                stream.read()

        self.check_grows_less_than(served, 300, do)

    def test_heads_that_no_frame_takes_are_refused_with_the_first_frame(self):
        stream = self.serve().stream()
        sent = frames(BAD, long_heads_batch(MAX_HEADER - 300), 64)
        sent[0].ClearField("body")
        stream.send(sent[0])
        self.check_refused(stream.answer(BAD), "INVALID_ARGUMENT", "2 entries", MAX_HEADER - 256,
                           retry=False)
        self.check_stream(stream, BAD)
        self.assertEqual(stream.unread(), [])

    def test_compressed_messages_are_refused_and_not_unpacked(self):
        served = self.serve()
        message = field(15, bytes(256 << 20))  # compressed: 256 KB

        def send(algorithm, method):
            options = [("grpc.use_local_subchannel_pool", 1), *UNLIMITED]
            with (grpc.insecure_channel(served.address, options, algorithm) as channel,
                  self.assertRaises(grpc.RpcError) as refused):
                list(channel.stream_stream(method)(iter([message]), timeout=60))
            self.assertEqual(refused.exception.code().name, "UNIMPLEMENTED")
            self.assertIn(algorithm.name.lower(), refused.exception.details())

        for algorithm in (grpc.Compression.Gzip, grpc.Compression.Deflate):
            for method in (METHOD, METHOD.removesuffix("es")):  # the unary one takes one message
                with self.subTest(method, algorithm=algorithm):
                    self.check_grows_less_than(served, 100, lambda: send(algorithm, method))

    def test_requests_that_are_too_large_are_refused_before_they_are_parsed(self):
        served = self.serve()
        entries = field(4, b"") * (4 << 20)  # parsed, each takes a hundred bytes

        def send(method):
            with (connect(served.address)[0] as channel,
                  self.assertRaises(grpc.RpcError) as refused):
                channel.unary_unary(METHOD.replace("ShardBatches", method))(
                    entries[:-64], timeout=60)
            return refused.exception

        for method, code in (("ShardBatch", "RESOURCE_EXHAUSTED"),
                             ("PlanLayout", "RESOURCE_EXHAUSTED"),
                             ("ListGroups", "INVALID_ARGUMENT"),
                             ("GetShard", "INVALID_ARGUMENT")):
            with self.subTest(method):
                self.check_grows_less_than(
                    served, 100, lambda: self.assertEqual(send(method).code().name, code))

    def test_requests_that_are_too_large_are_refused_before_they_are_parsed(self):
        served = self.serve()
        message = field(4, b"") * ((4 << 20) - 32)  # 8 MiB; an entry takes a hundred bytes

        def check(method, code):
            with self.assertRaises(grpc.RpcError) as refused:
                served.channel.unary_unary(METHOD.replace("ShardBatches", method))(
                    message, timeout=60)
            self.assertEqual(refused.exception.code().name, code)

        for method, code in (("ShardBatch", "RESOURCE_EXHAUSTED"),
                             ("PlanLayout", "RESOURCE_EXHAUSTED"),
                             ("ListGroups", "INVALID_ARGUMENT"),
                             ("GetShard", "INVALID_ARGUMENT")):
            with self.subTest(method):
                self.check_grows_less_than(served, 100, lambda: check(method, code))

    def test_padding_that_nobody_reads_leaves_memory_to_others(self):
        # Three answers, in blocks of 160 MiB, would leave 10 MiB.
        served = self.serve(f"--pool-bytes={490 << 20}", "--session-bytes=0",
                            f"--max-inflight-bytes={32 << 20}")
        hostile, other = self.channel(served), self.channel(served)
        streams = [served.stream(hostile) for _ in range(4)]
        for number in range(4):
            sent = frames(number, padded_batch(156))
            for stream in streams:
                stream.send(*sent)
        served.wait_for(self, lambda counters: counters.bytes_out > 150 << 20)
        for _ in range(8):
            self.check_shares_large(other)
            time.sleep(0.25)
        self.assertGreater(served.counters().bytes_out, 150 << 20, "nothing was held meanwhile")

    def test_batches_that_do_not_come_hold_no_more_than_their_share_and_not_for_long(self):
        stall = 2
        served = self.serve(f"--pool-bytes={256 << 20}", "--session-bytes=0",
                            f"--stall-seconds={stall}")
        hostile, other = self.channel(served), self.channel(served)
        streams = [served.stream(hostile) for _ in range(4)]
        sent = service_pb2.BatchFrame(batch_id=BAD, begin=large_batch(60).begin)
        for stream in streams:  # blocks of 64 MiB: four would be all memory
            stream.send(sent)
        begin = time.monotonic()
        served.wait_for(self, lambda counters: counters.bytes_out >= 60 << 20)
        time.sleep(0.3)  # all have been looked at
        seq = 0
        while buffers := served.counters().buffers_out:
            self.assertLess(time.monotonic() - begin, stall + 3 * SLACK, f"{buffers} are held")
            seq += 1
            for stream in streams:
                stream.send(service_pb2.BatchFrame(batch_id=BAD, frame_seq=seq))
            self.check_shares_large(other)
            time.sleep(0.9)
        answers = sorted((stream.answer(BAD) for stream in streams),
                         key=lambda answer: answer.status.code)
        self.check_refused(answers[0], "DEADLINE_EXCEEDED", f"nothing of it came for {stall}s")
        for answer in answers[1:]:
            self.check_refused(answer, "RESOURCE_EXHAUSTED", 128 << 20, retry=True)


class OneStream(HostileTest):
    def test_a_whole_batch_under_the_id_of_one_that_is_coming_fails_both_with_one_answer(self):
        stream = self.serve().stream()
        coming = frames(BAD, good_batch(), 256)
        stream.send(coming[0], *frames(BAD, good_batch()), *coming[1:])
        self.check_refused(stream.answer(BAD), "INVALID_ARGUMENT", "again", retry=False)
        self.check_stream(stream, BAD)
        self.check_stream(stream)
        self.assertEqual(stream.unread(), [])

    def test_a_stream_that_is_cancelled_leaves_the_others_of_its_connection_alone(self):
        served = self.serve()
        channel = self.channel(served)
        cancelled, other, slow = (served.stream(channel) for _ in range(3))
        slow.send(*frames(1, large_batch(32)))
        slow.read()
        cancelled.send(*frames(1, large_batch(64)))
        cancelled.read()  # the rest does not fit into what gRPC reads ahead
        cancelled.cancel()
        self.assertEqual(cancelled.read_to_end(), grpc.StatusCode.CANCELLED)
        for _ in range(14):  # frames of 2 MiB
            slow.read()
            self.check_stream(other)
            time.sleep(0.3)
        self.assertIsNone(slow.answer(1).status)
        self.assertEqual(served.counters().connections, 2)
        self.assertEqual(served.counters().streams_stalled, 0)


if __name__ == "__main__":
    unittest.main()

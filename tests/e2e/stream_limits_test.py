"""Streams at their limits: too much in flight, too little memory, too many connections. Who is over
is told so; nobody else notices."""

import unittest

import grpc

import bad_messages
import raw_http2
from restatement import restate
from stream_case import StreamTest, good_batch, growing_batch, large_batch
from streams import METHOD, frames, packed
from stubs import connect, service_pb2, shards_of
from work import OPTIONS


class InFlight(StreamTest):
    def test_a_batch_over_the_limits_is_refused_for_now_and_the_others_go_on(self):
        for flags, numbers in ((["--max-inflight-batches=2"], ("2",)),
                               (["--max-inflight-bytes=2048"], ("2048", "1024")),
                               (["--max-inflight-bytes=3071"], ("3071", "1024"))):
            stream = self.serve(*flags).stream()
            first, second, third = (frames(number, good_batch(), 256) for number in range(3))
            stream.send(*first[:2], *second[:2], *third)
            answer = stream.answer(2)
            self.check_refused(answer, "RESOURCE_EXHAUSTED", *numbers, retry=True)
            self.assertEqual(answer.credit.batches, 0)
            stream.send(*first[2:], *second[2:])
            self.check_right(stream.answer(0))
            self.check_right(stream.answer(1))
            stream.send(*third)
            self.check_right(stream.answer(2))

    def test_one_batch_is_taken_however_large(self):
        stream = self.serve("--max-inflight-bytes=100", "--max-inflight-batches=1").stream()
        for number in range(3):
            stream.send(*frames(number, large_batch(4)))
            self.assertIsNone(stream.answer(number).status)
            self.check_stream(stream)

    def test_streams_have_limits_of_their_own(self):
        served = self.serve("--max-inflight-batches=1")
        streams = [served.stream() for _ in range(4)]
        for stream in streams:
            stream.send(*frames(1, good_batch(), 256)[:3])
        for stream in streams:
            stream.send(*frames(1, good_batch(), 256)[3:])
            self.check_right(stream.answer(1))

    def test_a_client_that_keeps_within_the_credit_is_never_refused(self):
        stream = self.serve("--max-inflight-bytes=3072", "--max-inflight-batches=3").stream()
        for number in range(3):
            stream.send(*frames(number, good_batch()))
        for number in range(3, 200):
            self.check_right(stream.answer(number - 3))
            stream.send(*frames(number, good_batch(), 256))

    def test_a_batch_larger_than_all_memory_is_refused_for_ever(self):
        stream = self.serve("--pool-bytes=1048576", "--session-bytes=0").stream()
        for batch in (large_batch(2), growing_batch()):  # itself; its shards
            stream.send(*frames(1, batch))
            self.check_refused(stream.answer(1), "FAILED_PRECONDITION", 1048576, "pool_bytes",
                               retry=False)
            self.check_stream(stream)

    def test_a_batch_without_memory_now_is_told_to_come_again(self):
        served = self.serve("--pool-bytes=8388608", "--session-bytes=0")
        stream, other = served.stream(), served.stream()
        first = frames(1, large_batch(5))
        stream.send(*first[:2])
        served.wait_for(self, lambda counters: counters.buffers_out == 1)
        for asking in (stream, other):  # of one connection, which has half of the pool
            asking.send(*frames(2, large_batch(5)))
            self.check_refused(asking.answer(2), "RESOURCE_EXHAUSTED", 4194304, retry=True)
        channel, _ = connect(served.address)
        self.addCleanup(channel.close)
        another = served.stream(channel)
        another.send(*frames(2, large_batch(5)))
        self.check_refused(another.answer(2), "RESOURCE_EXHAUSTED", 8388608, retry=True)
        stream.send(*first[2:])
        self.assertIsNone(stream.answer(1).status)
        served.wait_for(self, lambda counters: counters.buffers_out == 0)
        other.send(*frames(2, large_batch(5)))
        self.assertIsNone(other.answer(2).status)


class OfTheServer(StreamTest):
    def test_batches_too_large_for_a_unary_message_go_through(self):
        stream = self.serve().stream()
        for number, row in enumerate(bad_messages.TOO_LARGE[:2]):
            with self.subTest(row.name):
                stream.send(*frames(number, packed(row.batch, row.options, row.cp)))
                answer = stream.answer(number)
                self.assertIsNone(answer.status, answer.status)
                want = restate(row.batch, row.options, row.cp)
                for rank, shard in enumerate(shards_of(answer)):
                    self.assertEqual(set(shard), set(want.shards[rank]))
                    self.assertTrue(all(shard[name].same(want.shards[rank][name])
                                        for name in shard))

    def test_limits_are_those_of_the_configuration(self):
        stream = self.serve("--max-batch-bytes=1000", "--max-tensors=3", "--max-ranks=8").stream()
        for number, row in enumerate(bad_messages.OVER_LIMITS):
            with self.subTest(row.name):
                stream.send(*frames(number, packed(row.batch, row.options, row.cp)))
                self.check_refused(stream.answer(number), row.code, row.texts[-1], retry=False)
        stream.send(*frames(9, packed(bad_messages.WITHIN_LIMITS, OPTIONS, 8)))
        self.assertEqual(len(stream.answer(9).shards), 8)


class Connections(StreamTest):
    def test_many_that_write_at_once_within_their_limits_are_all_answered(self):
        served = self.serve(f"--max-inflight-bytes={16 << 20}")
        messages = [frame.SerializeToString() for frame in frames(1, large_batch(8))]
        peers = [connect(served.address, unlimited=True)[0] for _ in range(150)]
        for channel in peers:
            self.addCleanup(channel.close)
            grpc.channel_ready_future(channel).result(20)
        # At once, so that gRPC holds hundreds of MiB for them.
        calls = [channel.stream_stream(METHOD)(iter(messages), timeout=60) for channel in peers]
        for call in calls:
            *_, last = call
            last = service_pb2.ShardFrame.FromString(last)
            self.assertFalse(last.HasField("status"), last.status)
            self.assertTrue(last.last)

    def test_half_open_connections_disturb_nobody(self):
        served = self.serve(listen=f"127.0.0.1:0,unix:{self.folder}/s", count=2)
        raw = [raw_http2.connect(address) for address in served.server.addresses * 10]
        for number, connected in enumerate(raw):
            self.addCleanup(connected.close)
            connected.sendall((b"", raw_http2.PREFACE[:9], b"GET / HTTP/1.1\r\n")[number % 3])
        stream = served.stream()
        for _ in range(20):
            self.check_stream(stream)
        self.assertEqual(served.server.stop(), 0)

    def test_connections_over_the_limit_are_refused_while_the_others_work(self):
        served = self.serve("--max-connections=3", listen=f"127.0.0.1:0,unix:{self.folder}/s",
                            count=2)
        stream = served.stream()
        taken = [raw_http2.connect(address) for address in served.server.addresses]
        served.wait_for(self, lambda counters: counters.connections == 3)
        for number, address in enumerate(served.server.addresses, 1):
            with raw_http2.connect(address) as refused:
                self.assertIn(self.received(refused), (b"", ConnectionResetError))
            served.wait_for(self, lambda counters: counters.connections_refused == number)
            self.check_stream(stream)
        for connected in taken:
            connected.close()
        served.wait_for(self, lambda counters: counters.connections == 1)
        channel, stub = connect(served.server.addresses[1])
        self.check_stream(served.stream(channel))
        channel.close()

    def received(self, connected):
        try:
            return connected.recv(1)
        except ConnectionResetError as error:
            return type(error)


if __name__ == "__main__":
    unittest.main()

"""What surrounds the bytes of a stream: checksums, cancelled batches, stated limits, counters."""

import unittest

import grpc

from stream_case import StreamTest, good_batch, growing_batch, held, large_batch
from streams import CHUNK, MAX_CHUNK, MAX_HEADER, crc32c, frames, packed
from stubs import service_pb2
from work import GOOD, OPTIONS


def cancel(batch_id, frame_seq=0):
    return service_pb2.BatchFrame(batch_id=batch_id, frame_seq=frame_seq, cancel=True)


class Checksums(StreamTest):
    def test_the_check_value_of_crc_32c(self):
        self.assertEqual(crc32c(b"123456789"), 0xe3069283)

    def test_right_checksums_change_nothing(self):
        stream = self.serve().stream()
        for number, chunk in enumerate((64, 512, CHUNK)):
            stream.send(*frames(number, good_batch(), chunk, checksums=True))
            self.check_right(stream.answer(number))

    def test_some_checksums_may_be_left_out(self):
        stream = self.serve().stream()
        sent = frames(1, good_batch(), 64, checksums=True)
        for frame in sent[::2]:
            frame.ClearField("crc32c")
        stream.send(*sent)
        self.check_right(stream.answer(1))

    def test_a_wrong_checksum_is_data_loss_and_the_batch_can_be_sent_again(self):
        stream = self.serve().stream()
        for wrong in (1, 3, -1):  # the last one is of the last body
            sent = frames(1, good_batch(), 256, checksums=True)
            right = sent[wrong].crc32c
            sent[wrong].crc32c ^= 0x80000000
            stream.send(*sent)
            self.check_refused(stream.answer(1), "DATA_LOSS", f"{right:08x}",
                               f"{sent[wrong].crc32c:08x}", sent[wrong].frame_seq)
            self.check_stream(stream, 1)

    def test_a_flipped_bit_is_data_loss(self):
        stream = self.serve().stream()
        sent = frames(1, good_batch(), 256, checksums=True)
        sent[2].body = bytes([sent[2].body[0] ^ 1]) + sent[2].body[1:]
        stream.send(*sent)
        self.check_refused(stream.answer(1), "DATA_LOSS", "512", "768")
        self.check_stream(stream, 1)


class Cancels(StreamTest):
    def check_cancelled(self, stream, batch_id, total):
        answer = stream.answer(batch_id)
        self.check_refused(answer, "CANCELLED", retry=False)
        self.assertEqual((answer.credit.bytes, answer.credit.batches), (total, 1))
        self.check_stream(stream, batch_id)
        self.assertEqual(stream.unread(), [])

    def test_a_batch_is_cancelled_on_its_way_in(self):
        served = self.serve()
        stream = served.stream()
        sent = frames(5, large_batch(2), 256 << 10)
        for count in (1, 4):
            stream.send(*sent[:count], cancel(5, count))
            self.check_cancelled(stream, 5, 2 << 20)
        served.wait_for(self, lambda counters: counters.buffers_out == 0)

    def test_a_batch_is_cancelled_while_it_waits_for_its_turn(self):
        served = self.serve("--workers=1")
        stream = served.stream()
        for number in range(6):
            stream.send(*frames(number, large_batch(16)))
        stream.send(*frames(6, good_batch()), cancel(6, 1))
        cancelled = stream.answer(6)  # or answered, where the server was quick
        if cancelled.status is not None:
            self.check_refused(cancelled, "CANCELLED")
        for number in range(6):
            self.assertIsNone(stream.answer(number).status)
        self.check_stream(stream)
        self.assertEqual(stream.unread(), [])

    def test_a_batch_cancelled_before_its_turn_holds_no_memory(self):
        served = self.serve("--max-inflight-bytes=2097152")
        stream = served.stream()
        for number in range(2):  # an answer of 24 MiB that nobody reads: the others must wait
            stream.send(*frames(number, growing_batch()))
        served.wait_for(self, lambda counters: counters.batches_sharded == 1)
        held_by_answers = served.counters().bytes_out
        for number in range(5, 15):
            stream.send(*frames(number, large_batch(1)), cancel(number, 1))
        served.wait_for(self, lambda counters: counters.batches_refused == 10)
        self.assertLess(served.counters().bytes_out, held_by_answers + (2 << 20))
        for number in range(5, 15):
            self.check_refused(stream.answer(number), "CANCELLED")

    def test_a_batch_is_cancelled_on_its_way_out(self):
        stream = self.serve().stream()
        stream.send(*frames(5, large_batch(64)))
        stream.read()  # the rest does not fit into what gRPC reads ahead
        stream.send(cancel(5, 33))
        self.check_cancelled(stream, 5, 64 << 20)

    def test_the_cancel_of_a_batch_that_is_not_there_says_nothing(self):
        stream = self.serve().stream()
        stream.send(cancel(5))
        self.check_stream(stream, 5)
        stream.send(cancel(5))
        self.check_stream(stream, 5)
        self.assertEqual(stream.unread(), [])

    def test_a_refused_batch_that_is_cancelled_has_no_second_answer(self):
        stream = self.serve().stream()
        stream.send(*frames(5, packed(GOOD, {}, 4), 64)[:3])
        self.check_refused(stream.answer(5), "INVALID_ARGUMENT", "layout")
        stream.send(cancel(5, 3))
        self.check_stream(stream, 5)
        self.assertEqual(stream.unread(), [])

    def test_other_batches_do_not_notice(self):
        stream = self.serve().stream()
        good, given_up = frames(1, good_batch(), 64), frames(2, good_batch(), 64)
        for number in range(8):
            stream.send(good[number], given_up[number])
        stream.send(cancel(2, 8), *good[8:])
        self.check_right(stream.answer(1))
        self.check_refused(stream.answer(2), "CANCELLED")

    def test_a_stream_is_cancelled_in_every_phase(self):
        served = self.serve()
        sent = frames(1, large_batch(16))
        for count in (0, 1, 4, len(sent)):
            for read in ((0, 1, 3) if count == len(sent) else (0,)):
                stream = served.stream()
                stream.send(*sent[:count])
                for _ in range(read):
                    stream.read()
                stream.cancel()
                self.assertEqual(stream.read_to_end(), grpc.StatusCode.CANCELLED)
                served.wait_for(self, lambda counters: not held(counters))
        self.check_stream(served.stream())


class Information(StreamTest):
    def test_limits_are_stated(self):
        limits = self.serve().info().limits
        self.assertEqual((limits.max_inflight_bytes, limits.max_inflight_batches), (256 << 20, 64))
        self.assertEqual((limits.max_chunk_bytes, limits.max_header_bytes),
                         (MAX_CHUNK, MAX_HEADER))
        self.assertEqual(limits.max_message_bytes, 8 << 20)
        other = self.serve("--max-inflight-bytes=12345", "--max-inflight-batches=3").info()
        self.assertEqual((other.limits.max_inflight_bytes, other.limits.max_inflight_batches),
                         (12345, 3))
        self.assertIn("shard_batches", other.capabilities)

    def test_counters_follow_what_happens(self):
        served = self.serve()
        self.assertEqual(served.counters(), service_pb2.Counters(connections=1))
        stream = served.stream()
        self.check_stream(stream)
        sent = frames(1, good_batch(), 64)
        stream.send(*sent[:3], *frames(2, packed(GOOD, {}, 4)))
        self.check_refused(stream.answer(2), "INVALID_ARGUMENT")
        counters = served.wait_for(self, lambda counters: counters.buffers_out == 1)
        self.assertGreaterEqual(counters.bytes_out, 1024)
        self.assertEqual((counters.streams, counters.batches), (1, 1))
        self.assertEqual((counters.batches_sharded, counters.batches_refused), (1, 1))
        stream.send(*sent[3:])
        self.check_right(stream.answer(1))
        stream.end()
        self.assertEqual(stream.read_to_end(), grpc.StatusCode.OK)
        counters = served.wait_for(self, lambda counters: not held(counters))
        self.assertEqual(counters, service_pb2.Counters(connections=1, batches_sharded=2,
                                                        batches_refused=1))


if __name__ == "__main__":
    unittest.main()

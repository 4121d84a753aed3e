"""A server that goes down says so on its streams, finishes what it has begun to receive, takes
nothing more, and is gone in time."""

import signal
import threading
import time
import unittest

import grpc

from programs import SLACK
from stream_case import StreamTest, good_batch, large_batch
from streams import frames
from stubs import health_pb2, health_pb2_grpc

SOON = 2 * SLACK  # seconds


class Drains(StreamTest):
    def half_sent(self, *arguments):
        """A server that has half of a batch; the stream; the frames to come."""
        served = self.serve(*arguments)
        stream = served.stream()
        sent = frames(1, good_batch(), 256)
        stream.send(*sent[:2])
        served.wait_for(self, lambda counters: counters.buffers_out == 1)
        return served, stream, sent[2:]

    def check_ends(self, served, seconds):
        """The server ends well within this time from now."""
        begin = time.monotonic()
        self.assertEqual(served.server.process.wait(30), 0, served.server.log_text())
        self.assertLess(time.monotonic() - begin, seconds)

    def drain(self, served, stream):
        served.server.signal(signal.SIGTERM)
        while not stream.draining:
            stream.read()

    def test_a_batch_that_is_half_sent_is_finished_and_new_ones_are_refused(self):
        served, stream, rest = self.half_sent()
        self.drain(served, stream)
        for number in (2, 3):
            stream.send(*frames(number, good_batch(), 256))
            answer = stream.answer(number)
            self.check_refused(answer, "UNAVAILABLE", "shutting down", retry=True)
            self.assertGreater(answer.status.retry_after_ms, 0)
        health = health_pb2_grpc.HealthStub(served.channel)
        status = health.Check(health_pb2.HealthCheckRequest(), timeout=10).status
        self.assertEqual(status, health_pb2.HealthCheckResponse.NOT_SERVING)
        time.sleep(1)  # longer than a stream without a batch would stay
        stream.send(*rest)
        self.check_right(stream.answer(1))
        stream.end()
        self.assertIn(stream.read_to_end().name, ("OK", "UNAVAILABLE"))
        self.check_ends(served, SOON)

    def test_a_stream_that_comes_late_is_told_too(self):
        served, stream, rest = self.half_sent()
        self.drain(served, stream)
        late = served.stream()
        late.send(*frames(1, good_batch()))
        try:
            self.check_refused(late.answer(1), "UNAVAILABLE", retry=True)
            self.assertTrue(late.draining)
        except grpc.RpcError:  # or the stream is refused as a whole
            self.assertIn("shutting down", late.call.details())
        stream.send(*rest)
        self.check_right(stream.answer(1))
        self.assertEqual(stream.read_to_end().name, "UNAVAILABLE")
        self.assertEqual(late.read_to_end().name, "UNAVAILABLE")
        self.check_ends(served, SOON)

    def test_complete_batches_are_answered_or_told_to_come_again(self):
        served = self.serve("--workers=1")
        stream = served.stream()
        numbers = range(12)
        for number in numbers:
            stream.send(*frames(number, large_batch(4)))
        stream.read()
        served.server.signal(signal.SIGTERM)
        answered = [stream.answer(number) for number in numbers]
        self.assertIsNone(answered[0].status)
        for answer in answered:
            if answer.status is not None:
                self.check_refused(answer, "UNAVAILABLE", retry=True)
        self.check_ends(served, SOON)

    def test_idle_streams_do_not_keep_it(self):
        for count in (1, 20):
            served = self.serve()
            streams = [served.stream() for _ in range(count)]
            for stream in streams:
                self.check_stream(stream)
            begin = time.monotonic()
            served.server.signal(signal.SIGTERM)
            for stream in streams:
                self.assertEqual(stream.read_to_end().name, "UNAVAILABLE")
                self.assertTrue(stream.draining)
            self.check_ends(served, begin + 1.5 * SOON - time.monotonic())

    def test_a_second_signal_ends_it_at_once(self):
        served, stream, _ = self.half_sent()
        self.drain(served, stream)
        served.server.signal(signal.SIGTERM)
        self.check_ends(served, SOON)
        self.assertIn(stream.read_to_end().name, ("UNAVAILABLE", "CANCELLED"))

    def test_a_batch_that_is_never_finished_keeps_it_no_longer_than_the_grace(self):
        served, stream, _ = self.half_sent("--shutdown-seconds=1")
        self.drain(served, stream)
        self.check_ends(served, 1 + SOON)
        self.assertIn(stream.read_to_end().name, ("UNAVAILABLE", "CANCELLED"))

    def test_a_batch_that_falls_silent_keeps_it_no_longer_than_the_stall_time(self):
        served, stream, _ = self.half_sent("--stall-seconds=1")
        self.drain(served, stream)
        self.check_refused(stream.answer(1), "DEADLINE_EXCEEDED")
        self.check_ends(served, SOON)

    def hammer(self, served, stop, codes):
        """New streams with new batches until `stop`; `codes` receives what streams end with."""
        while not stop.is_set():
            stream = served.stream(timeout=20)
            try:
                for number in range(1 << 20):
                    stream.send(*frames(number, good_batch()))
                    stream.answer(number)
            except grpc.RpcError as error:
                codes.append(error.code().name)
                time.sleep(0.02)

    def test_clients_that_never_rest_cannot_keep_it(self):
        served = self.serve()
        stop, codes = threading.Event(), []
        clients = [threading.Thread(target=self.hammer, args=(served, stop, codes))
                   for _ in range(4)]
        for client in clients:
            client.start()
        try:
            time.sleep(0.3)
            self.assertEqual(codes, [])
            served.server.signal(signal.SIGTERM)
            self.check_ends(served, 2 * SOON)
        finally:
            served.server.process.kill()
            stop.set()
            for client in clients:
                client.join()
        self.assertLessEqual(set(codes), {"UNAVAILABLE", "CANCELLED"})


if __name__ == "__main__":
    unittest.main()

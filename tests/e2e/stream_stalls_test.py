"""Peers that send or read nothing more: they are cut off after the stall time, what was held for
them is let go, and nobody else notices."""

import json
import signal
import subprocess
import sys
import time
import unittest

import grpc

import raw_http2
from programs import SLACK
from safetensors_file import tensor
from stream_case import StreamTest, good_batch, growing_batch, held, large_batch
from streams import METHOD, frames, packed
from stubs import connect

STALL = 1  # seconds
LATER = 3 * SLACK  # seconds that letting go may take after the stall time


class Stalls(StreamTest):
    def stalled_line(self, served):
        """The server's line about the stream that it cut off."""
        lines = [json.loads(line) for line in served.server.log_text().splitlines()]
        (line,) = [line for line in lines if line.get("code") == "RESOURCE_EXHAUSTED"]
        self.assertGreater(int(line["bytes"]), 0)
        self.assertIn(int(line["seconds"]), range(STALL, STALL + LATER))
        return line

    def check_cut_off(self, served, begin):
        """Everything is let go, within the stall time and a little, and the server is well."""
        served.wait_for(self, lambda counters: not held(counters),
                        STALL + LATER - (time.monotonic() - begin))
        self.assertEqual(served.counters().streams_stalled, 1)
        self.stalled_line(served)
        self.check_stream(served.stream())

    def test_a_client_that_writes_and_never_reads_is_cut_off(self):
        for listen in (None, "127.0.0.1:0"):
            served = self.serve(f"--stall-seconds={STALL}", listen=listen)
            channel, stub = connect(served.address)
            batch = large_batch(2)
            sent = (frame for number in range(64) for frame in frames(number, batch, 1 << 20))
            begin = time.monotonic()
            call = stub.ShardBatches(sent, timeout=60)
            other = served.stream()
            while served.counters().streams_stalled == 0:
                self.check_stream(other)
                self.assertLess(time.monotonic() - begin, STALL + LATER)
            other.end()
            self.assertEqual(other.read_to_end().name, "OK")
            self.check_cut_off(served, begin)
            with self.assertRaises(grpc.RpcError) as cut:
                list(call)  # what it did not read comes first
            self.assertIn(cut.exception.code().name, ("CANCELLED", "UNAVAILABLE"))
            channel.close()

    def test_a_slow_reader_is_not_cut_off(self):
        # Slow, but not so slow that what gRPC reads ahead, 16 MiB, lasts for the stall time.
        served = self.serve(f"--stall-seconds={2 * STALL}")
        stream = served.stream()
        stream.send(*frames(1, large_batch(64)))
        for _ in range(30):  # a frame of 2 MiB in 0.1 s
            stream.read()
            time.sleep(0.1)
        self.assertIsNone(stream.answer(1).status)
        self.assertEqual(served.counters().streams_stalled, 0)

    def test_a_full_socket_that_nobody_reads_is_cut_off(self):
        for listen in (None, "127.0.0.1:0"):
            served = self.serve(f"--stall-seconds={STALL}", listen=listen)
            begin = time.monotonic()
            with raw_http2.connect(served.address) as connected:
                raw_http2.call(connected, METHOD, *(
                    frames(number, growing_batch())[0].SerializeToString() for number in range(3)))
                served.wait_for(self, lambda counters: counters.buffers_out > 0)
                self.check_cut_off(served, begin)

    def test_a_peer_that_does_not_even_take_the_end_of_its_stream_is_cut_off(self):
        served = self.serve(f"--stall-seconds={STALL}")
        for number in range(40):  # some of them fill the socket so that only the end does not fit
            columns = (300 + 4 * number) * 1024 // 24
            batch = {name: tensor("I64", [[1, 2]]) for name in ("input_ids", "labels")}
            options = {"contiguous": {"pad_multiple": str(columns)}, "padding_token_id": "0"}
            connected = raw_http2.connect(served.address)
            self.addCleanup(connected.close)
            raw_http2.call(connected, METHOD,
                           frames(1, packed(batch, options, 1))[0].SerializeToString(), end=True)
        served.wait_for(self, lambda counters: counters.batches_sharded == 40)
        served.wait_for(self, lambda counters: not held(counters), STALL + LATER)

    def test_a_stopped_client_is_cut_off(self):
        for listen in (None, "127.0.0.1:0"):
            served = self.serve(f"--stall-seconds={2 * STALL}", listen=listen)
            child = self.child(served)
            begin = time.monotonic()
            child.send_signal(signal.SIGSTOP)
            served.wait_for(self, lambda counters: not held(counters),
                            2 * STALL + LATER)
            self.assertGreater(time.monotonic() - begin, STALL, "nothing was held")
            self.check_stream(served.stream())

    def child(self, served):
        """A client process that is reading 16 answers of 24 MiB."""
        child = subprocess.Popen(
            [sys.executable, "-B", "-m", "stream_child", served.address, "16"],
            stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        self.assertEqual(child.stdout.readline(), "reading\n")
        return child

    def test_a_server_stops_in_time_though_a_client_does_not_move(self):
        for listen in (None, "127.0.0.1:0"):
            served = self.serve("--shutdown-seconds=1", listen=listen)
            self.child(served).send_signal(signal.SIGSTOP)
            self.check_stops(served, 1)
            served = self.serve("--shutdown-seconds=0", listen=listen)
            with raw_http2.connect(served.address) as connected:
                raw_http2.call(connected, METHOD, frames(1, growing_batch())[0].SerializeToString())
                served.wait_for(self, lambda counters: counters.buffers_out > 0)
                self.check_stops(served, 0)

    def check_stops(self, served, grace):
        begin = time.monotonic()
        served.server.signal(signal.SIGTERM)
        self.assertEqual(served.server.process.wait(30), 0, served.server.log_text())
        self.assertLess(time.monotonic() - begin, grace + LATER)

    def test_a_batch_that_falls_silent_is_given_up_and_the_stream_goes_on(self):
        served = self.serve(f"--stall-seconds={STALL}")
        stream = served.stream()
        sent = frames(1, good_batch(), 256)
        stream.send(*sent[:2])
        end = time.monotonic() + STALL / 2
        while time.monotonic() < end:  # other batches do not keep it alive
            self.check_stream(stream)
        answer = stream.answer(1)
        self.check_refused(answer, "DEADLINE_EXCEEDED", STALL, retry=False)
        self.assertEqual(answer.credit.bytes, 1024)
        stream.send(sent[2])  # too late: dropped
        self.check_stream(stream)
        stream.send(sent[3])
        self.check_stream(stream, 1)
        self.assertEqual(stream.unread(), [])

    def test_a_batch_whose_frames_come_slowly_is_taken(self):
        stream = self.serve(f"--stall-seconds={STALL}").stream()
        for frame in frames(1, good_batch(), 256):
            stream.send(frame)
            time.sleep(0.4 * STALL)
        self.check_right(stream.answer(1))

    def test_a_batch_that_comes_too_slowly_on_the_whole_is_given_up(self):
        stream = self.serve(f"--stall-seconds={STALL}").stream()
        sent = frames(1, good_batch(), 64)
        for frame in sent[:12]:  # its size adds a millisecond to four times the stall time
            stream.send(frame)
            time.sleep(0.4 * STALL)
        self.check_refused(stream.answer(1), "DEADLINE_EXCEEDED", "1024 bytes did not come within",
                           retry=False)
        stream.send(*sent[12:])  # too late: dropped
        self.check_stream(stream, 1)
        self.assertEqual(stream.unread(), [])

    def test_a_stream_without_a_batch_may_be_silent(self):
        stream = self.serve(f"--stall-seconds={STALL}").stream()
        self.check_stream(stream)
        time.sleep(1.5 * STALL)
        self.check_stream(stream)


if __name__ == "__main__":
    unittest.main()

"""Calls of one request whose peers send half of it, or take no answer: they are given up after the
stall time, what was held for them is let go, and nobody else notices."""

import json
import signal
import socket
import struct
import time
import unittest

import raw_http2
from programs import SLACK
from safetensors_file import tensor
from stream_case import StreamTest
from streams import METHOD
from stubs import request_of

STALL = 1  # seconds
WHOLE = 4 * STALL + 8  # that a request may take: the largest has 8 MiB
LATER = 3 * SLACK  # seconds that letting go may take after the stall time
ONE_REQUEST = ("GetServerInfo", "PlanLayout", "ShardBatch", "OpenSession", "CloseSession",
               "ListGroups", "DumpGroup", "GetShard")


def path(method):
    return METHOD.replace("ShardBatches", method)


def growing_request():
    """A message of a few hundred bytes; its answer has 3 MiB."""
    batch = {name: tensor("I64", [[1, 2]]) for name in ("input_ids", "labels")}
    options = {"contiguous": {"pad_multiple": str(2**17)}, "padding_token_id": "0"}
    message = request_of(batch, options, 1).SerializeToString()
    return b"\0" + struct.pack(">I", len(message)) + message


def read_until(connected, text, seconds):
    """What the server sends, up to `text` or the end of the time."""
    data, end = b"", time.monotonic() + seconds
    while text not in data and time.monotonic() < end:
        connected.settimeout(max(0.01, end - time.monotonic()))
        try:
            more = connected.recv(65536)
        except socket.timeout:
            break
        if not more:
            break
        data += more
    return data


class Calls(StreamTest):
    def served(self, *flags, listen="127.0.0.1:0"):
        return self.serve(f"--stall-seconds={STALL}", *flags, listen=listen)

    def connected(self, served):
        connected = raw_http2.connect(served.address)
        self.addCleanup(connected.close)
        return connected

    def check_stops_at_once(self, served):
        """No call is left to be waited for."""
        begin = time.monotonic()
        served.server.signal(signal.SIGTERM)
        self.assertEqual(served.server.process.wait(30), 0, served.server.log_text())
        self.assertLess(time.monotonic() - begin, LATER)

    def test_half_a_request_is_given_up(self):
        served = self.served()
        peers = []
        for half in (b"", b"\0", b"\0" + struct.pack(">I", 1 << 20) + b"x" * 1000):
            for method in ONE_REQUEST:
                peers.append((method, half, self.connected(served)))
                raw_http2.begin(peers[-1][-1], path(method), half)
        end = time.monotonic() + WHOLE + LATER
        for method, half, connected in peers:
            seconds = STALL if method == "GetShard" else WHOLE
            text = f"its request did not come whole within {seconds}s".encode()
            with self.subTest(method, half=len(half)):
                self.assertIn(text, read_until(connected, text, end - time.monotonic()))
        self.check_stream(served.stream())

    def test_half_a_request_does_not_hold_a_server_back_that_stops(self):
        served = self.serve("--stall-seconds=60", "--shutdown-seconds=20", listen="127.0.0.1:0")
        for method in ONE_REQUEST:
            raw_http2.begin(self.connected(served), path(method), b"\0")
        self.check_stream(served.stream())
        self.check_stops_at_once(served)

    def test_an_answer_that_nobody_takes_is_cut_off(self):
        served = self.served("--shutdown-seconds=20", listen=None)  # small buffers
        # The window is shut; the socket is full.
        for number, window in enumerate((0, raw_http2.MAX_WINDOW), 1):
            begin = time.monotonic()
            connected = self.connected(served)
            raw_http2.begin(connected, path("ShardBatch"), growing_request(), window)
            served.wait_for(self, lambda counters: counters.streams_stalled == number,
                            WHOLE + LATER)
            self.assertGreater(time.monotonic() - begin, 4 * STALL)
            self.check_stream(served.stream())
        lines = [json.loads(line) for line in served.server.log_text().splitlines()]
        cut = [line for line in lines if line.get("code") == "RESOURCE_EXHAUSTED"]
        self.assertEqual([line["msg"] for line in cut],
                         2 * ["call cut off: the peer does not take its answer"])
        served.wait_for(self, lambda counters: counters.connections == 2)  # ours; whose window is shut
        self.check_stops_at_once(served)

    def test_a_slow_taker_of_an_answer_is_not_cut_off(self):
        served = self.serve(f"--stall-seconds={4 * STALL}", listen="127.0.0.1:0")
        connected = self.connected(served)
        raw_http2.begin(connected, path("ShardBatch"), growing_request())
        got = 0
        while got < 3 << 20:
            got += len(connected.recv(1 << 18))
            time.sleep(0.05)
        self.assertEqual(served.counters().streams_stalled, 0)


if __name__ == "__main__":
    unittest.main()

"""Tests of streams: servers that must have let go of everything when a test ends."""

import time

import grpc
import numpy as np

from programs import SLACK, ProgramTest
from safetensors_file import tensor
from streams import Stream, frames, packed
from stubs import connect, service_pb2
from work import GOOD, OPTIONS, is_right

SETTLE_SECONDS = 5 * SLACK


def good_batch():
    """A batch of 1,024 bytes; work.is_right knows its answer."""
    return packed(GOOD, OPTIONS, 4)


def large_batch(mib):
    """Of so many MiB; its one shard has as many."""
    ids = tensor("I64", np.arange(mib << 16, dtype="<i8"), (1, mib << 16))
    return packed({"input_ids": ids, "labels": ids}, {"identity": {}}, None)


def growing_batch():
    """224 bytes that become 24 MiB: padding."""
    batch = {name: tensor("I64", range(14), (1, 14)) for name in ("input_ids", "labels")}
    return packed(batch, {"contiguous": {"pad_multiple": str(2**20)}, "padding_token_id": "0"}, 1)


def held(counters):
    """What a server holds for streams, by name."""
    names = ("buffers_out", "bytes_out", "batches", "streams")
    return {name: getattr(counters, name) for name in names if getattr(counters, name)}


class Served:
    """A running server with a connection to it."""

    def __init__(self, server):
        self.server = server
        self.address = server.address
        self.channel, self.stub = connect(self.address)
        self.streams = []

    def info(self):
        return self.stub.GetServerInfo(service_pb2.GetServerInfoRequest(), timeout=10)

    def counters(self):
        return self.info().counters

    def stream(self, channel=None, timeout=60):
        self.streams.append(Stream(channel or self.channel, timeout))
        return self.streams[-1]

    def wait_for(self, test, condition, seconds=SETTLE_SECONDS):
        """Until `condition` holds for the server's counters; returns them."""
        end = time.monotonic() + seconds
        while not condition(counters := self.counters()):
            if time.monotonic() > end:
                test.fail(f"after {seconds} s the counters are\n{counters}")
            time.sleep(0.01)
        return counters

    def settle(self, test):
        """Ends the streams; then the server must hold nothing for them."""
        for stream in self.streams:
            stream.cancel()
        self.wait_for(test, lambda counters: not held(counters))


class StreamTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self._served = []

    def serve(self, *arguments, listen=None, count=1):
        """By default on a unix socket."""
        listen = listen or f"unix:{self.folder}/s{len(self._served)}"
        served = Served(self.start(f"--listen={listen}", *arguments, count=count))
        self.addCleanup(served.channel.close)
        grpc.channel_ready_future(served.channel).result(10)
        self._served.append(served)
        return served

    def tearDown(self):
        for served in self._served:
            if served.server.process.poll() is None:
                served.settle(self)
        super().tearDown()

    def check_right(self, answer):
        """It is the answer to good_batch()."""
        self.assertIsNone(answer.status, answer.status)
        self.assertTrue(is_right(answer))

    def check_refused(self, answer, code, *texts, retry=None):
        """`retry`: whether a retry_after_ms is there; None: not looked at."""
        self.assertIsNotNone(answer.status, "it was answered with shards")
        name = next(each.name for each in grpc.StatusCode if each.value[0] == answer.status.code)
        self.assertEqual(name, code, answer.status.message)
        for text in texts:
            self.assertIn(str(text), answer.status.message)
        if retry is not None:
            self.assertEqual(answer.status.HasField("retry_after_ms"), retry, answer.status)

    def check_stream(self, stream, batch_id=77):
        """A good batch on it is answered rightly."""
        stream.send(*frames(batch_id, good_batch(), chunk=256))
        self.check_right(stream.answer(batch_id))

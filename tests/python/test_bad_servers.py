"""Servers that say what cannot be: whoever waits is told, nothing waits for ever or is left
behind."""

import concurrent.futures
import contextlib
import threading
import time

import grpc
import numpy as np
import pytest

import cpshard
from cpshard._proto import service_pb2, session_pb2

BATCH = {"input_ids": np.ones((2, 8), np.int64), "labels": np.ones((2, 8), np.int64)}


class Scripted(grpc.GenericRpcHandler):
    """Answers every call with the messages given for it; a call of both directions then stays."""

    def __init__(self, **answers):
        info = service_pb2.GetServerInfoReply()
        info.capabilities.append("executors")
        info.limits.max_batch_bytes, info.limits.max_chunk_bytes = 1 << 20, 1 << 20
        opened = session_pb2.OpenSessionReply(instance="i", generation=1)
        opened.hand_off.mode = "inline"
        self._answers = {"GetServerInfo": [info], "OpenSession": [opened], **answers}
        self.over = threading.Event()

    def service(self, details):
        name = details.method.rpartition("/")[2]
        answers = [each if isinstance(each, bytes) else each.SerializeToString()
                   for each in self._answers.get(name, [])]
        if name in ("GetServerInfo", "OpenSession", "ShardBatch"):
            return grpc.unary_unary_rpc_method_handler(lambda request, context: answers[0])

        def stay(requests, context):
            next(requests)
            yield from answers
            self.over.wait(20)

        return grpc.stream_stream_rpc_method_handler(stay)


@contextlib.contextmanager
def scripted(**answers):
    """The address of such a server."""
    handler = Scripted(**answers)
    pool = concurrent.futures.ThreadPoolExecutor(4)
    server = grpc.server(pool, handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        handler.over.set()
        server.stop(0).wait()
        pool.shutdown()


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    yield
    limit = time.monotonic() + 5
    while left := [thread.name for thread in threading.enumerate()
                   if thread.name.startswith("cpshard-")]:
        assert time.monotonic() < limit, left
        time.sleep(0.02)


def frame(**fields):
    return service_pb2.ShardFrame(**fields)


def delivery(step=0, **fields):
    head = session_pb2.DeliveryHead(last=True, num_loaders=1, **fields)
    head.at.stream, head.at.step = "train", step
    head.totals.num_microbatches = 1
    return head


BEGIN = service_pb2.ShardsBegin(num_shards=1)
SHARD = service_pb2.Shard()
SHARD.layout.cp_size = 1
OTHER = service_pb2.Shard()
OTHER.layout.cp_rank = 5


@pytest.mark.parametrize("answer, words", [
    (b"\xff\xff\xff", "no ShardFrame"),
    (frame(batch_id=1, begin=BEGIN, last=True), "says of no step"),
    (frame(batch_id=1, frame_seq=3), "begins with frame 3"),
    (frame(batch_id=1, begin=BEGIN, delivery=delivery(), last=True), "0 of 1 shards"),
    (frame(batch_id=1, begin=BEGIN, delivery=delivery(), shards=[OTHER], last=True), "ranks .5."),
    (frame(batch_id=1, begin=BEGIN, delivery=delivery(4), shards=[SHARD], last=True),
     "request 1 is for step 0"),
    (frame(batch_id=77, begin=BEGIN, delivery=delivery(), shards=[SHARD], last=True), "not made"),
    (frame(batch_id=1, begin=service_pb2.ShardsBegin(total_bytes=1 << 40), delivery=delivery()),
     "announces 1099511627776 bytes"),
])
def test_a_rank_ends_with_what_was_wrong(answer, words):
    with scripted(PullShards=[answer]) as address:
        with cpshard.rank(address, options="identity", cp_rank=0, timeout=10) as rank:
            with pytest.raises(cpshard.Error, match=words) as raised:
                rank.next("train")
            assert raised.value.code == "INTERNAL"
            with pytest.raises(cpshard.Error, match=words):  # and again
                rank.next("train")


def test_a_rank_takes_what_is_right():
    good = frame(batch_id=1, begin=BEGIN, delivery=delivery(), shards=[SHARD], last=True)
    with scripted(PullShards=[frame(draining=True), good]) as address:
        with cpshard.rank(address, options="identity", cp_rank=0, timeout=10) as rank:
            assert rank.next("train").step == 0


def test_a_hand_off_that_is_not_known_is_not_taken_for_another_one():
    reply = session_pb2.OpenSessionReply(generation=1)
    reply.hand_off.mode = "shared_memory"
    with scripted(OpenSession=[reply]) as address:
        with cpshard.rank(address, options="identity", cp_rank=0, timeout=10) as rank:
            with pytest.raises(NotImplementedError, match="'shared_memory'.*knows 'inline'"):
                rank.next("train")


@pytest.mark.parametrize("notice", [b"\xff\xff", session_pb2.LoaderNotice()])
def test_a_loader_ends_with_what_was_wrong(notice):
    with scripted(PushBatches=[notice]) as address:
        with cpshard.loader([BATCH], address, group="g") as loader:
            with pytest.raises(cpshard.Error, match="no LoaderNotice|a notice without"):
                loader.wait(10)


def shard_with(**entry):
    shard = service_pb2.Shard()
    shard.entries.add(name="x", **entry)
    return shard


@pytest.mark.parametrize("answer, words", [
    (frame(batch_id=1, begin=BEGIN, last=True), "0 of 1 shards"),
    (frame(batch_id=1, begin=BEGIN, shards=[OTHER], last=True), "ranks .5."),
    (frame(batch_id=1, begin=BEGIN, shards=[shard_with(dtype=6, dims=[2], extent=1)], last=True),
     "no shard: .*reshape"),
    (frame(batch_id=1, begin=BEGIN, shards=[shard_with(extent=1)], last=True),
     "no shard: KeyError"),
    (frame(batch_id=1, begin=BEGIN, shards=[shard_with(dtype=6, dims=[0])], last=True),
     "no shard: KeyError"),
    (b"\xff\xff\xff", "no ShardFrame")])
def test_a_stream_of_batches_ends_with_what_was_wrong(answer, words):
    with scripted(ShardBatches=[answer]) as address, cpshard.connect(address) as client:
        with pytest.raises(cpshard.Error, match=words) as raised:
            list(client.shard_batches([BATCH], "identity", 1))
        assert raised.value.code == "INTERNAL"


@pytest.mark.parametrize("reply, words", [
    (b"\xff\xff\xff", "no ShardBatchReply"),
    (service_pb2.ShardBatchReply(), "ranks \\[\\]"),
    (service_pb2.ShardBatchReply(shards=[OTHER]), "ranks .5.")])
def test_a_call_ends_with_what_was_wrong(reply, words):
    with scripted(ShardBatch=[reply]) as address, cpshard.connect(address) as client:
        with pytest.raises(cpshard.Error, match=words) as raised:
            client.shard(BATCH, "identity", 1)
        assert raised.value.code == "INTERNAL"


def test_a_server_that_never_answers_a_batch_is_given_up_in_time():
    with scripted() as address, cpshard.connect(address, deadline=0.5) as client:
        with pytest.raises(TimeoutError, match="batch 0 was not answered within 0.5"):
            list(client.shard_batches([BATCH], "identity", 1))


def test_a_rank_and_a_loader_that_are_left_leave_nothing_behind():
    with scripted() as address:
        with cpshard.rank(address, options="identity", cp_rank=0, timeout=0.2) as rank, \
                cpshard.loader([BATCH], address, group="g"):
            with pytest.raises(TimeoutError):
                rank.next("train")

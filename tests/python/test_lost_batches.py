"""Batches that are lost with their server, one of which may be why: against a server that answers
every batch at once, but for what it is told to do with some."""

import concurrent.futures
import contextlib
import time

import grpc
import pytest

from test_bad_servers import BATCH, BEGIN, SHARD, frame

import cpshard
from cpshard._proto import service_pb2
from cpshard.frames import read

UNAVAILABLE, RESOURCE_EXHAUSTED = 14, 8


class Server(grpc.GenericRpcHandler):
    """meet(number, call) of a batch, and of a call, both counted from 0: None: it is answered. A
    code: it is refused with that, to come again, and so is all that follows on the call. True: the
    call breaks."""

    def __init__(self, meet):
        self._meet = meet
        self.calls = 0

    def service(self, details):
        name = details.method.rpartition("/")[2]
        if name == "GetServerInfo":
            info = service_pb2.GetServerInfoReply().SerializeToString()
            return grpc.unary_unary_rpc_method_handler(lambda request, context: info)
        return grpc.stream_stream_rpc_method_handler(self._shard)

    def _shard(self, requests, context):
        call, self.calls = self.calls, self.calls + 1
        code = None
        for message in requests:
            message, _ = read(service_pb2.BatchFrame, message)
            if not message.last:
                continue
            met = self._meet(message.batch_id - 1, call)
            code = code or met
            if code is True:
                context.abort(grpc.StatusCode.UNAVAILABLE, "broken")
            answer = frame(batch_id=message.batch_id, last=True)
            if code is None:
                answer.begin.CopyFrom(BEGIN)
                answer.shards.add().CopyFrom(SHARD)
            else:
                answer.status.code, answer.status.message = code, "not now"
                answer.status.retry_after_ms = 1
            yield answer.SerializeToString()


@contextlib.contextmanager
def running(meet, deadline=20):
    handler = Server(meet)
    pool = concurrent.futures.ThreadPoolExecutor(4)
    server = grpc.server(pool, handlers=[handler])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        with cpshard.connect(address, deadline=deadline) as client:
            yield client, handler
    finally:
        server.stop(0).wait()
        pool.shutdown()


@pytest.mark.parametrize("how", [UNAVAILABLE, True])
def test_a_batch_that_is_lost_five_times_ends_it_and_is_named(how):
    with running(lambda number, call: how if number == 1 else None) as (client, server):
        answers = client.shard_batches([BATCH] * 6, "identity")
        next(answers)
        with pytest.raises(cpshard.Error, match="batch 1 was under way when 5 .*may be why") as end:
            next(answers)
        assert end.value.code == "UNAVAILABLE" and end.value.retry_after is None
        assert server.calls == 5


def test_a_refusal_of_a_server_that_goes_and_its_end_are_one_loss():
    meet = lambda number, call: True if call % 2 else UNAVAILABLE  # noqa: E731
    with running(meet) as (client, server):
        with pytest.raises(cpshard.Error, match="batch 0 was under way when 5 .*not now"):
            next(client.shard_batches([BATCH], "identity"))
        assert server.calls == 9


def test_its_neighbours_do_not_fall_with_it():
    """Four servers end with one batch and two with another; the seventh takes all."""
    ends = {1: 4, 3: 2}

    def meet(number, call):
        if ends.get(number, 0) == 0:
            return None
        ends[number] -= 1
        return True

    with running(meet) as (client, server):
        assert len(list(client.shard_batches([BATCH] * 8, "identity", max_inflight=8))) == 8
        assert server.calls == 7


@pytest.mark.parametrize("who", ["consumer", "source"])
def test_the_callers_own_time_is_not_that_of_a_batch_that_is_lost(who):
    def batches():
        for number in range(6):
            if who == "source" and number == 3:
                time.sleep(1.5)
            yield BATCH

    with running(lambda number, call: number == 2 and call == 0 or None, deadline=1) as (
            client, server):
        answers = client.shard_batches(batches(), "identity", max_inflight=3)
        next(answers)
        if who == "consumer":
            time.sleep(1.5)
        assert len(list(answers)) == 5
    assert server.calls == 2


def test_from_the_second_loss_on_it_goes_alone():
    under_way = []

    def meet(number, call):
        under_way.append((call, number))
        return UNAVAILABLE if number == 1 and call < 4 else None

    with running(meet) as (client, _):
        list(client.shard_batches([BATCH] * 4, "identity"))
    for call in (2, 3):
        assert [number for at, number in under_way if at == call] == [1]


def test_refusals_for_want_of_memory_are_no_losses():
    def meet(number, call):
        return RESOURCE_EXHAUSTED if call < 7 else call == 7 or None

    with running(meet) as (client, server):
        assert len(list(client.shard_batches([BATCH] * 2, "identity"))) == 2
        assert server.calls == 9

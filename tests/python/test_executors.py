"""Who shards: what is asked for, what a server says, and that nothing else is taken for it."""

import numpy as np
import pytest

from servers import serving
from test_bad_servers import BATCH, BEGIN, SHARD, delivery, frame, scripted

import cpshard
from cpshard._proto import service_pb2, session_pb2
from cpshard.executors import EXECUTORS, executor_number

LARGE = {name: np.ones((2, 1 << 17), np.int64) for name in ("input_ids", "labels")}


@pytest.fixture(scope="module")
def client():
    with serving("--executor=cpu") as server, cpshard.connect(server.address) as client:
        yield client


def begin_of(executor):
    return service_pb2.ShardsBegin(num_shards=1, executor=executor)


def opened_by(executor):
    opened = session_pb2.OpenSessionReply(instance="i", generation=1, executor=executor)
    opened.hand_off.mode = "inline"
    return opened


def test_names_are_those_of_the_wire():
    assert {name: executor_number(name) for name in EXECUTORS} == {
        "auto": 0, "cpu": 1, "cuda": service_pb2.BatchBegin.DESCRIPTOR.fields_by_name[
            "executor"].enum_type.values_by_name["EXECUTOR_CUDA"].number}


class TestAServerWithACpuAlone:
    def test_it_says_so_and_why(self, client):
        info = client.info()
        assert info.executor == "cpu" and info.executor_reason

    @pytest.mark.parametrize("batch", [BATCH, LARGE])
    @pytest.mark.parametrize("executor", ["auto", "cpu"])
    def test_its_shards_name_it_whichever_way_they_come(self, client, batch, executor):
        for shards in (client.shard(batch, "round_robin", 2, executor=executor),
                       next(client.shard_batches([batch], "round_robin", 2, executor=executor))):
            assert [shard.executor for shard in shards] == ["cpu", "cpu"]

    @pytest.mark.parametrize("batch", [BATCH, LARGE])
    def test_it_refuses_cuda(self, client, batch):
        with pytest.raises(cpshard.Error, match="cuda") as raised:
            client.shard(batch, "round_robin", 2, executor="cuda")
        assert raised.value.code == "FAILED_PRECONDITION"
        with pytest.raises(cpshard.Error, match="batch 0: .*cuda") as raised:
            next(client.shard_batches([batch], "round_robin", 2, executor="cuda"))
        assert raised.value.code == "FAILED_PRECONDITION"

    def test_it_refuses_a_session_of_cuda(self, client):
        with cpshard.rank(client.address, options="round_robin", group="refused", cp_rank=0,
                          timeout=20, executor="cuda") as rank:
            with pytest.raises(cpshard.Error, match="cuda") as raised:
                rank.next("train")
            assert raised.value.code == "FAILED_PRECONDITION"

    def test_ranks_that_ask_for_different_ones_do_not_agree(self, client):
        arguments = {"options": "round_robin", "group": "differ", "cp_size": 2, "timeout": 20}
        source = [{name: value.copy() for name, value in BATCH.items()}]
        with cpshard.rank(client.address, cp_rank=0, executor="cpu", **arguments) as one, \
                cpshard.loader(source, client.address, group="differ"):
            while one.stats.opens == 0:
                one.is_open("train")
            with cpshard.rank(client.address, cp_rank=1, **arguments) as other:
                with pytest.raises(cpshard.Error, match="executor") as raised:
                    other.next("train")
            assert raised.value.reason == "TERMS_DIFFER"
            assert raised.value.values == {"field": "executor", "yours": "auto", "theirs": "cpu"}
            with cpshard.rank(client.address, cp_rank=1, executor="cpu", **arguments) as other:
                steps = [rank.next("train") for rank in (one, other)]
                assert [step.microbatches[0].executor for step in steps] == ["cpu", "cpu"]
                assert one.stats.executor == other.stats.executor == "cpu"


class TestAServerThatIsAskedForCuda:
    """It may be of a version that does not know executors: then it shards on the CPU."""

    @pytest.mark.parametrize("named", ["", "cpu"])
    def test_a_call_takes_no_shards_of_another_one(self, named):
        reply = service_pb2.ShardBatchReply(shards=[SHARD], executor=named)
        with scripted(ShardBatch=[reply]) as address, cpshard.connect(address) as client:
            assert client.shard(BATCH, "identity")[0].executor == named
            with pytest.raises(cpshard.Error, match="executor cuda was asked for") as raised:
                client.shard(BATCH, "identity", executor="cuda")
            assert raised.value.code == "FAILED_PRECONDITION"

    @pytest.mark.parametrize("named", ["", "cpu"])
    def test_a_stream_takes_no_shards_of_another_one(self, named):
        answer = frame(batch_id=1, begin=begin_of(named), shards=[SHARD], last=True)
        with scripted(ShardBatches=[answer]) as address, cpshard.connect(address) as client:
            with pytest.raises(cpshard.Error, match="batch 0: executor cuda was asked for"):
                next(client.shard_batches([BATCH], "identity", executor="cuda"))

    @pytest.mark.parametrize("named", ["", "cpu"])
    def test_a_rank_opens_no_session_of_another_one(self, named):
        good = frame(batch_id=1, begin=BEGIN, delivery=delivery(), shards=[SHARD], last=True)
        with scripted(OpenSession=[opened_by(named)], PullShards=[good]) as address:
            with cpshard.rank(address, options="identity", cp_rank=0, timeout=10,
                              executor="cuda") as rank:
                with pytest.raises(cpshard.Error, match="executor cuda was asked for"):
                    rank.next("train")

    def test_nothing_is_sent_to_one_that_does_not_say_that_it_knows_executors(self):
        info = service_pb2.GetServerInfoReply()
        info.capabilities.extend(["shard_batches", "open_session"])
        answer = frame(batch_id=1, begin=begin_of("cuda:0"), shards=[SHARD], last=True)
        with scripted(GetServerInfo=[info], ShardBatches=[answer],
                      OpenSession=[opened_by("cuda:0")]) as address:
            with cpshard.connect(address) as client:
                for batch in (BATCH, None):  # None: it would be refused, were it looked at
                    with pytest.raises(cpshard.Error, match="older than this choice") as raised:
                        next(client.shard_batches([batch], "identity", executor="cuda"))
                    assert raised.value.code == "FAILED_PRECONDITION"
                for executor in ("auto", "cpu"):
                    with pytest.raises(cpshard.Error) as raised:
                        next(client.shard_batches([None], "identity", executor=executor))
                    assert "older" not in str(raised.value)
            with cpshard.rank(address, options="identity", cp_rank=0, timeout=10,
                              executor="cuda") as rank:
                with pytest.raises(cpshard.Error, match="older than this choice"):
                    rank.next("train")
            assert rank.stats.executor == ""  # no session was opened

    def test_the_right_one_is_taken_and_named(self):
        answer = frame(batch_id=1, begin=begin_of("cuda:0"), shards=[SHARD], last=True)
        with scripted(ShardBatches=[answer]) as address, cpshard.connect(address) as client:
            [shards] = client.shard_batches([BATCH], "identity", executor="cuda")
            assert shards[0].executor == "cuda:0"
        good = frame(batch_id=1, begin=begin_of("cuda:0"), delivery=delivery(), shards=[SHARD],
                     last=True)
        with scripted(OpenSession=[opened_by("cuda:0")], PullShards=[good]) as address:
            with cpshard.rank(address, options="identity", cp_rank=0, timeout=10,
                              executor="cuda") as rank:
                assert rank.next("train").microbatches[0].executor == "cuda:0"
                assert rank.stats.executor == "cuda:0"


@pytest.mark.parametrize("executor", ["gpu", "CPU", "", None, 1])
def test_one_that_is_none_is_refused_before_anything_is_sent(executor):
    with cpshard.connect("127.0.0.1:1") as client:  # nobody listens there
        for act in (lambda: client.shard(BATCH, "identity", executor=executor),
                    lambda: client.shard_batches([BATCH], "identity", executor=executor),
                    lambda: cpshard.rank("127.0.0.1:1", options="identity", cp_rank=0,
                                         executor=executor)):
            with pytest.raises(ValueError, match="none of auto, cpu, cuda"):
                act()


def test_a_rank_with_a_source_of_its_own_has_no_cuda():
    arguments = {"options": "identity", "source": [BATCH], "cp_rank": 0}
    with pytest.raises(cpshard.Error, match="executor cuda is a server's") as raised:
        cpshard.rank(executor="cuda", **arguments)
    assert raised.value.code == "FAILED_PRECONDITION"
    with cpshard.rank(executor="cpu", **arguments) as rank:
        assert rank.next("train").microbatches[0].executor == "cpu"
        assert (rank.stats.executor, rank.stats.steps, rank.stats.opens) == ("cpu", 1, 0)

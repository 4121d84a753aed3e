"""Sessions: loaders push the batches of steps, readers get their shards of them, byte by byte those
of a ShardBatch of the same batch, whatever restarts in between."""

import signal
import time
import unittest

import grpc
import numpy as np

from safetensors_file import tensor
from sessions import (Loader, Reader, code_of, end_sessions, name_of, open_group, opening,
                      reader_stream)
from stream_case import StreamTest
from streams import frames, packed
from stubs import request_of, service_pb2, session_pb2, shards_of

OPTIONS = {"round_robin": {}}
STEPS = 20


def batch_of(step, microbatch=0):
    """Two rows of other lengths and values from step to step."""
    columns = 20 + step % 5
    tokens = np.arange(2 * columns).reshape(2, columns) + 1000 * step + 100_000 * microbatch
    return {"input_ids": tensor("I64", tokens), "labels": tensor("I64", tokens * 3 - 7),
            "image": tensor("F32", tokens[:, :3] / 7)}


def pushed(step, microbatch=0):
    return packed(batch_of(step, microbatch), OPTIONS, None)


class SessionTest(StreamTest):
    def tearDown(self):
        for served in self._served:
            if served.server.process.poll() is None:
                end_sessions(served.stub)
        super().tearDown()

    def check_shard(self, served, answer, step, rank, cp_size=2, microbatch=0):
        """It is what the stateless calls give for the rank: ShardBatches byte by byte, ShardBatch,
        whose tensors lie elsewhere, by tensors."""
        self.assertIsNone(answer.status, answer.status)
        batch = batch_of(step, microbatch)
        stream = served.stream()
        stream.send(*frames(1, packed(batch, OPTIONS, cp_size, (rank,))))
        want = stream.answer(1)
        stream.cancel()
        self.assertEqual(list(answer.shards), list(want.shards))
        self.assertEqual(answer.body, want.body)
        self.assertEqual(answer.begin, want.begin)
        unary = served.stub.ShardBatch(request_of(batch, OPTIONS, cp_size, (rank,)), timeout=10)
        (got,), (tensors,) = shards_of(answer), shards_of(unary)
        self.assertEqual(set(got), set(tensors))
        for name, value in got.items():
            self.assertTrue(value.same(tensors[name]), name)
        self.assertEqual(answer.delivery.at.step, step)
        self.assertEqual(answer.delivery.microbatch, microbatch)
        self.assertEqual(answer.delivery.digest, want.shards[0].layout.batch_digest)


class Steps(SessionTest):
    def push_own(self, loader, index, steps, count=2):
        for step in steps:
            if step % count != index:
                continue
            loader.credit(step)
            ack = loader.push(step, pushed(step), state=b"behind %d" % step)
            self.assertFalse(ack.HasField("status"), ack)
            self.assertEqual(ack.at.step, step)

    def test_two_loaders_and_two_ranks_go_through_twenty_steps(self):
        served = self.serve()
        loaders = [Loader(served.stub, index, 2) for index in range(2)]
        for loader in loaders:
            loader.wait_for(lambda loader=loader: loader.welcome, what="the welcome")
            self.assertEqual(loader.welcome.instance, served.info().instance_id)
        readers = open_group(served.stub, OPTIONS)
        for index, loader in enumerate(loaders):
            self.assertEqual(loader.position().from_step, index)
        for step in range(STEPS):
            self.push_own(loaders[step % 2], step % 2, [step])
            for rank, reader in enumerate(readers):
                answer = reader.shards(reader.want(step))[0]
                self.check_shard(served, answer, step, rank)
                self.assertTrue(answer.delivery.last)
                self.assertEqual(answer.delivery.owner, step % 2)
                self.assertEqual(answer.delivery.num_loaders, 2)
                self.assertEqual(answer.delivery.owner_state, b"behind %d" % step)
                self.assertEqual(answer.delivery.totals.num_microbatches, 1)
                reader.commit(step)
        for loader in loaders:
            loader.wait_for(lambda loader=loader: loader.released
                            and loader.released[-1].before == STEPS - 1, what="the release")
        for loader in loaders:
            loader.end(STEPS)
        for reader in readers:
            status = reader.status(reader.want(STEPS))
            self.assertEqual(code_of(status), "OUT_OF_RANGE")
            self.assertEqual(status.reason, "END_OF_STREAM")
            self.assertEqual(status.values["end_step"], str(STEPS))
            reader.close_pass(finished=True)
        for loader in loaders:
            loader.wait_for(lambda loader=loader: loader.done, what="the end of the pass")
            self.assertTrue(loader.done[0].finished)

    def test_wants_wait_for_their_step_and_are_answered_in_order(self):
        served = self.serve()
        readers = open_group(served.stub, OPTIONS)
        ids = [[reader.want(step) for step in range(4)] for reader in readers]
        loader = Loader(served.stub)
        loader.position()
        for step in (2, 1, 3, 0):  # inside the window they may come in any order
            loader.credit(step)
            loader.push(step, pushed(step))
        for rank, reader in enumerate(readers):
            for step, want_id in enumerate(ids[rank]):
                self.check_shard(served, reader.shards(want_id)[0], step, rank)
            self.assertEqual(reader.order, ids[rank])

    def test_microbatches_follow_each_other_and_early_ones_come_early(self):
        served = self.serve()
        readers = open_group(served.stub, OPTIONS)
        loader = Loader(served.stub)
        loader.position()
        labels = sum(batch_of(0, each)["labels"].array.size for each in range(3))
        totals = session_pb2.StepTotals(num_microbatches=3, num_label_tokens=labels)
        ids = [reader.want(0) for reader in readers]
        loader.push(0, pushed(0, 0), last=False, totals=totals)
        for rank, reader in enumerate(readers):
            answer = reader.shards(ids[rank])[0]
            self.check_shard(served, answer, 0, rank)
            self.assertFalse(answer.delivery.last)
            self.assertEqual(answer.delivery.totals, totals)
        loader.push(0, pushed(0, 1), microbatch=1, last=False)
        loader.push(0, pushed(0, 2), microbatch=2, state=b"s")
        for rank, reader in enumerate(readers):
            for each, answer in enumerate(reader.shards(ids[rank], 3)):
                self.check_shard(served, answer, 0, rank, microbatch=each)
                self.assertEqual(answer.delivery.last, each == 2)
                self.assertEqual(answer.delivery.HasField("owner_state"), each == 2)
            alone = reader.shards(reader.want(0, microbatch=1))
            self.assertEqual(len(alone), 1)
            self.check_shard(served, alone[0], 0, rank, microbatch=1)

    def test_a_want_may_select_streams(self):
        served = self.serve()
        readers = open_group(served.stub, OPTIONS)
        loader = Loader(served.stub)
        loader.position()
        loader.push(0, pushed(0))
        for rank, reader in enumerate(readers):
            answer = reader.shards(reader.want(0, keys=["labels", "image"]))[0]
            whole = reader.shards(reader.want(0))[0]
            self.check_shard(served, whole, 0, rank)
            self.assertEqual({entry.name for entry in answer.shards[0].entries},
                             {"labels", "image"})
            for entry in answer.shards[0].entries:
                same = next(e for e in whole.shards[0].entries if e.name == entry.name)
                self.assertEqual(answer.body[entry.offset:entry.offset + entry.nbytes],
                                 whole.body[same.offset:same.offset + same.nbytes])
            self.assertEqual(len(answer.body), 64 * sum(
                -(-entry.nbytes // 64) for entry in answer.shards[0].entries))
            status = reader.status(reader.want(0, keys=["label"]))
            self.assertEqual(code_of(status), "INVALID_ARGUMENT")
            self.assertIn("'label'", status.message)
            self.assertIn("labels", status.message)

    def test_get_shard_gives_one_step_without_a_connection(self):
        served = self.serve()
        requests = [opening(OPTIONS, 2, rank) for rank in range(2)]
        for request in requests:
            served.stub.OpenSession(request, timeout=10)
        loader = Loader(served.stub)
        loader.position()
        loader.push(0, pushed(0))
        loader.push(1, pushed(1))
        for rank, request in enumerate(requests):
            reader = Reader(served.stub, name_of(request))
            whole = reader.shards(reader.want(0))[0]
            want = session_pb2.Want(id=7, at=whole.delivery.at)
            frames = list(served.stub.GetShard(session_pb2.GetShardRequest(
                session=name_of(request), want=want), timeout=10))
            self.assertEqual(b"".join(frame.body for frame in frames), bytes(whole.body))
            self.assertEqual(frames[0].delivery, whole.delivery)
            self.assertTrue(frames[-1].last)

    def test_a_higher_generation_may_have_another_cp_size(self):
        served = self.serve()
        readers = open_group(served.stub, OPTIONS)
        loader = Loader(served.stub)
        loader.position()
        for step in range(3):
            loader.push(step, pushed(step), state=b"%d" % step)
        for reader in readers:
            reader.shards(reader.want(0))
            reader.commit(0)
        resume = {"train": 1}
        streams = [reader_stream(next_step=1)]
        readers = open_group(served.stub, OPTIONS, cp_size=4, generation=2, resume=resume,
                             streams=streams)
        for step in (1, 2):  # they are here, and cut anew
            for rank, reader in enumerate(readers):
                self.check_shard(served, reader.shards(reader.want(step))[0], step, rank, 4)
        first, second = loader.positions
        self.assertEqual((second.generation, second.epoch), (2, first.epoch))
        self.assertEqual(second.from_step, 3)

    def test_a_server_that_restarts_goes_on_where_the_readers_are(self):
        listen = f"unix:{self.folder}/same"
        served = self.serve(listen=listen)
        loader = Loader(served.stub)
        readers = open_group(served.stub, OPTIONS)
        loader.position()
        before = {}
        for step in range(6):
            loader.push(step, pushed(step), state=b"behind %d" % step)
        for rank, reader in enumerate(readers):
            for step in range(6):
                before[rank, step] = reader.shards(reader.want(step))[0]
            reader.commit(3)
        instance = served.info().instance_id
        served.server.process.kill()
        served.server.process.wait()
        for call in (*readers, loader):
            self.assertEqual(call.code(), "UNAVAILABLE")
        served = self.serve(listen=listen)
        self.assertNotEqual(served.info().instance_id, instance)
        resume = session_pb2.ResumeState(num_loaders=1)
        resume.loaders[0].step = 3
        resume.loaders[0].state = b"behind 3"
        readers = open_group(served.stub, OPTIONS,
                             streams=[reader_stream(next_step=4, received=5, resume=resume)])
        loader = Loader(served.stub, streams=[
            session_pb2.LoaderStream(name="train", released=3, held_from=3)])
        position = loader.position()
        self.assertEqual((position.from_step, position.state.step, position.state.state),
                         (4, 3, b"behind 3"))
        for step in range(4, 10):
            loader.credit(step)
            loader.push(step, pushed(step), state=b"behind %d" % step)
            for rank, reader in enumerate(readers):
                answer = reader.shards(reader.want(step))[0]
                self.check_shard(served, answer, step, rank)
                if (rank, step) in before:
                    self.assertEqual(answer.body, before[rank, step].body)

    def test_two_data_streams_and_passes_of_one_go_side_by_side(self):
        served = self.serve()
        streams = [reader_stream(), reader_stream("val")]
        readers = open_group(served.stub, OPTIONS, streams=streams,
                             resume={"train": 0, "val": 0})
        loader = Loader(served.stub, streams=[
            session_pb2.LoaderStream(name="train"), session_pb2.LoaderStream(name="val")])
        loader.position(2)
        loader.push(0, pushed(0))
        for pass_ in range(2):
            loader.credit(0, "val", pass_)
            epoch = [each.epoch for each in loader.positions if each.stream == "val"][-1]
            loader.push(0, pushed(pass_ + 5), stream="val", pass_=pass_, epoch=epoch)
            loader.end(1, "val", pass_, epoch)
            for rank, reader in enumerate(readers):
                answer = reader.shards(reader.want(0, "val", pass_))[0]
                self.assertEqual(answer.delivery.at.stream, "val")
                status = reader.status(reader.want(1, "val", pass_))
                self.assertEqual(code_of(status), "OUT_OF_RANGE")
                reader.close_pass("val", pass_)
            loader.wait_for(lambda: len(loader.done) == pass_ + 1, what="the end of the pass")
            for rank, reader in enumerate(readers):
                reader.want(0, "val", pass_ + 1)
        for rank, reader in enumerate(readers):
            self.check_shard(served, reader.shards(reader.want(0))[0], 0, rank)

    def test_groups_are_listed_and_dumped(self):
        served = self.serve()
        open_group(served.stub, OPTIONS)
        loader = Loader(served.stub, 0, 2)
        loader.wait_for(lambda: loader.welcome, what="the welcome")
        groups = served.stub.ListGroups(session_pb2.ListGroupsRequest(), timeout=10).groups
        self.assertEqual([group.group for group in groups], ["g"])
        view = served.stub.DumpGroup(session_pb2.DumpGroupRequest(group="g"), timeout=10).group
        self.assertEqual([reader.reader for reader in view.readers], ["r0", "r1"])
        self.assertIn("loader 1", view.streams[0].waiting_for)

    def test_closing_is_answered_when_all_readers_have_closed(self):
        served = self.serve()
        requests = [opening(OPTIONS, 2, rank) for rank in range(2)]
        for request in requests:
            served.stub.OpenSession(request, timeout=10)
        closes = []
        for request in requests:
            self.assertFalse(any(close.done() for close in closes))
            closes.append(served.stub.CloseSession.future(
                session_pb2.CloseSessionRequest(session=name_of(request)), timeout=20))
        for close in closes:
            close.result()
        self.assertEqual(served.counters().sessions, 0)

    def test_a_server_that_drains_delivers_what_it_has_and_ends(self):
        served = self.serve("--shutdown-seconds=20")
        readers = open_group(served.stub, OPTIONS)
        loader = Loader(served.stub)
        loader.position()
        want = []
        for step in range(2):
            loader.push(step, pushed(step))
            want.append([reader.shards(reader.want(step))[0].body for reader in readers])
        served.server.signal(signal.SIGTERM)
        loader.wait_for(lambda: loader.drained, what="the drain")
        with self.assertRaises(grpc.RpcError) as caught:
            served.stub.OpenSession(opening(OPTIONS, group="new"), timeout=10)
        self.assertEqual(caught.exception.code().name, "UNAVAILABLE")
        for step in range(2):
            for rank, reader in enumerate(readers):
                self.assertEqual(reader.shards(reader.want(step))[0].body, want[step][rank])
        begun = time.monotonic()
        for reader in readers:
            reader.want(2)  # nobody makes it any more
        for call in (*readers, loader):
            self.assertEqual(call.code(), "UNAVAILABLE")
        self.assertEqual(served.server.process.wait(20), 0)
        self.assertLess(time.monotonic() - begun, 10, "it waited for its grace")

    def test_the_server_says_what_it_can_and_may(self):
        info = self.serve("--session-bytes=1048576", "--ahead-steps=5").info()
        for capability in ("open_session", "push_batches", "pull_shards", "get_shard",
                           "list_groups", "dump_group"):
            self.assertIn(capability, info.capabilities)
        limits = info.limits.sessions
        self.assertEqual((limits.session_bytes, limits.replay_steps, limits.ahead_steps),
                         (1048576, 1, 5))
        self.assertEqual((limits.max_data_streams, limits.max_readers, limits.max_loaders,
                          limits.max_microbatches, limits.max_wants), (16, 4096, 256, 1024, 64))
        self.assertIsInstance(info, service_pb2.GetServerInfoReply)


if __name__ == "__main__":
    unittest.main()

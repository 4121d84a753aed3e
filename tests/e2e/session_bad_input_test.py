"""What sessions refuse: codes and reasons of docs/GUARANTEES.md, and that nothing of it disturbs
another group."""

import time
import unittest

import grpc

from session_test import OPTIONS, SessionTest, pushed
from sessions import (Loader, Reader, address_of, code_of, name_of, open_group, opening,
                      reader_stream)
from stubs import session_pb2


class SessionRefusals(SessionTest):
    def setUp(self):
        super().setUp()
        self.served = self.serve()
        self.stub = self.served.stub
        self.others = open_group(self.stub, OPTIONS, group="other")
        self.other_loader = Loader(self.stub, group="other")
        self.other_loader.position()

    def tearDown(self):
        ack = self.other_loader.push(0, pushed(0))
        self.assertFalse(ack.HasField("status"), ack)
        for rank, reader in enumerate(self.others):
            self.check_shard(self.served, reader.shards(reader.want(0))[0], 0, rank)
        super().tearDown()

    def refused(self, code, reason, call, *texts):
        """The call fails so; its details tell the reason to a program."""
        with self.assertRaises(grpc.RpcError) as caught:
            call()
        error = caught.exception
        self.assertEqual(error.code().name, code, error)
        self.check_details(error, reason)
        for text in texts:
            self.assertIn(text, error.details())

    def check_details(self, error, reason):
        details = dict(error.trailing_metadata()).get("grpc-status-details-bin", b"")
        self.assertIn(reason.encode(), details)

    def ends(self, call, code, reason):
        self.assertEqual(call.code(), code)
        self.check_details(call.call, reason)

    def group(self, steps=0, cp_size=2, **fields):
        """An open group with its loader; the first steps are there and consumed."""
        readers = open_group(self.stub, OPTIONS, cp_size, **fields)
        loader = Loader(self.stub)
        loader.position()
        for step in range(steps):
            loader.credit(step)
            loader.push(step, pushed(step), state=b"s")
            for reader in readers:
                reader.shards(reader.want(step))
                reader.commit(step)
        return readers, loader

    def open(self, options=OPTIONS, cp_size=2, rank=0, **fields):
        return lambda: self.stub.OpenSession(opening(options, cp_size, rank, **fields), timeout=10)

    def test_another_layout_or_size_than_the_generations(self):
        self.open()()
        self.refused("FAILED_PRECONDITION", "TERMS_DIFFER",
                     self.open({"contiguous": {}, "padding_token_id": 0}, rank=1), "options")
        self.refused("FAILED_PRECONDITION", "TERMS_DIFFER", self.open(cp_size=4, rank=1), "4", "2")
        self.refused("FAILED_PRECONDITION", "TERMS_DIFFER",
                     self.open(rank=1, attempt="another launcher"), "another launcher")

    def test_a_rank_that_the_group_does_not_have(self):
        self.refused("INVALID_ARGUMENT", "", self.open(rank=2), "2")

    def test_a_layout_that_is_none(self):
        self.refused("INVALID_ARGUMENT", "", self.open({}), "layout")

    def test_more_ranks_than_the_server_takes(self):
        self.refused("INVALID_ARGUMENT", "", self.open(cp_size=5000), "5000", "4096")

    def test_a_stale_generation_and_a_stale_incarnation(self):
        self.open(generation=3)()
        self.refused("ABORTED", "STALE_GENERATION", self.open(generation=2, rank=1), "3")
        self.open(generation=3, rank=1, incarnation=7)()
        self.refused("ABORTED", "STALE_INCARNATION",
                     self.open(generation=3, rank=1, incarnation=6), "7")

    def test_calls_of_a_fenced_generation_end(self):
        readers, _ = self.group()
        waiting = readers[0].want(0)
        self.open(generation=2)()
        self.ends(readers[0], "ABORTED", "STALE_GENERATION")
        for answer in readers[0].answers.get(waiting, []):  # the want came behind the fence
            self.assertEqual(code_of(answer.status), "ABORTED")
        late = Reader(self.stub, readers_name(generation=1))
        self.ends(late, "ABORTED", "STALE_GENERATION")

    def test_a_group_that_nobody_has_opened(self):
        name = session_pb2.SessionName(group="nobody", generation=1, reader="r0", incarnation=1)
        self.ends(Reader(self.stub, name), "NOT_FOUND", "UNKNOWN_GROUP")
        self.refused("NOT_FOUND", "UNKNOWN_GROUP",
                     lambda: self.stub.DumpGroup(session_pb2.DumpGroupRequest(group="nobody"),
                                                 timeout=10), "nobody")
        self.refused("NOT_FOUND", "UNKNOWN_GROUP",
                     lambda: self.stub.CloseSession(
                         session_pb2.CloseSessionRequest(session=name), timeout=10))
        want = session_pb2.Want(id=1, at=address_of(0))
        self.refused("NOT_FOUND", "UNKNOWN_GROUP",
                     lambda: list(self.stub.GetShard(
                         session_pb2.GetShardRequest(session=name, want=want), timeout=10)))

    def test_two_numbers_of_loaders(self):
        _, loader = self.group()
        second = Loader(self.stub, 1, 2, incarnation=5)
        self.ends(second, "FAILED_PRECONDITION", "LOADERS_DIFFER")
        self.assertFalse(loader.ended)

    def test_a_loader_of_a_lower_incarnation(self):
        Loader(self.stub, incarnation=5).wait_for(lambda: True)
        first = Loader(self.stub, group="h", incarnation=5)
        first.wait_for(lambda: first.welcome)
        self.ends(Loader(self.stub, group="h", incarnation=4), "ABORTED", "STALE_INCARNATION")
        self.assertFalse(first.ended)

    def test_the_last_connection_of_a_seat_wins(self):
        readers, loader = self.group()
        again = Reader(self.stub, readers_name())
        self.ends(readers[0], "ABORTED", "REPLACED")
        loader_again = Loader(self.stub)
        self.ends(loader, "ABORTED", "REPLACED")
        loader_again.position()
        loader_again.push(0, pushed(0))
        self.check_shard(self.served, again.shards(again.want(0))[0], 0, 0)

    def test_two_values_of_the_end(self):
        readers = open_group(self.stub, OPTIONS)
        loaders = [Loader(self.stub, index, 2) for index in range(2)]
        for loader in loaders:
            loader.position()
        waiting = readers[0].want(3)
        loaders[0].end(4)
        loaders[1].end(5)
        while not (ended := [loader for loader in loaders if loader.ended]):
            time.sleep(0.01)  # whose end came second
        self.ends(ended[0], "FAILED_PRECONDITION", "ENDS_DIFFER")
        status = readers[0].status(waiting)
        self.assertEqual((code_of(status), status.reason), ("FAILED_PRECONDITION", "ENDS_DIFFER"))

    def test_a_step_below_the_floor_or_at_the_end(self):
        readers, loader = self.group(steps=4)
        status = readers[0].status(readers[0].want(0))
        self.assertEqual((code_of(status), status.reason), ("OUT_OF_RANGE", "BELOW_FLOOR"))
        self.assertIn("floor", status.values)
        loader.end(4)
        status = readers[0].status(readers[0].want(4))
        self.assertEqual((code_of(status), status.reason), ("OUT_OF_RANGE", "END_OF_STREAM"))
        self.assertEqual(status.values["end_step"], "4")

    def test_pushes_without_a_place(self):
        _, loader = self.group(steps=4)
        status = loader.push(1000, pushed(0)).status
        self.assertEqual((code_of(status), status.reason), ("RESOURCE_EXHAUSTED", "BEYOND_WINDOW"))
        self.assertTrue(status.HasField("retry_after_ms"))
        self.assertFalse(loader.push(0, pushed(0)).HasField("status"), "an old duplicate is OK")
        loader.end(6)
        status = loader.push(7, pushed(7)).status
        self.assertEqual(code_of(status), "FAILED_PRECONDITION")

    def test_a_push_of_another_epoch_is_dropped(self):
        readers, loader = self.group()
        loader.push(0, pushed(0), epoch=loader.positions[-1].epoch + 1, wait=False)
        loader.push(0, pushed(0))
        self.assertEqual(len(loader.acks), 1)
        self.check_shard(self.served, readers[1].shards(readers[1].want(0))[0], 0, 1)

    def test_a_step_that_comes_again_with_another_digest(self):
        readers, loader = self.group()
        loader.push(0, pushed(0))
        self.assertFalse(loader.push(0, pushed(0)).HasField("status"), "the same is OK")
        status = loader.push(0, pushed(1)).status
        self.assertEqual((code_of(status), status.reason),
                         ("FAILED_PRECONDITION", "DIGEST_CONFLICT"))
        for reader in readers:  # the loader is not deterministic: nothing more is given out
            status = reader.status(reader.want(0))
            self.assertEqual((code_of(status), status.reason),
                             ("FAILED_PRECONDITION", "DIGEST_CONFLICT"))
        self.assertIn("train/0 microbatch 0", self.served.server.log_text())
        self.assertEqual(self.served.counters().digest_conflicts, 1)

    def test_a_batch_that_is_not_what_was_said_of_it(self):
        readers, loader = self.group()
        status = loader.push(0, pushed(0), digest=17).status
        self.assertEqual(code_of(status), "DATA_LOSS")
        status = loader.push(0, pushed(0)._replace(begin=without_labels())).status
        self.assertEqual(code_of(status), "INVALID_ARGUMENT")
        self.assertIn("labels", status.message)
        large = pushed(0)
        large.begin.entries[0].dims[1] = 1 << 17
        large.begin.entries[0].nbytes = 1 << 21
        large.begin.entries[1].offset = 1 << 21
        large.begin.entries[2].offset = 3 << 20
        large.begin.total_bytes = 1 << 22
        status = loader.push(0, large).status
        self.assertEqual(code_of(status), "INVALID_ARGUMENT")
        self.assertIn("max_step_bytes", status.message)
        self.assertFalse(loader.push(0, pushed(0)).HasField("status"))
        self.check_shard(self.served, readers[1].shards(readers[1].want(0))[0], 0, 1)

    def test_a_commit_ahead_of_delivery(self):
        readers, _ = self.group(steps=1)
        readers[0].commit(5)
        self.ends(readers[0], "FAILED_PRECONDITION", "AHEAD_OF_DELIVERY")

    def test_a_want_that_is_not_ready_in_time_says_who_is_waited_for(self):
        readers, _ = self.group()
        status = readers[0].status(readers[0].want(0, timeout_ms=200))
        self.assertEqual((code_of(status), status.reason), ("DEADLINE_EXCEEDED", "NOT_READY"))
        self.assertIn("loader 0", status.message)
        self.assertIn("loader 0", status.values["waiting_for"])

    def test_an_unknown_data_stream(self):
        readers, _ = self.group()
        status = readers[0].status(readers[0].want(0, stream="trian"))
        self.assertEqual((code_of(status), status.reason), ("NOT_FOUND", "UNKNOWN_STREAM"))
        self.assertIn("trian", status.message)

    def test_a_push_for_an_unknown_data_stream_is_answered(self):
        _, loader = self.group()
        ack = loader.push(0, pushed(0), stream="trian")
        self.assertEqual((code_of(ack.status), ack.status.reason), ("NOT_FOUND", "UNKNOWN_STREAM"))
        self.assertIn("trian", ack.status.message)
        self.assertEqual(ack.at.stream, "trian")
        self.assertFalse(loader.push(0, pushed(0)).HasField("status"))

    def test_more_than_the_server_says_that_it_takes(self):
        limits = self.served.info().limits.sessions
        many = [reader_stream(f"s{i}", max_step_bytes=1) for i in range(limits.max_data_streams)]
        self.open(cp_size=1, group="full", streams=many)()
        many.append(reader_stream("more", max_step_bytes=1))
        self.refused("INVALID_ARGUMENT", "", self.open(group="many", streams=many),
                     "17", "16", "max_data_streams")
        most = Loader(self.stub, 0, limits.max_loaders, group="most")
        most.wait_for(lambda: most.welcome, what="the welcome")
        for call, limit in (
                (Loader(self.stub, 0, limits.max_loaders + 1, group="more"), "max_loaders"),
                (Loader(self.stub, group="more", streams=[
                    session_pb2.LoaderStream(name=each.name) for each in many]),
                 "max_data_streams")):
            self.assertEqual(call.code(), "INVALID_ARGUMENT")
            self.assertIn(limit, call.call.details())
        _, loader = self.group(cp_size=1)
        loader.credit(0)
        status = loader.push(0, pushed(0), microbatch=limits.max_microbatches).status
        self.assertEqual(code_of(status), "INVALID_ARGUMENT")
        self.assertIn("max_microbatches", status.message)

    def test_the_text_of_a_refusal_is_one_line_whatever_a_name_has(self):
        name = session_pb2.DumpGroupRequest(group="q\nq\x1b[2J")
        self.refused("NOT_FOUND", "UNKNOWN_GROUP",
                     lambda: self.stub.DumpGroup(name, timeout=10), "q\\nq\\x1b[2J")

    def test_a_resume_without_a_state(self):
        streams = [reader_stream(next_step=5)]
        readers = open_group(self.stub, OPTIONS, streams=streams, resume={"train": 5})
        waiting = readers[0].want(5)
        Loader(self.stub)
        status = readers[0].status(waiting)
        self.assertEqual((code_of(status), status.reason), ("FAILED_PRECONDITION", "NO_STATE"))

    def test_room_that_is_not_there(self):
        self.refused("RESOURCE_EXHAUSTED", "BUDGET",
                     self.open(group="huge", streams=[reader_stream(max_step_bytes=1 << 40)]))

    def test_messages_that_are_out_of_place(self):
        readers, loader = self.group()
        no_name = Reader(self.stub, readers_name())
        no_name.send(session_pb2.PullRequest(session=readers_name()))
        self.assertEqual(no_name.code(), "INVALID_ARGUMENT")
        loader.send(*loader.frames_of(0, pushed(0), chunk=64)[1:])
        self.assertEqual(loader.code(), "INVALID_ARGUMENT")
        late = Loader(self.stub)
        late.position()
        twice = late.frames_of(0, pushed(0), chunk=64)[:2]
        late.send(*twice, twice[0])
        self.assertEqual(late.code(), "INVALID_ARGUMENT")
        reader = Reader(self.stub, readers_name(rank=1))
        reader.want(0, want_id=5)
        reader.want(1, want_id=5)
        self.assertEqual(reader.code(), "INVALID_ARGUMENT")


def readers_name(rank=0, generation=1):
    return session_pb2.SessionName(group="g", generation=generation, reader=f"r{rank}",
                                   incarnation=1)


def without_labels():
    begin = pushed(0).begin
    begin.entries[1].name = "lables"
    return begin


class LargeStates(SessionTest):
    def test_states_that_no_answer_has_room_for_are_refused_with_the_size(self):
        stub, count = self.serve().stub, 70
        states = session_pb2.ResumeState(num_loaders=count, loaders={
            i: session_pb2.LoaderState(step=i, state=bytes(65536)) for i in range(count)})

        def opened(rank, brings=None, **fields):
            streams = [reader_stream(name, next_step=count,
                                     resume=states if name == brings else None)
                       for name in ("train", "val")]
            return opening(OPTIONS, rank=rank, streams=streams, resume={"train": 0, "val": 0},
                           **fields)

        for rank, brings in enumerate(("train", "val")):
            stub.OpenSession(opened(rank, brings), timeout=20)
        loaders = [Loader(stub, i, count, streams=[
            session_pb2.LoaderStream(name=name, held_from=i) for name in ("train", "val")])
            for i in range(count)]
        loaders[-1].position(2)
        with self.assertRaises(grpc.RpcError) as caught:
            stub.OpenSession(opened(0, incarnation=2), timeout=20)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.FAILED_PRECONDITION)
        self.assertIn("over the 8388608 of a message", caught.exception.details())


class NoSessions(SessionTest):
    def test_a_server_without_memory_for_sessions_says_so_to_whoever_comes(self):
        served = self.serve("--session-bytes=0")
        loader = Loader(served.stub)
        self.assertEqual(loader.code(), "FAILED_PRECONDITION")
        self.assertIsNone(loader.welcome)
        with self.assertRaises(grpc.RpcError) as caught:
            served.stub.OpenSession(opening(OPTIONS), timeout=10)
        self.assertEqual(caught.exception.code().name, "FAILED_PRECONDITION")
        for error in (loader.call, caught.exception):
            self.assertIn("session_bytes", error.details())
            self.assertIn(b"NO_SESSIONS",
                          dict(error.trailing_metadata()).get("grpc-status-details-bin", b""))
        self.assertEqual(sorted(served.info().capabilities),
                         ["dump_group", "executors", "list_groups", "plan_layout", "shard_batch",
                          "shard_batches"])


if __name__ == "__main__":
    unittest.main()

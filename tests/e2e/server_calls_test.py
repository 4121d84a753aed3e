"""The calls of a running cpshardd that go well: health, information, plans - and what cancelled,
late and too many calls leave behind."""

import json
import threading
import time
import unittest

import grpc
import numpy as np

from programs import ProgramTest, cpshard, write_batch
from restatement import restate
from safetensors_file import tensor
from stubs import (connect, health_pb2, health_pb2_grpc, json_format, request_of, service_pb2,
                   types_pb2)
from work import GOOD, OPTIONS, check_usable, is_right, slow_request

SHARD_BATCH = "/cpshard.v1.ShardService/ShardBatch"

PLANS = (
    (GOOD, {"round_robin": {}}, 4, []),
    (GOOD, {"round_robin": {"keep_primary_full": True}}, 4, [3, 0]),
    (GOOD, {"contiguous": {"pad_multiple": 7}, "padding_token_id": 1}, 3, []),
    (GOOD | {"step": 7, "pixels": tensor("F32", np.zeros((2, 3)))}, {"identity": {}}, None, []),
    ({"input_ids": tensor("U8", np.zeros((0, 9))), "labels": tensor("I16", np.zeros((0, 9)))},
     {"contiguous": {}, "padding_token_id": 0}, 2, []))


class ServerCalls(ProgramTest):
    def serve(self, *arguments):
        """A server, a channel to it and a stub."""
        server = self.start(f"--listen=unix:{self.folder}/s", *arguments)
        channel, stub = connect(server.address)
        self.addCleanup(channel.close)
        grpc.channel_ready_future(channel).result(10)
        return server, channel, stub

    def busy(self, channel, count):
        raw = channel.unary_unary(SHARD_BATCH)
        return [raw.future(slow_request(), timeout=60) for _ in range(count)]

    def test_health_is_serving_for_the_server_its_service_and_what_a_kubelet_probes(self):
        _, channel, _ = self.serve()
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "cpshard.v1.ShardService", "startup", "liveness"):
            reply = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
            self.assertEqual(reply.status, health_pb2.HealthCheckResponse.SERVING)
        with self.assertRaises(grpc.RpcError) as unknown:
            health.Check(health_pb2.HealthCheckRequest(service="cpshard.v1.Nothing"), timeout=10)
        self.assertEqual(unknown.exception.code(), grpc.StatusCode.NOT_FOUND)

    def test_a_server_says_who_it_is_and_what_it_can(self):
        ids = set()
        for name in ("a", "b"):
            server = self.start(f"--listen=unix:{self.folder}/{name}")
            channel, stub = connect(server.address)
            with channel:
                info = stub.GetServerInfo(service_pb2.GetServerInfoRequest(), timeout=10)
                again = stub.GetServerInfo(service_pb2.GetServerInfoRequest(), timeout=10)
            self.assertEqual(info, again)
            self.assertRegex(info.version, r"\A\d+\.\d+\.\d+\Z")
            self.assertEqual(info.layouts[:3], ["identity", "contiguous", "round_robin"])
            self.assertEqual(sorted(info.capabilities),
                             ["dump_group", "executors", "get_shard", "list_groups", "open_session",
                              "plan_layout", "pull_shards", "push_batches", "shard_batch",
                              "shard_batches"])
            self.assertEqual(info.executor, "cpu")
            ids.add(info.instance_id)
        self.assertEqual(len(ids), 2)

    def test_a_plan_from_the_server_is_the_plan_made_in_process(self):
        server, _, stub = self.serve()
        for number, (batch, options, cp, ranks) in enumerate(PLANS):
            source = write_batch(self.folder / "batch.safetensors", batch)
            command = ["plan", f"--cp={cp or 'none'}", "--options", json.dumps(options), "--in",
                       source, *(["--ranks", ",".join(map(str, ranks))] if ranks else []), "--json"]
            local = self.succeeds(cpshard(*command))
            remote = self.succeeds(cpshard(*command, "--server", server.address))
            self.assertEqual(local.out, remote.out)
            request = service_pb2.PlanLayoutRequest()
            request.MergeFromString(request_of(batch, options, cp, ranks).SerializeToString())
            reply = stub.PlanLayout(request, timeout=10)
            printed = json_format.Parse(local.out, service_pb2.PlanLayoutReply())
            self.assertEqual(reply, printed)
            request.ClearField("body")
            for entry in request.entries:
                entry.offset = entry.nbytes = 0
            bare = stub.PlanLayout(request, timeout=10)
            without = batch["labels"].array.size == 0  # there is nothing to send
            self.assertEqual(bare.totals.HasField("num_label_tokens"), without)
            for counted in ("totals", "loads", "notices"):  # what needs values
                bare.ClearField(counted)
                reply.ClearField(counted)
            self.assertEqual(bare, reply)
            with self.subTest(number=number):
                self.check_plan(reply, restate(batch, options, cp), ranks or range(cp or 1))

    def check_plan(self, reply, want, ranks):
        rows = next(iter(want.padded.values())).array.shape[0]
        pads = want.padded_len - want.original_len
        self.assertEqual((reply.rows, reply.pad_columns, reply.padded_columns),
                         (rows, rows * pads, rows * want.padded_len))
        self.assertEqual(list(reply.needs), [])
        total = 0
        for rank, layout in zip(ranks, reply.layouts, strict=True):
            runs = [np.arange(run.source, run.source + run.length) for run in layout.runs]
            self.assertEqual(np.concatenate(runs).tolist(), want.columns[rank].tolist())
            self.assertEqual((layout.cp_rank, layout.cp_size, layout.batch_digest),
                             (rank, len(want.columns), 0))
            self.assertEqual((layout.original_seq_len, layout.padded_seq_len),
                             (want.original_len, want.padded_len))
            total += sum(want.shards[rank][name].array.nbytes for name in want.axes)
        whole = set(want.padded) - set(want.axes)
        total += sum(want.padded[name].array.nbytes for name in whole)
        self.assertEqual(reply.shard_bytes, total)
        first = want.shards[ranks[0]]
        self.assertEqual({stream.name: list(stream.dims) for stream in reply.streams},
                         {name: list(value.array.shape) for name, value in first.items()})
        for stream in reply.streams:
            cut = stream.name in want.axes
            self.assertEqual(stream.extent, types_pb2.EXTENT_LOCAL if cut
                             else types_pb2.EXTENT_WHOLE)
            self.assertEqual(stream.seq_axis, want.axes.get(stream.name, 0))

    def test_a_length_alone_can_be_planned(self):
        server, _, _ = self.serve()
        command = ["plan", "--cp=4", "--options", '{"round_robin": {}}', "--len=30", "--json"]
        plan = json.loads(self.succeeds(cpshard(*command)).out)
        self.assertEqual([plan[key] for key in ("rows", "pad_columns", "padded_columns")],
                         ["1", "2", "32"])
        self.assertEqual(plan["layouts"][1]["runs"], [{"source": "4", "length": "4"},
                                                      {"source": "24", "length": "4"}])
        self.assertEqual(plan, json.loads(self.succeeds(
            cpshard(*command, "--server", server.address)).out))

    def test_a_length_alone_needs_no_padding_token(self):
        server, _, _ = self.serve()
        command = ["plan", "--cp=4", "--options", '{"contiguous":{}}', "--len=8190", "--json"]
        plan = json.loads(self.succeeds(cpshard(*command)).out)
        for rank, layout in enumerate(plan["layouts"]):
            self.assertEqual((layout["original_seq_len"], layout["padded_seq_len"]),
                             ("8190", "8192"))
            self.assertEqual(layout["runs"], [{"source": str(2048 * rank), "length": "2048"}])
        self.assertEqual(len(plan["layouts"]), 4)
        self.assertEqual(plan, json.loads(self.succeeds(
            cpshard(*command, "--server", server.address)).out))

    def test_the_ranks_asked_for_come_in_the_order_asked_for(self):
        _, _, stub = self.serve()
        reply = stub.ShardBatch(request_of(GOOD, OPTIONS, 4, [3, 1]), timeout=10)
        self.assertEqual([shard.layout.cp_rank for shard in reply.shards], [3, 1])

    def test_scalars_of_every_kind_come_back_on_every_shard(self):
        _, _, stub = self.serve()
        scalars = {"yes": True, "no": False, "least": -2**63, "zero": 0, "half": 0.5, "huge": 1e300,
                   "text": "\u00e9\n", "empty": ""}
        request = request_of(GOOD | scalars, OPTIONS, 2)
        sent = {entry.name: entry.scalar for entry in request.entries if entry.HasField("scalar")}
        for shard in stub.ShardBatch(request, timeout=10).shards:
            got = {entry.name: entry.scalar for entry in shard.entries if entry.HasField("scalar")}
            self.assertEqual(got, sent)

    def test_many_clients_at_once_all_get_the_right_answer(self):
        server, _, _ = self.serve("--workers=4")
        right = []

        def client():
            channel, stub = connect(server.address)
            with channel:
                for _ in range(20):
                    reply = stub.ShardBatch(request_of(GOOD, OPTIONS, 4), timeout=30)
                    right.append(is_right(reply))

        threads = [threading.Thread(target=client) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(right, [True] * 160)

    def test_cancelled_calls_leave_the_server_usable(self):
        server, channel, _ = self.serve("--workers=1")
        calls = self.busy(channel, 20)
        time.sleep(0.05)
        for call in calls:
            call.cancel()
        begin = time.monotonic()
        check_usable(self, server.address)
        self.assertLess(time.monotonic() - begin, 5)
        self.assertEqual(server.stop(), 0)

    def test_a_client_that_vanishes_leaves_the_server_usable(self):
        server, _, _ = self.serve("--workers=1")
        for _ in range(3):
            channel, _ = connect(server.address)
            self.busy(channel, 10)
            time.sleep(0.05)
            channel.close()
        check_usable(self, server.address)
        self.assertEqual(server.stop(), 0)

    def test_a_deadline_is_kept_and_the_server_stays_usable(self):
        server, channel, stub = self.serve("--workers=1")
        calls = self.busy(channel, 20)
        begin = time.monotonic()
        with self.assertRaises(grpc.RpcError) as late:
            stub.ShardBatch(request_of(GOOD, OPTIONS, 4), timeout=0.05)
        self.assertEqual(late.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.assertLess(time.monotonic() - begin, 2)
        self.assertTrue(all(call.code() == grpc.StatusCode.OK for call in calls))
        check_usable(self, server.address)

    def test_more_calls_than_the_queue_takes_are_told_to_try_again(self):
        server, channel, _ = self.serve("--workers=1", "--queue=2")
        calls = self.busy(channel, 30)
        codes = [call.code() for call in calls]
        self.assertIn(grpc.StatusCode.OK, codes)
        self.assertIn(grpc.StatusCode.RESOURCE_EXHAUSTED, codes)
        self.assertLessEqual(set(codes), {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED})
        for call in (call for call, code in zip(calls, codes) if code != grpc.StatusCode.OK):
            self.assertIn("try again", call.details())
            details = dict(call.trailing_metadata())["grpc-status-details-bin"]
            self.assertIn(b"BUSY", details)
            self.assertIn(b"google.rpc.RetryInfo", details)
        check_usable(self, server.address)

    def test_a_server_that_is_not_there_is_unavailable_at_once(self):
        source = write_batch(self.folder / "batch.safetensors", GOOD)
        for address in ("127.0.0.1:1", f"unix:{self.folder}/nobody"):
            begin = time.monotonic()
            result = cpshard("shard", "--cp=4", "--options", json.dumps(OPTIONS), "--in", source,
                             "--out", self.folder / "out", "--server", address)
            self.refused(result, "UNAVAILABLE")
            self.assertLess(time.monotonic() - begin, 5)
            self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    unittest.main()

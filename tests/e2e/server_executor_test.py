"""Where a server shards: on the CPU or on a device, as its configuration and requests say. The same
bytes everywhere, the executor named everywhere, never another one than was asked for. The device
is an emulated one: these tests run where there is no GPU."""

import os
import signal
import subprocess
import time
import unittest

import grpc
import numpy as np

from device_server import ON_DEVICE, DeviceTest, lines_of
from programs import ENVIRONMENT, SERVER, USAGE, cpshardd
from safetensors_file import tensor
from sessions import Loader, code_of, end_sessions, open_group, opening
from stream_case import good_batch, large_batch
from streams import frames, packed
from stubs import health_pb2, health_pb2_grpc, request_of, service_pb2, session_pb2, types_pb2
from work import GOOD, OPTIONS, check_usable, is_right

RESOURCES, INTERNAL, DEVICE_LOST = 75, 70, 86
LAST_WORDS = "ended, for the server does not end by itself: a call into the driver or the log hangs"
NAMES = {"auto": types_pb2.EXECUTOR_UNSPECIFIED, "cpu": types_pb2.EXECUTOR_CPU,
         "cuda": types_pb2.EXECUTOR_CUDA}
TOKENS = np.arange(2 * 60).reshape(2, 60)
LENGTHS = [[16, 20, 24], [8, 32, 20]]
# Long runs and short ones, fills, casts, generated streams, other dtypes.
BATCHES = [
    (GOOD, {"round_robin": {}}, 4),
    ({**GOOD, "attention_mask": tensor("BOOL", TOKENS[:, :30] % 7 > 0)},
     {"contiguous": {}, "padding_token_id": "3"}, 4),
    ({"input_ids": tensor("I64", TOKENS), "labels": tensor("I32", TOKENS + 1),
      "position_ids": tensor("I64", TOKENS % 60), "seq_lens": tensor("I64", LENGTHS),
      "seq_lens_padded": tensor("I64", LENGTHS)}, {"thd": {}}, 2),
]


def named(request, executor):
    request.executor = NAMES[executor]
    return request


def start_fails(program, *arguments, environment=None):
    """Exit status and log of a server that does not start."""
    result = subprocess.run([program, "--listen=127.0.0.1:0", *arguments], capture_output=True,
                            env={**ENVIRONMENT, **(environment or {})}, text=True, timeout=60)
    assert result.stdout == "", result.stdout
    return result.returncode, result.stderr


class Choice(DeviceTest):
    def info(self, served):
        info = served.info()
        self.assertTrue(info.executor_reason)
        served.wait_for(self, lambda _: lines_of(served.server, "serving"))
        (line,) = lines_of(served.server, "serving")
        self.assertEqual((line["executor"], line["executor_reason"]),
                         (info.executor, info.executor_reason))
        return info

    def test_without_a_device_auto_is_the_cpu_and_says_why(self):
        info = self.info(self.serve("--executor=auto"))
        self.assertEqual(info.executor, "cpu")
        self.assertRegex(info.executor_reason, "(?i)cuda")
        self.assertEqual(self.info(self.serve()).executor_reason, info.executor_reason)

    def test_with_a_device_auto_takes_it_and_cpu_does_not(self):
        self.assertEqual(self.info(self.serve_device()).executor, "cuda:0")
        self.assertEqual(self.info(self.serve_device("--executor=cuda")).executor, "cuda:0")
        self.assertEqual(self.info(self.serve_device("--executor=cpu")).executor, "cpu")

    def test_cuda_without_a_device_does_not_start(self):
        status, log = start_fails(SERVER, "--executor=cuda")
        self.assertEqual(status, RESOURCES, log)
        for text in ("cannot start", "CUDA", "executor = cpu"):
            self.assertIn(text, log)

    def test_a_device_that_is_not_there_is_a_wrong_configuration(self):
        for executor in ("auto", "cuda"):
            status, log = start_fails(ON_DEVICE, f"--executor={executor}", "--cuda-device=5")
            self.assertEqual(status, USAGE, log)
            self.assertIn("no CUDA device 5", log)

    def test_a_device_that_computes_wrongly_is_found_out_before_anybody_is_served(self):
        for executor in ("auto", "cuda"):
            status, log = start_fails(ON_DEVICE, f"--executor={executor}",
                                      environment={"CPSHARD_STAND_IN_WRONG": "1"})
            self.assertEqual(status, INTERNAL, log)
            for text in ("self-test", "cuda:0", "computes wrongly", "executor = cpu"):
                self.assertIn(text, log)

    def test_a_device_that_is_lost_at_the_start_has_the_exit_status_of_that(self):
        self.lost.touch()  # seen when it is opened, or by the self-test; never a reason for the CPU
        for lost in ({"CPSHARD_STAND_IN_LOST": str(self.lost)},
                     {"CPSHARD_STAND_IN_LOSE_AFTER": "0"}):
            for executor in ("auto", "cuda"):
                status, log = start_fails(ON_DEVICE, f"--executor={executor}", environment=lost)
                self.assertEqual(status, DEVICE_LOST, log)

    def test_checking_the_configuration_touches_no_device(self):
        result = cpshardd("--check-config", "--executor=cuda", "--cuda-device=1000",
                          "--pinned-bytes=0")
        self.assertEqual((result.status, result.out), (0, "configuration is valid\n"), result.err)
        for flag in ("--executor=gpu", "--cuda-device=1024", "--cuda-device=-1",
                     "--cuda-memory-bytes=1048575", "--pinned-bytes=-1"):
            self.assertEqual(cpshardd("--check-config", flag).status, USAGE, flag)

    def test_a_declared_group_whose_executor_is_not_there_does_not_start(self):
        path = self.folder / "config.json"
        path.write_text("""{"groups": [{"group": "dp7", "cp_size": 2, "executor": "cuda",
            "options": {"round_robin": {}},
            "streams": [{"name": "train", "max_step_bytes": 4096, "num_loaders": 1}]}]}""")
        status, log = start_fails(SERVER, "--config", str(path))
        self.assertEqual(status, RESOURCES, log)
        self.assertIn("group 'dp7'", log)
        self.assertEqual(self.info(self.serve_device("--config", str(path))).executor, "cuda:0")
        for check in ((), ("--check-config",)):  # what can never start is no valid configuration
            result = cpshardd("--executor=cpu", "--config", str(path), *check)
            self.assertEqual(result.status, USAGE, result.err)
            self.assertIn("group 'dp7'", result.err)


class Requests(DeviceTest):
    """A request may name an executor; the answer names the one that did it."""

    def check_answers(self, served, executor, does):
        for batch, options, cp_size in BATCHES:
            reply = served.stub.ShardBatch(named(request_of(batch, options, cp_size), executor),
                                           timeout=10)
            self.assertEqual(reply.executor, does)
            sent = packed(batch, options, cp_size)
            named(sent.begin, executor)
            stream = served.stream()
            stream.send(*frames(1, sent, chunk=256))
            answer = stream.answer(1)
            self.assertIsNone(answer.status, answer.status)
            self.assertEqual(answer.begin.executor, does)
            stream.cancel()
            yield reply, answer

    def test_all_answers_are_the_same_bytes_and_name_who_made_them(self):
        cpu, device = self.serve("--executor=cpu"), self.serve_device()
        own = list(self.check_answers(cpu, "auto", "cpu"))
        for others in (self.check_answers(cpu, "cpu", "cpu"),
                       self.check_answers(device, "auto", "cuda:0"),
                       self.check_answers(device, "cuda", "cuda:0"),
                       self.check_answers(device, "cpu", "cpu")):
            for (reply, answer), (other_reply, other_answer) in zip(own, others, strict=True):
                other_reply.executor = reply.executor
                self.assertEqual(other_reply.SerializeToString(deterministic=True),
                                 reply.SerializeToString(deterministic=True))
                self.assertEqual(other_answer.sent, answer.sent)
                self.assertEqual(bytes(other_answer.body), bytes(answer.body))

    def test_an_executor_that_is_not_there_is_refused_and_everything_goes_on(self):
        for served in (self.serve(), self.serve_device("--executor=cpu")):
            reason = served.info().executor_reason
            with self.assertRaises(grpc.RpcError) as refused:
                served.stub.ShardBatch(named(request_of(GOOD, OPTIONS, 4), "cuda"), timeout=10)
            self.assertEqual(refused.exception.code(), grpc.StatusCode.FAILED_PRECONDITION)
            stream, sent = served.stream(), good_batch()
            wrong = type(sent)(service_pb2.BatchBegin(), sent.data)
            wrong.begin.CopyFrom(named(sent.begin, "cuda"))
            named(sent.begin, "auto")
            stream.send(*frames(1, wrong, chunk=256))
            self.check_refused(stream.answer(1), "FAILED_PRECONDITION", "'cuda'", reason,
                               "executor = cuda", retry=False)
            self.assertIn(reason, refused.exception.details())
            self.check_stream(stream)
            with self.assertRaises(grpc.RpcError) as refused:
                served.stub.OpenSession(named(opening(OPTIONS, 1), "cuda"), timeout=10)
            self.assertEqual(refused.exception.code(), grpc.StatusCode.FAILED_PRECONDITION)
            self.assertIn("executor = cuda", refused.exception.details())
            self.assertEqual(len(served.stub.ListGroups(session_pb2.ListGroupsRequest()).groups), 0)

    def session_answers(self, served, executor, does):
        """Of both ranks, three steps, pushed by one loader."""
        batch = packed(GOOD, OPTIONS, None)
        readers = open_group(served.stub, OPTIONS, executor=NAMES[executor])
        loader = Loader(served.stub)
        answers = []
        for step in range(3):
            loader.credit(step)
            self.assertEqual(loader.push(step, batch).status.code, 0)
            for reader in readers:
                (answer,) = reader.shards(reader.want(step))
                self.assertIsNone(answer.status, answer.status)
                self.assertEqual(answer.begin.executor, does)
                answers.append((answer.sent, bytes(answer.body)))
        opened = served.stub.OpenSession(
            opening(OPTIONS, 2, 0, generation=2, executor=NAMES[executor]), timeout=10)
        self.assertEqual(opened.executor, does)
        end_sessions(served.stub)
        return answers

    def test_a_later_generation_gets_what_has_landed_of_the_executor_that_it_names(self):
        served = self.serve_device()
        loader, bodies = None, []
        for generation, executor, does in ((1, "cpu", "cpu"), (2, "cuda", "cuda:0"),
                                           (3, "auto", "cuda:0"), (4, "cpu", "cpu")):
            readers = open_group(served.stub, OPTIONS, generation=generation,
                                 executor=NAMES[executor])
            if loader is None:
                loader = Loader(served.stub)
                loader.credit(0)
                self.assertEqual(loader.push(0, packed(GOOD, OPTIONS, None)).status.code, 0)
            for reader in readers:
                (answer,) = reader.shards(reader.want(0))
                self.assertIsNone(answer.status, answer.status)
                self.assertEqual((generation, answer.begin.executor), (generation, does))
                bodies.append(bytes(answer.body))
        self.assertEqual(bodies, 4 * bodies[:len(readers)])
        end_sessions(served.stub)

    def test_sessions_are_sharded_where_they_say_and_alike(self):
        cpu = self.session_answers(self.serve("--executor=cpu"), "auto", "cpu")
        self.assertEqual(cpu, self.session_answers(self.serve_device(), "auto", "cuda:0"))
        self.assertEqual(cpu, self.session_answers(self.serve_device(), "cuda", "cuda:0"))
        self.assertEqual(cpu, self.session_answers(self.serve_device(), "cpu", "cpu"))


class Memory(DeviceTest):
    def check_large(self, served, mib):
        stream = served.stream()
        stream.send(*frames(1, large_batch(mib)))
        answer = stream.answer(1)
        self.assertIsNone(answer.status, answer.status)
        tokens = np.arange(mib << 16, dtype="<i8").tobytes()
        self.assertEqual(bytes(answer.body[:len(tokens)]), tokens)
        stream.cancel()

    def test_batches_and_shards_lie_in_pinned_memory_and_give_it_back(self):
        served = self.serve_device(f"--pinned-bytes={64 << 20}")
        self.assertEqual(served.counters().pinned_bytes, 64 << 20)
        stream = served.stream()
        stream.send(*frames(1, large_batch(4))[:2])
        served.wait_for(self, lambda counters: counters.pinned_bytes_out >= 4 << 20)
        self.check_large(served, 2)
        stream.cancel()
        now = served.wait_for(self, lambda counters: counters.pinned_bytes_out == 0)
        self.assertEqual((now.unpinned_blocks, now.unpinned_bytes_out), (0, 0))

    def test_pinned_memory_of_sessions_comes_back_when_they_end(self):
        served = self.serve_device()
        open_group(served.stub, OPTIONS)
        loader = Loader(served.stub)
        loader.credit(0)
        self.assertEqual(loader.push(0, packed(GOOD, OPTIONS, None)).status.code, 0)
        self.assertGreater(served.counters().pinned_bytes_out, 0)
        end_sessions(served.stub)
        served.wait_for(self, lambda counters: counters.pinned_bytes_out == 0)

    def test_what_finds_no_room_there_is_sharded_from_ordinary_memory(self):
        served = self.serve_device(f"--pinned-bytes={1 << 20}")
        self.check_large(served, 4)
        now = served.wait_for(self, lambda counters: counters.pinned_bytes_out == 0)
        self.assertGreater(now.unpinned_blocks, 0)
        self.assertEqual(now.unpinned_bytes_out, 0)
        self.check_large(self.serve_device("--pinned-bytes=0"), 4)

    def test_a_server_of_the_cpu_has_none(self):
        served = self.serve_device("--executor=cpu")
        self.check_large(served, 1)
        now = served.counters()
        self.assertEqual((now.pinned_bytes, now.unpinned_blocks), (0, 0))


class LostDevice(DeviceTest):
    def lose(self, served):
        """The device goes with the next batch, which is refused; the stream that brought it."""
        stream = served.stream()
        self.check_stream(stream, 1)
        self.lost.touch()
        stream.send(*frames(2, good_batch()))
        self.check_refused(stream.answer(2), "UNAVAILABLE", "cuda:0", "error 719",
                           "try again then", retry=True)
        return stream

    def check_end(self, served):
        self.assertEqual(served.server.process.wait(15), DEVICE_LOST, served.server.log_text())
        (line,) = lines_of(served.server, "the CUDA device is lost")
        self.assertEqual(line["level"], "error")
        self.assertIn("error 719", line["err"])

    def test_the_server_ends_with_a_status_of_its_own_and_its_state_in_the_log(self):
        served = self.serve_device("--shutdown-seconds=60")
        open_group(served.stub, OPTIONS, group="dp3")
        loader = Loader(served.stub, group="dp3")
        loader.credit(0)
        loader.push(0, packed(GOOD, OPTIONS, None))
        begin = time.monotonic()
        self.lose(served)
        self.check_end(served)
        self.assertLess(time.monotonic() - begin, 8)
        (line,) = lines_of(served.server, "the device was lost with this batch under way")
        self.assertEqual(line["batch_id"], "2")
        (state,) = lines_of(served.server, "state")
        self.assertEqual((state["sessions"], state["loaders"]), ("2", "1"))
        (group,) = lines_of(served.server, "state of a group")
        self.assertIn('"group":"dp3"', group["group"])
        self.assertIn('"used_bytes"', group["group"])

    def test_health_says_not_serving_under_every_name_and_liveness_too(self):
        served = self.serve_device()
        health = health_pb2_grpc.HealthStub(served.channel)
        watches = {name: health.Watch(health_pb2.HealthCheckRequest(service=name), timeout=60)
                   for name in ("", "cpshard.v1.ShardService", "startup", "liveness")}
        for name, watch in watches.items():
            self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.SERVING, name)
        self.lose(served)
        for name, watch in watches.items():
            self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.NOT_SERVING, name)
        self.check_end(served)

    def test_answers_that_are_made_still_leave(self):
        served = self.serve_device()
        unread = served.stream()
        unread.send(*frames(1, large_batch(8)))
        served.wait_for(self, lambda counters: counters.batches_sharded == 1)
        self.lose(served)
        answer = unread.answer(1)
        self.assertIsNone(answer.status, answer.status)
        self.assertEqual(len(answer.body), 16 << 19)
        self.check_end(served)

    def test_a_log_that_nobody_reads_holds_nothing_up(self):
        reads, writes = os.pipe()
        self.addCleanup(os.close, reads)
        served = self.serve_device(f"--pinned-bytes={1 << 20}", stderr=writes)
        os.close(writes)
        served.info()
        full = os.open(f"/proc/self/fd/{reads}", os.O_WRONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, full)
        with self.assertRaises(BlockingIOError):
            while True:
                os.write(full, b"x")
        health = health_pb2_grpc.HealthStub(served.channel)
        watch = health.Watch(health_pb2.HealthCheckRequest(service="liveness"), timeout=60)
        self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.SERVING)
        self.lose(served)
        self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.NOT_SERVING)
        self.assertEqual(served.server.process.wait(30), DEVICE_LOST)

    def test_a_device_that_is_lost_while_the_server_drains_ends_it_soon(self):
        served = self.serve_device("--shutdown-seconds=60")
        stream, sent = served.stream(), frames(1, good_batch(), chunk=256)
        stream.send(sent[0])
        served.wait_for(self, lambda counters: counters.batches == 1)
        served.server.signal(signal.SIGTERM)
        end = time.monotonic() + 20
        while not lines_of(served.server, "stopping"):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        self.lost.touch()
        begin = time.monotonic()
        stream.send(*sent[1:])
        self.check_refused(stream.answer(1), "UNAVAILABLE", "error 719", retry=True)
        self.check_end(served)
        self.assertLess(time.monotonic() - begin, 8)
        self.assertEqual(len(lines_of(served.server, "state")), 1)
        (line,) = lines_of(served.server, "stopping")
        self.assertEqual(line["signal"], "SIGTERM")

    def hang_one(self, served):
        """A launch that never returns; the call that waits for it."""
        self.hang.touch()
        call = served.stub.ShardBatch.future(request_of(GOOD, OPTIONS, 4), timeout=60)
        end = time.monotonic() + 20
        while self.hang.exists():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        self.addCleanup(call.cancel)

    def test_a_run_that_never_returns_keeps_no_server_that_is_to_stop(self):
        served = self.serve_device("--shutdown-seconds=1")
        self.hang_one(served)
        served.server.signal(signal.SIGTERM)
        self.assertEqual(served.server.process.wait(30), DEVICE_LOST, served.server.log_text())
        (line,) = lines_of(served.server, LAST_WORDS)
        self.assertEqual(line["level"], "error")

    def test_nor_one_whose_device_is_lost(self):
        served = self.serve_device("--shutdown-seconds=60", "--workers=4")
        self.hang_one(served)
        self.lose(served)
        self.assertEqual(served.server.process.wait(30), DEVICE_LOST, served.server.log_text())
        self.assertEqual(len(lines_of(served.server, "the CUDA device is lost")), 1)

    def test_the_log_names_the_batch_that_was_under_way_and_no_other(self):
        served = self.serve_device()
        open_group(served.stub, OPTIONS, group="dp3")
        loader = Loader(served.stub, group="dp3")
        loader.credit(0)
        self.lost.touch()
        loader.push(0, packed(GOOD, OPTIONS, None))
        with self.assertRaises(grpc.RpcError):
            served.stub.ShardBatch(request_of(GOOD, OPTIONS, 4), timeout=10)
        self.check_end(served)
        (line,) = lines_of(served.server, "the device was lost with this batch under way")
        self.assertEqual((line["group"], line["batch"], line["microbatch"]), ("dp3", "train/0", "0"))

    def test_unary_calls_and_pushes_are_told_to_come_again(self):
        served = self.serve_device()
        open_group(served.stub, OPTIONS)
        loader = Loader(served.stub)
        loader.credit(0)
        self.lost.touch()
        self.assertEqual(code_of(loader.push(0, packed(GOOD, OPTIONS, None)).status),
                         "UNAVAILABLE")
        with self.assertRaises(grpc.RpcError) as refused:
            served.stub.ShardBatch(request_of(GOOD, OPTIONS, 4), timeout=10)
        self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(loader.code(), "UNAVAILABLE")
        self.check_end(served)

    def test_the_next_server_on_the_address_takes_over(self):
        address = f"unix:{self.folder}/again"
        served = self.serve_device(address=address)
        self.lose(served)
        self.check_end(served)
        self.lost.unlink()
        self.serve_device(address=address)
        check_usable(self, address)


if __name__ == "__main__":
    unittest.main()

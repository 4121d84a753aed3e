"""--executor of the commands: who shards is chosen, said, and never replaced. The programs run with
and without a device; what asks for one is then either refused or gives the same bytes. Where the
commands are run over an emulated device, it has to be the same bytes."""

import json
import os
import unittest

import grpc
import numpy as np

from programs import STATUS, USAGE, ProgramTest, cpshard, files_of, run, write_batch
from safetensors_file import tensor
from stubs import connect, service_pb2

OPTIONS = '{"round_robin": {}}'
# Of a program that is built without CUDA, and of one that finds no device.
ON_DEVICE = os.environ.get("CPSHARD_COMMANDS_ON_DEVICE")
NO_DEVICE = {STATUS[name]: name for name in ("UNIMPLEMENTED", "FAILED_PRECONDITION")}


class Executors(ProgramTest):
    command = staticmethod(cpshard)

    def setUp(self):
        super().setUp()
        tokens = np.arange(74).reshape(2, 37)
        self.batch = write_batch(self.folder / "batch.safetensors", {
            "input_ids": tensor("I64", tokens), "labels": tensor("I32", tokens + 1)})
        self.shards = self.folder / "shards"
        self.assertEqual(self.succeeds(self.shard(self.shards)).err, "")

    def shard(self, out, *more):
        return self.command("shard", "--cp=2", "--options", OPTIONS, "--in", self.batch, "--out", out,
                       *more)

    def gather(self, out, *more):
        return self.command("gather", "--layouts", self.shards / "layouts.json", "--in", self.shards,
                       "--stream=labels", "--trim", "--out", out, *more)

    def verify(self, *more):
        return self.command("verify", "--cp=2", "--options", OPTIONS, "--in", self.batch,
                       "--ranks-dir", self.shards, *more)

    def pull(self, address, *more):
        return cpshard("pull", "--server", address, "--group=g", "--cp=1", "--rank=0",
                       "--options", OPTIONS, "--deadline=20", "--out", self.folder / "pulled",
                       *more)

    def serve(self, *more):
        return self.start(f"--listen=unix:{self.folder / 'sock'}", *more).address

    def refused_without_a_device(self, result):
        """Whether it was, in one line."""
        if result.status == 0:
            return False
        self.assertIn(result.status, NO_DEVICE, result)
        self.refused(result, NO_DEVICE[result.status], "CUDA")
        self.assertEqual(result.out, "")
        return True


class InProcess(Executors):
    def test_the_bytes_are_the_same_whoever_is_asked_for(self):
        for name in ("cpu", "auto"):
            out = self.folder / name
            self.succeeds(self.shard(out, f"--executor={name}"))
            self.assertEqual(files_of(out), files_of(self.shards))
            self.succeeds(self.gather(self.folder / f"{name}.safetensors", f"--executor={name}"))
            self.succeeds(self.verify(f"--executor={name}"))
        self.assertEqual((self.folder / "cpu.safetensors").read_bytes(),
                         (self.folder / "auto.safetensors").read_bytes())

    def test_who_leaves_the_choice_to_the_program_is_told_it_and_why(self):
        said = r"\Aexecutor: (cpu|cuda:\d+): [^\n]+\n\Z"
        self.assertRegex(self.shard(self.folder / "a", "--executor=auto").err, said)
        self.assertRegex(self.gather(self.folder / "b", "--executor=auto").err, said)
        self.assertRegex(self.verify("--executor=auto").err, said)
        self.assertEqual(self.shard(self.folder / "c", "--executor=cpu").err, "")

    def test_cuda_is_refused_without_a_device_and_nothing_is_written(self):
        out, file = self.folder / "out", self.folder / "out.safetensors"
        if self.refused_without_a_device(self.shard(out, "--executor=cuda")):
            self.assertFalse(out.exists())
        else:
            self.assertEqual(files_of(out), files_of(self.shards))
        if self.refused_without_a_device(self.gather(file, "--executor=cuda")):
            self.assertFalse(file.exists())
        self.refused_without_a_device(self.verify("--executor=cuda"))

    def test_without_a_device_a_server_of_its_own_does_not_start_and_says_why(self):
        for command in (("bench", "--sizes=0.1", "--seconds=0.05"), ("demo", "--max-bytes=20000")):
            result = cpshard(*command, "--executor=cuda")
            if result.status == 0:
                self.assertIn("executor cuda:", result.out)
                continue
            self.assertEqual(result.status, STATUS["UNAVAILABLE"], result)
            self.assertRegex(result.err, r"\Aerror: UNAVAILABLE: [^\n]*CUDA[^\n]*\n\Z")

    def test_one_that_is_none_is_a_usage_error(self):
        for result in (self.shard(self.folder / "a", "--executor=gpu"),
                       self.gather(self.folder / "b", "--executor=gpu"),
                       self.verify("--executor=gpu"),
                       self.pull("unix:nowhere", "--executor=gpu"),
                       cpshard("bench", "--executor=gpu"), cpshard("demo", "--executor=gpu")):
            self.usage_error(result, "'gpu' is none of auto, cpu and cuda")
        for command in (("plan", "--cp=2", "--options", OPTIONS, "--len=8"),
                        ("explain", "--layouts=x", "--in=x")):
            self.assertEqual(cpshard(*command, "--executor=cpu").status, USAGE, command)


@unittest.skipUnless(ON_DEVICE, "without a program over an emulated device")
class OnAnEmulatedDevice(Executors):
    @staticmethod
    def command(*arguments):
        return run(ON_DEVICE, *arguments)

    def test_it_is_not_opened_unasked(self):
        lost = {"CPSHARD_STAND_IN_LOSE_AFTER": "0"}  # whoever launches something fails
        arguments = ("shard", "--cp=2", "--options", OPTIONS, "--in", self.batch, "--out")
        self.succeeds(run(ON_DEVICE, *arguments, self.folder / "a", environment=lost))
        self.assertNotEqual(run(ON_DEVICE, *arguments, self.folder / "b", "--executor=cuda",
                                environment=lost).status, 0)
        self.assertFalse((self.folder / "b").exists())

    def test_every_command_gives_the_bytes_of_the_cpu(self):
        self.succeeds(self.gather(self.folder / "cpu", "--executor=cpu"))
        for name in ("cuda", "auto"):
            out, file = self.folder / name, self.folder / f"{name}.safetensors"
            for result in (self.shard(out, f"--executor={name}"),
                           self.gather(file, f"--executor={name}"),
                           self.verify(f"--executor={name}")):
                self.succeeds(result)
                self.assertRegex(result.err, r"\A(executor: cuda:0: [^\n]+\n)?\Z")
                self.assertEqual(result.err == "", name == "cuda")
            self.assertEqual(files_of(out), files_of(self.shards))
            self.assertEqual(file.read_bytes(), (self.folder / "cpu").read_bytes())


class ThroughAServer(Executors):
    def test_one_that_shards_on_the_cpu_refuses_cuda_and_nothing_is_written(self):
        server = f"--server={self.serve('--executor=cpu')}"
        for name in ("cpu", "auto"):
            out = self.folder / name
            result = self.succeeds(self.shard(out, server, f"--executor={name}"))
            self.assertEqual(result.err, "executor: cpu\n" if name == "auto" else "")
            self.assertEqual(files_of(out), files_of(self.shards))
        out = self.folder / "out"
        self.refused(self.shard(out, server, "--executor=cuda"), "FAILED_PRECONDITION", "cuda")
        self.assertFalse(out.exists())

    def test_every_door_of_it_refuses_cuda(self):
        address = self.serve("--executor=cpu")
        self.refused(self.pull(address, "--executor=cuda"), "FAILED_PRECONDITION", "cuda")
        self.assertFalse((self.folder / "pulled").exists())
        self.refused(cpshard("bench", "--server", address, "--sizes=0.1", "--seconds=0.05",
                             "--executor=cuda"), "FAILED_PRECONDITION", "cuda")

    def test_a_number_that_is_none_is_refused(self):
        channel, stub = connect(self.serve("--executor=cpu"))
        with channel, self.assertRaises(grpc.RpcError) as raised:
            stub.ShardBatch(service_pb2.ShardBatchRequest(cp_size=2, executor=9), timeout=10)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("executor 9 is none", raised.exception.details())

    def test_status_says_what_the_readers_of_a_group_ask_for(self):
        config = self.folder / "config.json"
        config.write_text(json.dumps({"groups": [{
            "group": "g", "cp_size": 1, "options": {"round_robin": {}}, "executor": "cpu",
            "streams": [{"name": "train", "max_step_bytes": 65536, "num_loaders": 1}]}]}))
        address = self.serve("--config", config)
        shown = json.loads(self.succeeds(cpshard("status", "--server", address, "--json")).out)
        self.assertEqual(shown["groups"][0]["executor"], "EXECUTOR_CPU")
        self.refused(self.pull(address, "--max-step-bytes=65536"), "FAILED_PRECONDITION",
                     "executor cpu, not auto")

    def test_a_benchmark_says_who_shards(self):
        path = self.folder / "bench.json"
        arguments = ("bench", "--sizes=0.1", "--seconds=0.05", "--executor=cpu", "--json", path)
        for more in ((), ("--server", self.serve())):
            result = self.succeeds(cpshard(*arguments, *more))
            self.assertIn(", executor cpu;", result.out)
            self.assertEqual(json.loads(path.read_text())["executor"], "cpu")


if __name__ == "__main__":
    unittest.main()

"""Batches and replies at the limits: the last that is taken, the first that is not."""

import json
import pathlib
import unittest

import grpc
import numpy as np

from programs import SLACK, ProgramTest, cpshard, write_batch
from safetensors_file import read, tensor
from stubs import connect, request_of
from work import GOOD, OPTIONS, check_usable

CONTIGUOUS = {"contiguous": {}, "padding_token_id": 0}


def batch_of(entries):
    """`entries` of them, position ids not among them."""
    batch = {"input_ids": tensor("I64", np.arange(12), (2, 6)),
             "labels": tensor("I64", np.arange(12), (2, 6))}
    return batch | {f"t{number}": tensor("U8", [number % 251]) for number in range(entries - 2)}


def peak_bytes(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


class AtTheLimits(ProgramTest):
    def shard(self, batch, name, *more):
        source = write_batch(self.folder / "batch.safetensors", batch)
        return cpshard("shard", "--cp=2", "--options", json.dumps(CONTIGUOUS), "--in", source,
                       "--out", self.folder / name, *more)

    def files_of(self, name):
        return {path.name: path.read_bytes() for path in (self.folder / name).iterdir()}

    def test_a_full_batch_is_taken_though_its_shards_have_one_entry_more(self):
        server = self.start(f"--listen=127.0.0.1:0,unix:{self.folder}/s", count=2)
        batch = batch_of(256)
        self.succeeds(self.shard(batch, "in_process"))
        files = self.files_of("in_process")
        for rank in (0, 1):
            tensors, _ = read(self.folder / "in_process" / f"rank{rank}.safetensors")
            self.assertEqual(set(tensors), {*batch, "position_ids"})
            self.assertEqual(tensors["position_ids"].array.tolist(),
                             [list(range(4 * rank, 4 * rank + 4))] * 2)
        for number, address in enumerate(server.addresses):
            self.succeeds(self.shard(batch, f"server{number}", "--server", address))
            self.assertEqual(self.files_of(f"server{number}"), files)

    def test_one_entry_more_is_refused_everywhere(self):
        server = self.start("--listen=127.0.0.1:0")
        for more in ([], ["--server", server.address]):
            self.refused(self.shard(batch_of(257), "out", *more), "INVALID_ARGUMENT", "257", "256")
            self.assertFalse((self.folder / "out").exists())

    def test_how_many_entries_a_server_takes_is_for_the_server_to_say(self):
        server = self.start("--listen=127.0.0.1:0", "--max-tensors=1000")
        batch = batch_of(302)
        self.succeeds(self.shard(batch, "out", "--server", server.address))
        for rank in (0, 1):
            tensors, _ = read(self.folder / "out" / f"rank{rank}.safetensors")
            self.assertEqual(set(tensors), {*batch, "position_ids"})
            self.assertTrue(tensors["t299"].same(batch["t299"]))
        self.refused(self.shard(batch, "in_process"), "INVALID_ARGUMENT", "302", "256")
        self.refused(self.shard(batch_of(1001), "over", "--server", server.address),
                     "INVALID_ARGUMENT", "1001", "1000")
        plan = ["plan", "--cp=2", "--options", json.dumps(CONTIGUOUS), "--in",
                write_batch(self.folder / "batch.safetensors", batch)]
        self.succeeds(cpshard(*plan, "--server", server.address))
        self.refused(cpshard(*plan), "INVALID_ARGUMENT", "302", "256")

    def test_a_reply_too_large_by_its_entries_is_refused_before_it_is_made(self):
        small = {f"e{number}": tensor("BOOL", [[True]]) for number in range(252)}
        batch = {"input_ids": tensor("I64", [[1]]), "labels": tensor("I64", [[1]])} | small
        cut = OPTIONS | {"extra_streams": [{"name": name} for name in small]}
        for options in (OPTIONS, cut):
            server = self.start(f"--listen=unix:{self.folder}/{len(options)}")
            channel, stub = connect(server.address)
            with channel, self.subTest(options=list(options)):
                stub.ShardBatch(request_of(GOOD, OPTIONS, 4096), timeout=20)
                before = peak_bytes(server)
                for _ in range(3):
                    with self.assertRaises(grpc.RpcError) as refused:
                        stub.ShardBatch(request_of(batch, options, 4096), timeout=20)
                    self.assertEqual(refused.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
                    self.assertIn("ShardBatches", refused.exception.details())
                    self.assertIn("4194304", refused.exception.details())
                self.assertLess(peak_bytes(server) - before, SLACK * (64 << 20))
                check_usable(self, server.address)


if __name__ == "__main__":
    unittest.main()

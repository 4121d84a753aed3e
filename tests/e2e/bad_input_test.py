"""Bad input, from one table, through every door: the command line in process, the command line
through a server, and messages. Each is refused with the right code and a text that names what is
wrong, nothing is written, and the server goes on."""

import json
import pathlib
import shutil
import tempfile
import unittest

import grpc

import bad_arguments
import bad_batches
import bad_files
import bad_layouts
import bad_messages
from live_server import LiveServer
from programs import ENVIRONMENT, SERVER, SLACK, ProgramTest, cpshard, write_batch
from stubs import connect, request_of
from work import GOOD, OPTIONS, is_right

BATCHES = bad_batches.ROWS + bad_layouts.ROWS
METHODS = "/cpshard.v1.ShardService/"
SMALL = SLACK * (256 << 20)  # bytes that no refusal may use


class BadInput(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory(prefix="cpshard-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.server = LiveServer(SERVER, f"--listen=unix:{folder.name}/s", environment=ENVIRONMENT)
        cls.addClassCleanup(cls.server.__exit__)
        cls.address = cls.server.wait_until_listening().address
        cls.channel, cls.stub = connect(cls.address, unlimited=True)
        cls.addClassCleanup(cls.channel.close)

    def check_server(self):
        """It is alive, answers a good request rightly, and has not grown."""
        self.assertIsNone(self.server.process.poll(), "the server ended")
        self.assertTrue(is_right(self.stub.ShardBatch(request_of(GOOD, OPTIONS, 4), timeout=10)))
        status = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        self.assertLess(int(peak.split()[1]) * 1024, 2 * SMALL)

    def command_refuses(self, row, *arguments):
        """The command fails as the row says and leaves the folder as it was."""
        shutil.rmtree(self.folder / "out", ignore_errors=True)  # of a row that was not refused
        before = sorted(self.folder.rglob("*"))
        result = cpshard(*arguments)
        self.refused(result, row.code, *row.texts)
        self.assertEqual(result.out, "")
        self.assertLess(result.peak_bytes, SMALL)
        self.assertEqual(sorted(self.folder.rglob("*")), before)

    def shard_arguments(self, row):
        ranks = ["--ranks", ",".join(map(str, row.ranks))] if row.ranks else []
        cp = "none" if row.cp is None else row.cp
        return [f"--cp={cp}", "--options", json.dumps(row.options), *ranks]

    def check_batches_on_the_command_line(self, *server):
        for row in BATCHES:
            with self.subTest(row.name):
                source = write_batch(self.folder / "batch.safetensors", row.batch)
                self.command_refuses(row, "shard", *self.shard_arguments(row), "--in", source,
                                     "--out", self.folder / "out", *server)

    def test_batches_are_refused_on_the_command_line(self):
        self.check_batches_on_the_command_line()

    def test_batches_are_refused_on_the_command_line_through_a_server(self):
        self.check_batches_on_the_command_line("--server", self.address)
        self.check_server()

    def test_batches_are_refused_by_cpshard_plan(self):
        for row in BATCHES[::5]:
            with self.subTest(row.name):
                source = write_batch(self.folder / "batch.safetensors", row.batch)
                self.command_refuses(row, "plan", *self.shard_arguments(row), "--in", source)

    def message_refused(self, method, row, data):
        call = self.channel.unary_unary(METHODS + method)
        with self.assertRaises(grpc.RpcError) as refused:
            call(data, timeout=30)
        error = refused.exception
        self.assertIn(error.code().name, row.code.split("|"), error.details())
        for text in row.texts:
            self.assertIn(text, error.details())
        self.check_server()

    def test_batches_are_refused_as_messages(self):
        for row in BATCHES:
            request = request_of(row.batch, row.options, row.cp, row.ranks)
            for method in ("ShardBatch", "PlanLayout"):
                with self.subTest(f"{method}: {row.name}"):
                    self.message_refused(method, row, request.SerializeToString())

    def test_messages_are_refused(self):
        for row in bad_messages.ROWS:
            for method in row.methods:
                with self.subTest(f"{method}: {row.name}"):
                    self.message_refused(method, row, row.data)

    def test_batches_too_large_for_a_message_go_through_a_server_on_the_command_line(self):
        for number, row in enumerate(bad_messages.TOO_LARGE):
            with self.subTest(row.name):
                source = write_batch(self.folder / "batch.safetensors", row.batch)
                arguments = ["shard", *self.shard_arguments(row), "--in", source, "--out"]
                here, there = self.folder / f"here{number}", self.folder / f"there{number}"
                self.succeeds(cpshard(*arguments, here))
                self.succeeds(cpshard(*arguments, there, "--server", self.address))
                self.assertEqual(*({path.name: path.read_bytes() for path in folder.iterdir()}
                                   for folder in (here, there)))
        self.check_server()

    def test_batches_too_large_for_a_message_are_refused_as_messages(self):
        for row in bad_messages.TOO_LARGE:
            with self.subTest(row.name):
                request = request_of(row.batch, row.options, row.cp, row.ranks)
                self.message_refused("ShardBatch", row, request.SerializeToString())

    def test_limits_of_a_server_are_those_of_its_configuration(self):
        server = self.start(f"--listen=unix:{self.folder}/limited", "--max-batch-bytes=1000",
                            "--max-tensors=3", "--max-ranks=8")
        for row in bad_messages.OVER_LIMITS:
            with self.subTest(row.name):
                source = write_batch(self.folder / "batch.safetensors", row.batch)
                self.command_refuses(row, "shard", *self.shard_arguments(row), "--in", source,
                                     "--out", self.folder / "out", "--server", server.address)
        channel, stub = connect(server.address)
        with channel:
            request = request_of(bad_messages.WITHIN_LIMITS, OPTIONS, 8)
            self.assertEqual(len(stub.ShardBatch(request, timeout=10).shards), 8)

    def test_files_are_refused(self):
        for row in bad_files.rows():
            with self.subTest(row.name):
                source = self.folder / "batch.safetensors"
                source.write_bytes(row.data)
                for server in ([], ["--server", self.address]):
                    self.command_refuses(row, "shard", "--cp=2", "--options",
                                         '{"round_robin": {}}', "--in", source, "--out",
                                         self.folder / "out", *server)
                (self.folder / "rank0.safetensors").write_bytes(row.data)
                layouts = self.folder / "layouts.json"
                layouts.write_text('[{"cp_size": 1, "padded_seq_len": 6, "original_seq_len": 6, '
                                   '"runs": [{"length": 6}]}]')
                self.command_refuses(row, "gather", "--layouts", layouts, "--in", self.folder,
                                     "--stream", "labels", "--out", self.folder / "g.safetensors")
        self.check_server()

    @unittest.skipIf(SLACK > 1, "measures memory, of which sanitizers take more than the file")
    def test_a_file_over_the_limit_is_refused_before_it_is_read(self):
        row = bad_files.OVER_LIMIT
        source = self.folder / "batch.safetensors"
        with source.open("wb") as file:
            file.write(row.data)
            file.truncate(len(row.data) + bad_files.OVER_LIMIT_BYTES)  # no disk is used
        for server in ([], ["--server", self.address]):
            self.command_refuses(row, "shard", "--cp=2", "--options", '{"round_robin": {}}',
                                 "--in", source, "--out", self.folder / "out", *server)

    def test_flipped_bytes_never_crash_the_program(self):
        good = 0
        for number, data in enumerate(bad_files.flipped(200)):
            source, out = self.folder / "batch.safetensors", self.folder / f"out{number}"
            source.write_bytes(data)
            result = cpshard("shard", "--cp=2", "--options", json.dumps(bad_files.FLIP_OPTIONS),
                             "--in", source, "--out", out)
            with self.subTest(number=number):
                if result.status == 0:
                    good += 1
                    continue
                self.assertIn(result.status, (3, 12), result)
                self.assertRegex(result.err, r"\Aerror: [A-Z_]+: [^\n]+\n\Z")
                self.assertFalse(out.exists())
        self.assertGreater(good, 10, "flips in the tensors leave a good file")

    def test_arguments_are_refused(self):
        for row in bad_arguments.rows(self.folder):
            arguments = [str(part).replace("{folder}", str(self.folder)) for part in row.arguments]
            for server in ([], ["--server", self.address]):
                if server and arguments[:1] not in (["shard"], ["plan"]):
                    continue
                with self.subTest(row.name, server=bool(server)):
                    if row.code == "USAGE":
                        shutil.rmtree(self.folder / "out", ignore_errors=True)
                        before = sorted(self.folder.rglob("*"))
                        self.usage_error(cpshard(*arguments, *server), *row.texts)
                        self.assertEqual(sorted(self.folder.rglob("*")), before)
                    else:
                        self.command_refuses(row, *arguments, *server)
        self.assertEqual((self.folder / "file").read_text(), "precious")


if __name__ == "__main__":
    unittest.main()

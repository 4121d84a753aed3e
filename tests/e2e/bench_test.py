"""`cpshard bench` on tiny batches: the table and its JSON hold together, and it measures no wrong
results."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time
import unittest

from programs import BIN, ENVIRONMENT, SLACK, ProgramTest, Run, run

QUICK = ("--sizes=0.01,0.5", "--seconds=0.1", "--inflight=3")
COLUMNS = ["transport", "MB", "in flight", "batches/s", "GB/s", "M tokens/s", "p50 ms", "p99 ms",
           "CPU here", "CPU server", "memcpy", "x memcpy"]
CONGESTION = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control")


class Forger:
    """Stands between a client and a server and inverts one byte of what the server says, deep in a
    long answer."""

    FORGED = 200_000

    def __init__(self, host_port):
        host, port = host_port.rsplit(":", 1)
        self.server = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client, socket.create_connection(self.server) as server:
            request = threading.Thread(target=self._pass_on, args=(client, server), daemon=True)
            request.start()
            self._pass_on(server, client, self.FORGED)
            request.join()

    @staticmethod
    def _pass_on(source, dest, forged=None):
        passed = 0
        try:
            while data := bytearray(source.recv(1 << 16)):
                if forged is not None and passed <= forged < passed + len(data):
                    data[forged - passed] ^= 0xff
                passed += len(data)
                dest.sendall(data)
        except OSError:
            pass
        for end in (source, dest):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # by the other direction

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()  # wakes nobody by itself


class Bench(ProgramTest):
    def bench(self, *arguments):
        """The rows of the table, each cell as printed, and the JSON; it leaves nothing behind."""
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        file = self.folder / "bench.json"
        result = self.succeeds(run(BIN / "cpshard", "bench", "--json", file, *QUICK, *arguments,
                                   environment={"TMPDIR": str(temporary)}))
        self.assertEqual(list(temporary.iterdir()), [])
        self.assertEqual(result.err, "")
        text, _, table = result.out.partition("\n\n")
        head, *lines = table.splitlines()
        self.assertEqual(re.split(r"\s{2,}", head), COLUMNS)
        self.assertEqual({len(line) for line in lines}, {len(head)}, table)  # aligned
        return text, [line.split() for line in lines], json.loads(file.read_text())

    def check_row(self, cells, row, own_server):
        self.assertEqual(cells[0], row["transport"])
        self.assertEqual(int(cells[2]), row["in_flight"])
        self.assertEqual(row["in_flight"], 3)
        rows, columns = row["dims"]
        self.assertEqual(row["batch_bytes"], 25 * rows * columns)
        self.assertGreaterEqual(row["batches"], 3)
        self.assertGreaterEqual(row["seconds"], 0.1)
        self.assertEqual((row["reconnects"], row["resubmitted"]), (0, 0))
        rate = row["batches"] / row["seconds"]
        self.assertAlmostEqual(row["batches_per_second"], rate, delta=1e-6 * rate)
        self.assertAlmostEqual(float(cells[3]), rate, delta=0.06)
        self.assertAlmostEqual(row["m_tokens_per_second"] * 1e6, rate * rows * columns,
                               delta=1e-6 * rate * rows * columns)
        # Round robin without padding: as many bytes come back as go.
        gigabytes = 2 * row["batch_bytes"] * rate / 1e9
        self.assertAlmostEqual(row["gb_per_second"], gigabytes, delta=1e-6 * gigabytes)
        self.assertAlmostEqual(row["of_memcpy"] * row["memcpy_gb_per_second"], gigabytes,
                               delta=1e-6 * gigabytes)
        self.assertGreater(row["p50_ms"], 0)
        self.assertGreaterEqual(row["p99_ms"], row["p50_ms"])
        self.assertLess(row["p50_ms"], 1000 * row["seconds"])
        self.assertGreater(row["client_cpu_s_per_gb"], 0)
        if own_server:
            self.assertGreater(row["server_cpu_s_per_gb"], 0)
        else:
            self.assertIsNone(row["server_cpu_s_per_gb"])
            self.assertEqual(cells[9], "-")

    def test_a_server_of_its_own_is_measured_on_both_transports(self):
        text, table, report = self.bench()
        rows = report["rows"]
        self.assertEqual([row["transport"] for row in rows], ["unix", "tcp"] * 2)
        self.assertEqual([row["batch_bytes"] for row in rows],
                         [10_400] * 2 + [500_000] * 2)  # the next with columns in steps of 8
        for cells, row in zip(table, rows, strict=True):
            self.check_row(cells, row, own_server=True)
        self.assertIn(f"congestion control {CONGESTION.read_text().strip()}", text)
        self.assertEqual(report["tcp_congestion_control"], CONGESTION.read_text().strip())
        for row in rows:
            self.assertIn(row["address"], text)

    def test_a_server_that_is_named_is_measured_alone(self):
        server = self.start("--listen=127.0.0.1:0")
        _, table, report = self.bench("--server", server.address)
        self.assertEqual([row["address"] for row in report["rows"]], [server.address] * 2)
        for cells, row in zip(table, report["rows"], strict=True):
            self.check_row(cells, row, own_server=False)
        self.assertEqual(server.stop(), 0)

    def test_no_more_is_in_flight_than_a_server_that_is_named_allows(self):
        server = self.start("--listen=127.0.0.1:0", "--max-inflight-bytes=1200000")
        text, table, report = self.bench("--server", server.address)
        self.assertEqual([row["in_flight"] for row in report["rows"]], [3, 2])  # 10 KB, 500 KB
        self.assertEqual([cells[2] for cells in table], ["3", "2"])
        self.assertIn("64 batches and 1.2 MB", text)
        self.assertEqual(server.stop(), 0)

    def test_its_own_server_allows_what_is_asked_for(self):
        _, _, report = self.bench("--sizes=90")  # 3 of them are over the default of 256 MiB
        self.assertGreaterEqual(report["rows"][-1]["batch_bytes"], 90_000_000)
        self.assertEqual({row["in_flight"] for row in report["rows"]}, {3})
        self.assertGreaterEqual(report["max_inflight_bytes"], 3 * 90_000_000)

    def test_a_wrong_answer_ends_it(self):
        server = self.start("--listen=127.0.0.1:0")
        forger = Forger(server.address)
        self.addCleanup(forger.close)
        result = run(BIN / "cpshard", "bench", *QUICK[1:], "--sizes=0.5", "--server",
                     forger.address)
        self.refused(result, "INTERNAL", forger.address, "wrongly", "of rank")
        self.assertEqual(result.out.count("\n\n"), 1)
        self.assertTrue(result.out.endswith("x memcpy\n"), result.out)  # no row was printed

    def test_a_file_that_cannot_be_written_is_known_before_the_first_row(self):
        result = run(BIN / "cpshard", "bench", *QUICK, f"--json={self.folder}/absent/x.json")
        self.refused(result, "NOT_FOUND", "absent/x.json")
        self.assertEqual(result.out, "")

    def test_options_and_the_size_of_the_group_are_the_users(self):
        options = {"contiguous": {"pad_multiple": 64}}
        _, _, report = self.bench("--cp=2", "--options", json.dumps(options))
        self.assertEqual(report["cp_size"], 2)
        self.assertEqual(json.loads(report["options"])["contiguous"], {"pad_multiple": "64"})
        # 10 KB: 100 columns, padded to 128 of 2 * 64; the shards are larger than the batch.
        row = report["rows"][0]
        self.assertEqual(row["dims"], [4, 100])
        rate = row["batches"] / row["seconds"]
        self.assertAlmostEqual(row["gb_per_second"] * 1e9, 25 * 4 * (100 + 128) * rate,
                               delta=1e-6 * 1e9 * row["gb_per_second"])

    def test_what_cannot_be_measured_is_refused(self):
        bench = lambda *arguments: run(BIN / "cpshard", "bench", *QUICK, *arguments)
        self.refused(bench(f"--server=unix:{self.folder}/nobody"), "UNAVAILABLE")
        self.refused(bench("--options={\"qwen3_8\": {\"tp_size\": 2}}"), "UNIMPLEMENTED",
                     "tp_size")
        self.refused(bench(f"--options={self.folder}/absent.json"), "NOT_FOUND", "absent.json")
        for arguments in (["--sizes=0"], ["--sizes=3000"], ["--inflight=0"], ["--seconds=0"],
                          ["--cp=0"], ["--sizes=x"]):
            self.usage_error(bench(*arguments), arguments[0].split("=")[0])


class Disturbed(ProgramTest):
    """A run that would last a minute, and its server."""

    def setUp(self):
        super().setUp()
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.files = [open(self.folder / name, "w+") for name in ("out", "err")]
        out, err = self.files
        self.bench = subprocess.Popen([BIN / "cpshard", "bench", "--sizes=0.5", "--seconds=60"],
                                      stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                      env=ENVIRONMENT | {"TMPDIR": str(self.temporary)})
        self.addCleanup(self.end)
        limit = time.monotonic() + 30 * SLACK
        while not (servers := self.servers()) or not self.measures():
            self.assertIsNone(self.bench.poll(), "it ended")
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.01)
        (self.server,) = servers

    def servers(self):
        children = pathlib.Path(f"/proc/{self.bench.pid}/task/{self.bench.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def measures(self):
        """Whether the head of the table is there and somebody is connected to the server."""
        sockets = pathlib.Path("/proc/net/unix").read_text().splitlines()
        return "x memcpy\n" in (self.folder / "out").read_text() and any(
            str(self.temporary) in line and line.split()[5] == "03" for line in sockets)

    def end(self):
        self.bench.kill()
        self.bench.wait()
        for file in self.files:
            file.close()

    def finish(self):
        self.bench.wait(30 * SLACK)
        texts = [(self.folder / name).read_text() for name in ("out", "err")]
        return Run(self.bench.returncode, *texts, 0)

    def test_a_server_of_its_own_that_dies_is_named_at_once(self):
        begin = time.monotonic()
        os.kill(self.server, signal.SIGKILL)
        self.refused(self.finish(), "UNAVAILABLE", "the server has ended", "signal 9")
        self.assertLess(time.monotonic() - begin, 5 * SLACK)
        self.assertEqual(list(self.temporary.iterdir()), [])

    def test_a_signal_ends_it_and_nothing_is_left(self):
        self.bench.send_signal(signal.SIGINT)
        result = self.finish()
        self.assertEqual(result.status, -signal.SIGINT)  # 130 in a shell
        self.assertEqual(list(self.temporary.iterdir()), [])
        self.assertFalse(pathlib.Path(f"/proc/{self.server}").exists())


if __name__ == "__main__":
    unittest.main()

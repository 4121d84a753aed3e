"""`cpshard bench` on tiny batches: the table and its JSON hold together, and it measures no wrong
results."""

import json
import pathlib
import re
import unittest

from programs import BIN, ProgramTest, run

QUICK = ("--sizes=0.01,0.5", "--seconds=0.1", "--inflight=3")
COLUMNS = ["transport", "MB", "in flight", "batches/s", "GB/s", "M tokens/s", "p50 ms", "p99 ms",
           "CPU here", "CPU server", "memcpy", "x memcpy"]
CONGESTION = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control")


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
        self.refused(bench("--options={\"thd\": {}}"), "UNIMPLEMENTED", "thd")
        self.refused(bench(f"--options={self.folder}/absent.json"), "NOT_FOUND", "absent.json")
        self.refused(bench(f"--json={self.folder}/absent/x.json"), "NOT_FOUND", "absent/x.json")
        for arguments in (["--sizes=0"], ["--sizes=3000"], ["--inflight=0"], ["--seconds=0"],
                          ["--cp=0"], ["--sizes=x"]):
            self.usage_error(bench(*arguments), arguments[0].split("=")[0])


if __name__ == "__main__":
    unittest.main()

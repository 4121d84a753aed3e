"""gpu_check as it is taken to another machine: what it needs there, and what it says where there is
no device."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)


class Program(unittest.TestCase):
    def test_it_needs_the_c_library_and_nothing_else(self):
        listed = subprocess.run(["readelf", "-d", PROGRAM], check=True, text=True,
                                capture_output=True).stdout
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", listed)
        self.assertIn("libc.so.6", needed)
        self.assertLessEqual(set(needed), {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2",
                                           "ld-linux-aarch64.so.1"})

    def test_without_a_device_it_ends_with_77_and_the_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.json"
            done = subprocess.run([PROGRAM, "--json", report], text=True, capture_output=True,
                                  check=False, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
            self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
            self.assertRegex(done.stdout, "SKIP  .*: no usable CUDA device: .*driver .*, runtime")
            items = json.loads(report.read_text(encoding="utf-8"))["items"]
        self.assertEqual([item["verdict"] for item in items], ["SKIP"])


if __name__ == "__main__":
    unittest.main()

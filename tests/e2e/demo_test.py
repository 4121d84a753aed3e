"""`cpshard demo`: on little text, and with a server that does not start."""

import re
import shutil
import time
import unittest

from programs import BIN, SLACK, ProgramTest, run

TEXT = "The quick brown fox jumps over the lazy dog.\n" * 9
ROW = re.compile(r"^(contiguous|round_robin) +(\d+) +(\d+) +([0-9.]+) %.*\n +EQUAL$", re.MULTILINE)
START_LIMIT = 5.0 * SLACK  # seconds until a server that does not start is given up


class Demo(ProgramTest):
    def setUp(self):
        super().setUp()
        self.text = self.folder / "text.txt"
        self.text.write_text(TEXT)
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()

    def demo(self, program=BIN / "cpshard", **environment):
        """A run of the demo, which leaves nothing in the folder of temporary files."""
        result = run(program, "demo", self.text,
                     environment={"TMPDIR": str(self.temporary)} | environment)
        self.assertEqual(list(self.temporary.iterdir()), [])
        return result

    def check(self, result):
        self.succeeds(result)
        rows = ROW.findall(result.out)
        self.assertEqual([row[0] for row in rows], ["contiguous", "round_robin"], result.out)
        for _, batches, tokens, padding in rows:
            # Once in rows that must be padded and once in rows that need not be.
            self.assertEqual(int(batches), 2)
            self.assertGreater(int(tokens), 0)
            self.assertGreater(float(padding), 0)

    def alone(self):
        """The program, copied to a folder of its own."""
        (self.folder / "bin").mkdir()
        return shutil.copy2(BIN / "cpshard", self.folder / "bin" / "cpshard")

    def fails_at_once(self, program, code, *texts):
        begin = time.monotonic()
        result = self.demo(program)
        self.assertLess(time.monotonic() - begin, START_LIMIT)
        self.assertNotIn("EQUAL\n", result.out)
        self.refused(result, code, *texts)

    def test_a_few_hundred_bytes_are_padded_and_come_out_equal(self):
        self.check(self.demo())

    def test_settings_of_a_server_in_the_environment_do_not_disturb_it(self):
        self.check(self.demo(CPSHARD_WORKERS="0", CPSHARD_LISTEN="127.0.0.1:0",
                             CPSHARD_CONFIG=str(self.folder / "absent.json")))

    def test_without_a_server_beside_it_it_says_where_it_looked(self):
        self.fails_at_once(self.alone(), "NOT_FOUND", str(self.folder / "bin" / "cpshardd"))

    def test_a_server_that_ends_at_once_is_noticed_with_its_status_and_its_words(self):
        program = self.alone()
        server = self.folder / "bin" / "cpshardd"
        server.write_text("#!/bin/sh\necho 'no luck today' >&2\nexit 3\n")
        server.chmod(0o755)
        self.fails_at_once(program, "UNAVAILABLE", "exit status 3", "no luck today")

    def test_a_server_that_is_no_program_is_noticed(self):
        program = self.alone()
        (self.folder / "bin" / "cpshardd").write_bytes(b"\x7fELF, but no more")
        self.fails_at_once(program, "UNAVAILABLE", "exit status 127")


if __name__ == "__main__":
    unittest.main()

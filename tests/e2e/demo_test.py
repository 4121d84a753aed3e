"""`cpshard demo`: on little text, with loaders that are killed, and with a server that does not
start."""

import os
import re
import shutil
import signal
import subprocess
import time
import unittest

from processes import children, command_line
from programs import BIN, ENVIRONMENT, SLACK, ProgramTest, Run, cpshard, run

TEXT = "The quick brown fox jumps over the lazy dog.\n" * 9
LONG_TEXT = "".join(f"{number} bottles of beer on the wall.\n" for number in range(50_000))
# A layout: batches, tokens, padding; a line per stream; the verdict.
LAYOUT = re.compile(r"^(\w+) +(\d+) +(\d+) +([0-9.]+) %.*\n +tokens per rank +[0-9 ]+\n"
                    r"((?: +\w+ +EQUAL\n)*?) +verdict +EQUAL$", re.MULTILINE)
SENT = ["input_ids", "labels", "position_ids"]
STREAMS = {"contiguous": [*SENT, "padding_mask"],
           "round_robin": [*SENT, "padding_mask"],
           "thd": [*SENT, "padding_mask", "_thd_local_indices", "cu_seqlens", "max_seqlen"]}
KILLED = re.compile(r"^loader (\d) was killed \(signal (\d+)\) after (\d+) of its (\d+) batches; "
                    r"started again$", re.MULTILINE)
START_LIMIT = 5.0 * SLACK  # seconds until a server that does not start is given up


def equal_layouts(test, result):
    """The layouts that the demo went through, all streams of all of them equal."""
    layouts = LAYOUT.findall(result.out)
    streams = {layout[0]: re.findall(r"(\w+) +EQUAL", layout[4]) for layout in layouts}
    test.assertEqual(list(streams), list(STREAMS), result.out)
    test.assertEqual(streams, STREAMS, result.out)
    test.assertIn("\nbuffers out: 0\n", result.out)
    return layouts


class Loaders(ProgramTest):
    """A demo that runs for a while, seen from outside."""

    def setUp(self):
        super().setUp()
        text = self.folder / "text.txt"
        text.write_text(LONG_TEXT)
        self.files = [open(self.folder / name, "w+") for name in ("out", "err")]
        out, err = self.files
        self.demo = subprocess.Popen([BIN / "cpshard", "demo", text], stdin=subprocess.DEVNULL,
                                     stdout=out, stderr=err,
                                     env=ENVIRONMENT | {"TMPDIR": str(self.folder)})
        self.server = None  # its pidfd
        self.addCleanup(self.end)

    def end(self):
        self.demo.kill()
        self.demo.wait()
        self.tell_server(signal.SIGKILL)
        for file in self.files:
            file.close()

    def loaders(self):
        """Process ids by loader, of those that run now."""
        return {int(word.split("=")[1]): pid for pid, words in children(self.demo.pid).items()
                if "demo-loader" in words for word in words if word.startswith("--loader=")}

    def wait_until_gone(self, processes):
        limit = time.monotonic() + 10
        while any("cpshard" in word for pid in processes for word in command_line(pid)):
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.01)

    def tell_server(self, number):
        if self.server is None:
            return
        try:
            signal.pidfd_send_signal(self.server, number)
        except ProcessLookupError:
            pass  # it has ended
        if number != signal.SIGSTOP:
            os.close(self.server)
            self.server = None

    def freeze(self):
        """Waits for the loaders, then stops the server: none of them gets any further."""
        self.wait_for(lambda: len(self.loaders()) == 4)
        (pid,) = [pid for pid, words in children(self.demo.pid).items() if words[0] == "cpshardd"]
        self.server = os.pidfd_open(pid)
        self.tell_server(signal.SIGSTOP)

    def wait_for(self, condition):
        limit = time.monotonic() + 60
        while not condition():
            self.assertIsNone(self.demo.poll(), "the demo ended")
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.005)

    def finish(self):
        self.demo.wait(120)
        texts = [(self.folder / name).read_text() for name in ("out", "err")]
        return Run(self.demo.returncode, *texts, 0)

    def check_equal(self, result):
        self.succeeds(result)
        equal_layouts(self, result)

    def test_four_loaders_are_processes_of_their_own(self):
        self.wait_for(lambda: len(self.loaders()) == 4)
        loaders = self.loaders()
        self.assertEqual(set(loaders), {0, 1, 2, 3})
        self.assertEqual(len({*loaders.values(), self.demo.pid}), 5)
        self.check_equal(self.finish())

    def test_loaders_that_somebody_kills_go_on_where_they_were(self):
        self.freeze()
        killed = []
        for number, name in ((1, signal.SIGKILL), (3, signal.SIGTERM), (1, signal.SIGKILL)):
            self.wait_for(lambda: self.loaders().get(number) not in (None, *killed))
            killed.append(self.loaders()[number])
            os.kill(killed[-1], name)
        self.tell_server(signal.SIGCONT)
        result = self.finish()
        self.check_equal(result)
        self.assertEqual(sorted(found[:2] for found in KILLED.findall(result.out)),
                         [("1", "9"), ("1", "9"), ("3", "15")])

    def test_a_loader_that_is_killed_again_and_again_is_given_up(self):
        self.freeze()
        killed = []
        for _ in range(4):
            self.wait_for(lambda: self.loaders().get(2) not in (None, *killed))
            killed.append(self.loaders()[2])
            os.kill(killed[-1], signal.SIGKILL)
        self.tell_server(signal.SIGCONT)
        result = self.finish()
        self.refused(result, "ABORTED", "loader 2", "signal 9", "3 times")
        self.assertEqual(len(KILLED.findall(result.out)), 3)

    def test_no_loader_outlives_the_demo(self):
        self.wait_for(lambda: len(self.loaders()) == 4)
        loaders = self.loaders().values()
        self.demo.kill()
        self.demo.wait()
        self.wait_until_gone(loaders)

    def check_that_a_signal_leaves_nothing(self, number):
        self.freeze()
        started = children(self.demo.pid)
        self.assertEqual(len(started), 5)
        self.demo.send_signal(number)
        self.assertEqual(self.demo.wait(10 * SLACK), -number)  # 128 + it in a shell
        self.assertEqual(list(self.folder.glob("cpshard-*")), [])
        self.wait_until_gone(started)

    def test_ctrl_c_ends_it_and_nothing_is_left(self):
        self.check_that_a_signal_leaves_nothing(signal.SIGINT)

    def test_sigterm_ends_it_and_nothing_is_left(self):
        self.check_that_a_signal_leaves_nothing(signal.SIGTERM)

    def test_a_server_that_is_killed_is_noticed(self):
        self.freeze()
        self.tell_server(signal.SIGKILL)
        self.refused(self.finish(), "UNAVAILABLE", "signal 9")
        self.assertEqual(self.loaders(), {})


class Demo(ProgramTest):
    def setUp(self):
        super().setUp()
        self.text = self.folder / "text.txt"
        self.text.write_text(TEXT)
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()

    def demo(self, *arguments, program=BIN / "cpshard", **environment):
        """A run of the demo, which leaves nothing in the folder of temporary files."""
        result = run(program, "demo", *arguments, self.text,
                     environment={"TMPDIR": str(self.temporary)} | environment)
        self.assertEqual(list(self.temporary.iterdir()), [])
        return result

    def check(self, result):
        self.succeeds(result)
        for _, batches, tokens, padding, _ in equal_layouts(self, result):
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
        result = self.demo(program=program)
        self.assertLess(time.monotonic() - begin, START_LIMIT)
        self.assertNotIn(" verdict ", result.out)
        self.refused(result, code, *texts)

    def test_a_few_hundred_bytes_are_padded_and_come_out_equal(self):
        self.check(self.demo())

    def test_its_table_fits_a_terminal_of_80_columns(self):
        out = self.succeeds(self.demo()).out
        table = out[out.index("\nlayout "):]
        self.assertEqual([line for line in table.split("\n") if len(line) > 80], [])

    def test_more_loaders_than_batches_and_a_single_one_come_to_the_same(self):
        sums = []
        for loaders in ("1", "2", "7"):
            result = self.demo("--loaders", loaders)
            self.check(result)
            sums.append(LAYOUT.findall(result.out))
        self.assertEqual(sums, sums[:1] * 3)

    def test_a_loader_killed_half_way_changes_nothing(self):
        self.text.write_text(LONG_TEXT)
        result = self.demo("--kill-loader=2")
        self.succeeds(result)
        equal_layouts(self, result)
        (found,) = KILLED.findall(result.out)
        loader, number, done, share = map(int, found)
        self.assertEqual((loader, number), (2, signal.SIGKILL))
        # Some batches were reported; the round, of up to 8, that leads over the half was not.
        self.assertGreater(done, 0)
        self.assertLessEqual(2 * done, share)
        self.assertGreater(2 * (done + 8), share)

    def test_a_loader_without_batches_cannot_be_killed(self):
        self.refused(self.demo("--kill-loader=3"), "INVALID_ARGUMENT", "loader 3", "4 loaders")
        self.refused(self.demo("--kill-loader=9"), "INVALID_ARGUMENT", "loader 9", "4 loaders")

    def test_its_loader_command_is_not_shown(self):
        self.assertNotIn("demo-loader", self.succeeds(cpshard("--help")).out)

    def test_numbers_of_loaders_that_make_no_sense_are_usage_errors(self):
        for arguments in (["--loaders=0"], ["--loaders=65"], ["--loaders=x"], ["--kill-loader=-1"]):
            self.usage_error(cpshard("demo", *arguments), arguments[0].split("=")[0])

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

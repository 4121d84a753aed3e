"""The pictures of `cpshard plan`: in the SVG every token has the colour of the rank that holds it,
as the layouts say; a terminal gets colours and its own width, a pipe neither; a server's plan is
drawn as one's own."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
import unittest
import xml.etree.ElementTree as ElementTree

import numpy as np

from programs import BIN, ENVIRONMENT, ProgramTest, run, write_batch
from safetensors_file import tensor

SVG = "{http://www.w3.org/2000/svg}"
PIPE = {"COLUMNS": "80", "NO_COLOR": ""}
PLOT_LEFT = 96  # where column 0 is
PAD = {"padding_token_id": "0"}

# Two rows of 32: documents of 12 and 20 columns, 10 and 18 of them tokens; one of 32, 25 tokens.
DOCUMENTS = [[(10, 12), (18, 20)], [(25, 32)]]
LAYOUTS = [{"contiguous": {}}, {"round_robin": {}}, {"thd": {}}, {"thd": {"num_chunks": "2"}},
           {"identity": {}}, {"deepseek_v4": {}}, {"document_head_tail": {}}]


def packed(documents, lengths):
    """A batch of these rows; lengths only where a layout may be told them."""
    rows = len(documents)
    columns = sum(padded for _, padded in documents[0])
    ids = np.arange(rows * columns).reshape(rows, columns)
    positions = [[i for _, padded in row for i in range(padded)] for row in documents]
    most = max(map(len, documents))
    batch = {"input_ids": tensor("I64", ids), "labels": tensor("I64", ids + 1),
             "position_ids": tensor("I64", positions)}
    if lengths:
        for name, part in (("seq_lens", 0), ("seq_lens_padded", 1)):
            batch[name] = tensor("I64", [[document[part] for document in row] +
                                         [-1000] * (most - len(row)) for row in documents])
    return batch


def keeps_documents(options):
    return not {"contiguous", "round_robin", "identity"} & set(options)


class Picture:
    """An SVG file, read back."""

    def __init__(self, text):
        root = ElementTree.fromstring(text)
        self.texts = ["".join(text.itertext()) for text in root.iter(SVG + "text")]
        self.bars = {}  # by their top: (x, width, fill) of what is drawn on them
        self.colours = []  # of the ranks, from the table
        for rect in root.iter(SVG + "rect"):
            x, y, width = (float(rect.get(name, "0").rstrip("%")) for name in ("x", "y", "width"))
            if rect.get("height") == "26":
                self.bars.setdefault(y, []).append((x, width, rect.get("fill")))
            if rect.get("width") == rect.get("height") == "12":
                self.colours.append(rect.get("fill"))

    def columns(self, pitch):
        """Of each bar from the top, what is drawn on its columns: {column: {fill, ...}}."""
        found = []
        for _, rects in sorted(self.bars.items()):
            columns = {}
            for x, width, fill in rects:
                first, last = (x - PLOT_LEFT) / pitch, (x + width - PLOT_LEFT) / pitch
                for column in range(round(first), round(last + 0.01)):
                    columns.setdefault(column, set()).add(fill)
            found.append(columns)
        return found


class Drawing(ProgramTest):
    def plan(self, *arguments, environment=None):
        return run(BIN / "cpshard", "plan", *arguments, environment={**PIPE, **(environment or {})})

    def batch(self, options):
        return write_batch(self.folder / "batch.safetensors",
                           packed(DOCUMENTS, keeps_documents(options)))

    def arguments(self, options, cp=2):
        return [f"--cp={cp}", "--options", json.dumps(options | PAD), "--in", self.batch(options)]

    def owners(self, options):
        """Per bar: the rank of every column, from the layouts of --json; -1: every rank."""
        plan = json.loads(self.succeeds(self.plan(*self.arguments(options), "--json")).out)
        owners = {}
        for layout in plan["layouts"]:
            for piece in layout["runs"]:
                first = int(piece["source"])
                for column in range(first, first + int(piece["length"])):
                    owners[column] = -1 if column in owners else layout["cp_rank"]
        owners = [owners[column] for column in sorted(owners)]
        if options == {"thd": {"num_chunks": "2"}}:
            return [owners[:32], owners[32:]]
        return [owners] if {"thd", "document_head_tail"} & set(options) else [owners] * 2

    def test_every_token_has_the_colour_of_its_rank(self):
        for options in LAYOUTS:
            with self.subTest(options=options):
                file = self.folder / "plan.svg"
                self.succeeds(self.plan(*self.arguments(options), "--svg", file))
                picture = Picture(file.read_text())
                self.assertEqual(len(set(picture.colours)), 2)
                bars = self.owners(options)
                columns = len(bars[0])
                pitch = min(32, 840 // columns)
                for drawn, owners in zip(picture.columns(pitch), bars, strict=True):
                    self.assertEqual(sorted(drawn), list(range(columns)))
                    for column, rank in enumerate(owners):
                        colours = {fill for fill in drawn[column] if fill.startswith("#")}
                        expected = {picture.colours[rank]} if rank >= 0 else colours
                        self.assertEqual(colours, expected, column)
                        if rank < 0:
                            self.assertFalse(colours & set(picture.colours))

    def test_padding_is_hatched_where_the_lengths_say_it_is(self):
        file = self.folder / "plan.svg"
        self.succeeds(self.plan(*self.arguments({"thd": {}}), "--svg", file))
        drawn, = Picture(file.read_text()).columns(840 // 64)
        hatched = [column for column in drawn if "url(#inner)" in drawn[column]]
        self.assertEqual(hatched, [10, 11, 30, 31, *range(57, 64)])

    def test_the_bar_of_a_pipe_names_the_rank_of_every_column(self):
        for options in LAYOUTS:
            with self.subTest(options=options):
                text = self.succeeds(self.plan(*self.arguments(options), "--draw",
                                               environment={"COLUMNS": "75"})).out
                self.assertNotIn("\x1b", text)
                drawn = [line[10:].replace(" ", "") for line in text.splitlines()
                         if line.startswith(("row ", "rows 0", "stream", "chunk "))]
                for marks, owners in zip(drawn, self.owners(options), strict=True):
                    self.assertEqual(len(marks), len(owners))
                    for mark, rank in zip(marks, owners):
                        self.assertIn(mark, {f"{rank}" if rank >= 0 else "=", ":", "."})

    def test_a_server_s_plan_is_drawn_as_one_s_own(self):
        served = self.start("--listen=127.0.0.1:0")
        for options in LAYOUTS[:3]:
            arguments = [*self.arguments(options), "--draw", "--svg", self.folder / "plan.svg",
                         "--compare", json.dumps({"identity": {}} | PAD)]
            own = self.succeeds(self.plan(*arguments)).out
            svg = (self.folder / "plan.svg").read_bytes()
            there = self.succeeds(self.plan(*arguments, "--server", served.addresses[0])).out
            self.assertEqual(there, own)
            self.assertEqual((self.folder / "plan.svg").read_bytes(), svg)

    def test_compared_layouts_stand_below_each_other_with_their_balance(self):
        arguments = ["--cp=4", "--len=64", "--docs=24,16,24", "--draw", "--options",
                     '{"contiguous":{}}', "--compare", '{"round_robin":{}}', "--compare",
                     '{"thd":{}}']
        text = self.succeeds(self.plan(*arguments)).out
        titles = [line for line in text.splitlines()
                  if line in ("contiguous", "round_robin", "thd")]
        self.assertEqual(titles, ["contiguous", "round_robin", "thd"])
        # Areas by hand: of 300 + 136 + 300 pairs the ranks hold 136, 200, 136, 264; 200, 200, 200,
        # 136; 184 each.
        for balance in ("I_attn 1.435", "I_attn 1.087", "I_attn 1.000"):
            self.assertEqual(text.count(balance), 1, text)

    def in_terminal(self, columns, environment):
        """What `plan --draw` writes to a terminal of that width, and its exit status."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        clean = {name: value for name, value in ENVIRONMENT.items()
                 if name not in ("COLUMNS", "NO_COLOR", "COLORTERM", "TERM")}
        process = subprocess.Popen(
            [BIN / "cpshard", "plan", "--cp=2", "--len=64", '--options={"contiguous":{}}',
             "--draw"], stdin=subprocess.DEVNULL, stdout=slave, stderr=subprocess.PIPE,
            env=clean | environment)
        os.close(slave)
        text = b""
        while True:
            try:
                part = os.read(master, 4096)
            except OSError:  # the other end is closed
                break
            text += part
            if not part:
                break
        os.close(master)
        process.stderr.close()
        return text.decode().replace("\r\n", "\n"), process.wait(timeout=30)

    def test_a_terminal_gets_its_colours_and_its_width(self):
        plain, status = self.in_terminal(50, {"TERM": "xterm-256color", "NO_COLOR": "1"})
        self.assertEqual(status, 0)
        self.assertNotIn("\x1b", plain)
        self.assertEqual(max(map(len, plain.splitlines())), 50)
        self.assertIn("\x1b[38;5;", self.in_terminal(50, {"TERM": "xterm-256color"})[0])
        self.assertIn("\x1b[38;2;", self.in_terminal(50, {"TERM": "xterm",
                                                          "COLORTERM": "truecolor"})[0])
        self.assertEqual(self.in_terminal(50, {"TERM": "dumb"}), (plain, 0))
        self.assertEqual(self.in_terminal(50, {"TERM": "dumb", "COLORTERM": "truecolor"}),
                         (plain, 0))
        self.assertEqual(self.in_terminal(20, {"TERM": "dumb"}), ("", 3))

    def test_a_narrow_terminal_and_a_plan_without_layout_are_told_so(self):
        narrow = self.plan("--cp=2", "--len=64", "--options", '{"contiguous":{}}', "--draw",
                           environment={"COLUMNS": "20"})
        self.refused(narrow, "INVALID_ARGUMENT", "needs 40 columns", "has 20", "--svg")
        self.assertEqual(narrow.out, "")
        uncut = self.plan(*self.arguments({"deepseek_v4": {}}, cp=1), "--draw")
        self.refused(uncut, "FAILED_PRECONDITION", "deepseek_v4", "nothing to draw")

    def test_nothing_is_written_unless_all_can_be_drawn(self):
        file = self.folder / "plan.svg"
        good = ["--cp=2", "--len=64", "--options", '{"contiguous":{}}', "--svg", file]
        self.refused(self.plan(*good, "--compare", '{"thd":{}}'), "INVALID_ARGUMENT")
        self.refused(self.plan(*good, "--compare", '{"nonsense":{}}'), "INVALID_ARGUMENT")
        self.assertFalse(file.exists())
        absent = self.plan(*good[:-1], self.folder / "absent" / "plan.svg", "--draw")
        self.refused(absent, "NOT_FOUND", "cannot write")
        self.assertEqual(absent.out, "")

    def test_options_that_make_no_sense_are_usage_errors(self):
        plan = ["--cp=2", "--options", '{"contiguous":{}}']
        self.usage_error(self.plan(*plan, "--len=8", "--compare", '{"identity":{}}'), "--draw")
        self.usage_error(self.plan(*plan, "--len=8", "--draw", "--json"), "--json")
        self.usage_error(self.plan(*plan, "--len=8", "--svg", ""), "empty")
        self.usage_error(self.plan(*plan, "--docs=8", "--draw"), "--len")

    def test_thousands_of_ranks_and_a_million_tokens_are_a_small_picture(self):
        file = self.folder / "plan.svg"
        lengths = ",".join(["128"] * 8192)
        result = self.succeeds(self.plan(
            "--cp=4096", "--len=1048576", f"--docs={lengths}", "--options", '{"round_robin":{}}',
            "--draw", "--svg", file))
        self.assertLess(len(result.out.splitlines()), 40)
        self.assertLess(file.stat().st_size, 300000)
        self.assertIn("8,192 documents", result.out)
        Picture(file.read_text())


if __name__ == "__main__":
    unittest.main()

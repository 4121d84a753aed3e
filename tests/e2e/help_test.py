"""--help and --version as a newcomer meets them: what they print is true, and fits a terminal."""

import json
import pathlib
import re
import shlex
import unittest

import numpy as np

from programs import BIN, ENVIRONMENT, USAGE, ProgramTest, cpshard, cpshardd, run, write_batch
from safetensors_file import Tensor
from stubs import connect, service_pb2

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMNS = 80
COMMANDS = ("shard", "gather", "plan", "explain", "verify", "push", "pull", "status", "demo",
            "bench")
PAGES = ((), *((command,) for command in COMMANDS))
OPTION = re.compile(r"^  (?:-h,)?(--[a-z-]+)(?: (\S+))?(?=\s|$)")


def help_of(*command):
    return cpshard(*command, "--help")


def options_of(text):
    """Option -> what the help says of it, on one line."""
    options, name = {}, None
    for line in text.splitlines():
        if match := OPTION.match(line):
            name = match.group(1)
            options[name] = line.strip()
        elif name and line.startswith(" " * 20):
            options[name] += " " + line.strip()
        else:
            name = None
    return options


def examples_of(text):
    """The commands that it shows, each on one line."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if re.match(r"  (\w+=\S+ )?cpshardd? ", line)]


def file_of(option, value):
    """A configuration file that states the value."""
    key = option[2:].replace("-", "_")
    if key in ("max_batch_bytes", "max_tensors", "max_ranks"):
        return {"limits": {key: value}}
    return {key: [value] if key == "listen" else int(value, 8) if key == "socket_mode" else value}


class Pages(ProgramTest):
    def texts(self):
        for command in PAGES:
            result = self.succeeds(help_of(*command))
            self.assertEqual(result.err, "")
            yield " ".join(("cpshard", *command)), result.out
        yield "cpshardd", self.succeeds(cpshardd("--help")).out

    def test_every_page_fits_a_terminal(self):
        for name, text in self.texts():
            self.assertTrue(text.isascii(), name)
            for line in text.splitlines():
                with self.subTest(name):
                    self.assertLessEqual(len(line), COLUMNS, line)
            self.assertNotIn("\n\n\n", text)

    def test_every_page_says_what_it_is_for_how_to_call_it_and_where_to_read_on(self):
        for name, text in self.texts():
            with self.subTest(name):
                self.assertTrue(text.startswith(f"{name}: "), text)
                self.assertRegex(text, rf"(?m)^Usage: {name}\b")
                self.assertGreater(len(examples_of(text)), 0)
                pages = re.findall(r"\b(?:docs/)?[A-Z]+\.md|\bproto/\S+\.proto", text)
                self.assertGreater(len(pages), 0)
                for page in pages:
                    self.assertTrue((ROOT / page).is_file(), page)

    def test_the_page_of_the_program_lists_every_subcommand(self):
        text = self.succeeds(help_of()).out
        self.assertEqual(tuple(re.findall(r"(?m)^  ([a-z]+) {3,}", text)), COMMANDS)

    def test_values_are_named_in_the_words_of_the_field(self):
        for name, text in self.texts():
            with self.subTest(name):
                self.assertNotRegex(text, r"\b(TEXT|INT|UINT|FLOAT|REQUIRED|Excludes|Needs)\b")

    def test_the_usage_line_has_what_is_required_and_nothing_else(self):
        for name, text in self.texts():
            usage = re.search(r"(?ms)^Usage: .*?\n\n", text).group()
            required = {option for option, said in options_of(text).items() if "[required]" in said}
            with self.subTest(name):
                self.assertEqual(set(re.findall(r"--[a-z-]+", usage)), required)
        self.assertIn("--ranks-dir DIR", self.succeeds(help_of("verify")).out.split("[OPTIONS]")[0])

    def test_every_layout_that_is_built_is_listed(self):
        refused = cpshard("plan", "--cp=2", "--options={}", "--len=8").err
        layouts = re.search(r"choose one of (.*?), for example", refused).group(1).split(", ")
        self.assertGreater(len(layouts), 10)
        for command in ("shard", "plan", "verify"):
            page = self.succeeds(help_of(command)).out
            for layout in layouts:
                self.assertIn(f" {layout},", page)


class Examples(ProgramTest):
    """Every example of the help is run in a folder with a batch and a text."""

    def setUp(self):
        super().setUp()
        tokens = np.arange(40).reshape(2, 20)
        write_batch(self.folder / "batch.safetensors", {
            "input_ids": Tensor("I64", tokens), "labels": Tensor("I64", tokens + 1)})
        words = (f"word{i % 977}" + ("\n\n" if i % 60 == 59 else " ") for i in range(15000))
        (self.folder / "story.txt").write_text("".join(words))
        (self.folder / "cpshardd.json").write_text('{"workers": 3}')

    def run_example(self, example):
        """In a shell, as it stands there."""
        return run("/bin/sh", "-c", f"cd {shlex.quote(str(self.folder))}\n{example}",
                   environment={"PATH": f"{BIN}:{ENVIRONMENT['PATH']}"})

    def test_the_examples_of_every_command_work_one_after_the_other(self):
        for command in PAGES:
            examples = examples_of(self.succeeds(help_of(*command)).out)
            for example in examples:
                with self.subTest(example):
                    self.succeeds(self.run_example(example))
        for made in ("shards/layouts.json", "second/rank1.safetensors", "ids.safetensors",
                     "padded.safetensors", "bench.json"):
            self.assertTrue((self.folder / made).is_file(), made)

    def test_the_examples_of_the_server_are_valid(self):
        for example in examples_of(self.succeeds(cpshardd("--help")).out):
            with self.subTest(example):
                result = self.succeeds(self.run_example(example + " --check-config"))
                self.assertEqual(result.out, "configuration is valid\n")


class UsageErrors(ProgramTest):
    def test_they_are_one_line_that_names_the_option_and_the_page_to_read(self):
        shard = ("shard", "--options={}", "--in=x", "--out=y")
        for arguments, text, command in (
                ((), "ubcommand", "cpshard"), (("surprise",), "'surprise'", "cpshard"),
                (("--surprise",), "'--surprise'", "cpshard"),
                (shard, "--cp", "cpshard shard"), ((*shard, "--cp"), "N|none", "cpshard shard"),
                ((*shard, "--cp=many"), "'many'", "cpshard shard"),
                ((*shard, "--cp=2", "--cp-size=4"), "--cp-size", "cpshard shard"),
                (("plan", "--cp=2", "--options={}"), "--len", "cpshard plan"),
                (("plan", "--cp=2", "--options={}", "--len=8", "--in=x"), "--in", "cpshard plan"),
                (("gather", "--in=x", "--layouts=x", "--stream=x"), "--out", "cpshard gather"),
                (("explain", "--in=x"), "--layouts", "cpshard explain"),
                (("verify", "--cp=2", "--options={}", "--in=x"), "--ranks-dir", "cpshard verify"),
                (("bench", "--seconds=0"), "--seconds", "cpshard bench"),
                (("demo", "--loaders=0"), "--loaders", "cpshard demo")):
            with self.subTest(arguments):
                result = cpshard(*arguments)
                self.assertEqual((result.status, result.out), (USAGE, ""))
                self.assertRegex(result.err, r"\Aerror: USAGE: [^\n]+\n\Z")
                self.assertIn(text, result.err)
                self.assertTrue(result.err.endswith(f"; see {command} --help\n"), result.err)

    def test_the_server_points_to_its_page_too(self):
        for arguments, text in ((("--surprise",), "--surprise"), (("--workers=x",), "--workers")):
            result = cpshardd(*arguments)
            self.assertEqual((result.status, result.out), (USAGE, ""))
            self.assertRegex(result.err, rf"\Aerror: [^\n]*{text}[^\n]*; see cpshardd --help\n\Z")


class ServerPage(ProgramTest):
    def setUp(self):
        super().setUp()
        self.options = options_of(self.succeeds(cpshardd("--help")).out)
        self.defaults = {option: re.search(r"\[default: (.*)\]", said).group(1)
                         for option, said in self.options.items() if "[default: " in said}

    def test_the_defaults_that_it_names_are_those_of_a_server(self):
        server = self.start("--listen=127.0.0.1:0")
        channel, stub = connect(server.address)
        with channel:
            info = stub.GetServerInfo(service_pb2.GetServerInfoRequest(), timeout=10)
        for option, value in (("--max-ranks", info.limits.max_ranks),
                              ("--max-tensors", info.limits.max_tensors),
                              ("--max-batch-bytes", info.limits.max_batch_bytes)):
            self.assertEqual(self.defaults[option], str(value), option)

    def test_every_setting_has_a_default_a_variable_and_a_key_in_the_file(self):
        settings = self.options.keys() - {"--help", "--version", "--config", "--check-config"}
        self.assertEqual(settings, self.defaults.keys())
        self.assertGreater(len(settings), 10)
        for option in sorted(settings):
            value = self.defaults[option]
            variable = "CPSHARD_" + option[2:].replace("-", "_").upper()
            path = self.folder / "config.json"
            path.write_text(json.dumps(file_of(option, value)))
            with self.subTest(option):
                self.succeeds(cpshardd("--check-config", environment={variable: value}))
                self.succeeds(cpshardd("--check-config", "--config", path))
                refused = cpshardd("--check-config", environment={variable: "?"})
                self.assertEqual(refused.status, USAGE)  # the variable is read


class Version(ProgramTest):
    def test_both_programs_say_what_they_were_made_of_in_lines_of_key_and_value(self):
        shown = {}
        for name, program in (("cpshard", cpshard), ("cpshardd", cpshardd)):
            first, *lines = self.succeeds(program("--version")).out.splitlines()
            self.assertRegex(first, rf"\A{name} \d+\.\d+\.\d+\Z")
            for line in lines:
                self.assertRegex(line, r"\A[a-z]+: \S.*\Z")
            shown[name] = dict(line.split(": ", 1) for line in lines)
        facts = shown["cpshard"]
        self.assertEqual(facts, shown["cpshardd"])
        self.assertRegex(facts["commit"], r"\A([0-9a-f]{7,40}(-dirty)?|unknown)\Z")
        self.assertRegex(facts["compiler"], r"\A\w+ \d+\.\d+")
        self.assertRegex(facts["target"], r"\ALinux \w+\Z")
        for library in ("gRPC", "protobuf", "Abseil"):
            self.assertRegex(facts["libraries"], rf"{library} \d+")
        self.assertIn(facts["executors"], ("cpu", "cpu, cuda"))


if __name__ == "__main__":
    unittest.main()

"""Feeds the checks of ascii_sources one bad line each, and lines that only look bad."""

import unittest

import ascii_sources

FORBIDDEN = [  # (rule, file, content)
    ("ascii", "docs/a.md", "an arrow \u2192\n"),
    ("tabs", "core/a.cc", "\tint x;\n"),
    ("tabs", "core/CMakeLists.txt", "add(\n\tx)\n"),
    ("trailing-blanks", "proto/a.proto", "message A {} \n"),
    ("trailing-blanks", "core/a.h", "int x;\r\n"),
    ("newline-at-end", "tests/a.py", "x = 1"),
    ("unfinished", "core/a.cc", "// TO" "DO(me): the rest\n"),
    ("unfinished", "core/a.cc", "// FIX" "ME\n"),
    ("machine-path", "tests/a.py", "open('/ho" "me/me/batch')\n"),
    ("machine-path", "docs/a.md", "see /fa" "rm\n"),
]

ALLOWED = [
    ("core/a.cc", ""),
    ("core/a.cc", "// XXH3-64 of the batch; mktemp XX" "XXXX\n"),
    ("docs/a.md", "https://example.org/home/x, net/work/x, ./root/x, $HOME/work/x\n"),
    ("docs/a.md", "a\ttab in a table\n"),
]


class AsciiSources(unittest.TestCase):
    def test_each_forbidden_line_is_found(self):
        for rule, path, content in FORBIDDEN:
            with self.subTest(rule=rule, content=content):
                found = ascii_sources.check_text(path, content.encode())
                self.assertEqual([violation.rule for violation in found], [rule])

    def test_lines_that_only_look_forbidden_pass(self):
        for path, content in ALLOWED:
            with self.subTest(content=content):
                self.assertEqual(ascii_sources.check_text(path, content.encode()), [])

    def test_the_kinds_of_files_that_are_read(self):
        read = ["dev", ".ci/run", "CMakeLists.txt", "core/CMakeLists.txt", "cmake/a.cmake", "a.md"]
        not_read = ["tests/golden/a.jsonl", "LICENSE", "tests/dev", "a.png"]
        for path in read + not_read:
            self.assertEqual(bool(ascii_sources.CHECKED.search(path)), path in read, path)


if __name__ == "__main__":
    unittest.main()

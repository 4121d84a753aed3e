"""The pages of docs/ and the README do what they say: their commands run and print what is shown,
their pictures are what the tool draws, their links lead somewhere.
"""

import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

import console

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BIN = pathlib.Path(os.environ["CPSHARD_BIN"])
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")


def environment():
    path = os.pathsep.join([str(BIN), str(pathlib.Path(sys.executable).parent),
                            os.environ["PATH"]])
    return {**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "LC_ALL": "C"}


class Commands(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="cpshard-docs-")
        cls.scratch = {}
        cls.found = {}
        for page in PAGES:  # a folder each, with what docs/tutorial holds
            scratch = pathlib.Path(cls.folder.name) / page.stem
            if (ROOT / "docs/tutorial").is_dir():
                shutil.copytree(ROOT / "docs/tutorial", scratch)
            else:
                scratch.mkdir()
            (scratch / "pictures").mkdir()
            cls.scratch[page.name] = scratch
            cls.found[page.name] = console.differences(page.read_text(), scratch, environment())

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_every_command_prints_what_its_page_shows(self):
        for page, found in self.found.items():
            with self.subTest(page):
                self.assertEqual(found, [], "\n\n".join(found))

    def test_the_pages_that_teach_have_commands(self):
        for page in ("README.md", "TUTORIAL.md", "LAYOUTS.md"):
            count = len(console.commands_of(dict((p.name, p) for p in PAGES)[page].read_text()))
            self.assertGreater(count, 2, page)

    def test_every_picture_is_what_a_command_of_a_page_draws(self):
        pictures = sorted((ROOT / "docs/pictures").glob("*.svg"))
        self.assertGreater(len(pictures), 3)
        for picture in pictures:
            drawn = [scratch / "pictures" / picture.name for scratch in self.scratch.values()
                     if (scratch / "pictures" / picture.name).exists()]
            self.assertTrue(drawn, f"no page draws {picture.name}")
            for other in drawn:
                self.assertEqual(other.read_bytes(), picture.read_bytes(), picture.name)

    def test_every_picture_is_shown_by_a_page(self):
        shown = {(page.parent / target).resolve()
                 for page in PAGES for target in PICTURE.findall(page.read_text())}
        self.assertEqual(shown, set((ROOT / "docs/pictures").resolve().iterdir()))


class Links(unittest.TestCase):
    def test_every_link_leads_to_a_file_and_a_heading(self):
        for page in PAGES:
            for target in LINK.findall(page.read_text()):
                if re.match(r"[a-z]+:", target):
                    continue
                path, _, anchor = target.partition("#")
                file = page if not path else page.parent / path
                self.assertTrue(file.exists(), f"{page.name}: {target}")
                if anchor:
                    self.assertIn(anchor, anchors_of(file.read_text()), f"{page.name}: {target}")


def anchors_of(text):
    """Of the headings, as they are made of them: lower case, words joined by -."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class PlantedFaults(unittest.TestCase):
    """The test itself: what a page shows wrongly is found."""

    def found(self, block):
        with tempfile.TemporaryDirectory() as folder:
            return console.differences(f"text\n```console\n{block}\n```\n", folder, environment())

    def test_right_output_is_accepted(self):
        self.assertEqual(self.found("$ echo a; echo b\na\nb"), [])
        self.assertEqual(self.found("$ printf '1\\n2\\n3\\n'\n1\n...\n3"), [])
        self.assertEqual(self.found("$ echo took 17 ms\ntook ... ms"), [])
        self.assertEqual(self.found("$ echo one \\\n  two\none two"), [])
        self.assertEqual(self.found("$ x=5\n$ echo $x\n5"), [])

    def test_wrong_missing_or_further_output_is_found(self):
        for block in ("$ echo a\nb", "$ echo a", "$ true\na", "$ printf '1\\n2\\n'\n1",
                      "$ printf '1\\n2\\n3\\n'\n1\n...\n4"):
            self.assertEqual(len(self.found(block)), 1, block)

    def test_a_command_that_fails_is_found(self):
        self.assertIn("ended with 3", self.found("$ (exit 3)")[0])

    def test_what_a_page_leaves_running_is_ended(self):
        found = self.found("$ sleep 1000 > /dev/null 2>&1 & echo $!\n-")
        started = re.search(r"printed\n(\d+)", found[0]).group(1)
        self.assertFalse(pathlib.Path("/proc", started).exists())

    def test_commands_that_are_not_reached_are_found(self):
        self.assertIn("was not reached", self.found("$ exit 0\n$ echo a\na")[0])


if __name__ == "__main__":
    unittest.main()

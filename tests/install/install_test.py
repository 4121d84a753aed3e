"""The installed package, as a project of somebody else's meets it.

install_test.py BUILD_DIR SOURCE_DIR CXX_FLAGS
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from live_server import LiveServer

BUILD, SOURCE, CXX_FLAGS = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
CONSUMER = pathlib.Path(__file__).resolve().parent / "consumer"
IDS = "rank 0: 0 1 6 7\nrank 1: 2 3 4 5\n"  # head and tail chunk of eight tokens for each


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          timeout=240, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def cuda_toolkit():
    """Where the build had CUDA from, for who links its runtime; nothing where there is none."""
    cache = (BUILD / "CMakeCache.txt").read_text()
    compiler = re.search(r"^CMAKE_CUDA_COMPILER:\w+=(.+/bin/nvcc)$", cache, re.MULTILINE)
    return [f"-DCUDAToolkit_ROOT={pathlib.Path(compiler[1]).parent.parent}"] if compiler else []


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="cpshard-install-")
        root = pathlib.Path(cls.folder.name)
        for component in ("runtime", "dev"):
            run("cmake", "--install", BUILD, "--prefix", root / "first", "--component", component)
        cls.prefix = root / "moved"  # nothing may depend on where it was installed first
        shutil.move(root / "first", cls.prefix)
        cls.build = root / "consumer"
        run("cmake", "-G", "Ninja", "-S", CONSUMER, "-B", cls.build,
            f"-DCMAKE_PREFIX_PATH={cls.prefix}", f"-DCMAKE_CXX_FLAGS={CXX_FLAGS}",
            "-DCMAKE_CXX_COMPILER_LAUNCHER=" + (shutil.which("ccache") or ""), *cuda_toolkit())
        run("cmake", "--build", cls.build)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_a_consumer_shards_in_process_with_core_alone(self):
        self.assertEqual(run(self.build / "shard_here"), IDS)
        linked = run("ldd", self.build / "shard_here")
        self.assertNotIn("libgrpc", linked)
        self.assertNotIn("libprotobuf", linked)

    def test_a_consumer_shards_at_the_place_that_it_asks_for(self):
        for executor in ("auto", "cpu"):
            self.assertEqual(run(self.build / "shard_at_a_place", executor), IDS)
        asked = subprocess.run([self.build / "shard_at_a_place", "cuda"], capture_output=True,
                               text=True, timeout=60)
        if asked.returncode == 0:
            self.assertEqual(asked.stdout, IDS)
            self.assertIn("cuda:0: ", asked.stderr)
        else:  # as here: the reason, and no shard from anywhere else
            self.assertEqual(asked.stdout, "")
            self.assertRegex(asked.stderr, "built without CUDA|no usable CUDA device")

    def test_a_consumer_shards_through_the_installed_server(self):
        with tempfile.TemporaryDirectory(prefix="cpshard-") as folder:
            address = f"unix:{folder}/s"
            with LiveServer(self.prefix / "bin" / "cpshardd", "--listen", address) as server:
                server.wait_until_listening()
                self.assertEqual(run(self.build / "shard_there", address), IDS)
                self.assertEqual(server.stop(), 0)

    def test_no_installed_text_names_the_build(self):
        texts = [path for path in self.prefix.rglob("*")
                 if path.suffix in (".cmake", ".h", ".proto")]
        self.assertGreater(len(texts), 40)
        for path in texts:
            text = path.read_text()
            for place in (BUILD, SOURCE, self.prefix.parent / "first"):
                self.assertNotIn(f"{place}/", text, f"in {path.name}")

    def test_no_installed_header_includes_generated_messages_or_what_is_not_there(self):
        include = self.prefix / "include" / "cpshard"
        for path in include.rglob("*.h"):
            for line in path.read_text().splitlines():
                if not line.startswith('#include "') or "absl/" in line:
                    continue
                name = line.split('"')[1]
                self.assertNotIn(".pb.h", name, f"in {path.name}")
                self.assertTrue((include / name).exists(), f"{path.name} includes {name}")

    def test_installed_programs_say_their_version(self):
        for program in ("cpshard", "cpshardd"):
            said = run(self.prefix / "bin" / program, "--version")
            self.assertIn(f"{program} 0.1.", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

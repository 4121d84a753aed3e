"""The package is typed: mypy, strictly, over all but the generated messages."""

import pathlib
import subprocess
import sys

import cpshard


def test_the_package_is_strictly_typed(tmp_path):
    folder = pathlib.Path(cpshard.__file__).parents[1]
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--cache-dir", tmp_path],
        cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr

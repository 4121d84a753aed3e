"""The programs of the package's README, run as they stand there, under torchrun."""

import itertools
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from servers import serving

README = pathlib.Path(__file__).resolve().parents[2] / "client" / "python" / "README.md"


def programs():
    """The indented blocks that begin with "# name.py", by name."""
    blocks = itertools.groupby(README.read_text().splitlines(),
                               lambda line: line.startswith("    ") or not line)
    texts = [textwrap.dedent("\n".join(lines)).strip() + "\n" for code, lines in blocks if code]
    return {text[2:text.index(":")]: text for text in texts if text.startswith("# ")}


@pytest.mark.parametrize("launch, job", [(["--standalone"], "job"), (["--master-port=0"], None)])
def test_two_ranks_under_torchrun_train_on_what_a_loader_pushes(tmp_path, launch, job):
    found = programs()
    assert set(found) == {"train.py", "load.py"}
    code = [line for line in found["train.py"].splitlines() if line and not line.startswith("#")]
    assert len(code) <= 10
    seen = ('print(rank.current().step, list(batch["labels"].shape), '
            'file=open(f"rank{layout.cp_rank}", "a")); loss =')
    train = found["train.py"].replace("loss =", seen)
    (tmp_path / "train.py").write_text(train)
    (tmp_path / "load.py").write_text(found["load.py"])
    with serving() as server:
        environment = os.environ | {"CPSHARD_ADDRESS": server.address, "OMP_NUM_THREADS": "1"}
        environment |= {"CPSHARD_JOB": job} if job else {}
        run = [sys.executable, "-B"]
        with subprocess.Popen([*run, "load.py"], cwd=tmp_path, env=environment) as loader:
            result = subprocess.run(
                [*run, "-m", "torch.distributed.run", "--nproc-per-node", "2", *launch,
                 "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True,
                timeout=120)
            assert result.returncode == 0, result.stderr
            assert loader.wait(60) == 0
    for rank in range(2):
        lines = (tmp_path / f"rank{rank}").read_text().splitlines()
        assert lines == [f"{step} [2, 16]" for step in range(15)]

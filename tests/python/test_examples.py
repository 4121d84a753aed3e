"""examples/train_cp.py: what context parallelism computes is what one process computes, and a job
that dies goes on where it was."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "train_cp.py"
LINE = re.compile(r"step +(\d+)  tokens +(\d+)  loss (\S+)  gradient (\S+)")
STEPS = 6


def train(*arguments, status=0):
    """{step: (tokens, loss, gradient norm)}, as rank 0 printed them."""
    done = subprocess.run([sys.executable, "-B", EXAMPLE, f"--steps={STEPS}", *arguments],
                          capture_output=True, text=True, timeout=300, env=os.environ)
    assert done.returncode == status, done.stdout + done.stderr
    found = [LINE.fullmatch(line) for line in done.stdout.splitlines()]
    assert all(found), done.stdout
    return {int(each[1]): (int(each[2]), float(each[3]), float(each[4])) for each in found}


def assert_alike(ours, theirs):
    assert ours.keys() == theirs.keys()
    for step, (tokens, loss, gradient) in theirs.items():
        assert ours[step][0] == tokens
        assert ours[step][1:] == pytest.approx((loss, gradient), abs=5e-4), step


@pytest.fixture(scope="module")
def alone():
    """The losses and gradients of one process."""
    found = train("--cp=1")
    assert list(found) == list(range(STEPS))
    return found


def test_losses_and_gradients_of_two_ranks_are_those_of_one(alone):
    assert_alike(train("--cp=2"), alone)


def test_a_job_of_four_that_is_killed_goes_on_with_exactly_the_next_step(tmp_path, alone):
    before = train("--cp=4", f"--checkpoint={tmp_path}", "--kill-at=3", status=6)
    assert list(before) == [0, 1, 2]
    after = train("--cp=4", f"--checkpoint={tmp_path}")
    assert list(after) == [3, 4, 5]
    assert_alike(before | after, alone)

"""Sessions of real processes: whoever is killed, every rank consumes each step once, in order, with
the bytes of a run in which nothing happens."""

import random
import time

import pytest

from session_process import (STEPS, VALIDATE_EVERY, VALIDATION_STEPS, batch_of, digest_of)
from training_run import TrainingRun

import cpshard


def order():
    """The steps of one rank."""
    steps, passes = [], 0
    for step in range(STEPS):
        steps.append(["train", 0, step])
        if (step + 1) % VALIDATE_EVERY == 0:
            steps += [["validation", passes, each] for each in range(VALIDATION_STEPS)]
            passes += 1
    return steps


def expected_of(columns):
    """What each of two ranks is to consume, of stateless calls: no session has a part in it."""
    lines = [[], []]
    with TrainingRun() as run, cpshard.connect(run.address) as client:
        for at in order():
            count = 2 if at[0] == "train" else 1
            shards = [client.shard(batch_of(*at, each, columns), "round_robin", 2)
                      for each in range(count)]
            for rank in range(2):
                lines[rank].append((at, [digest_of(each[rank]) for each in shards]))
    return lines


@pytest.fixture(scope="module")
def expected():
    return expected_of(30)


def check(run, expected):
    for rank in range(run.ranks):
        lines = [(line["at"], line["shards"]) for line in run.lines[f"rank {rank}"]]
        assert [at for at, _ in lines] == [at for at, _ in expected[rank]]
        assert lines == expected[rank]


def restart_server(run, away=0.1):
    run.check_in_the_middle(len(order()))
    run.kill_server()
    time.sleep(away)
    run.start_server()


def restart_loader(run, index):
    run.check_in_the_middle(len(order()))
    run.kill(f"loader {index}")
    run.start_loader(index)


def restart_rank(run, rank):
    run.check_in_the_middle(len(order()))
    run.kill(f"rank {rank}")
    lines = run.lines[f"rank {rank}"]
    run.start_rank(rank, position=lines[-1]["state"] if lines else None)


def test_without_faults_every_rank_gets_what_stateless_calls_give(expected):
    with TrainingRun() as run:
        run.start_all()
        run.finish()
        check(run, expected)
        assert all(line["labels"] > 0 for line in run.lines["rank 0"])


@pytest.mark.parametrize("after", [0, 3, 7, 18])
def test_a_server_that_is_killed_and_started_again_changes_nothing(expected, after):
    with TrainingRun() as run:
        run.start_all()
        run.wait_for_steps("rank 0", after)
        restart_server(run)
        run.finish()
        check(run, expected)


def test_a_server_that_drains_and_is_started_again_changes_nothing(expected):
    with TrainingRun() as run:
        run.start_all()
        run.wait_for_steps("rank 0", 5)
        run.check_in_the_middle(len(order()))
        assert run.server.stop() == 0
        run.start_server()
        run.finish()
        check(run, expected)


@pytest.mark.parametrize("after", [0, 4, 19])
def test_a_loader_that_is_killed_and_started_again_changes_nothing(expected, after):
    with TrainingRun() as run:
        run.start_all()
        run.wait_for_steps("rank 1", after)
        restart_loader(run, 1)
        run.finish()
        check(run, expected)


@pytest.mark.parametrize("after", [1, 6, 7, 20])
def test_a_rank_that_is_killed_and_goes_on_from_its_state_changes_nothing(expected, after):
    with TrainingRun() as run:
        run.start_all()
        run.wait_for_steps("rank 1", after)
        restart_rank(run, 1)
        run.finish()
        check(run, expected)


def test_blow_after_blow_changes_nothing(expected):
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with TrainingRun() as run:
        run.start_all()
        for after in sorted(chance.sample(range(1, 15), 4)):
            run.wait_for_steps("rank 0", after)
            victim = chance.choice(["server", "loader", "rank"])
            if victim == "server":
                restart_server(run, 0)
            elif victim == "loader":
                restart_loader(run, 0)
            else:
                restart_rank(run, 1)
        run.finish()
        check(run, expected)


def test_a_server_that_is_killed_in_the_middle_of_large_batches_changes_nothing():
    columns = 150_000  # some 5 MB in three frames
    with TrainingRun(columns=columns, pace=0) as run:
        run.start_all()
        for after in (2, 9):
            run.wait_for_steps("rank 0", after)
            restart_server(run, 0)
        run.finish()
        check(run, expected_of(columns))


def test_a_group_that_starts_again_from_a_checkpoint_goes_on_with_the_next_step(expected):
    with TrainingRun() as run:
        run.start_all()
        run.wait_for_steps("rank 0", 9)
        run.wait_for_steps("rank 1", 9)
        for name in ("rank 0", "rank 1", "loader 0"):
            run.kill(name)
        kept = {f"rank {rank}": run.lines[f"rank {rank}"][:9] for rank in range(2)}
        states = [lines[-1]["state"] for lines in kept.values()]
        assert states[0] == states[1]  # one checkpoint serves all ranks
        run.lines.update(kept)
        run.generation = 2
        run.start_loader(0)
        for rank in range(2):
            run.start_rank(rank, state=states[0])
        run.finish()
        check(run, expected)


def test_a_rank_that_goes_on_from_an_older_state_is_seen(expected):
    """What is checked here would tell: its last step is there twice."""
    with TrainingRun() as run:
        run.start_all()
        run.wait_for_steps("rank 1", 4)
        run.kill("rank 1")
        older = run.lines["rank 1"][-2]["state"]
        run.start_rank(1, position=older)
        run.finish()
        with pytest.raises(AssertionError):
            check(run, expected)
        again = [line["at"] for line in run.lines["rank 1"]]
        assert len(again) == len(order()) + 1

"""Processes that fork, as a DataLoader does for its workers: what connects where, and that gRPC
keeps its hands off the child."""

import multiprocessing
import os
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from servers import serving
from session_process import Numbers

import cpshard

REFUSED = 7


@pytest.fixture(scope="module")
def server():
    with serving() as server:
        yield server


def in_a_fork(act):
    """The exit status of a fork that does it; None: it hangs."""
    child = os.fork()
    if child == 0:
        try:
            act()
            os._exit(0)
        except cpshard.Error as error:
            os._exit(REFUSED if error.code == "FAILED_PRECONDITION"
                     and "spawn or forkserver" in error.message else 1)
        finally:
            os._exit(2)
    limit = time.monotonic() + 10
    while time.monotonic() < limit:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


def in_a_process_of_its_own(address, script):
    """What the script prints. GRPC_ENABLE_FORK_SUPPORT is as a trainer has it: not set."""
    environment = {name: value for name, value in os.environ.items()
                   if name != "GRPC_ENABLE_FORK_SUPPORT"}
    done = subprocess.run([sys.executable, "-B", "-c", textwrap.dedent(script), address],
                          capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def version_of(address):
    with cpshard.connect(address, deadline=10) as client:
        return client.info().version


def test_nothing_connects_or_goes_on_in_a_fork_and_the_parent_does(server):
    batch = {"input_ids": np.zeros((1, 8), int), "labels": np.zeros((1, 8), int)}
    with cpshard.connect(server.address, deadline=5) as client, \
            cpshard.loader(Numbers("train"), server.address, group="fork") as loader, \
            cpshard.rank(server.address, options="round_robin", group="fork", cp_rank=0, cp_size=1,
                         timeout=20) as rank:
        rank.next("train")
        for act in (client.info, lambda: next(client.shard_batches([batch], "identity")),
                    lambda: rank.next("train"), lambda: next(iter(rank)), rank.state,
                    loader.wait, loader.stop,
                    lambda: version_of(server.address),
                    lambda: cpshard.loader(Numbers("train"), server.address, group="other"),
                    lambda: cpshard.rank(server.address, options="round_robin", group="other",
                                         cp_rank=0, cp_size=1).next("train")):
            assert in_a_fork(act) == REFUSED
        assert in_a_fork(client.close) == 0
        assert client.info().version
        assert rank.next("train").step == 1


def test_a_fork_finds_its_parents_sockets_open_and_no_thread_beside_it(server):
    """gRPC's own handlers close the one and start the other; the threads then write to numbers that
    are somebody else's, and a worker's tensors end with "bad message length"."""
    assert in_a_process_of_its_own(server.address, """
        import os, stat, sys
        import cpshard

        def sockets():
            return [number for number in range(3, 1024) if is_socket(number)]

        def is_socket(number):
            try:
                return stat.S_ISSOCK(os.fstat(number).st_mode)
            except OSError:
                return False

        client = cpshard.connect(sys.argv[1])
        client.info()
        before = sockets()
        child = os.fork()
        if child == 0:
            threads = len(os.listdir("/proc/self/task"))
            print(len(before), sockets() == before, threads, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    """) == "1 True 1"


def test_workers_connect_that_were_forked_before_their_parent_has(server):
    assert in_a_process_of_its_own(server.address, """
        import multiprocessing, sys
        import cpshard

        def version(address):
            return cpshard.connect(address, deadline=10).info().version

        with multiprocessing.get_context("fork").Pool(2) as workers:
            theirs = workers.map(version, [sys.argv[1]] * 4, chunksize=1)
            print(set(theirs) == {version(sys.argv[1])})
    """) == "True"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_connect_that_are_no_forks_of_a_process_that_has(server, method):
    here = version_of(server.address)
    with multiprocessing.get_context(method).Pool(1) as workers:
        assert workers.map(version_of, [server.address]) == [here]


def test_the_environment_has_the_last_word_on_what_grpc_does_at_a_fork():
    done = subprocess.run([sys.executable, "-B", "-c",
                           "import cpshard, os; print(os.environ['GRPC_ENABLE_FORK_SUPPORT'])"],
                          capture_output=True, text=True, timeout=60,
                          env=os.environ | {"GRPC_ENABLE_FORK_SUPPORT": "1"})
    assert done.stdout == "1\n", done.stderr

"""The end of a process with loaders, ranks or iterators that still run: it is that of its program.
Each in a process of its own."""

import subprocess
import sys
import textwrap
import time

import pytest

from servers import serving

import cpshard
from cpshard.batch_stream import _Call

pytest.importorskip("torch")

LOOP = """
    import sys, threading, time
    import numpy as np, torch, cpshard
    ADDRESS, GROUP = sys.argv[1:]
    BATCH = {"input_ids": torch.ones(1, 32, dtype=torch.int64)}
    BATCH["labels"] = BATCH["input_ids"]

    class Slow:
        '''The fourth batch takes its time.'''
        def __iter__(self):
            for number in range(100):
                if number == 3:
                    busy.set()
                    work()
                yield {name: value.clone() for name, value in BATCH.items()}

    busy = threading.Event()

    def in_torch():
        end = time.monotonic() + 3
        while time.monotonic() < end:
            torch.ones(300, 300) @ torch.ones(300, 300)

    def rank(**settings):
        return cpshard.rank(ADDRESS, options="round_robin", cp_rank=0, cp_size=1, group=GROUP,
                            max_step_bytes=1 << 20, **settings)

    def take(loop, steps):
        for _ in zip(range(steps), loop):
            pass
"""

# The source is inside of torch when the main thread is done.
ENDED = """
    work = in_torch
    with cpshard.loader(Slow(), ADDRESS, group=GROUP), rank() as loop:
        take(loop, 2)
        busy.wait()
        loop.finish()
"""
WAITED_FOR = """
    work = in_torch
    with cpshard.loader(Slow(), ADDRESS, group=GROUP) as loader, rank() as loop:
        take(loop, 2)
        busy.wait()
        loop.finish()
        loader.wait()
        assert not [each for each in threading.enumerate() if each.name == "cpshard-source"]
"""
FORGOTTEN = """
    work = in_torch
    loader, loop = cpshard.loader(Slow(), ADDRESS, group=GROUP), rank()
    take(loop, 2)
    busy.wait()
"""


@pytest.fixture(scope="module")
def server():
    with serving() as server:
        yield server


def run(program, server, group, start=LOOP):
    text = textwrap.dedent(start) + textwrap.dedent(program) + "\nprint('done', flush=True)\n"
    result = subprocess.run([sys.executable, "-B", "-c", text, server.address, group],
                            capture_output=True, text=True, timeout=100)
    assert (result.returncode, result.stdout.splitlines()[:1]) == (0, ["done"]), result
    return result


@pytest.mark.parametrize("program", [ENDED, WAITED_FOR, FORGOTTEN],
                         ids=["ended", "waited for", "forgotten"])
def test_a_source_that_is_inside_of_torch_is_waited_for(server, request, program):
    assert run(program, server, request.node.callspec.id).stderr == ""


def test_a_source_that_never_returns_holds_it_up_for_some_seconds_only(server):
    begin = time.monotonic()
    run("""
        work = threading.Event().wait
        with cpshard.loader(Slow(), ADDRESS, group=GROUP), rank() as loop:
            take(loop, 2)
            busy.wait()
            loop.finish()
        """, server, "stuck")
    assert time.monotonic() - begin < 40


# Registered before anything of cpshard is there, and so called after all of it.
LAST = """
    import atexit, threading
    def names():
        return sorted(each.name for each in threading.enumerate() if "cpshard" in each.name)
    atexit.register(lambda: print(names()))
"""


@pytest.mark.parametrize("program", ["""
    client = cpshard.connect(ADDRESS)
    answers = client.shard_batches([BATCH] * 100, "round_robin", 2)
    next(answers)
    assert names() == ["cpshard-read"]
    """, """
    loader, loop = cpshard.loader([BATCH] * 100, ADDRESS, group=GROUP), rank()
    take(loop, 2)
    assert set(names()) == {"cpshard-keep", "cpshard-source", "cpshard-tick"}
    """], ids=["iterator", "session"])
def test_no_thread_is_left_for_the_interpreter_to_meet(server, request, program):
    result = run(program, server, request.node.callspec.id, textwrap.dedent(LAST) +
                 textwrap.dedent(LOOP))
    assert result.stdout == "done\n[]\n" and result.stderr == ""


def test_a_daemon_that_waits_for_a_step_says_nothing_of_it(server):
    result = run("""
        loop = rank()
        threading.Thread(target=take, args=(loop, 2), daemon=True).start()
        time.sleep(0.5)
        """, server, "daemon")
    assert result.stderr == ""


def test_what_uses_a_session_afterwards_hears_that_the_process_ends(server):
    result = run("""
        loop = rank()
        """, server, "afterwards", textwrap.dedent("""
        import atexit
        def afterwards():
            try:
                loop.next("train")
            except cpshard.Error as error:
                print(error.code, error)
        atexit.register(afterwards)
        """) + textwrap.dedent(LOOP))
    assert result.stdout == "done\nCANCELLED the process ends\n"


def test_a_call_is_left_alone_once_the_interpreter_is_going(monkeypatch):
    """One of gRPC's threads may have been stopped with its lock."""
    class Answers:
        cancelled = False

        def __iter__(self):
            return iter(())

        def cancel(self):
            self.cancelled = True

    answers = Answers()
    call = _Call(lambda requests, wait_for_ready: answers, wait_for_ready=False)
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    call.cancel()
    assert not answers.cancelled
    monkeypatch.undo()
    call.cancel()
    assert answers.cancelled


def test_the_threads_of_a_loader_that_was_stopped_are_gone(server):
    with cpshard.loader([{}], server.address, group="stopped") as loader:
        pass
    assert not loader._source_thread.is_alive()

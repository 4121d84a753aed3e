"""`cpshard push`, `pull` and `status` as real processes beside a real cpshardd: files in, shards out
that are those of `cpshard shard` to the byte, whatever is killed in between."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

import numpy as np

from programs import BIN, ENVIRONMENT, STATUS, ProgramTest, Run, cpshard, files_of, write_batch
from safetensors_file import read, tensor
from stubs import connect, service_pb2

OPTIONS = '{"round_robin": {}}'
CP = 2
SECONDS = 50
HAS_FAILPOINTS = b"CPSHARD_FAILPOINTS" in (BIN / "cpshard").read_bytes()


def batch_of(number):
    """Every file has another length and other values, and none divides by 2 * CP."""
    columns = 21 + 4 * (number % 3)
    tokens = np.arange(2 * columns).reshape(2, columns) + 1000 * number
    return {"input_ids": tensor("I64", tokens), "labels": tensor("I64", tokens + 1),
            "source": f"file {number}"}


class Spawned:
    """A command that runs beside the test."""

    def __init__(self, folder, name, arguments, failpoints=""):
        self.out, self.err = folder / f"{name}.out", folder / f"{name}.err"
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                [str(BIN / "cpshard"), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=out,
                stderr=err, env={**ENVIRONMENT, "CPSHARD_FAILPOINTS": failpoints})

    def result(self):
        status = self.process.wait(SECONDS)
        return Run(status, self.out.read_text(), self.err.read_text(), 0)

    def signal(self, number):
        os.kill(self.process.pid, number)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class SessionCli(ProgramTest):
    def setUp(self):
        super().setUp()
        self.server = self.start(f"--listen=unix:{self.folder / 'sock'}")
        self.address = self.server.address
        self.spawned = 0

    def spawn(self, *arguments, failpoints=""):
        self.spawned += 1
        spawned = Spawned(self.folder, f"command{self.spawned}", arguments, failpoints)
        self.addCleanup(spawned.kill)
        return spawned

    def files(self, count, first=0):
        paths = [self.folder / f"batch{number}.safetensors"
                 for number in range(first, first + count)]
        for number, path in enumerate(paths, first):
            write_batch(path, batch_of(number))
        return paths

    def push_arguments(self, files, *more, loader="0/1"):
        return ("push", "--server", self.address, "--group=job/dp0", "--loader", loader, *more,
                *files)

    def pull_arguments(self, rank, *more, options=OPTIONS, out="out", cp=CP):
        return ("pull", "--server", self.address, "--group=job/dp0", f"--cp={cp}",
                f"--rank={rank}", "--options", options, "--out", self.folder / out, *more)

    def push(self, files, *more, **fields):
        return self.spawn(*self.push_arguments(files, *more, **fields))

    def pull(self, rank, *more, failpoints="", **fields):
        return self.spawn(*self.pull_arguments(rank, *more, **fields), failpoints=failpoints)

    def status(self, *more):
        return self.succeeds(cpshard("status", "--server", self.address, *more)).out

    def groups(self):
        return json.loads(self.status("--json"))["groups"]

    def wait_until(self, condition, what):
        give_up = time.monotonic() + SECONDS
        while not (value := condition()):
            self.assertLess(time.monotonic(), give_up, what)
            time.sleep(0.02)
        return value

    def shards_of(self, path):
        """What `cpshard shard` makes of a file."""
        out = self.folder / "shard" / path.stem
        if not out.exists():
            self.succeeds(cpshard("shard", f"--cp={CP}", "--options", OPTIONS, "--in", path,
                                  "--out", out))
        return files_of(out)

    def check_out(self, names, out="out"):
        """DIR holds these folders alone, each as `cpshard shard` writes its file."""
        self.assertEqual({path.name for path in (self.folder / out).iterdir()}, set(names))
        for name, path in names.items():
            self.assertEqual(files_of(self.folder / out / name), self.shards_of(path), name)

    def counters(self):
        channel, stub = connect(self.address)
        with channel:
            return stub.GetServerInfo(service_pb2.GetServerInfoRequest(), timeout=10).counters


class Files(SessionCli):
    def test_what_two_loaders_push_two_ranks_pull_as_shard_would_write_it(self):
        files = self.files(10)
        loaders = [self.push(files, "--microbatches=2", loader=f"{i}/2") for i in range(2)]
        ranks = [self.pull(rank) for rank in range(CP)]
        for rank in ranks:
            said = self.succeeds(rank.result()).out
            self.assertRegex(said, r"\Apulled 5 steps: 10 shards, [1-9]\d* bytes in \d+\.\d\d s\n"
                                   r"waited \d+\.\d\d s: loaders .*, ranks .*, server .*, .*\n\Z")
        for loader, steps in zip(loaders, (3, 2)):
            own = [path for k, path in enumerate(files) if k // 2 % 2 == (0 if steps == 3 else 1)]
            size = sum(value.array.nbytes for path in own for value in read(path)[0].values())
            self.assertEqual(
                self.succeeds(loader.result()).out,
                f"pushed {steps} steps: {2 * steps} batches, {size} bytes; 0 pushed again, "
                "0 rewinds\n")
        self.check_out({f"step{k // 2}.mb{k % 2}": path for k, path in enumerate(files)})

    def test_what_all_ranks_have_pulled_can_be_gathered(self):
        files = self.files(1)
        processes = [self.push(files), *(self.pull(rank) for rank in range(CP))]
        for process in processes:
            self.succeeds(process.result())
        step = self.folder / "out/step0.mb0"
        self.succeeds(cpshard("gather", "--layouts", step / "layouts.json", "--in", step,
                              "--stream=labels", "--trim", "--out", self.folder / "labels"))
        self.assertTrue(read(self.folder / "labels")[0]["labels"].same(batch_of(0)["labels"]))

    def test_steps_and_streams_can_be_chosen(self):
        loader = self.push(self.files(5))
        ranks = [self.pull(rank, "--steps=2", "--keys=labels") for rank in range(CP)]
        for process in (*ranks, loader):
            self.succeeds(process.result())
        self.assertEqual({path.name for path in (self.folder / "out").iterdir()},
                         {"step0.mb0", "step1.mb0"})
        tensors, _ = read(self.folder / "out/step1.mb0/rank1.safetensors")
        self.assertEqual(set(tensors), {"labels"})

    def test_a_second_pass_is_the_same_again(self):
        files = self.files(2)
        loader = self.push(files, "--passes=2")
        ranks = [self.pull(rank, "--passes=2") for rank in range(CP)]
        for process in (*ranks, loader):
            self.succeeds(process.result())
        self.check_out({f"{of}step{k}.mb0": path for k, path in enumerate(files)
                        for of in ("", "pass1.")})


class Declared(SessionCli):
    """The server's configuration names the group."""

    def setUp(self):
        super().setUp()
        self.server.stop()
        config = {"groups": [{"group": "job/dp0", "cp_size": CP, "options": json.loads(OPTIONS),
                              "streams": [{"name": "train", "num_loaders": 2,
                                           "max_step_bytes": 64 << 20}]}]}
        path = self.folder / "cpshardd.json"
        path.write_text(json.dumps(config))
        self.server = self.start(f"--listen=unix:{self.folder / 'declared'}", f"--config={path}")
        self.address = self.server.address

    def test_what_loaders_push_is_there_before_the_first_rank(self):
        files = self.files(4)
        self.assertIn("no reader has opened it, it is declared", self.status())
        loaders = [self.push(files, loader=f"{i}/2") for i in range(2)]
        self.wait_until(lambda: self.groups()[0]["streams"][0]["complete_steps"] == "4",
                        "all steps")
        self.assertFalse(self.groups()[0]["opened"])
        ranks = [self.pull(rank) for rank in range(CP)]
        for process in (*ranks, *loaders):
            self.succeeds(process.result())
        self.check_out({f"step{k}.mb0": path for k, path in enumerate(files)})
        self.assertEqual(self.counters().seeks, 1)

    def test_who_disagrees_is_told_both_values(self):
        self.refused(self.pull(0, cp=4).result(), "FAILED_PRECONDITION",
                     "cp_size 2, not 4", "configuration")
        self.refused(self.pull(0, "--max-step-bytes=1000000").result(), "FAILED_PRECONDITION",
                     "max_step_bytes of train 67108864, not 1000000")
        self.refused(self.push(self.files(1), loader="0/3").result(), "FAILED_PRECONDITION",
                     "has 2 loaders, not 3")


class Stall(SessionCli):
    def test_status_shows_what_ranks_have_waited(self):
        files = self.files(6)
        ranks = [self.pull(rank, "--prefetch=0") for rank in range(CP)]
        self.wait_until(lambda: len(self.groups()) == 1 and len(self.groups()[0]["readers"]) == CP,
                        "the ranks")
        time.sleep(0.5)
        loader = self.push(files)
        for process in (*ranks, loader):
            self.succeeds(process.result())
        group = self.groups()[0]
        for reader in group["readers"]:
            waited = sum(int(part) for part in reader["stall"].values())
            self.assertGreater(waited, 400_000, reader)
            self.assertGreaterEqual(int(reader["elapsed_us"]), waited)
        text = self.status()
        self.assertRegex(text, r"the ranks have waited [1-9]\d*% of their time: for loaders \d+%")
        self.assertRegex(text, r"rank +lag +next +received +stall")


class Restarts(SessionCli):
    def position(self, path):
        """(pass, next step) of a --state file."""
        if not path.exists():
            return 0, 0
        train = json.loads(path.read_text())["streams"]["train"]
        return train["pass"], train["next_step"]

    def next_step(self, path):
        return self.position(path)[1]

    def opened_and_stopped(self, rank, *more):
        """It stands still behind its opening: the others come no further than the window."""
        process = self.pull(rank, *more)
        self.wait_until(lambda: any(group["opened"] for group in self.groups()), f"rank {rank}")
        process.signal(signal.SIGSTOP)
        return process

    def wait_in_close(self, rank):
        self.wait_until(lambda: any(reader["cp_rank"] == str(rank) and reader["closed"]
                                    for group in self.groups() for reader in group["readers"]),
                        f"rank {rank} to wait in Close")

    def killed_in_close(self, *more):
        """Rank 0 has pulled all that it wants, and dies while it waits for rank 1."""
        killed = self.pull(0, *more)
        self.wait_in_close(0)
        killed.signal(signal.SIGKILL)
        self.assertEqual(killed.result().status, -signal.SIGKILL)

    def test_a_rank_that_is_killed_goes_on_behind_its_last_step(self):
        files = self.files(20)
        state = self.folder / "state.json"
        loader = self.push(files)
        other = self.opened_and_stopped(1)
        killed = self.pull(0, "--state", state)
        self.wait_until(lambda: self.next_step(state) >= 5, "rank 0's state")
        killed.signal(signal.SIGKILL)
        self.assertEqual(killed.result().status, -signal.SIGKILL)
        done = self.next_step(state)
        self.assertLess(done, len(files))
        other.signal(signal.SIGCONT)
        said = self.succeeds(self.pull(0, "--state", state).result()).out
        self.assertTrue(said.startswith(f"pulled {len(files) - done} steps: "), said)
        for process in (other, loader):
            self.succeeds(process.result())
        self.assertEqual(self.position(state), (1, 0))
        self.check_out({f"step{k}.mb0": path for k, path in enumerate(files)})

    def test_steps_are_those_of_the_whole_run_whatever_is_killed(self):
        files, state = self.files(20), self.folder / "state.json"
        loader = self.push(files)
        other = self.opened_and_stopped(1, "--steps=15")
        killed = self.pull(0, "--state", state, "--steps=15")
        self.wait_until(lambda: self.next_step(state) >= 3, "rank 0's state")
        killed.signal(signal.SIGKILL)
        self.assertEqual(killed.result().status, -signal.SIGKILL)
        done = self.next_step(state)
        self.assertLess(done, 15)
        other.signal(signal.SIGCONT)
        again = self.pull(0, "--state", state, "--steps=15")
        said = self.succeeds(again.result()).out
        self.assertTrue(said.startswith(f"pulled {15 - done} steps: "), said)
        for process in (other, loader):
            self.succeeds(process.result())
        self.check_out({f"step{k}.mb0": path for k, path in enumerate(files[:15])})

    def test_a_rank_that_is_killed_when_it_has_all_only_closes_again(self):
        files, state = self.files(3), self.folder / "state.json"
        loader = self.push(files)
        other = self.opened_and_stopped(1)
        self.killed_in_close("--state", state)
        self.assertEqual(self.position(state), (1, 0))
        again = self.pull(0, "--state", state)
        self.wait_in_close(0)
        other.signal(signal.SIGCONT)
        self.assertIn("pulled 0 steps: 0 shards, 0 bytes", self.succeeds(again.result()).out)
        for process in (other, loader):
            self.succeeds(process.result())
        self.check_out({f"step{k}.mb0": path for k, path in enumerate(files)})

    def comes_back_after_the_others_have_ended(self, *more):
        files, state = self.files(3), ("--state", self.folder / "state.json")
        loader = self.push(files)
        other = self.opened_and_stopped(1, *more)
        self.killed_in_close(*state, *more)
        other.signal(signal.SIGCONT)
        for process in (other, loader):
            self.succeeds(process.result())
        again = self.pull(0, *state, *more).result()
        self.assertIn("pulled 0 steps: 0 shards, 0 bytes", self.succeeds(again).out)

    def test_a_rank_that_has_all_may_come_back_after_the_others_have_ended(self):
        self.comes_back_after_the_others_have_ended()

    def test_a_rank_that_has_steps_enough_may_come_back_after_the_others_have_ended(self):
        self.comes_back_after_the_others_have_ended("--steps=2")
        self.assertEqual({path.name for path in (self.folder / "out").iterdir()},
                         {"step0.mb0", "step1.mb0"})

    @unittest.skipUnless(HAS_FAILPOINTS, "built without failpoints")
    def test_a_rank_that_is_killed_between_two_passes_goes_on_with_the_second(self):
        files, state = self.files(3), self.folder / "state.json"
        loader, other = self.push(files, "--passes=2"), self.pull(1, "--passes=2")
        arguments = ("--state", state, "--passes=2")
        killed = self.pull(0, *arguments, failpoints="before_close_pass=kill@1")
        self.assertEqual(killed.result().status, -signal.SIGKILL)
        self.assertEqual(self.position(state), (1, 0))
        said = self.succeeds(self.pull(0, *arguments).result()).out
        self.assertTrue(said.startswith("pulled 3 steps: "), said)
        for process in (other, loader):
            self.succeeds(process.result())
        self.check_out({f"{of}step{k}.mb0": path for k, path in enumerate(files)
                        for of in ("", "pass1.")})

    def test_a_rank_that_waits_for_slow_peers_longer_than_its_deadline_has_not_failed(self):
        files = self.files(2)
        loader, other = self.push(files), self.opened_and_stopped(1)
        result = self.pull(0, "--deadline=2").result()
        self.assertIn("pulled 2 steps: ", self.succeeds(result).out)
        self.assertIn("notice: CLOSING: ", result.err)
        other.signal(signal.SIGCONT)
        for process in (other, loader):
            self.succeeds(process.result())
        self.check_out({f"step{k}.mb0": path for k, path in enumerate(files)})

    def test_the_state_of_another_data_stream_is_refused(self):
        state = self.folder / "state.json"
        loader = self.push(self.files(1), "--stream=val")
        ranks = [self.pull(0, "--stream=val", "--state", state), self.pull(1, "--stream=val")]
        for process in (*ranks, loader):
            self.succeeds(process.result())
        self.refused(self.pull(0, "--state", state).result(), "FAILED_PRECONDITION",
                     "the state of data stream 'val', not of 'train'", str(state))

    def test_a_loader_that_is_killed_is_replaced(self):
        files = self.files(20)
        ranks = [self.pull(rank) for rank in range(CP)]
        killed = self.push(files)
        self.wait_until(lambda: (self.folder / "out/step1.mb0").exists(), "the first steps")
        killed.signal(signal.SIGKILL)
        killed.result()
        if ranks[0].process.poll() is None:  # it was not too late for that
            self.push(files)
        for rank in ranks:
            self.succeeds(rank.result())
        self.check_out({f"step{k}.mb0": path for k, path in enumerate(files)})

    def test_a_whole_group_resumes_in_a_higher_generation(self):
        files = self.files(6)
        states = [("--state", self.folder / f"state{rank}.json") for rank in range(CP)]
        loader = self.push(files)
        for process in [*(self.pull(rank, *states[rank], "--steps=2") for rank in range(CP)),
                        loader]:
            self.succeeds(process.result())
        ranks = [self.pull(rank, *states[rank], "--generation=2") for rank in range(CP)]
        self.wait_until(lambda: self.groups()[0]["generation"] == "2", "generation 2")
        loader = self.push(files)
        for rank in ranks:
            self.assertIn("pulled 4 steps: 4 shards", self.succeeds(rank.result()).out)
        self.assertIn("pushed 4 steps", self.succeeds(loader.result()).out)
        self.check_out({f"step{k}.mb0": path for k, path in enumerate(files)})

    def test_ctrl_c_stops_both_at_once(self):
        loader, rank = self.push(self.files(1)), self.pull(0)
        self.wait_until(lambda: any(group["opened"] for group in self.groups()), "the rank")
        for process in (loader, rank):
            process.signal(signal.SIGINT)
            self.assertEqual(process.result().status, -signal.SIGINT)


class Status(SessionCli):
    def test_it_names_the_loader_that_is_missing(self):
        files = self.files(4)
        processes = [self.push(files, loader="0/2"), *(self.pull(rank) for rank in range(CP))]
        said = self.wait_until(lambda: (text := self.status()) and "loader" in text and "waits for "
                               "loader 1 of 2 of train" in " ".join(text.split()) and text,
                               "the word on loader 1")
        self.assertIn("group job/dp0: generation 1, 2 of 2 ranks have opened\n", said)
        self.assertRegex(said, r"(?m)^ +1 +- .*has not come$")
        (group,) = self.groups()
        self.assertEqual((group["group"], group["cp_size"], len(group["readers"])),
                         ("job/dp0", str(CP), CP))
        self.assertIn("loader 1", group["streams"][0]["waiting_for"])
        processes.append(self.push(files, loader="1/2"))
        for process in processes:
            self.succeeds(process.result())

    def test_it_names_the_rank_that_is_missing(self):
        self.push(self.files(1))
        self.pull(0)
        self.wait_until(lambda: "waits for rank 1 to open generation 1" in self.status(),
                        "the word on rank 1")
        self.assertIn("1 of 2 ranks have opened", self.status("--group=job/dp0"))

    def test_without_groups_it_says_so(self):
        self.assertEqual(self.status(), "no groups\n")
        self.assertEqual(self.groups(), [])

    def test_it_fits_a_narrow_terminal_and_is_drawn_again(self):
        self.pull(0)
        self.wait_until(lambda: any(group["opened"] for group in self.groups()), "the rank")
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 20, 0, 0))
        process = subprocess.Popen(
            [str(BIN / "cpshard"), "status", "--server", self.address, "--watch=0.1"],
            stdin=subprocess.DEVNULL, stdout=slave, env=ENVIRONMENT)
        os.close(slave)
        text, give_up = b"", time.monotonic() + SECONDS
        while text.count(b"\x1b[H\x1b[J") < 3:
            self.assertTrue(select.select([master], [], [], give_up - time.monotonic())[0], text)
            text += os.read(master, 65536)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(SECONDS), -signal.SIGINT)
        os.close(master)
        frames = [frame.replace("\r\n", "\n")
                  for frame in text.decode().split("\x1b[H\x1b[J")[1:3]]
        for frame in frames:
            self.assertTrue(frame.startswith("group job/dp0:"), frame)
            self.assertLessEqual(frame.count("\n"), 9)
            for line in frame.splitlines():
                self.assertLessEqual(len(line), 20, line)

    def test_in_a_pipe_watching_prints_one_table(self):
        self.assertEqual(self.status("--watch=0.1"), "no groups\n")


class Refusals(SessionCli):
    def test_a_group_that_is_not_there(self):
        self.refused(cpshard("status", "--server", self.address, "--group=nobody"), "NOT_FOUND",
                     "nobody")

    def test_a_server_that_is_not_there(self):
        self.server.stop()
        for arguments in (self.push_arguments(self.files(1)), self.pull_arguments(0),
                          ("status", "--server", self.address)):
            self.refused(cpshard(*arguments), "UNAVAILABLE")

    def test_a_loader_that_cannot_be(self):
        for loader in ("2/2", "-1/2", "1", "a/b", "0/0", "0/1/2", ""):
            with self.subTest(loader):
                self.usage_error(cpshard(*self.push_arguments(self.files(1), loader=loader)),
                                 "of two loaders one is 0/2")

    def test_files_that_make_no_whole_steps(self):
        self.refused(cpshard(*self.push_arguments(self.files(3), "--microbatches=2")),
                     "INVALID_ARGUMENT", "3 files are no whole steps of 2 microbatches", "1 more")

    def test_files_that_cannot_be_read_before_anything_is_pushed(self):
        good = self.files(1)
        broken = self.folder / "broken.safetensors"
        broken.write_bytes(good[0].read_bytes()[:40])
        for path, code in ((self.folder / "absent", "NOT_FOUND"), (broken, "INVALID_ARGUMENT")):
            self.refused(cpshard(*self.push_arguments([*good, path])), code, path.name)
        self.assertEqual(self.counters().pushed, 0)
        self.assertEqual(self.groups(), [])

    def test_a_batch_that_the_layout_refuses(self):
        path = self.folder / "batch.safetensors"
        write_batch(path, {"input_ids": tensor("I64", np.arange(16).reshape(1, 16))})
        ranks = [self.pull(rank, "--deadline=3") for rank in range(CP)]
        loader = self.push([path])
        self.refused(loader.result(), "INVALID_ARGUMENT", "labels")
        for rank in ranks:
            result = rank.result()
            self.assertEqual(result.status, STATUS["DEADLINE_EXCEEDED"], result)
            self.assertIn("step 0 of data stream 'train'", result.err)
        self.assertFalse((self.folder / "out").exists())

    def test_options_that_do_not_fit_together(self):
        self.pull(0)
        self.wait_until(lambda: any(group["opened"] for group in self.groups()), "rank 0")
        other = self.pull(1, options='{"contiguous": {}}').result()
        self.refused(other, "FAILED_PRECONDITION", "options")
        self.assertFalse((self.folder / "out").exists())

    def test_a_state_that_was_written_with_other_options(self):
        state = ("--state", self.folder / "state.json")
        processes = [self.push(self.files(1)), self.pull(0, *state, cp=1)]
        for process in processes:
            self.succeeds(process.result())
        again = cpshard(*self.pull_arguments(0, *state, "--generation=2", cp=1,
                                             options='{"contiguous": {}}'))
        self.refused(again, "FAILED_PRECONDITION", "options of hash")
        broken = json.loads((self.folder / "state.json").read_text())
        broken["pulled_steps"] = -1
        (self.folder / "state.json").write_text(json.dumps(broken))
        again = cpshard(*self.pull_arguments(0, *state, "--generation=2", cp=1))
        self.refused(again, "INVALID_ARGUMENT", "state.json", "pulled_steps is -1")
        (self.folder / "state.json").write_text("{")
        again = cpshard(*self.pull_arguments(0, *state, "--generation=2", cp=1))
        self.refused(again, "INVALID_ARGUMENT", "state.json")

    def test_a_folder_with_shards_of_another_batch_stays_as_it_is(self):
        files = self.files(2)
        step = self.folder / "out/step0.mb0"
        self.succeeds(cpshard("shard", f"--cp={CP}", "--options", OPTIONS, "--in", files[1],
                              "--ranks=1", "--out", step))
        before = files_of(step)
        self.push(files[:1])
        self.pull(1, out="other")
        self.refused(self.pull(0).result(), "FAILED_PRECONDITION", "step0.mb0", "another folder")
        self.assertEqual(files_of(step), before)

    def test_a_file_where_the_folder_should_be(self):
        (self.folder / "out").write_text("")
        self.refused(cpshard(*self.pull_arguments(0)), "FAILED_PRECONDITION", "is not a folder")


if __name__ == "__main__":
    unittest.main()

"""A rank's loop where something goes wrong or ends early: what a checkpoint counts, who is told."""

import logging
import os
import threading
import time

import numpy as np
import pytest

from servers import serving
from session_process import Numbers

import cpshard
from cpshard.session import waiting

torch = pytest.importorskip("torch")

NOWHERE = "unix:/nowhere/server.sock"


def batch_of(value, labels=8):
    return {"input_ids": np.full((1, 8), value), "labels": np.full((1, labels), value)}


def alone(source, **settings):
    return cpshard.rank(source=source, **{"options": "round_robin", "cp_rank": 0, "cp_size": 2,
                                          **settings})


def next_step(state, stream="train"):
    return state["streams"][stream]["next_step"]


@pytest.fixture(scope="module")
def server():
    with serving() as server:
        yield server


@pytest.fixture
def soon(monkeypatch):
    """Warnings come after a fifth of a second."""
    monkeypatch.setattr(waiting, "FIRST_WARNING", 0.2)


class TestWithoutAServer:
    def test_a_step_that_is_refused_is_not_counted_and_not_passed_over(self):
        loop = alone([batch_of(0), batch_of(1, labels=6), batch_of(2)])
        steps = loop.steps()
        assert next(steps).step == 0
        for _ in range(2):
            with pytest.raises(ValueError, match="'labels'"):
                loop.next("train")
            assert next_step(loop.state()) == 1

    def test_a_source_that_raises_once_gives_the_same_step_then(self):
        class Once(list):
            raised = False

            def __iter__(self):
                yield self[0]
                if not Once.raised:
                    Once.raised = True
                    raise OSError("the disk is away")
                yield from self[1:]

        loop = alone(Once([batch_of(0), batch_of(1)]))
        loop.next("train")
        with pytest.raises(OSError):
            loop.next("train")
        assert loop.next("train").step == 1
        assert loop.next("train") is None

    @pytest.mark.parametrize("cp_size", [1, 2])
    @pytest.mark.parametrize("library", ["numpy", "torch"])
    def test_shards_may_be_written_to_and_the_data_stays_as_it_is(self, cp_size, library):
        batch = {**batch_of(3), "pixel_values": np.ones((2, 3), np.float32)}
        if library == "torch":
            batch = {name: torch.from_numpy(value) for name, value in batch.items()}
        with alone([batch], options="round_robin", cp_size=cp_size, tensors=library) as loop:
            for shard, _ in loop:
                for tensor in shard.values():
                    tensor[:] = 9
        assert (batch["input_ids"] == 3).all() and (batch["pixel_values"] == 1).all()

    def test_a_mapped_file_that_is_read_only_becomes_a_tensor_that_may_be_written(self, tmp_path):
        np.save(tmp_path / "rows.npy", np.ones((2, 3), np.float32))
        rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
        from cpshard.tensors import converted
        converted({"x": rows}, "torch")["x"][:] = 0  # not a fault
        assert (rows == 1).all()

    def test_a_checkpoint_of_several_loaders_is_refused(self):
        with alone([batch_of(0)]) as loop:
            next(iter(loop))
            state = loop.state()
        stream = state["streams"]["train"]
        stream.update(num_loaders=2, loaders={"1": stream["loaders"]["0"]})
        with pytest.raises(RuntimeError, match="states of 2 loaders.*start 2 loaders"):
            alone([batch_of(0)], state=state)

    def test_a_pass_that_was_left_before_its_first_step_tells_of_no_loaders(self):
        loop = alone([batch_of(0)])
        loop.close_pass("train")
        assert loop.state()["streams"]["train"]["num_loaders"] == 0

    def test_seed_and_number_of_steps_are_those_of_the_source(self):
        from torch.utils.data import DataLoader
        rows = [{name: torch.from_numpy(value[0]) for name, value in batch_of(each).items()}
                for each in range(20)]

        def values(seed):
            loader = DataLoader(rows, shuffle=True, generator=torch.Generator())
            loop = alone(loader, seed=seed, steps=12)
            return [int(batch["input_ids"].ravel()[0]) for batch, _ in loop]

        assert len(values(0)) == 12 and values(0) == values(0) != values(1)


class TestStates:
    def test_a_checkpoint_after_an_error_goes_on_with_the_step_in_hand(self, server):
        for loop in (alone(Numbers("train"), cp_size=1),
                     cpshard.rank(server.address, options="round_robin", cp_rank=0, cp_size=1,
                                  group="error", timeout=20)):
            with loop, cpshard.loader(Numbers("train"), server.address, group="error"):
                for step in loop.steps():
                    if step.step == 3:
                        assert next_step(loop.state()) == 4  # and still can be taken back
                        break
                assert next_step(loop.state(in_hand=False)) == 3
                before = loop.state(in_hand=False)["streams"]["train"]["loaders"]["0"]
                assert before["step"] == 2
                assert next_step(loop.state()) == 4
                loop.next("train")
                assert next_step(loop.state(in_hand=False)) == 4

    def test_a_step_that_is_over_is_kept_without_its_shards(self):
        loop = alone([batch_of(0), batch_of(1)])
        for _ in loop:
            assert len(loop.current().microbatches) == 1
        assert loop.current().step == 1 and loop.current().microbatches == []

    @pytest.mark.parametrize("change, words", [
        ({"streams": None}, "streams are a NoneType"),
        ({"streams": []}, "streams are a list"),
        ({"streams": {"train": {"pass": 0, "next_step": 0, "num_loaders": 1, "loaders": [1]}}},
         "loaders is a list"),
        ({"streams": {"train": {"pass": 0, "next_step": 1, "num_loaders": 1,
                                "loaders": {0: {"step": 0, "state": ""}}}}}, "the key 0")])
    def test_one_that_is_none_is_refused_in_words(self, change, words):
        with pytest.raises(ValueError, match=words) as raised:
            alone([batch_of(0)], state=alone([batch_of(0)]).state() | change)
        assert isinstance(raised.value, cpshard.Error)

    def test_one_without_the_data_stream_is_told_of(self, caplog):
        state = alone([batch_of(0)]).state()
        with caplog.at_level(logging.WARNING, "cpshard"):
            alone({"other": [batch_of(0)]}, state=state)
        assert "no data stream 'other'" in caplog.text and "['train']" in caplog.text


class TestEnds:
    def test_who_leaves_early_for_good_ends_the_loader(self, server):
        loader = cpshard.loader(Numbers("train"), server.address, group="early")
        with cpshard.rank(server.address, options="round_robin", group="early", cp_rank=0,
                          cp_size=1, timeout=20) as rank:
            for step in rank.steps():
                if step.step == 2:
                    break
            rank.finish()
            with pytest.raises(RuntimeError, match="'train' is finished"):
                rank.next("train")
        loader.wait(10)

    def test_what_a_source_raises_after_the_end_is_nobodys(self, server, caplog):
        begun, over = threading.Event(), threading.Event()

        class Late:
            def __iter__(self):
                for value in range(100):
                    if value == 3:
                        begun.set()
                        over.wait(20)
                        raise ValueError("a record that nobody wants")
                    yield batch_of(value)

        with cpshard.loader(Late(), server.address, group="late/dp0") as loader:
            with cpshard.rank(server.address, options="round_robin", cp_rank=0, cp_size=1,
                              group="late/dp0", timeout=20) as rank:
                rank.next("train")
                assert begun.wait(20)
                rank.finish()
            threading.Timer(0.5, over.set).start()
            loader.wait(20)
            loader._source_thread.join(20)
            loader.wait(20)
        assert "has ended" not in caplog.text

    def test_a_peer_that_left_before_the_end_is_not_waited_for_without_end(
            self, server, monkeypatch, caplog):
        monkeypatch.setattr("cpshard.session.rank._EXIT_SECONDS", 0.5)
        settings = {"options": "round_robin", "group": "left", "cp_size": 2, "timeout": 20}
        steps = [batch_of(each) for each in range(3)]

        def leave():
            with cpshard.rank(server.address, cp_rank=1, **settings) as rank:
                for step in rank.steps():
                    if step.step == 2:
                        break

        with cpshard.loader(steps, server.address, group="left"):
            peer = threading.Thread(target=leave)
            peer.start()
            with caplog.at_level(logging.WARNING, "cpshard"):
                with cpshard.rank(server.address, cp_rank=0, **settings) as rank:
                    for _ in rank:
                        pass
            peer.join()
        assert "reader 'rank0' of group 'left' has not been closed: within 0.5 seconds" \
            in caplog.text

    def test_close_itself_says_so_in_the_log_and_then_by_an_error(self, server, soon, caplog):
        with cpshard.loader([batch_of(0)], server.address, group="close"):
            ranks = [cpshard.rank(server.address, options="round_robin", group="close", cp_size=2,
                                  cp_rank=rank, timeout=20) for rank in range(2)]
            for rank in ranks:
                next(iter(rank))
            words = "reader 'rank0' of group 'close'.*within 0.5 seconds other readers" \
                ".*cpshard status --server unix:"
            with pytest.raises(TimeoutError, match=words):
                ranks[0].close(0.5)
            ranks[1].hang_up()
        assert "reader 'rank0' of group 'close' has not been closed: within 0.2" in caplog.text


class TestWaits:
    def test_a_rank_without_a_loader_says_in_the_log_who_it_is_and_what_it_waits_for(
            self, server, monkeypatch, caplog):
        monkeypatch.setattr(waiting, "FIRST_WARNING", 0.7)  # the server has said something then
        with caplog.at_level(logging.WARNING, "cpshard"):
            with cpshard.rank(server.address, options="round_robin", job="j", cp_rank=0, cp_size=1,
                              timeout=1) as rank, pytest.raises(TimeoutError) as raised:
                rank.next("train")
        [text] = [record.getMessage() for record in caplog.records]
        for said in (text, str(raised.value)):
            assert "reader 'rank0' of group 'j/dp0': step 0" in said
            assert "waiting for any loader of train" in said

    @pytest.mark.parametrize("away", [False, True])
    def test_a_loader_without_ranks_says_so_and_names_its_group(self, server, soon, caplog, away):
        address = NOWHERE if away else server.address
        with caplog.at_level(logging.WARNING, "cpshard"), \
                cpshard.loader([batch_of(0)], address, job="nobody") as loader, \
                pytest.raises(TimeoutError, match="loader 0 of 1 of group 'nobody/dp0'"):
            loader.wait(1)
        assert "loader 0 of 1 of group 'nobody/dp0' waits: " in caplog.text
        assert ("cannot connect" if away else "no rank of the group has asked") in caplog.text

    def test_a_loader_whose_ranks_did_not_finish_says_what_they_have_to_do(
            self, server, soon, caplog):
        with caplog.at_level(logging.WARNING, "cpshard"), \
                cpshard.loader([batch_of(0)], server.address, group="plain") as loader:
            rank = cpshard.rank(server.address, options="round_robin", group="plain", cp_rank=0,
                                cp_size=1, timeout=20)
            for _ in rank:
                pass
            with pytest.raises(TimeoutError):
                loader.wait(1)
            rank.hang_up()
        assert "finish()" in caplog.text

    def test_a_source_that_writes_to_what_it_gave_ends_its_loader(self, server, caplog):
        tokens = np.zeros((1, 8), np.int64)

        class Reuses(list):
            def __iter__(self):
                for value in range(6):
                    tokens[:] = value
                    yield {"input_ids": tokens, "labels": tokens}

        with cpshard.rank(server.address, options="round_robin", group="reuse", cp_rank=0,
                          cp_size=1) as rank:
            with cpshard.loader(Reuses(), server.address, group="reuse") as loader, \
                    pytest.raises(ValueError, match="step 1 .*wrote to the tensors of step 0"):
                loader.wait(20)
            rank.hang_up()
        told = "loader 0 of 1 of group 'reuse' has ended: InvalidArgument: step 1"
        give_up = time.monotonic() + 20  # the loader's own thread writes it
        while told not in caplog.text and time.monotonic() < give_up:
            time.sleep(0.01)
        assert told in caplog.text


@pytest.mark.parametrize("arguments, words", [
    ({"where": cpshard.Topology("g"), "cp_size": 4}, "where says .*cp_size cannot be given"),
    ({"cp_rank": 0, "streams": []}, "streams is empty"),
    ({"cp_rank": 0, "prefetch": "2"}, "prefetch is '2'"),
    ({"cp_rank": 0, "prefetch": True}, "prefetch is True"),
    ({"cp_rank": 0, "group": "\ud800"}, "group is named"),
    ({"cp_rank": 0, "keys": [3]}, r"keys are \[3\]"),
    ({"cp_rank": 0, "keys": 3}, "keys are 3"),
    ({"cp_rank": 0, "fingerprint": 5}, "fingerprint is 5"),
    ({"cp_rank": 0, "job": 5}, "job is 5"),
    ({"cp_rank": 0, "attempt": 5}, "attempt is 5"),
    ({"cp_rank": 0, "steps": 3, "microbatches": 2}, "microbatches, steps can be given for a data "
     "loader that this process iterates; .*cpshard.loader"),
    ({"cp_rank": 0, "seed": 1}, "seed can be given"),
])
def test_arguments_that_contradict_or_are_of_another_kind_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words) as raised:
        cpshard.rank(NOWHERE, options="identity", **arguments)
    assert isinstance(raised.value, cpshard.Error)


@pytest.mark.parametrize("arguments, words", [
    ({"keys": "labels"}, "keys are asked of a server"),
    ({"source": Numbers("train"), "microbatches": 2}, "microbatches .*a StepSource makes"),
    ({"microbatches": "2"}, "microbatches is '2'"), ({"steps": 2.5}, "steps 2.5"),
])
def test_those_of_a_source_are_refused_where_they_have_no_effect(arguments, words):
    with pytest.raises(ValueError, match=words):
        alone(**{"source": [batch_of(0)], **arguments})


@pytest.mark.parametrize("arguments, words", [
    ({"job": 5}, "job is 5"), ({"steps": "3"}, "steps '3'"), ({"address": 5}, "address '5': a int"),
    ({"source": Numbers("train"), "seed": 3}, "seed .*a StepSource makes its steps"),
])
def test_a_loader_refuses_the_same(arguments, words):
    with pytest.raises(ValueError, match=words) as raised:
        cpshard.loader(**{"source": [batch_of(0)], "address": NOWHERE, **arguments})
    assert isinstance(raised.value, cpshard.Error)


def test_one_name_is_one_data_stream_or_key():
    with alone([batch_of(0)], streams="validation") as loop:
        assert list(loop.state()["streams"]) == ["validation"]
    with cpshard.rank(NOWHERE, options="identity", cp_rank=0, streams="validation",
                      keys="labels") as rank:
        assert list(rank.state()["streams"]) == ["validation"]
        assert rank._keys == ["labels"]
        rank.hang_up()

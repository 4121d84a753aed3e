"""Data loaders as sources of steps; ranks with and without a server get the same."""

import pathlib
import subprocess
import threading
import time

import numpy as np
import pytest

from servers import CPSHARDD, serving
from session_process import Numbers, batch_of, digest_of

from safetensors_file import read

import cpshard
from cpshard.data import DataLoaderSource, as_source

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, Dataset, DistributedSampler  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402


class Rows(Dataset):
    """Row i has the tokens 100 * i, 100 * i + 1, ..."""

    def __init__(self, count=24, columns=10):
        self.count, self.columns = count, columns

    def __len__(self):
        return self.count

    def __getitem__(self, row):
        tokens = torch.arange(self.columns) + 100 * row
        return {"input_ids": tokens, "labels": tokens * 3}


def rows_of(step):
    return [batch["input_ids"][:, 0].div(100, rounding_mode="floor").tolist()
            for batch in step.microbatches]


def made(source, pass_, steps):
    return [rows_of(source.make(pass_, step)) for step in steps]


def plain(**settings):
    return DataLoader(Rows(), batch_size=2, **settings)


def stateful(**settings):
    return StatefulDataLoader(Rows(), batch_size=2, **settings)


class TestDataLoaders:
    @pytest.mark.parametrize("make", [plain, stateful])
    def test_a_step_is_a_batch_and_the_end_is_the_number_of_batches(self, make):
        source = DataLoaderSource(make())
        assert made(source, 0, range(12)) == [[[2 * i, 2 * i + 1]] for i in range(12)]
        assert source.make(0, 12) is None and source.end_step(0) == 12

    @pytest.mark.parametrize("make", [plain, stateful])
    def test_a_step_may_be_several_batches(self, make):
        source = DataLoaderSource(make(), microbatches=3)
        assert made(source, 0, range(2)) == [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]

    def test_a_rest_that_is_no_step_is_left_out_and_said(self):
        source = DataLoaderSource(plain(), microbatches=5)
        made(source, 0, range(2))
        with pytest.warns(UserWarning, match="2 of 5 microbatches"):
            assert source.make(0, 2) is None
        assert source.end_step(0) == 2

    def test_loaders_take_turns(self):
        sources = [DataLoaderSource(plain(sampler=DistributedSampler(Rows(), 2, index,
                                                                     shuffle=False)),
                                    loader=index, num_loaders=2) for index in range(2)]
        for step in range(12):
            assert rows_of(sources[step % 2].make(0, step))[0][0] % 2 == step % 2
        assert [source.make(0, 12 + index) for index, source in enumerate(sources)] == [None] * 2
        assert [source.end_step(0) for source in sources] == [12, 12]

    @pytest.mark.parametrize("make", [plain, stateful])
    @pytest.mark.parametrize("workers", [0, 2])
    def test_it_goes_on_behind_a_state_in_another_process(self, make, workers):
        def new():
            generator = torch.Generator()
            return DataLoaderSource(make(shuffle=True, generator=generator, num_workers=workers),
                                    seed=5)

        first = new()
        whole, states = [], []
        while (step := first.make(0, len(states))) is not None:
            states.append(step.state)
            whole.append(rows_of(step))
        assert len(whole) == 12 and sorted(sum((rows for [rows] in whole), [])) == list(range(24))
        for behind in (0, 4, 10):
            source = new()
            source.rewind(0, behind + 1, cpshard.session.messages.LoaderState(behind,
                                                                              states[behind]))
            assert made(source, 0, range(behind + 1, 12)) == whole[behind + 1:]
            assert source.make(0, 12) is None and source.end_step(0) == 12

    def test_every_pass_is_shuffled_in_its_own_way_and_alike_again(self):
        source = DataLoaderSource(plain(shuffle=True, generator=torch.Generator()))
        passes = [made(source, pass_, range(12)) for pass_ in (0, 1)]
        assert passes[0] != passes[1]
        source.rewind(0, 3, None)
        assert made(source, 0, range(3, 12)) == passes[0][3:]

    def test_a_sampler_learns_the_number_of_the_pass(self):
        sampler = DistributedSampler(Rows(), 2, 0)
        source = DataLoaderSource(plain(sampler=sampler))
        source.make(3, 0)
        assert sampler.epoch == 3

    def test_a_list_is_a_data_loader_too_and_a_source_is_left_alone(self):
        batches = [{"x": np.ones(i)} for i in range(3)]
        assert as_source(batches).make(0, 0).microbatches == [batches[0]]
        source = Numbers("train")
        assert as_source(source) is source

    @pytest.mark.parametrize("make, words", [
        (lambda: DataLoaderSource(iter([])), "once only"),
        (lambda: DataLoaderSource(7), "no data loader"),
        (lambda: DataLoaderSource([], microbatches=0), "microbatches is 0"),
        (lambda: DataLoaderSource(plain(shuffle=True)), "without a generator"),
        (lambda: DataLoaderSource([torch.ones(2)]).make(0, 0), "made a Tensor"),
        (lambda: DataLoaderSource([[{"x": 1}, {"x": 2}]], microbatches=2).make(0, 0),
         "2 batches at a time"),
    ])
    def test_what_cannot_be_made_again_is_refused(self, make, words):
        with pytest.raises(ValueError, match=words):
            make()

    def test_a_state_over_64_kib_is_refused_with_its_size(self):
        class Large(list):
            def state_dict(self):
                return {"much": "x" * 70_000}

            def load_state_dict(self, state):
                pass

        with pytest.raises(ValueError, match="7.... bytes; at most 65536"):
            DataLoaderSource(Large([{"x": np.ones(2)}])).make(0, 0)

    def test_a_data_loader_that_is_another_one_now_is_seen(self):
        source = DataLoaderSource(plain())
        with pytest.raises(cpshard.Error, match="ends after 12 steps.*behind 40"):
            source.rewind(0, 40, None)

    def test_a_state_that_would_run_code_is_not_read(self):
        import io
        import pickle

        class Evil:
            def __reduce__(self):
                return print, ("run",)

        memory = io.BytesIO()
        torch.save(Evil(), memory)
        source = DataLoaderSource(stateful())
        with pytest.raises(pickle.UnpicklingError):
            source.rewind(0, 1, cpshard.session.messages.LoaderState(0, b"T" + memory.getvalue()))


# --- through a server, and without one ------------------------------------------------------------


def consume(rank, lines, until=None):
    for step in rank.steps():
        lines.append(((step.stream, step.pass_, step.step), step.totals,
                      [digest_of(shard) for shard in step.microbatches]))
        if until is not None and len(lines) == until:
            return


def served(address, source, group, passes=1, **settings):
    """What two ranks get of a source that a loader pushes."""
    lines = [[], []]

    def read(rank):
        with cpshard.rank(address, options="round_robin", group=group, cp_rank=rank, cp_size=2,
                          timeout=30, **settings) as loop:
            for _ in range(passes):
                consume(loop, lines[rank])

    threads = [threading.Thread(target=read, args=(rank,)) for rank in range(2)]
    with cpshard.loader(source, address, group=group) as loader:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        loader.wait(20)
    return lines


class TestLoops:
    def test_a_stateful_data_loader_feeds_two_ranks_for_two_passes(self):
        with serving() as server:
            lines = served(server.address, stateful(), "g", passes=2)
        assert [at for at, *_ in lines[0]] == [("train", pass_, step) for pass_ in (0, 1)
                                               for step in range(12)]
        assert lines[0] != lines[1] and [line[:2] for line in lines[0]] == \
            [line[:2] for line in lines[1]]

    def test_microbatches_come_one_by_one_and_a_state_counts_whole_steps(self):
        with serving() as server:
            ones = np.ones((1, 8), int)
            steps = [[{"input_ids": ones * i, "labels": ones} for i in (2 * step, 2 * step + 1)]
                     for step in range(3)]
            with cpshard.loader(steps, server.address, group="g"):
                with cpshard.rank(server.address, options="identity", group="g", cp_rank=0,
                                  timeout=20, tensors="torch") as rank:
                    seen = []
                    for batch, layout in rank:
                        assert layout.cp_size == 1 and isinstance(batch["labels"], torch.Tensor)
                        seen.append((int(batch["input_ids"][0, 0]), rank.current().step,
                                     rank.state()["streams"]["train"]["next_step"]))
                        if len(seen) == 3:
                            break
                    for batch, layout in rank:  # goes on in the middle of step 1
                        seen.append((int(batch["input_ids"][0, 0]), rank.current().step,
                                     rank.state()["streams"]["train"]["next_step"]))
        assert seen == [(0, 0, 0), (1, 0, 1), (2, 1, 1), (3, 1, 2), (4, 2, 2), (5, 2, 3)]

    @pytest.mark.parametrize("tensors", ["numpy", "torch"])
    def test_without_a_server_every_rank_gets_the_same(self, tensors):
        make = [lambda: Numbers("train"), stateful, lambda: plain(num_workers=1)]
        with serving() as server:
            for number, source in enumerate(make):
                lines = served(server.address, source(), f"g{number}", tensors=tensors)
                for rank in range(2):
                    alone = []
                    with cpshard.rank(source=source(), options="round_robin", cp_rank=rank,
                                      cp_size=2, tensors=tensors) as loop:
                        consume(loop, alone)
                    assert alone == lines[rank]

    def test_peers_of_a_rank_get_the_same_shards_each_for_itself(self):
        lines = {}

        def read(cp_rank, peer):
            with cpshard.rank(server.address, options="round_robin", group="g", cp_rank=cp_rank,
                              cp_size=2, readers_per_rank=2, reader=f"rank{cp_rank}.{peer}",
                              timeout=30) as loop:
                consume(loop, lines.setdefault((cp_rank, peer), []))

        with serving() as server, cpshard.loader(plain(), server.address, group="g"):
            threads = [threading.Thread(target=read, args=(rank, peer))
                       for rank in range(2) for peer in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(lines[0, 0]) == 12
        assert lines[0, 0] == lines[0, 1] != lines[1, 0] == lines[1, 1]

    def test_a_rank_in_cpp_and_one_in_python_share_a_group(self, tmp_path):
        lines = []
        with serving() as server, cpshard.loader(Numbers("train"), server.address, group="g"):
            program = pathlib.Path(CPSHARDD).resolve().with_name("cpshard")
            pull = subprocess.Popen(
                [program, "pull", "--server", server.address, "--group", "g", "--cp", "2", "--rank",
                 "1", "--options", '{"round_robin": {}}', "--out", tmp_path])
            with cpshard.rank(server.address, options="round_robin", group="g", cp_rank=0,
                              cp_size=2, timeout=30) as loop:
                consume(loop, lines)
            assert pull.wait(30) == 0
            with cpshard.connect(server.address) as client:
                for step in range(len(lines)):
                    for microbatch in range(2):
                        batch = batch_of("train", 0, step, microbatch)
                        shards = client.shard(batch, "round_robin", 2)
                        assert lines[step][2][microbatch] == digest_of(shards[0])
                        file = tmp_path / f"step{step}.mb{microbatch}" / "rank1.safetensors"
                        tensors, _ = read(file)
                        for name, value in shards[1].batch.items():
                            assert np.array_equal(tensors[name].array, value), (step, name)
        assert len(lines) == 20

    def test_a_checkpoint_of_one_way_is_gone_on_with_in_the_other(self):
        whole, first, rest = [], [], []
        with cpshard.rank(source=stateful(), options="identity", cp_rank=0) as loop:
            consume(loop, whole)
        with serving() as server:
            with cpshard.loader(stateful(), server.address, group="g"):
                with cpshard.rank(server.address, options="identity", group="g", cp_rank=0,
                                  timeout=20) as rank:
                    consume(rank, first, until=5)
                    state = rank.state()
            with cpshard.rank(source=stateful(), options="identity", cp_rank=0,
                              state=state) as loop:
                consume(loop, rest)
            assert first + rest == whole
            kept = []
            with cpshard.rank(source=stateful(), options="identity", cp_rank=0,
                              state=state) as loop:
                consume(loop, kept, until=3)
                state = loop.state()
            rest = []
            with cpshard.loader(stateful(), server.address, group="g", generation=2):
                with cpshard.rank(server.address, options="identity", group="g", cp_rank=0,
                                  generation=2, state=state, timeout=20) as rank:
                    consume(rank, rest)
            assert first + kept + rest == whole

    def test_a_source_that_raises_ends_its_loader_and_says_where(self):
        received = threading.Event()

        class Broken(Numbers):
            def make(self, pass_, step):
                if step == 2 and received.wait(10):
                    raise LookupError("the disk is gone")
                return super().make(pass_, step)

        with serving() as server:
            loader = cpshard.loader(Broken("train"), server.address, group="g")
            with cpshard.rank(server.address, options="identity", group="g", cp_rank=0,
                              timeout=1.0) as rank:
                words = "step 2 .*waiting for train/2 from loader 0"
                with pytest.raises(TimeoutError, match=words):
                    for step in rank.steps():
                        if step.step == 1:
                            received.set()
                with pytest.raises(LookupError, match="the disk is gone"):
                    loader.wait(10)

    def test_a_step_that_is_larger_than_the_readers_said_ends_the_loader_and_its_threads(self):
        with serving() as server:
            loader = cpshard.loader([{"input_ids": np.ones((1, 800), int)}], server.address,
                                    group="g")
            with cpshard.rank(server.address, options="identity", group="g", cp_rank=0,
                              max_step_bytes=1000) as rank:
                with pytest.raises(ValueError, match="6400 bytes .* 1000 that the readers"):
                    loader.wait(20)
                rank.hang_up()
            limit = time.monotonic() + 5
            while any(thread.name.startswith("cpshard-") for thread in threading.enumerate()):
                assert time.monotonic() < limit
                time.sleep(0.02)

    def test_a_batch_that_the_layout_refuses_ends_the_loader(self):
        with serving() as server:
            batches = [{"input_ids": np.ones((1, 8), int)}]
            loader = cpshard.loader(batches, server.address, group="g")
            rank = cpshard.rank(server.address, options="round_robin", group="g", cp_rank=0)
            with pytest.raises(ValueError, match="step 0 of data stream 'train' .*labels"):
                loader.wait(20)
            rank.hang_up()


class TestRefusals:
    def test_what_cannot_be_is_refused_before_anything_is_sent(self):
        nowhere = "unix:/nowhere/server.sock"
        state = {"streams": {}, "fingerprint": "a", "data_epoch": 0, "cp_size": 2,
                 "options_hash": "x"}
        for arguments, kind, words in (
                ({"options": "rr"}, ValueError, "rr"),
                ({"options": "identity", "tensors": "jax"}, ValueError, "jax"),
                ({"options": "identity", "cp_rank": 2, "cp_size": 2}, ValueError, "cp_rank is 2"),
                ({"options": "identity", "prefetch": -1}, ValueError, "prefetch is -1"),
                ({"options": "identity", "timeout": 0}, ValueError, "timeout 0"),
                ({"options": "identity", "streams": ["a", "a"]}, ValueError, "not all different"),
                ({"options": "identity", "group": "x" * 129}, ValueError, "129 bytes"),
                ({"options": "identity", "state": state}, RuntimeError, "'a' and is to be"),
                ({"options": "identity", "state": "{"}, ValueError, "no JSON"),
                ({"options": "identity", "state": {}}, ValueError, "the fields"),
                ({"options": "identity", "source": []}, ValueError, "not both")):
            with pytest.raises(kind, match=words) as raised:
                cpshard.rank(nowhere, **{"cp_rank": 0, **arguments})
            assert isinstance(raised.value, cpshard.Error)
        for arguments, words in (({"loader": 2, "num_loaders": 2}, "loader is 2"),
                                 ({"group": ""}, "0 bytes")):
            with pytest.raises(ValueError, match=words):
                cpshard.loader([{}], nowhere, **arguments)
        with pytest.raises(ValueError, match="CPSHARD_ADDRESS"):
            cpshard.rank(options="identity", cp_rank=0)

    def test_a_server_that_is_away_is_said_when_the_time_is_over(self):
        with cpshard.rank("unix:/nowhere/server.sock", options="identity", cp_rank=0,
                          timeout=0.3) as rank:
            with pytest.raises(TimeoutError, match="step 0 .*within 0.3 seconds: .*cannot connect"):
                next(iter(rank))
            with pytest.raises(KeyError, match="without a data stream 'x'"):
                rank.next("x")

    def test_ranks_that_do_not_agree_are_told_both_values(self):
        with serving() as server:
            def rank(cp_rank, options):
                return cpshard.rank(server.address, options=options, group="g", cp_rank=cp_rank,
                                    cp_size=2, timeout=10)

            with rank(0, "identity") as first:
                limit = time.monotonic() + 10
                while first.stats.opens == 0 and time.monotonic() < limit:
                    time.sleep(0.01)
                with rank(1, "round_robin") as second, \
                        pytest.raises(RuntimeError, match="options") as raised:
                    second.next("train")
                assert raised.value.reason == "TERMS_DIFFER"
                assert raised.value.values["field"] == "options"

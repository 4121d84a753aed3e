"""Data loaders that could not give the same again, or whose state could not be read back, are seen
before anything is trained on."""

import random

import numpy as np
import pytest

import cpshard
from cpshard.data import DataLoaderSource
from cpshard.session.messages import LoaderState

torch = pytest.importorskip("torch")
from torch.utils.data import (BatchSampler, DataLoader, DistributedSampler,  # noqa: E402
                              RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

ROWS = [{"input_ids": torch.full((4,), row), "labels": torch.full((4,), row)} for row in range(12)]


class Shuffle(RandomSampler):
    pass


def order(loader, pass_=0, **settings):
    source = DataLoaderSource(loader, **settings)
    rows = []
    source.rewind(pass_, 0, None)
    while (made := source.make(pass_, len(rows))) is not None:
        rows.append(made.microbatches[0]["input_ids"][:, 0].tolist())
    return rows


def seeded(seed):
    return torch.Generator().manual_seed(seed)


SHUFFLED = [lambda generator: {"sampler": RandomSampler(ROWS, generator=generator)},
            lambda generator: {"sampler": Shuffle(ROWS, generator=generator)},
            lambda generator: {"sampler": SubsetRandomSampler(range(12), generator=generator)},
            lambda generator: {"sampler": WeightedRandomSampler([1.0] * 12, 12,
                                                                generator=generator)},
            lambda generator: {"batch_size": 1, "batch_sampler": BatchSampler(
                RandomSampler(ROWS, generator=generator), 2, False)}]


class TestShuffling:
    @pytest.mark.parametrize("arguments", SHUFFLED)
    def test_without_a_generator_it_is_refused_wherever_it_is_done(self, arguments):
        with pytest.raises(ValueError, match="without a generator"):
            DataLoaderSource(DataLoader(ROWS, **arguments(None)))

    @pytest.mark.parametrize("arguments", SHUFFLED)
    def test_with_a_generator_a_pass_is_the_same_in_another_process(self, arguments):
        first, second = (DataLoader(ROWS, **arguments(torch.Generator())) for _ in range(2))
        torch.manual_seed(random.randrange(1 << 30))
        passes = [order(first, pass_) for pass_ in (0, 1)]
        torch.manual_seed(random.randrange(1 << 30))
        assert [order(second, pass_) for pass_ in (0, 1)] == passes
        assert passes[0] != passes[1]

    def test_the_seed_of_a_generator_and_that_of_the_source_both_count(self):
        def loader(seed):
            return DataLoader(ROWS, batch_size=2, shuffle=True, generator=seeded(seed))

        assert order(loader(1)) != order(loader(2))
        assert order(loader(1)) != order(loader(1), seed=1)

    def test_a_loader_that_is_wrapped_a_second_time_gives_the_same_again(self):
        loader = DataLoader(ROWS, batch_size=2, shuffle=True, generator=seeded(3))
        first = order(loader)
        order(loader, pass_=4)
        assert order(loader) == first

    @pytest.mark.parametrize("make", [
        lambda **workers: DataLoader(ROWS, 2, shuffle=True, generator=seeded(3), **workers),
        lambda **workers: DataLoader(ROWS, 2, sampler=RandomSampler(ROWS, generator=seeded(3)),
                                     generator=seeded(4), **workers),
        lambda **workers: StatefulDataLoader(ROWS, 2, shuffle=True, generator=seeded(3), **workers),
        lambda **workers: StatefulDataLoader(ROWS, 2, shuffle=True, **workers),
        lambda **workers: StatefulDataLoader(ROWS, 2, sampler=RandomSampler(
            ROWS, generator=seeded(3)), **workers)],
        ids=["plain", "plain two", "stateful", "stateful none", "stateful plain sampler"])
    def test_workers_that_stay_give_the_same_passes_as_new_ones(self, make):
        new = [order(make(num_workers=2), pass_) for pass_ in (0, 1)]
        source = DataLoaderSource(make(num_workers=2, persistent_workers=True))
        for pass_, stop in ((0, 6), (1, 6), (0, 2), (0, 6), (1, 3), (1, 6)):
            source.rewind(pass_, 0, None)
            rows = [source.make(pass_, step).microbatches[0]["input_ids"][:, 0].tolist()
                    for step in range(stop)]
            assert rows == new[pass_][:stop], (pass_, stop)

    def test_torchdata_needs_no_generator_for_its_sampler_has_one(self):
        loaders = [StatefulDataLoader(ROWS, batch_size=2, shuffle=True) for _ in range(2)]
        assert order(loaders[0]) == order(loaders[1])

    def test_a_batch_sampler_learns_the_number_of_the_pass(self):
        class Epochs(BatchSampler):
            def set_epoch(self, epoch):
                self.epoch = epoch

        sampler = Epochs(range(12), 2, False)
        DataLoaderSource(DataLoader(ROWS, batch_sampler=sampler)).make(5, 0)
        assert sampler.epoch == 5

    def test_a_generator_of_numpy_is_refused_by_name(self):
        sampler = RandomSampler(ROWS)
        sampler.generator = np.random.default_rng(0)
        with pytest.raises(ValueError, match="numpy.random.*give it a torch.Generator") as raised:
            DataLoaderSource(DataLoader(ROWS, sampler=sampler))
        assert isinstance(raised.value, cpshard.Error)


class Stateful:
    """A data loader whose state is what it is told."""

    def __init__(self, state):
        self.state = state

    def __iter__(self):
        return iter([{"x": np.ones(2)}] * 3)

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        assert state == self.state


class TestStates:
    @pytest.mark.parametrize("state", [np.random.RandomState(0).get_state(), np.arange(3),
                                       np.int64(3)])
    def test_one_that_could_not_be_loaded_is_refused_with_the_first_step(self, state):
        source = DataLoaderSource(Stateful({"rng": state}))
        with pytest.raises(ValueError, match="can be saved, but not be loaded.*from_numpy"):
            source.make(0, 0)

    def test_one_of_numbers_and_tensors_goes_and_comes_back(self):
        state = {"seen": 3, "order": [1, 2], "name": "a", "rng": random.getstate()}
        made = DataLoaderSource(Stateful(state)).make(0, 0)
        DataLoaderSource(Stateful(state)).rewind(0, 1, LoaderState(0, made.state))

    def test_that_of_a_loader_without_one_is_refused_in_words(self):
        made = DataLoaderSource(DataLoader(ROWS)).make(0, 0)
        with pytest.raises(RuntimeError, match="data loader that has no state_dict, and is to be "
                                               "resumed with a StatefulDataLoader"):
            DataLoaderSource(StatefulDataLoader(ROWS)).rewind(0, 1, LoaderState(0, made.state))


class Reuses:
    """Writes every batch into the tensors of the one before."""

    def __init__(self, library):
        self.tokens = np.zeros((1, 8), np.int64)
        self.given = torch.from_numpy(self.tokens) if library == "torch" else self.tokens

    def __iter__(self):
        for value in range(6):
            self.tokens[:] = value
            yield {"input_ids": self.given, "labels": self.given}


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_loader_that_reuses_the_tensors_of_a_step_is_refused(library):
    source = DataLoaderSource(Reuses(library), microbatches=2)
    with pytest.raises(ValueError, match="batch 1 of 2 .*tensors of its own"):
        source.make(0, 0)


def test_a_tensor_that_all_batches_share_is_no_reuse():
    batch = {"input_ids": np.ones((1, 8), np.int64)}
    assert len(DataLoaderSource([batch] * 4, microbatches=2).make(0, 1).microbatches) == 2


class TestReplicas:
    """A sampler that divides the data, of ranks that all read the source."""

    @staticmethod
    def rank(replicas, index, **place):
        sampler = DistributedSampler(ROWS, replicas, index, shuffle=False)
        return cpshard.rank(source=DataLoader(ROWS, sampler=sampler), options="round_robin",
                            **place)

    def test_among_ranks_of_a_group_is_refused(self):
        with pytest.raises(ValueError, match="among 2 replicas, .*all 2 ranks of a group read"):
            self.rank(2, 1, cp_rank=1, cp_size=2)

    def test_among_the_groups_of_a_job_is_what_it_is_for(self):
        place = cpshard.Topology("job/dp1", 0, 2, "rank0", dp_rank=1, dp_size=3)
        with self.rank(3, 1, where=place) as loop:
            assert [int(batch["input_ids"][0, 0]) for batch, _ in loop] == [1, 4, 7, 10]
        with pytest.raises(ValueError, match="among 3 replicas, for which this is 0"):
            self.rank(3, 0, where=place)

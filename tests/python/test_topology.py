"""Which process of a job this one is."""

import pytest

import cpshard


def under_torchrun(rank, world, **environment):
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "TORCHELASTIC_RUN_ID": "run7",
            "TORCHELASTIC_RESTART_COUNT": "0", **environment}


class Mesh:
    """What a DeviceMesh looks like: axes by name, each of which knows this process' place."""

    def __init__(self, **axes):
        self.mesh_dim_names = tuple(axes)
        self._axes = axes

    def __getitem__(self, name):
        return Axis(*self._axes[name])


class Axis:
    def __init__(self, rank, size):
        self._rank, self._size = rank, size

    def get_local_rank(self):
        return self._rank

    def size(self):
        return self._size


def test_every_seat_of_every_group_is_taken_once():
    seats = {}
    for rank in range(48):
        at = cpshard.topology(cp_size=4, tp_size=2, pp_size=3, environment=under_torchrun(rank, 48))
        seats.setdefault(at.group, []).append((at.cp_rank, at.reader))
        assert (at.cp_size, at.readers_per_rank, at.dp_size) == (4, 6, 2)
    assert set(seats) == {"run7/dp0", "run7/dp1"}
    for group in seats.values():
        assert len(set(group)) == 24
        assert all(sum(cp == rank for cp, _ in group) == 6 for rank in range(4))
        assert all(reader.startswith(f"rank{cp}.") for cp, reader in group)


def test_neighbours_are_tensor_parallel_peers_and_then_ranks_of_one_group():
    places = [cpshard.topology(cp_size=2, tp_size=2, environment=under_torchrun(rank, 8))
              for rank in range(8)]
    assert [(at.dp_rank, at.cp_rank) for at in places] == [
        (0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0), (1, 1), (1, 1)]


def test_a_rank_without_peers_is_named_after_its_rank_alone():
    at = cpshard.topology(cp_size=2, environment=under_torchrun(3, 4))
    assert (at.reader, at.readers_per_rank, at.group) == ("rank1", 1, "run7/dp1")


def test_a_mesh_tells_all_of_it():
    mesh = Mesh(pp=(1, 2), dp_replicate=(1, 2), dp_shard=(2, 3), cp=(3, 4), tp=(0, 2))
    at = cpshard.topology(mesh=mesh, job="j", environment={})
    assert (at.cp_rank, at.cp_size, at.readers_per_rank) == (3, 4, 4)
    assert (at.group, at.dp_size, at.reader) == ("j/dp5", 6, "rank3.2")


def test_a_mesh_of_torch_is_one():
    torch = pytest.importorskip("torch")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=5, world_size=8)
    try:
        mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
        at = cpshard.topology(mesh=mesh, environment={})
        assert (at.group, at.cp_rank, at.cp_size, at.reader) == ("job/dp1", 0, 2, "rank0.1")
    finally:
        torch.distributed.destroy_process_group()


def test_what_is_given_wins():
    at = cpshard.topology(cp_rank=1, cp_size=2, group="g", reader="r", readers_per_rank=3,
                          generation=9, attempt="a", environment=under_torchrun(0, 7))
    assert at == cpshard.Topology("g", 1, 2, "r", 3, 9, "a")


def test_a_restart_of_the_launcher_is_a_new_generation():
    environment = under_torchrun(0, 1, TORCHELASTIC_RESTART_COUNT="2")
    assert cpshard.topology(environment=environment).generation == 3
    environment["CPSHARD_GENERATION"] = "12"
    assert cpshard.topology(environment=environment).generation == 12


@pytest.mark.parametrize("arguments, environment, words", [
    ({"cp_size": 3}, under_torchrun(0, 8), "WORLD_SIZE is 8.*cp_size 3 .*= 3"),
    ({"cp_size": 2, "tp_size": 3}, under_torchrun(0, 8), "tp_size 3 .*= 6"),
    ({"cp_size": 0}, under_torchrun(0, 8), "cp_size is 0"),
    ({"cp_size": 2}, under_torchrun(8, 8), "RANK is 8 of WORLD_SIZE 8"),
    ({"cp_size": 2}, {}, "RANK of the environment is ''.*torchrun"),
    ({"cp_size": 2}, under_torchrun("x", 8), "RANK of the environment is 'x'"),
    ({"cp_rank": 4, "cp_size": 4}, {}, "cp_rank is 4 of cp_size 4"),
    ({"mesh": Mesh(cp=(0, 2)), "cp_size": 4}, {}, "cp_size is 4, but the mesh has 2"),
    ({"mesh": Mesh()}, {}, "mesh_dim_names"),
])
def test_what_does_not_fit_is_refused_with_the_numbers(arguments, environment, words):
    with pytest.raises(ValueError, match=words):
        cpshard.topology(**arguments, environment=environment)


@pytest.mark.parametrize("arguments, words", [
    ({"mesh": Mesh(cp=(1, 2))}, "mesh has 2 places for the 8 processes.*whole mesh"),
    ({"mesh": Mesh(cp=(1, 2), tp=(0, 2))}, "mesh has 4 places for the 8 processes"),
    ({"cp_rank": 1, "cp_size": 2}, "make 2 places for the 8 processes.*leave cp_rank out"),
    ({"cp_rank": 1, "cp_size": 2, "readers_per_rank": 2}, "make 4 places for the 8 processes"),
    ({}, "WORLD_SIZE is 8, and nothing says.*give cp_size"),
    ({"tp_size": 2}, "WORLD_SIZE is 8, and nothing says"),
    ({"cp_size": True}, "cp_size is True"),
    ({"cp_size": "2"}, "cp_size is '2'"),
])
def test_several_processes_are_never_put_in_one_place(arguments, words):
    with pytest.raises(ValueError, match=words) as raised:
        cpshard.topology(**arguments, environment=under_torchrun(1, 8))
    assert isinstance(raised.value, cpshard.Error)


def test_a_group_that_is_given_tells_them_apart():
    environment = under_torchrun(1, 8)
    assert cpshard.topology(mesh=Mesh(cp=(1, 2)), group="g", environment=environment).group == "g"
    at = cpshard.topology(cp_rank=1, cp_size=2, group="g", environment=environment)
    assert (at.group, at.reader) == ("g", "rank1")


@pytest.mark.parametrize("name", ["none", ""])
def test_a_job_that_torchrun_was_given_no_name_for_has_the_loaders_name_for_it(name):
    environment = under_torchrun(0, 2, TORCHELASTIC_RUN_ID=name)
    assert cpshard.topology(cp_size=2, environment=environment).group == "job/dp0"
    with cpshard.loader([], "unix:/nowhere/server.sock") as loader:
        with pytest.raises(TimeoutError, match="of group 'job/dp0'"):
            loader.wait(0.01)

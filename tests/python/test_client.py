"""The client against a real cpshardd: plans and shards, both ways, and what is refused."""

import contextlib
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from servers import serving

import cpshard

torch = pytest.importorskip("torch")
RANKS = 4


@pytest.fixture(scope="module")
def client():
    with serving() as server, cpshard.connect(server.address) as client:
        yield client


def batch_of(number, rows=2, columns=30):
    tokens = np.arange(rows * columns).reshape(rows, columns) + 1000 * number
    return {"input_ids": tokens, "labels": tokens * 3, "qkv_format": None}


def round_robin(stream, rank, fill):
    """By its definition: the row is padded to a multiple of 2 * cp_size and cut into as many
    chunks, of which rank r holds number r and number 2 * cp_size - 1 - r."""
    columns = -(-stream.shape[1] // (2 * RANKS)) * 2 * RANKS
    padded = np.pad(stream, ((0, 0), (0, columns - stream.shape[1])), constant_values=fill)
    chunks = np.split(padded, 2 * RANKS, axis=1)
    return np.concatenate([chunks[rank], chunks[2 * RANKS - 1 - rank]], axis=1)


def check(shards, batch):
    assert [shard.layout.cp_rank for shard in shards] == list(range(RANKS))
    for rank, shard in enumerate(shards):
        assert list(shard.batch) == ["input_ids", "labels", "position_ids"]
        for name, fill in (("input_ids", 0), ("labels", -100)):
            want = round_robin(np.asarray(batch[name]), rank, fill)
            assert np.array_equal(shard.batch[name], want)
            assert shard.cuts[name] == cpshard.Cut("local", 1)
        layout = shard.layout
        assert layout.cp_size == RANKS and layout.input_row_shape is None
        assert layout.original_seq_len == batch["input_ids"].shape[1]
        assert layout.runs[:, 1].sum() == want.shape[1]


class TestShard:
    def test_every_rank_gets_its_head_and_tail(self, client):
        batch = batch_of(1)
        shards = client.shard(batch, "round_robin", RANKS)
        check(shards, batch)
        assert len({shard.layout.batch_digest for shard in shards}) == 1

    def test_ranks_come_in_the_order_asked_for(self, client):
        every = client.shard(batch_of(1), "round_robin", RANKS)
        some = client.shard(batch_of(1), "round_robin", RANKS, ranks=[3, 1])
        for shard, rank in zip(some, (3, 1), strict=True):
            assert shard.layout.cp_rank == rank
            assert np.array_equal(shard.batch["labels"], every[rank].batch["labels"])

    def test_what_is_too_large_for_a_call_goes_through_a_stream(self, client):
        for columns in (30, 50_000, 100_000, 400_000):
            batch = batch_of(1, columns=columns)
            check(client.shard(batch, "round_robin", RANKS), batch)

    def test_a_reply_that_is_too_large_for_a_call_comes_through_a_stream(self, client):
        # Every rank computes full rows of positions of its own: the shards are many times the
        # batch.
        batch = {name: np.ones((60, 1000), np.int64) for name in ("input_ids", "labels")}
        options = {"round_robin": {}, "targets": {"num_depths": 4}}
        shards = client.shard(batch, options, RANKS)
        assert sum(value.nbytes for value in shards[0].batch.values()) * RANKS > 4 << 20

    def test_the_arrays_of_a_large_layout_are_those_of_a_small_message(self, client):
        columns = 1 << 14
        batch = {"input_ids": np.arange(columns).reshape(1, -1),
                 "labels": np.zeros((1, columns), int),
                 "position_ids": np.arange(columns).reshape(1, -1),
                 "seq_lens": np.array([[columns]])}
        options = {"thd": {}}
        unary = client.shard(batch, options, 2)
        [streamed] = client.shard_batches([batch], options, 2)
        for a, b in zip(unary, streamed, strict=True):
            assert a.layout.local_token_global_indices.shape == (columns // 2,)
            assert np.array_equal(a.layout.local_token_global_indices,
                                  b.layout.local_token_global_indices)
            assert np.array_equal(a.layout.runs, b.layout.runs)
            assert a.layout.input_row_shape == b.layout.input_row_shape == (1, columns)
            assert a.batch["qkv_format"] == "thd" and a.batch["cp_rank"] == b.batch["cp_rank"]

    def test_torch_tensors_go_in_and_come_out(self, client):
        batch = {name: torch.from_numpy(value) for name, value in batch_of(1).items()
                 if value is not None} | {"x": torch.ones(2, 30, dtype=torch.bfloat16)}
        options = {"contiguous": {}, "padding_token_id": 0}
        for shards in (client.shard(batch, options, RANKS),
                       next(client.shard_batches([batch], options, RANKS))):
            for rank, shard in enumerate(shards):
                assert all(isinstance(value, torch.Tensor) for value in shard.batch.values())
                assert torch.equal(shard.batch["input_ids"][:, :4],
                                   batch["input_ids"][:, rank * 8:][:, :4])
                shard.batch["labels"] += 1  # may be written to
        assert shards[0].batch["x"].dtype == torch.bfloat16
        arrays = client.shard(batch_of(1), "round_robin", RANKS, tensors="torch")
        assert isinstance(arrays[0].batch["labels"], torch.Tensor)

    def test_what_one_rank_writes_into_its_shard_is_seen_by_no_other(self, client):
        shards = client.shard(batch_of(1), "round_robin", RANKS)
        shards[0].batch["labels"][:] = 7
        check(client.shard(batch_of(1), "round_robin", RANKS), batch_of(1))
        assert not (shards[1].batch["labels"] == 7).all()

    def test_calls_from_many_threads_do_not_meet(self, client):
        wrong = []

        def call(number):
            for step in range(10):
                batch = batch_of(10 * number + step)
                try:
                    check(client.shard(batch, "round_robin", RANKS), batch)
                except AssertionError as error:
                    wrong.append(error)

        threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


class TestShardBatches:
    def test_answers_come_in_the_order_of_the_batches(self, client):
        sizes = [30, 100_000, 8, 50_000] * 4
        batches = [batch_of(number, columns=size) for number, size in enumerate(sizes)]
        answers = client.shard_batches(iter(batches), "round_robin", RANKS)
        for batch, shards in zip(batches, answers, strict=True):
            check(shards, batch)

    def test_batches_are_taken_as_far_ahead_as_is_asked_for(self, client):
        taken = []

        def source():
            for number in range(20):
                taken.append(number)
                yield batch_of(number)

        answers = client.shard_batches(source(), "round_robin", RANKS, max_inflight=3)
        for number in range(17):
            check(next(answers), batch_of(number))
            assert len(taken) == number + 3
        answers.close()

    def test_the_error_of_one_batch_names_it(self, client):
        batches = [batch_of(0), batch_of(1), {"input_ids": np.ones((2, 30), np.int64)}]
        answers = client.shard_batches(batches, "round_robin", RANKS, max_inflight=1)
        next(answers), next(answers)
        with pytest.raises(ValueError, match="batch 2: .*labels"):
            next(answers)

    def test_who_takes_their_time_between_answers_is_not_too_late(self):
        with serving("--max-inflight-bytes=2000000") as server, \
                cpshard.connect(server.address, deadline=0.4) as client:
            batches = [batch_of(number, columns=50_000) for number in range(5)]  # one at a time
            for batch, shards in zip(batches, client.shard_batches(batches, "round_robin", RANKS),
                                     strict=True):
                check(shards, batch)
                time.sleep(0.5)

    def test_an_empty_source_has_no_answers(self, client):
        assert list(client.shard_batches([], "round_robin", RANKS)) == []

    def test_a_server_that_is_killed_in_the_middle_is_gone_on_with(self, tmp_path):
        address = f"unix:{tmp_path}/server.sock"
        first = serving(address=address)
        server = first.__enter__()
        with cpshard.connect(server.address) as client:
            batches = [batch_of(number, columns=20_000) for number in range(12)]
            answers = client.shard_batches(batches, "round_robin", RANKS)
            for number in range(4):
                check(next(answers), batches[number])
            server.process.kill()
            first.__exit__(None, None, None)
            (tmp_path / "server.sock").unlink(missing_ok=True)
            with serving(address=address):
                for number, shards in enumerate(answers, 4):
                    check(shards, batches[number])
            assert number == 11

    def test_one_that_is_away_for_longer_than_many_tries_is_gone_on_with(self, tmp_path):
        address = f"unix:{tmp_path}/server.sock"
        first = serving(address=address)
        server = first.__enter__()
        with cpshard.connect(server.address) as client, contextlib.ExitStack() as second:
            batches = [batch_of(number) for number in range(6)]
            answers = client.shard_batches(batches, "round_robin", RANKS)
            check(next(answers), batches[0])
            server.process.kill()
            first.__exit__(None, None, None)
            (tmp_path / "server.sock").unlink(missing_ok=True)
            again = threading.Timer(2.5, lambda: second.enter_context(serving(address=address)))
            again.start()
            second.callback(again.join)
            for batch, shards in zip(batches[1:], answers, strict=True):
                check(shards, batch)

    def test_a_server_that_stays_away_ends_it_in_time(self, tmp_path):
        with serving(address=f"unix:{tmp_path}/server.sock") as server, \
                cpshard.connect(server.address, deadline=1.0) as client:
            answers = client.shard_batches((batch_of(n) for n in range(9)), "round_robin", RANKS)
            next(answers)
            server.process.kill()
            begin = time.monotonic()
            with pytest.raises(cpshard.Error) as raised:
                list(answers)
            assert raised.value.code in ("DEADLINE_EXCEEDED", "UNAVAILABLE")
            assert time.monotonic() - begin < 10


class TestPlan:
    def test_it_has_the_layouts_of_all_ranks_and_what_was_counted(self, client):
        plan = client.plan(batch_of(1), "round_robin", RANKS)
        shards = client.shard(batch_of(1), "round_robin", RANKS)
        for planned, shard in zip(plan.layouts, shards, strict=True):
            assert np.array_equal(planned.runs, shard.layout.runs)
            assert planned.padded_seq_len == shard.layout.padded_seq_len == 32
        assert plan.totals.num_label_tokens == 60 and plan.needs == []

    def test_values_that_the_layout_reads_travel(self, client):
        batch = {"input_ids": np.ones((2, 16), np.int64), "labels": np.ones((2, 16), np.int64),
                 "position_ids": np.ones((2, 16), np.int64),
                 "seq_lens": np.array([[8, 8], [16, -1000]])}
        plan = client.plan(batch, "thd", 2)
        assert [layout.input_row_shape for layout in plan.layouts] == [(2, 16)] * 2
        assert plan.needs

    def test_values_that_only_the_server_knows_of_travel_when_it_asks(self, client):
        batch = {name: np.arange(32).reshape(2, 16) for name in ("input_ids", "labels",
                                                                 "position_ids")}
        plan = client.plan(batch, {"thd": {}, "padding_token_id": 99}, 1)
        assert plan.needs == ["input_ids"] and len(plan.layouts) == 1

    def test_what_is_only_counted_stays_at_home_where_it_has_no_room(self, client):
        plan = client.plan(batch_of(1, columns=400_000), "round_robin", RANKS)
        assert plan.layouts[0].padded_seq_len == 400_000
        assert plan.totals.num_label_tokens is None

    def test_a_model_says_which_layout_it_came_to(self, client):
        plan = client.plan(batch_of(1), {"model": {"supports_thd": True}}, RANKS)
        assert plan.chosen == "round_robin" and plan.reason


class TestRefusals:
    @pytest.mark.parametrize("arguments, words", [
        (("round_robin", 0), "cp_size is 0"),
        (("round_robin", 4, [4]), "rank 4 .* 0 ... 3"),
        (("round_robin", None, [1]), "rank 1"),
        (({"round_robbin": {}}, 4), "round_robbin"),
    ])
    def test_arguments_that_cannot_be_are_refused_here(self, client, arguments, words):
        with pytest.raises(ValueError, match=words):
            client.shard(batch_of(1), *arguments)
        with pytest.raises(ValueError, match=words):  # at once, before a batch is asked for
            client.shard_batches([], *arguments)

    def test_the_servers_refusal_is_of_its_kind(self, client):
        with pytest.raises(ValueError, match="labels") as raised:
            client.shard({"input_ids": np.ones((2, 30), np.int64)}, "round_robin", 4)
        assert raised.value.code == "INVALID_ARGUMENT"
        with pytest.raises(ValueError, match="max_inflight is 0"):
            client.shard_batches([], "identity", max_inflight=0)
        with pytest.raises(NotImplementedError):
            client.shard(batch_of(1), {"model": {"family": "QWEN3_VL"}}, 2)

    @pytest.mark.parametrize("address", [
        "", "host", "host:0", "host:70000", "http://x:1", "unix:", "unix://relative",
        "unix:" + "x" * 200, "a b:1", "[::z]:1", None, 5, b"unix:/x"])
    def test_what_is_no_address_is_refused(self, address):
        with pytest.raises(ValueError, match="give host:port"):
            cpshard.connect(address)

    @pytest.mark.parametrize("deadline", [0, -1, "5", None, True, float("nan")])
    def test_a_deadline_is_a_number_above_0(self, deadline):
        with pytest.raises(ValueError, match="deadline is .*above 0 is possible") as raised:
            cpshard.connect("host:1", deadline=deadline)
        assert isinstance(raised.value, cpshard.Error)

    def test_a_server_that_is_not_there_is_unavailable_at_once(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with cpshard.connect(f"127.0.0.1:{port}") as client:
            with pytest.raises(ConnectionError):
                client.info()

    def test_a_server_that_says_nothing_is_waited_for_as_long_as_was_said(self):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            with cpshard.connect(address, deadline=0.5) as client:
                with pytest.raises((TimeoutError, ConnectionError)):
                    client.info()

    def test_one_can_wait_for_a_server_that_comes_later(self, tmp_path):
        address = f"unix:{tmp_path}/server.sock"
        with cpshard.connect(address, wait_for_ready=True) as client:
            found = []
            thread = threading.Thread(target=lambda: found.append(client.info()))
            thread.start()
            time.sleep(0.2)
            with serving(address=address):
                thread.join()
        assert "round_robin" in found[0].layouts


class TestWithoutTorch:
    PROGRAM = """
import sys
import numpy as np
import cpshard
assert "torch" not in sys.modules
sys.modules["torch"] = None  # cannot be imported
with cpshard.connect(sys.argv[1]) as client:
    batch = {"input_ids": np.ones((2, 30), int), "labels": np.ones((2, 30), int)}
    for shards in (client.shard(batch, "round_robin", 4),
                   next(client.shard_batches([batch], "round_robin", 4))):
        assert [shard.batch["labels"].shape for shard in shards] == [(2, 8)] * 4
with cpshard.loader([batch] * 3, sys.argv[1], group="g"):
    with cpshard.rank(sys.argv[1], options="round_robin", group="g", cp_rank=0, timeout=20) as rank:
        assert len(list(rank)) == 3
print("done")
"""

    def test_the_client_and_sessions_need_no_torch(self, client):
        result = subprocess.run([sys.executable, "-B", "-c", self.PROGRAM, client.address],
                                capture_output=True, text=True, timeout=60)
        assert result.stdout == "done\n", result.stderr


@pytest.mark.parametrize("value, words", [
    (np.complex64(3), "is a complex"), (np.datetime64("2020-01-01"), "is a date"),
    (np.longdouble(3), "is a longdouble"), ("\ud800", "no Unicode"),
    (np.ma.masked_array(np.arange(3), [0, 1, 0]), "masked array.*filled")])
def test_values_that_cannot_be_sent_are_refused_by_name(client, value, words):
    with pytest.raises(ValueError, match=f"'x' .*{words}") as raised:
        client.shard(batch_of(1) | {"x": value}, "round_robin", RANKS)
    assert isinstance(raised.value, cpshard.Error)


@pytest.mark.parametrize("arguments, words", [
    ({"cp_size": "2"}, "cp_size is '2'"), ({"cp_size": 2.0}, "cp_size is 2.0"),
    ({"cp_size": True}, "cp_size is True"), ({"ranks": 1}, "ranks are 1"),
    ({"ranks": [1.5]}, "rank 1.5"), ({"options": None}, "options are a NoneType")])
def test_arguments_of_another_kind_are_refused(client, arguments, words):
    with pytest.raises(ValueError, match=words) as raised:
        client.shard(batch_of(1), **{"options": "round_robin", "cp_size": RANKS, **arguments})
    assert isinstance(raised.value, cpshard.Error)


def test_a_matrix_is_an_array_of_two_axes(client):
    batch = batch_of(1)
    shards = client.shard(batch | {"labels": np.matrix(batch["labels"])}, "round_robin", RANKS)
    check(shards, batch)


def test_a_client_that_is_closed_says_so():
    closed = cpshard.connect("unix:/nowhere/server.sock")
    closed.close()
    for call in (closed.info, lambda: closed.shard(batch_of(1), "round_robin", 2),
                 lambda: next(closed.shard_batches([batch_of(1)], "round_robin", 2))):
        with pytest.raises(cpshard.Error, match="has been closed") as raised:
            call()
        assert raised.value.code == "CANCELLED"

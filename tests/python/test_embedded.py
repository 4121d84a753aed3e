"""cpshard.embedded: what goes in, what comes out, and what is refused."""

from __future__ import annotations

import concurrent.futures
import ctypes
import struct
from typing import Any

import numpy as np
import pytest
import torch

from cpshard import Error, embedded, libcpshard, native
from cpshard._proto import options_pb2


def tokens(rows: int = 2, columns: int = 12) -> np.ndarray:
    return np.arange(1, rows * columns + 1, dtype=np.int64).reshape(rows, columns)


def batch_of(ids: Any) -> dict[str, Any]:
    return {"input_ids": ids, "labels": ids + 100}


def padded(**options: int) -> dict[str, Any]:
    return {"contiguous": options, "padding_token_id": 0}


# --- values in and out ----------------------------------------------------------------------------


def test_outputs_are_of_the_library_that_the_batch_is_of():
    of_numpy = embedded.plan(batch_of(tokens()), "contiguous", 2).shard(1)
    of_torch = embedded.plan(batch_of(torch.from_numpy(tokens())), "contiguous", 2).shard(1)
    assert all(type(value) is np.ndarray for value in of_numpy.batch.values())
    assert all(type(value) is torch.Tensor for value in of_torch.batch.values())
    assert of_numpy.batch["input_ids"].tolist() == of_torch.batch["input_ids"].tolist()


def test_a_batch_is_not_changed_and_what_is_cut_is_no_window_on_it():
    batch = batch_of(tokens())
    before = {name: value.copy() for name, value in batch.items()}
    for shard in embedded.plan(batch, "contiguous", 2).shards():
        for value in shard.batch.values():
            value[...] = -7
    assert all((batch[name] == before[name]).all() for name in batch)


def test_what_is_handed_on_as_it_is_is_the_callers_own_object():
    batch = batch_of(torch.from_numpy(tokens()))
    for shard in embedded.plan(batch, "identity", 2).shards():
        for name, value in batch.items():
            assert shard.batch[name] is value, name


@pytest.mark.parametrize("strided", [
    lambda ids: np.asfortranarray(ids), lambda ids: np.repeat(ids, 2, axis=1)[:, ::2],
    lambda ids: ids[:, ::-1].copy()[:, ::-1], lambda ids: ids.astype(">i8"),
    lambda ids: torch.from_numpy(ids).T.contiguous().T])
def test_an_array_of_other_strides_or_byte_order_is_read_by_its_values(strided: Any):
    batch = {"input_ids": strided(tokens()), "labels": strided(tokens())}
    shard = embedded.plan(batch, "round_robin", 2).shard(0)
    assert shard.batch["labels"].tolist() == tokens()[:, [0, 1, 2, 9, 10, 11]].tolist()


def test_lengths_of_one_document_may_be_a_column_of_a_table():
    """Of one row: what is left has one element, and the strides of the table."""
    table = torch.tensor([[[6, 8]]])
    batch = batch_of(torch.arange(8)[None]) | {
        "position_ids": torch.arange(8)[None], "seq_lens": table[..., 0],
        "seq_lens_padded": table[..., 1]}
    shards = embedded.plan(batch, "thd", 2).shards()
    assert [shard.batch["input_ids"].tolist() for shard in shards] == [[0, 1, 6, 7], [2, 3, 4, 5]]


def test_none_is_absent_and_lists_are_taken_apart():
    batch = batch_of(tokens()) | {"position_ids": None, "parts": [tokens(), tokens(1, 3)]}
    shard = embedded.plan(batch, "identity", None).shard(0)
    assert shard.batch.keys() == {"input_ids", "labels", "parts.0", "parts.1"}


def test_scalars_of_every_kind_come_back_as_they_were():
    scalars = {"flag": True, "count": -3, "share": 0.25, "word": "thd \u00fc"}
    shard = embedded.plan(batch_of(tokens()) | scalars, "contiguous", 2).shard(1)
    got = {name: shard.batch[name] for name in scalars}
    assert got == scalars and [type(value) for value in got.values()] == [bool, int, float, str]


def test_a_tensor_that_requires_grad_is_cut_by_its_values():
    embeds = torch.arange(24.0).reshape(1, 8, 3).requires_grad_()
    batch = {"inputs_embeds": embeds, "labels": torch.zeros(1, 8, dtype=torch.int64),
             "position_ids": torch.arange(8)[None]}
    got = embedded.plan(batch, "contiguous", 2).shard(1).batch["inputs_embeds"]
    assert got.tolist() == embeds.detach()[:, 4:].tolist() and not got.requires_grad


def test_options_may_be_a_name_a_mapping_json_or_a_message():
    message = options_pb2.ShardingOptions()
    message.contiguous.SetInParent()
    forms = ["contiguous", {"contiguous": {}}, '{"contiguous": {}}', message]
    batch = batch_of(tokens())
    answers = [embedded.plan(batch, form, 2).shard(1).batch["labels"].tolist() for form in forms]
    assert answers == [answers[0]] * 4


# --- ranks ----------------------------------------------------------------------------------------


def test_a_rank_alone_gets_what_it_gets_among_all():
    plan = embedded.plan(batch_of(tokens(3, 29)), padded(pad_multiple=4), 4)
    for shard in plan.shards():
        alone = plan.shard(shard.layout.cp_rank)
        assert alone.cuts == shard.cuts
        assert alone.layout.runs.tolist() == shard.layout.runs.tolist()
        for name, value in shard.batch.items():
            assert (alone.batch[name] == value).all(), name


def test_ranks_come_in_the_order_asked_for():
    plan = embedded.plan(batch_of(tokens()), padded(), 4)
    assert [shard.layout.cp_rank for shard in plan.shards([3, 0, 2])] == [3, 0, 2]
    assert [layout.cp_rank for layout in plan.layouts] == [0, 1, 2, 3]


@pytest.mark.parametrize("ranks", [[2], [-1], [0, 0]])
def test_a_rank_that_there_is_not_or_that_comes_twice_is_refused(ranks: list[int]):
    plan = embedded.plan(batch_of(tokens()), "contiguous", 2)
    with pytest.raises(ValueError, match="rank"):
        plan.shards(ranks)


def test_no_mesh_is_not_a_mesh_of_one():
    batch = batch_of(tokens(1, 7))
    with pytest.raises(ValueError, match="needs a mesh"):
        embedded.plan(batch, padded(), None)
    assert embedded.plan(batch, padded(), 1).shard(0).batch["input_ids"].shape == (1, 8)


# --- refusals -------------------------------------------------------------------------------------


def test_a_refusal_is_the_python_kind_and_names_stream_and_numbers():
    batch = {"input_ids": tokens(2, 12), "labels": tokens(2, 11)}
    with pytest.raises(ValueError, match=r"labels.*11") as refused:
        embedded.plan(batch, "contiguous", 2)
    assert isinstance(refused.value, Error) and refused.value.code == "INVALID_ARGUMENT"


def test_what_is_not_built_is_not_implemented():
    options = {"qwen3_8": {"tp_size": "2"}}
    with pytest.raises(NotImplementedError):
        embedded.plan(batch_of(tokens(1)), options, 2)


def test_padding_over_the_limit_is_refused_when_it_is_planned():
    with pytest.raises(ValueError, match="pad_multiple"):
        embedded.plan(batch_of(tokens()), padded(pad_multiple=1 << 28), 2)


@pytest.mark.parametrize("batch, text", [
    ({"x": np.zeros(3, np.complex64)}, "complex64"), ({"x": object()}, "object"),
    ({"x": 1 << 63}, "64 bits"), ({1: np.zeros(3)}, "1"), ([1], "mapping"),
    ({"x": torch.zeros(3, dtype=torch.complex64)}, "complex64"),
    ({"x": torch.zeros(3, dtype=torch.complex64, device="meta")}, "complex64")])
def test_what_cannot_be_sharded_is_refused_by_name(batch: Any, text: str):
    with pytest.raises(ValueError, match=text):
        embedded.plan(batch, "identity", 2)


@pytest.mark.parametrize("cp_size", [0, -1, 5000, 1 << 40, "2"])
def test_a_group_of_no_size_is_refused(cp_size: Any):
    with pytest.raises(ValueError, match="cp_size"):
        embedded.plan(batch_of(tokens()), "contiguous", cp_size)


@pytest.mark.parametrize("options", [{}, {"contiguous": {"no_such": 1}}, "no_such", '{"contiguous',
                                     {"contiguous": {}, "identity": {}}, {"contiguous": {1, 2}}])
def test_options_that_are_none_are_refused(options: Any):
    with pytest.raises(ValueError):
        embedded.plan(batch_of(tokens()), options, 2)


# --- tensors that are elsewhere -------------------------------------------------------------------


def test_a_tensor_of_a_device_is_planned_by_its_shape_and_cut_by_the_caller():
    batch = {"inputs_embeds": torch.zeros(2, 5, 3, dtype=torch.bfloat16, device="meta"),
             "labels": torch.from_numpy(tokens(2, 5)), "position_ids": torch.arange(5)[None]}
    plan = embedded.plan(batch, {"contiguous": {"pad_multiple": 4}}, 2)
    shard = plan.shard(1)
    assert "inputs_embeds" not in shard.batch and shard.cuts["inputs_embeds"].extent == "local"
    assert shard.batch["labels"].tolist() == [[5, -100, -100, -100], [10, -100, -100, -100]]
    cut = plan.cut("inputs_embeds", 1)
    assert (cut.source, cut.axis, cut.dims, cut.fill) == ("inputs_embeds", 1, (2, 5, 3), 0.0)
    assert cut.runs.tolist() == [[4, 1], [-1, 3]]


def test_a_fill_is_a_value_of_the_streams_dtype():
    options = {"contiguous": {"pad_multiple": 4}, "padding_token_id": 7, "extra_streams": [
        {"name": str(dtype), "seq_axis": 1, "int_pad" if not dtype.is_floating_point else
         "float_pad": 1 if not dtype.is_floating_point else -2.5}
        for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.float16,
                      torch.bfloat16, torch.float32, torch.float64)]}
    extras = {extra["name"]: torch.zeros(2, 5, dtype=getattr(torch, extra["name"][6:]))
              for extra in options["extra_streams"]}
    plan = embedded.plan(batch_of(torch.from_numpy(tokens(2, 5))) | extras, options, 2)
    assert plan.cut("input_ids", 1).fill == 7 and plan.cut("labels", 1).fill == -100
    for name, value in extras.items():
        want = True if value.dtype == torch.bool else -2.5 if value.is_floating_point() else 1
        got = plan.cut(name, 1).fill
        assert got == want and type(got) is type(want), name


class Elsewhere(torch.Tensor):
    """As if it were on a device, and says when it is fetched."""

    fetched: list[int] = []
    device = property(lambda self: torch.device("cuda", 0))

    def cpu(self) -> torch.Tensor:
        Elsewhere.fetched.append(self.numel())
        return self.as_subclass(torch.Tensor)


def test_of_a_device_only_what_the_layout_reads_is_fetched():
    batch = {"input_ids": torch.from_numpy(tokens(1, 8)).as_subclass(Elsewhere),
             "labels": torch.from_numpy(tokens(1, 8)), "position_ids": torch.arange(8)[None],
             "seq_lens": torch.tensor([[3, 4]]).as_subclass(Elsewhere),
             "seq_lens_padded": torch.tensor([[4, 4]])}
    Elsewhere.fetched.clear()
    plan = embedded.plan(batch, "thd", 2)
    assert Elsewhere.fetched == [2]
    assert "input_ids" not in plan.shard(0).batch and "labels" in plan.shard(0).batch
    on_cpu = embedded.plan(batch | {"seq_lens": torch.tensor([[3, 4]])}, "thd", 2)
    assert plan.shard(1).batch["labels"].tolist() == on_cpu.shard(1).batch["labels"].tolist()
    Elsewhere.fetched.clear()
    embedded.plan({name: batch[name] for name in ("input_ids", "labels")}, "contiguous", 2)
    assert Elsewhere.fetched == []


def test_values_that_a_layout_reads_cannot_be_on_meta():
    batch = {"input_ids": torch.zeros(1, 8, dtype=torch.int64),
             "labels": torch.zeros(1, 8, dtype=torch.int64),
             "seq_lens": torch.zeros(1, 2, dtype=torch.int64, device="meta"),
             "seq_lens_padded": torch.tensor([[4, 4]])}
    with pytest.raises(RuntimeError, match="'seq_lens'"):
        embedded.plan(batch, "thd", 2)


def test_a_stream_that_is_computed_or_not_there_has_no_cut():
    plan = embedded.plan(batch_of(tokens(1, 7)), padded(), 2)
    assert plan.cut("position_ids", 0) is None
    with pytest.raises(LookupError, match="no_such.*input_ids"):
        plan.cut("no_such", 0)
    for rank, row in ((2, 0), (0, 1)):
        with pytest.raises(ValueError):
            plan.cut("labels", rank, row)


def test_a_stream_with_two_fills_has_no_cut():
    # Packed V4.1, a loss mask for labels: -100 on the column that cp_size appends (contract 4.2).
    batch = {"input_ids": tokens(1, 3), "loss_mask": np.ones((1, 3), np.int64),
             "seq_lens": np.array([[3]]), "seq_lens_padded": np.array([[3]])}
    plan = embedded.plan(batch, {"deepseek_v41": {}, "padding_token_id": 0}, 2)
    assert plan.shard(1).batch["labels"].tolist() == [[1, -100]]
    assert plan.cut("labels", 1) is None
    assert plan.cut("input_ids", 1).runs.tolist() == [[2, 1], [-1, 1]]


# --- what is said of a batch ----------------------------------------------------------------------


def test_a_layout_carries_the_digest_where_it_is_asked_for():
    batch = {"labels": tokens() + 7, "input_ids": tokens(), "w": np.ones((2, 12), np.float32)}
    xxhash = ctypes.CDLL("libxxhash.so.0")
    xxhash.XXH3_64bits.restype = ctypes.c_uint64
    spelled = b""
    for name in sorted(batch):  # docs/WIRE.md, "Batch digest"
        dtype = b"f32" if name == "w" else b"i64"
        spelled += name.encode() + b"\0" + dtype + b"\0" + struct.pack("<qqq", 2, 2, 12)
        spelled += batch[name].tobytes()
    digest = xxhash.XXH3_64bits(spelled, ctypes.c_size_t(len(spelled)))
    plan = embedded.plan(batch, "identity", 2, digest=True)
    assert plan.digest == digest
    assert {layout.batch_digest for layout in plan.layouts} == {digest}
    assert plan.shard(1).layout.batch_digest == digest
    assert embedded.plan(batch, "identity", 2).shard(1).layout.batch_digest == 0


def test_totals_are_of_the_whole_batch_and_loads_add_up_to_them():
    labels = tokens(2, 13)
    labels[0, 9:] = -100
    plan = embedded.plan({"input_ids": tokens(2, 13), "labels": labels}, "round_robin", 4)
    assert plan.totals.num_label_tokens == 22
    loads = [shard.load.tokens for shard in plan.shards(load=True)]
    assert sum(load.supervised for load in loads) == 22
    assert sum(load.real for load in loads) == 26
    assert sum(load.real + load.pad for load in loads) == 2 * 16


def test_a_model_says_which_layout_it_resolved_to_and_why():
    options = {"model": {"family": "NO_HOOK", "backend_attn": "sdpa"}}
    plan = embedded.plan(batch_of(tokens()), options, 2)
    assert plan.chosen == "round_robin" and plan.reason
    assert embedded.plan(batch_of(tokens()), "contiguous", 2).chosen == ""


def test_notices_of_counting_are_in_the_report():
    labels = np.full((1, 16), -100)
    labels[0, 0] = 5
    plan = embedded.plan({"input_ids": tokens(1, 16), "labels": labels}, "contiguous", 4)
    assert [notice.code for notice in plan.notices] == []
    assert [notice.code for notice in plan.report.notices] == ["unsupervised_ranks"]


# --- the handle -----------------------------------------------------------------------------------


OUT = ctypes.byref(libcpshard.CBytes())
CUT = ctypes.byref(libcpshard.CCut())
FLAG = ctypes.byref(ctypes.c_int32())


@pytest.mark.parametrize("null, name, arguments", [
    ("request", "needs", (None, 5, OUT)),
    ("tensors", "plan_create", (b"", 0, None, 2, FLAG)),
    ("plan", "plan_create", (b"", 0, None, 0, None)),
    ("plan", "plan_shard", (None, 0, 0, OUT)),
    ("ranks", "plan_reply", ("plan", None, 1, 0, OUT)),
    ("digest", "plan_digest", ("plan", None)),
    ("stream", "plan_stream", ("plan", 0, None)),
    ("stream", "plan_cut", ("plan", None, 0, 0, CUT, OUT)),
    ("cut", "plan_cut", ("plan", b"labels", 0, 0, None, OUT)),
    ("dests", "plan_write", ("plan", (ctypes.c_int64 * 1)(0), 1, None, 8)),
    ("ranks_dir", "plan_verify", ("plan", None, None, 0, None, 0, FLAG, None, None)),
    ("streams[i]", "plan_verify",
     ("plan", b"/", None, 0, (ctypes.c_void_p * 1)(None), 1, FLAG, None, None)),
])
def test_a_pointer_that_is_null_is_refused_by_name(null: str, name: str, arguments: Any):
    plan = embedded.plan(batch_of(tokens()), "contiguous", 2)
    given = [plan._handle if each == "plan" else each for each in arguments]
    with pytest.raises(Error) as refused:
        libcpshard.call(f"cpshard_{name}", *given)
    assert refused.value.code == "INVALID_ARGUMENT"
    assert f"argument '{null}' is null" in str(refused.value)


def test_threads_may_share_a_plan():
    plan = embedded.plan(batch_of(tokens(8, 1021)), "round_robin", 8, digest=True)
    alone = [plan.shard(rank).batch["input_ids"].tolist() for rank in range(8)]

    def shard(number: int) -> bool:
        got = plan.shard(number % 8, load=True)
        return (got.batch["input_ids"].tolist() == alone[number % 8] and got.load is not None
                and got.layout.cp_rank == number % 8)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(shard, range(200)))


def test_a_plan_keeps_its_batch_alive_and_frees_it_with_itself():
    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    def plan_once() -> None:
        plan = embedded.plan(batch_of(np.zeros((1, 1 << 17), np.int64) + 3), "round_robin", 2)
        assert (plan.shard(1).batch["input_ids"] == 3).all()

    for _ in range(20):
        plan_once()
    before = resident()
    for _ in range(100):  # of 2 MiB each, and their shards
        plan_once()
    assert resident() - before < 30 << 20


def test_a_missing_object_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any):
    monkeypatch.setenv("CPSHARD_NATIVE_DIR", str(tmp_path))
    with pytest.raises(ImportError, match=rf"{tmp_path}.*Build it so.*CPSHARD_NATIVE_DIR"):
        native.find("libno_such.so", "Build it so")
    (tmp_path / "libno_such.so").touch()
    assert native.find("libno_such.so", "") == tmp_path / "libno_such.so"


def test_an_object_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(libcpshard, "ABI_VERSION", 0)
    with pytest.raises(ImportError, match="version 1 .* speaks 0"):
        libcpshard._open()


def test_a_plan_names_the_streams_of_a_shard_and_those_that_it_read():
    lengths = {"seq_lens": np.array([[3, 4]]), "seq_lens_padded": np.array([[4, 4]])}
    batch = batch_of(tokens(1, 8)) | lengths | {"position_ids": tokens(1, 8)}
    plan = embedded.plan(batch, "thd", 2)
    assert set(plan.needs) == set(lengths)
    assert [entry.name for entry in plan.report.streams] == list(plan.shard(0).cuts)

"""The golden corpus for tests in Python: cases as torch tensors, and what cpshard must answer.

What a case means is said in /conformance's README; the runner in C++ (tests/conformance) is the
other reader of the same files.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any, Callable, Iterator

import torch

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "golden"
DTYPES = {"bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16,
          "i32": torch.int32, "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16,
          "f32": torch.float32, "f64": torch.float64}
LAYOUT_FIELDS = ("local_token_global_indices", "original_seq_len", "padded_seq_len",
                 "input_row_shape", "input_token_stream_positions")

Json = dict[str, Any]
Outputs = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class RankExpectation:
    outputs: Outputs
    layout: Json  # the five fields; those that are not reported are absent


@dataclasses.dataclass(frozen=True)
class Case:
    """One call, or one per data-parallel replica (`batches`). Either `error` or `ranks`, of all
    replicas one after the other."""

    id: str
    backend: str
    cp_size: int | None
    options: Json
    batches: list[dict[str, Any]]
    error: str | None
    ranks: list[RankExpectation]


# --- values ---------------------------------------------------------------------------------------


def tensor_of(value: Json) -> torch.Tensor:
    return torch.tensor(value["data"], dtype=DTYPES[value["dtype"]]).reshape(value["shape"])


def values_of(named: Json, rank: int | None = None, replica: int | None = None) -> dict[str, Any]:
    """Flat: elements of lists as name.0, fields of records as name.field; without nulls and process
    groups, which do not travel."""
    flat: dict[str, Any] = {}
    for name, value in named.items():
        for key, entry in _entries(name, value, rank, replica):
            assert key not in flat, key
            flat[key] = entry
    return flat


def _entries(name: str, value: Any, rank: int | None, replica: int | None
             ) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        if value is not None and value != "<cp_group>" and not name.endswith("_group"):
            yield name, value
    elif "struct" in value:
        for field, part in value.items():
            if field != "struct":
                yield from _entries(f"{name}.{field}", part, rank, replica)
    elif "dtype" in value:
        yield name, tensor_of(value)
    elif "list" in value:
        for number, part in enumerate(value["list"]):
            yield from _entries(f"{name}.{number}", part, rank, replica)
    elif "per_rank" in value:
        assert rank is not None, f"{name} differs between ranks"
        yield from _entries(name, value["per_rank"][rank], rank, replica)
    elif "per_replica" in value:
        assert replica is not None, f"{name} differs between replicas"
        yield from _entries(name, value["per_replica"][replica], rank, replica)
    else:
        yield from _entries(name, value["value"], rank, replica)


# --- options --------------------------------------------------------------------------------------


def _fields(*names: str) -> Callable[[Json], Json]:
    """Arguments that are called as the fields of the option are."""
    return lambda args: {name: args.pop(name) for name in names if args.get(name) is not None}


def _primary(default: bool) -> Callable[[Json], Json]:
    return lambda args: {"keep_primary_full": not args.pop("shard_primary", default)}


def _contiguous(args: Json) -> Json:
    return _fields("pad_multiple")(args) | _primary(True)(args)


def _magi(args: Json) -> Json:
    return {name: text.upper() for name, text in _fields("variant", "domain")(args).items()}


# backend -> name of the layout, and its options from the arguments.
LAYOUTS: dict[str, tuple[str, Callable[[Json], Json]]] = {
    "identity": ("identity", _fields()),
    "contiguous": ("contiguous", _contiguous),
    "round_robin": ("round_robin", _fields()),
    "round_robin_aux_only": ("round_robin", lambda args: {"keep_primary_full": True}),
    "thd_convert": ("thd", _fields("num_chunks")),
    "thd_chunks": ("thd", _fields("num_chunks")),
    "te_thd": ("thd", _fields("num_chunks")),
    "glm_dsa": ("glm_dsa", _fields("num_chunks")),
    "dsv4": ("deepseek_v4", _fields("pad_multiple")),
    "dsv41": ("deepseek_v41", _fields("pad_multiple", "packed_alignment")),
    "gemma4": ("gemma4", _fields()),
    "kimi_k3": ("kimi", lambda args: {"variant": "K3"}),
    "kimi_linear": ("kimi", lambda args: {"variant": "LINEAR"}),
    "blockdiag": ("block_diagonal", _primary(True)),
    "glm5_next": ("glm5_next", _primary(False)),
    "mimo_te": ("mimo", _fields("num_chunks", "image_token_id", "video_token_id")),
    "qwen3_8_flash_next": ("qwen3_8", _fields("pad_multiple", "tp_size")),
    "magi": ("magi", _magi),
    "mtp_inputs": ("identity", _fields()),
}


def options_of(backend: str, args: Json) -> Json:
    """ShardingOptions in JSON form. Every argument must find its place."""
    left = dict(args)
    layout, read = LAYOUTS[backend]
    options: Json = {layout: read(left)}
    if backend == "mtp_inputs":
        options["targets"] = _fields("num_depths", "ignore_index")(left)
    pad_id = left.pop("padding_token_id", 0)
    if pad_id is not None:
        options["padding_token_id"] = pad_id
    if left.get("min_padded_len") is not None:
        options["min_padded_len"] = left["min_padded_len"]
    pads = left.pop("extra_pad_values", None) or {}
    extras = [_extra(name, axis, pads.get(name))
              for key in ("extra_seq_keys", "extra_seq_buffers")
              for name, axis in (left.pop(key, None) or {}).items()]
    if extras:
        options["extra_streams"] = extras
    # Of the hidden collectives and of gradients there is no option.
    no_option = {"min_padded_len", "sync_packed_length", "peer_max_length", "primary_requires_grad"}
    assert left.keys() <= no_option, left
    return options


def _extra(name: str, axis: int, pad: Any) -> Json:
    if pad is None:
        return {"name": name, "seq_axis": axis}
    kind = "float_pad" if isinstance(pad, float) else "int_pad"
    return {"name": name, "seq_axis": axis, kind: int(pad) if isinstance(pad, bool) else pad}


# --- cases ----------------------------------------------------------------------------------------


def shard_cases(stem: str) -> Iterator[Case]:
    """The cases of a file that shard a batch, but for those that cannot be sent: their expectation
    is null, or a value differs between ranks."""
    for line in (FOLDER / f"{stem}.jsonl").read_text().splitlines():
        case = json.loads(line)
        sendable = case["product"].get("expect", {}) is not None and not any(
            "per_rank" in value for value in case["batch"].values())
        if case["backend"] in LAYOUTS and sendable and not case.get("words"):
            yield case_of(case)


def case_of(case: Json) -> Case:
    expect = case["product"].get("expect", {})
    args = case["args"] | expect.get("args", {})
    replicas: list[int | None] = list(range(case["dp_size"])) if case.get("dp_size") else [None]
    batch = dict(case["batch"])
    if case.get("loss_mask_arg") is not None:
        batch["loss_mask"] = case["loss_mask_arg"]  # D17
    error = expect.get("error")
    ranks = [] if error else expect.get("ranks", case["ranks"])
    return Case(case["id"], case["backend"], case["cp_size"], options_of(case["backend"], args),
                [values_of(batch, replica=replica) for replica in replicas], error,
                [_rank_of(entry) for entry in ranks])


def _rank_of(entry: Json) -> RankExpectation:
    outputs = {"loss_mask" if name == "loss_mask(buffer)" else name: value  # D2
               for name, value in entry["outputs"].items() if not is_gradient(name)}
    return RankExpectation(values_of(outputs, rank=entry["rank"]), _layout_of(entry["layout"]))


def is_gradient(name: str) -> bool:
    return name.startswith("d_sum/") or name in ("grad_full", "grad_local")


def _layout_of(layout: Json | None) -> Json:
    return {field: tensor_of(value) if isinstance(value, dict) else value
            for field, value in (layout or {}).items() if value is not None}


def as_reference_returns(backend: str, sent: dict[str, Any], outputs: Outputs, layout: Json
                         ) -> tuple[Outputs, Json | None]:
    """Of an answer what the reference function returns, which is less in some families: outputs
    under its names, and the layout to expect; None: that is not its business."""
    if backend in ("thd_convert", "thd_chunks"):  # the conversion alone
        kept = {name: value for name, value in outputs.items() if name != "_thd_local_indices"}
        return kept, None
    if backend != "mtp_inputs":
        return outputs, layout
    names = {"position_ids": "batch.position_ids"}
    kept = {names.get(name, name.removeprefix("target_")): value for name, value in outputs.items()
            if name == "position_ids" or name not in sent}
    positions = kept.get("position_ids.0")
    if positions is not None:
        kept["position_ids_seq_dim"] = 2 if positions.ndim == 3 else 1
    return kept, None


# --- comparison -----------------------------------------------------------------------------------


def difference(got: Any, want: Any) -> str | None:
    """Of two values, exactly: dtype, shape and every element; NaN equals NaN."""
    if isinstance(want, torch.Tensor) != isinstance(got, torch.Tensor):
        return f"got {got!r}, want {want!r}"
    if not isinstance(want, torch.Tensor):
        same = type(got) is type(want) and got == want
        return None if same else f"got {got!r}, want {want!r}"
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"got {got.dtype} {list(got.shape)}, want {want.dtype} {list(want.shape)}"
    same = got == want
    if want.is_floating_point():
        same = same & (got.signbit() == want.signbit()) | got.isnan() & want.isnan()
    if bool(same.all()):
        return None
    at = tuple(int(index) for index in (~same).nonzero()[0])
    return f"at {list(at)} got {got[at].item()}, want {want[at].item()}"


def layout_difference(got: Any, want: Json) -> str | None:
    """A ShardLayout beside the five fields of a case; what holds integers may be a list there, and
    of any integer dtype (the wire has one)."""
    for field in LAYOUT_FIELDS:
        have, should = getattr(got, field), want.get(field)
        if (have is None) != (should is None):
            return f"{field}: got {have}, want {should}"
        if isinstance(should, int) and have != should:
            return f"{field}: got {have}, want {should}"
        if isinstance(should, (list, torch.Tensor)):
            found = difference(torch.as_tensor(have).to(torch.int64),
                               torch.as_tensor(should).to(torch.int64))
            if found:
                return f"{field}: {found}"
    return None


def outputs_difference(got: Outputs, want: Outputs) -> str | None:
    if got.keys() != want.keys():
        return f"streams: got {sorted(got.keys() - want.keys())} in place of " \
               f"{sorted(want.keys() - got.keys())}"
    for name, value in want.items():
        found = difference(got[name], value)
        if found:
            return f"{name}: {found}"
    return None

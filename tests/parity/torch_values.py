"""Between the corpus' form of values and what the reference takes and returns."""

import dataclasses
from typing import Any

import torch
import torch.distributed as dist

from values import Value, flatten

TORCH = {"i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "u8": torch.uint8,
         "bool": torch.bool, "f32": torch.float32, "f64": torch.float64, "f16": torch.float16,
         "bf16": torch.bfloat16}
NAMES = {dtype: name for name, dtype in TORCH.items()}


def decode(value: Value) -> Any:
    """A value of an input, in storage of its own."""
    if "dtype" in value:
        flat = torch.tensor(flatten(value["data"]), dtype=TORCH[value["dtype"]])
        return flat.reshape(value["shape"])
    if "list" in value:
        return [decode(element) for element in value["list"]]
    return value["value"]


def encode_tensor(tensor: torch.Tensor) -> Value:
    return {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
            "data": tensor.detach().tolist()}


def encode(value: Any) -> Value:
    """A value of an output."""
    if isinstance(value, torch.Tensor):
        return encode_tensor(value)
    if isinstance(value, (list, tuple)):
        return {"list": [encode(element) for element in value]}
    if isinstance(value, dist.ProcessGroup):
        return {"value": "<cp_group>"}
    if dataclasses.is_dataclass(value):
        return encode_record(value)
    return {"value": value}


def encode_record(record: Any) -> Value:
    """Tensors of a record are encoded, its other fields stand bare; caches are left out."""
    fields = {}
    for field in dataclasses.fields(record):
        if field.name.startswith("_"):
            continue
        value = getattr(record, field.name)
        if isinstance(value, torch.Tensor):
            fields[field.name] = encode_tensor(value)
        else:
            fields[field.name] = encode(value)["value"]
    return {"struct": type(record).__name__, **fields}


def encode_layout(layout: Any) -> Value | None:
    """The five fields of a ShardLayout, but those that are not set."""
    if layout is None:
        return None
    encoded: Value = {}
    for field in ("original_seq_len", "padded_seq_len", "local_token_global_indices",
                  "input_row_shape", "input_token_stream_positions"):
        value = getattr(layout, field)
        if isinstance(value, torch.Tensor):
            encoded[field] = encode_tensor(value)
        elif value is not None:
            encoded[field] = list(value) if isinstance(value, tuple) else value
    return encoded

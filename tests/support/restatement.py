"""The layouts identity, contiguous and round_robin (contract 4.1 to 4.4) once more, in numpy.

Shards of one batch: restate(batch, options, cp_size) -> Restated. Options are those of the wire, as
a dict. Batches that the contract refuses are not told apart here; the bad-input rows state them.
"""

from typing import NamedTuple

import numpy as np

from safetensors_file import DTYPES, Tensor

FLOATS = ("F16", "BF16", "F32", "F64")


class Restated(NamedTuple):
    shards: list   # of dicts name -> Tensor, by rank
    padded: dict   # name -> Tensor before the cut
    axes: dict     # name -> axis that was cut; absent = held whole
    columns: list  # padded columns of every local slot, by rank
    original_len: int
    padded_len: int


def value_of(dtype, value):
    """`value` as one element of numpy's type for `dtype`."""
    if dtype == "BF16":
        return np.uint16(np.float32(value).view(np.uint32) >> 16)
    return np.array(value).astype(DTYPES[dtype])


def pad_tail(source, axis, count, value):
    if count == 0:
        return source
    shape = list(source.array.shape)
    shape[axis] = count
    tail = np.full(shape, value_of(source.dtype, value), DTYPES[source.dtype])
    return Tensor(source.dtype, np.concatenate([source.array, tail], axis))


def continue_tail(source, axis, count):
    if count == 0 or source.array.size == 0:
        return source
    last = np.take(source.array, [-1], axis)
    steps = np.arange(1, count + 1, dtype=DTYPES[source.dtype])
    shape = [1] * last.ndim
    shape[axis] = count
    return Tensor(source.dtype, np.concatenate([source.array, last + steps.reshape(shape)], axis))


def positions_of(batch, rows, length):
    """The position ids before padding (contract 2.4), and their sequence axis."""
    if "position_ids" not in batch:
        return Tensor("I64", np.tile(np.arange(length, dtype="<i8"), (rows, 1))), 1
    dtype, array = batch["position_ids"]
    if array.ndim == 3:
        return Tensor(dtype, array), 2
    if array.shape[0] == 1:
        array = np.repeat(array, rows, 0)
    return Tensor(dtype, array), 1


def padding_mask_of(batch):
    """From an attention mask (contract 2.5); None: there is none."""
    if "padding_mask" in batch:
        return batch["padding_mask"]
    if "attention_mask" not in batch:
        return None
    dtype, array = batch["attention_mask"]
    if array.ndim != 4:
        return Tensor("BOOL", array == 0)
    diagonal = np.diagonal(array[:, 0], axis1=1, axis2=2)
    return Tensor("BOOL", ~diagonal if dtype == "BOOL" else diagonal != 0)


def map_of(layout, padded_len, cp_size):
    if layout == "identity":
        return [np.arange(padded_len)] * cp_size
    if layout == "contiguous":
        return np.split(np.arange(padded_len), cp_size)
    chunks = np.split(np.arange(padded_len), 2 * cp_size)
    return [np.concatenate([chunks[r], chunks[-1 - r]]) for r in range(cp_size)]


def plan_streams(batch, options, layout, own, rows, length, count):
    """What is cut: name -> (padded tensor, axis)."""
    contiguous = layout == "contiguous"
    primary = "input_ids" if "input_ids" in batch else "inputs_embeds"
    streams = {}

    def cut(name, source, value, axis=1):
        if not contiguous and source.dtype in FLOATS:
            value = 0
        streams[name] = pad_tail(source, axis, count, value), axis

    if not own.get("keep_primary_full"):
        fill = options.get("padding_token_id", 0) if contiguous and primary == "input_ids" else 0
        cut(primary, batch[primary], fill)
    cut("labels", batch.get("labels", batch.get("loss_mask")), -100)
    if "loss_mask" in batch and "labels" in batch:
        cut("loss_mask", batch["loss_mask"], 0)
    mask = padding_mask_of(batch) if contiguous else batch.get("padding_mask")
    if mask is not None:
        cut("padding_mask", mask, 1)
    positions, axis = positions_of(batch, rows, length)
    if contiguous:
        streams["position_ids"] = continue_tail(positions, axis, count), axis
        if "position_ids" not in batch:
            ramp = np.tile(np.arange(length + count, dtype="<i8"), (rows, 1))
            streams["position_ids"] = Tensor("I64", ramp), axis
    else:
        cut("position_ids", positions, 0, axis)
    for extra in options.get("extra_streams", []):
        if extra["name"] not in streams:
            source = batch[extra["name"]]
            value = extra.get("int_pad", extra.get("float_pad", 0))
            cut(extra["name"], source, value, extra.get("seq_axis", 1) % source.array.ndim)
    return streams


def restate(batch, options, cp_size):
    (layout,) = {"identity", "contiguous", "round_robin"} & set(options)
    own, ranks = options[layout], cp_size or 1
    tensors = {name: value for name, value in batch.items() if isinstance(value, Tensor)}
    primary = tensors.get("inputs_embeds", tensors.get("input_ids"))
    rows, length = primary.array.shape[:2]
    divisor = {"identity": 1, "contiguous": ranks * max(own.get("pad_multiple", 1), 2),
               "round_robin": 2 * ranks}[layout]
    padded_len = length + -length % divisor
    streams = {}
    if layout != "identity":
        streams = plan_streams(tensors, options, layout, own, rows, length, padded_len - length)
    whole = {name: value for name, value in tensors.items() if name not in streams}
    if layout != "identity":
        whole.pop("attention_mask", None)
        if "labels" not in tensors:
            whole.pop("loss_mask", None)
    columns = map_of(layout, padded_len, ranks)
    shards = [{name: Tensor(value.dtype, np.take(value.array, own_columns, axis))
               for name, (value, axis) in streams.items()} | whole for own_columns in columns]
    padded = {name: value for name, (value, _) in streams.items()} | whole
    axes = {name: axis for name, (_, axis) in streams.items()}
    return Restated(shards, padded, axes, columns, length, padded_len)

"""The layout thd (contract 4.7, 5, 6) once more, in numpy.

Shards of one batch: restate_thd(batch, options, cp_size) -> RestatedThd. Batches that the contract
refuses are not told apart here; the bad-input rows state them.
"""

from typing import NamedTuple

import numpy as np

from safetensors_file import DTYPES, Tensor

SENTINEL = -1000
TOKENS = ("input_ids", "labels", "position_ids", "padding_mask")


class RestatedThd(NamedTuple):
    shards: list   # of dicts name -> Tensor or scalar, by rank
    full: dict     # name -> Tensor before the cut, [T, ...] or [C, T_c, ...]
    axes: dict     # name -> axis of the shard that was cut; absent = held whole
    columns: list  # of every local slot, by rank; of chunks over the flattened [C, T_c]
    rows: tuple    # (B, S)
    chunks: int


class Converted(NamedTuple):
    """One chunk (contract 5)."""
    streams: dict       # name -> Tensor, flat
    real: np.ndarray    # cumulative lengths; None: none were sent
    padded: np.ndarray  # ... where they are emitted; else None


def listed(lengths):
    flat = np.asarray(lengths, np.int64).reshape(-1)
    return flat[flat != SENTINEL]


def cumulative(lengths):
    return np.concatenate([[0], np.cumsum(lengths)])


def cumulative_lengths(real, padded, tokens):
    """Contract 5.3: what is emitted as cu_seqlens and as cu_seqlens_padded."""
    cu, cup = cumulative(real), None if padded is None else cumulative(padded)
    if cup is None:
        return cu, None
    if cu.size == cup.size > 1 and (cu[:-1] == cup[:-1]).all() and cu[-1] < tokens:
        cu = np.append(cu[:-1], tokens)
        return cu, None
    return cu, None if np.array_equal(cu, cup) else cup


def mask_by_lengths(real, padded, tokens):
    """Contract 5.4, with lengths."""
    starts = cumulative(real if padded is None else padded)
    at = np.arange(tokens)
    segment = np.minimum(np.searchsorted(starts[1:], at, "right"), len(real) - 1)
    return (at - starts[segment] >= real[segment]) | (at >= starts[-1])


def flat(tensor):
    """[B, S, ...] -> [T, ...], the other axes as one, which is dropped where it is 1."""
    dtype, array = tensor
    per_token = int(np.prod(array.shape[2:]))
    shape = (array.shape[0] * array.shape[1], *([per_token] if per_token != 1 else []))
    return Tensor(dtype, array.reshape(shape))


def by_row(name, array):
    """Lengths of a single row may come as [n]."""
    return array[None] if name.startswith("seq_lens") and array.ndim == 1 else array


def convert(batch, first, last, pad_id):
    """Rows first ... last - 1."""
    rows = {name: Tensor(batch[name].dtype, by_row(name, batch[name].array)[first:last])
            for name in ("input_ids", "labels", "position_ids", "seq_lens", "seq_lens_padded")
            if name in batch}
    if "position_ids" in batch and batch["position_ids"].array.ndim == 3:
        rows["position_ids"] = batch["position_ids"]
    streams = {name: flat(rows[name]) for name in ("input_ids", "labels")}
    tokens = streams["input_ids"].array.shape[0]
    if "position_ids" in rows:
        dtype, array = rows["position_ids"]
        shape = (array.shape[0], 1, tokens) if array.ndim == 3 else (tokens,)
        streams["position_ids"] = Tensor(dtype, array.reshape(shape))
    if "seq_lens" not in rows:
        mask = streams["input_ids"].array == pad_id
        streams["padding_mask"] = Tensor("BOOL", mask)
        return Converted(streams, None, None)
    real = listed(rows["seq_lens"].array)
    padded = listed(rows["seq_lens_padded"].array) if "seq_lens_padded" in rows else None
    streams["padding_mask"] = Tensor("BOOL", mask_by_lengths(real, padded, tokens))
    return Converted(streams, *cumulative_lengths(real, padded, tokens))


def te_partition(boundaries, tokens, world, rank):
    """Contract 6, for all local slots."""
    start = np.asarray(boundaries) // world
    slot = np.arange(tokens // world)
    document = np.minimum(np.searchsorted(start[1:], slot, "right"), len(start) - 2)
    length = start[document + 1] - start[document]
    inside, half = slot - start[document], length // 2
    chunk = np.where(inside < half, rank, 2 * (world - 1) - rank)
    return inside + start[document] * world + half * chunk


def as_i32(values):
    return Tensor("I32", np.asarray(values, DTYPES["I32"]))


def stacked(rows):
    """Rows of any length, filled up with the sentinel."""
    width = max(len(row) for row in rows)
    return as_i32([list(row) + [SENTINEL] * (width - len(row)) for row in rows])


def emitted_lengths(converted, cut):
    """The streams of lengths; every rank holds them whole."""
    if converted[0].real is None:
        return {}
    boundaries = [chunk.real if chunk.padded is None else chunk.padded for chunk in converted]
    real = boundaries if cut else [chunk.real for chunk in converted]
    longest = [np.diff(row).max() for row in real]
    alone = len(converted) == 1
    made = {"cu_seqlens": as_i32(real[0]) if alone else stacked(real),
            "max_seqlen": as_i32(longest[0] if alone else longest)}
    if not cut and any(chunk.padded is not None for chunk in converted):
        made["cu_seqlens_padded"] = as_i32(boundaries[0]) if alone else stacked(boundaries)
    return made


def others(batch, cut, chunked):
    """What passes through. Chunks at one rank keep no tensor; D16: those of several ranks do."""
    gone = {"input_ids", "labels", "position_ids", "padding_mask", "seq_lens", "seq_lens_padded",
            "cu_seqlens"} | ({"attention_mask", "cu_seqlens_padded"} if cut else set())
    return {name: value for name, value in batch.items() if name not in gone and not
            (chunked and not cut and isinstance(value, Tensor))}


def restate_thd(batch, options, cp_size):
    ranks = cp_size or 1
    cut = ranks > 1
    chunks = max(options["thd"].get("num_chunks", 1), 1)
    rows, length = batch["input_ids"].array.shape[:2]
    step = rows // chunks
    converted = [convert(batch, c * step, (c + 1) * step, options.get("padding_token_id"))
                 for c in range(chunks)]
    tokens = step * length  # of one chunk
    columns = [[np.arange(tokens) if not cut else te_partition(
        chunk.real if chunk.padded is None else chunk.padded, tokens, ranks, rank)
        for chunk in converted] for rank in range(ranks)]
    whole = others(batch, cut, chunks > 1) | emitted_lengths(converted, cut)
    full, axes = {}, {}
    for name in converted[0].streams:
        parts = [chunk.streams[name] for chunk in converted]
        dtype = parts[0].dtype
        floating = name == "input_ids" and dtype in ("F16", "BF16", "F32", "F64")  # D7
        if cut and name != "padding_mask" and not floating:
            dtype = "I64"
        arrays = [part.array.astype(DTYPES[dtype]) for part in parts]
        axis = 2 if arrays[0].ndim == 3 else 0
        full[name] = Tensor(dtype, arrays[0] if chunks == 1 else np.stack(arrays))
        axes[name] = axis if chunks == 1 else axis + 1
    if chunks == 1:
        kind = "I32" if cut else "I64"
        full["_thd_local_indices"] = Tensor(kind, np.arange(tokens, dtype=DTYPES[kind]))
        axes["_thd_local_indices"] = 0
    shards = []
    for rank in range(ranks):
        shard = dict(whole)
        for name, (dtype, array) in full.items():
            if chunks == 1:
                local = np.take(array, columns[rank][0], axes[name])
            else:
                local = np.stack([np.take(array[c], columns[rank][c], axes[name] - 1)
                                  for c in range(chunks)])
            shard[name] = Tensor(dtype, local)
        if cut:
            shard |= {"qkv_format": "thd", "cp_size": ranks, "cp_rank": rank}
        shards.append(shard)
    over_all = [np.concatenate([part + c * tokens for c, part in enumerate(own)])
                for own in columns]
    return RestatedThd(shards, full, axes, over_all, (rows, length), chunks)

"""Streams that several layouts share. Every stream holds its own run of integers, so that a wrong
axis, permutation or pad shows."""

import math
from typing import Any, Sequence

from case import Case
from draw import Draw
from values import (DTYPES, FLOATS, INTS, Value, flatten, nest, rows, running, scalar,
                    tensor)

PAD_IDS = (0, 9999, 7, -1)
LABEL_DTYPES = INTS + FLOATS
MASK_DTYPES = ("bool", "i64", "i32", "i16", "u8")


def draw_rows(draw: Draw, most_rows: int = 4, most_tokens: int = 40) -> tuple[int, int]:
    """B and S; now and then without rows or without tokens."""
    batch_size = 0 if draw.chance(2) else draw.integer(1, most_rows)
    seq_len = 0 if draw.chance(2) else draw.integer(1, most_tokens)
    return batch_size, seq_len


def draw_pad_id(draw: Draw, args: dict[str, Any], null: bool = False) -> None:
    """Sets padding_token_id, which may stay absent; `null`: may be null too."""
    kind = draw.integer(0, 4)
    if kind == 4 and null:
        args["padding_token_id"] = None
    elif kind >= 2:
        args["padding_token_id"] = draw.pick(PAD_IDS)


def draw_ids(draw: Draw, shape: Sequence[int], dtypes: Sequence[str] = INTS) -> Value:
    return running(draw.pick(dtypes), shape)


def draw_embeds(draw: Draw, batch_size: int, seq_len: int) -> Value:
    return running(draw.pick(FLOATS), [batch_size, seq_len, draw.integer(1, 3)])


def draw_primary(draw: Draw, case: Case, batch_size: int, seq_len: int) -> None:
    if draw.chance(35):
        case.batch["inputs_embeds"] = draw_embeds(draw, batch_size, seq_len)
        return
    dtypes = INTS
    if case.args.get("padding_token_id", 0) in (0, 7):  # others do not fit an unsigned stream
        dtypes = INTS + ("u8",)
    case.batch["input_ids"] = draw_ids(draw, [batch_size, seq_len], dtypes)


def draw_labels(draw: Draw, shape: Sequence[int], unsigned: bool = True) -> Value:
    """`unsigned`: also bool and u8 labels, which D5 refuses once -100 is needed."""
    dtypes = LABEL_DTYPES + (("u8", "bool") if unsigned and draw.chance(30) else ())
    return running(draw.pick(dtypes), shape, 501)


def draw_flags(draw: Draw, dtype: str, shape: Sequence[int]) -> Value:
    """Zeros and ones without a pattern that a permutation would keep."""
    salt = draw.integer(0, 6)
    return tensor(dtype, shape, lambda i: (i * i * 5 + i * 3 + salt) % 7 < 4)


def draw_loss_mask(draw: Draw, shape: Sequence[int]) -> Value:
    return draw_flags(draw, draw.pick(DTYPES), shape)


def draw_valid_lengths(draw: Draw, batch_size: int, seq_len: int) -> list[int]:
    """How many tokens of each row are valid; the rest is a tail of padding."""
    return [seq_len - draw.integer(0, min(seq_len, 6)) for _ in range(batch_size)]


def tail_mask(dtype: str, valid: Sequence[int], seq_len: int) -> Value:
    """[B, S], 1 where valid."""
    return rows(dtype, [[int(t < n) for t in range(seq_len)] for n in valid], seq_len)


def indexed_mask(draw: Draw, dtype: str, valid: Sequence[int], seq_len: int) -> Value:
    """[B, S], 1, 2, 3... for the documents of a row, 0 in its tail."""
    lists = []
    for length in valid:
        document, row = 1, []
        for t in range(seq_len):
            if t and t < length and draw.chance(25):
                document += 1
            row.append(document if t < length else 0)
        lists.append(row)
    return rows(dtype, lists, seq_len)


def square_mask(dtype: str, valid: Sequence[int], seq_len: int, heads: int,
                more_keys: int = 0) -> Value:
    """[B, heads, S, S + more_keys]: causal over the valid tokens. Bools and integers say what is
    attended; floats are added to scores. Heads but the first are fully open: nobody may read
    them."""
    keys = seq_len + more_keys
    blocked = -10000.0 if dtype in FLOATS else 0
    attended = 0.0 if dtype in FLOATS else 1

    def number(flat: int) -> float:
        key = flat % keys
        query = flat // keys % seq_len
        head = flat // (keys * seq_len) % heads
        row = flat // (keys * seq_len * heads)
        open_slot = head > 0 or (key <= query and key < valid[row])
        return attended if open_slot else blocked

    return tensor(dtype, [len(valid), heads, seq_len, keys], number)


def draw_positions(draw: Draw, batch_size: int, seq_len: int, axes: bool = True) -> Value | None:
    """Absent; [B, S]; [1, S]; with `axes` also [3 or 4, B, S], [3, 1, S] and [B, 3, S]."""
    shapes = ([batch_size, seq_len], [1, seq_len], [3, batch_size, seq_len], [4, 1, seq_len],
              [batch_size, 3, seq_len])
    kind = draw.integer(0, 6 if axes else 3)
    if kind == 0:
        return None
    shape = shapes[max(kind - 2, 0)] if axes else shapes[kind // 3]
    return running(draw.pick(INTS), shape, draw.pick((0, 5)))


def draw_passengers(draw: Draw, case: Case, zero_dim: bool = True) -> None:
    """Entries that every layout hands on as they are."""
    if draw.chance(30):
        case.batch["pixel_values"] = running(draw.pick(DTYPES), [draw.integer(1, 3), 2])
    if draw.chance(25):
        case.batch["note"] = scalar(draw.pick(("opaque", 5, 2.5, True)))
    if zero_dim and draw.chance(10):
        case.batch["temperature"] = running(draw.pick(DTYPES), [], 1)


def draw_extras(draw: Draw, case: Case, batch_size: int, seq_len: int, pads: bool) -> None:
    """Extra streams on axes of their own: with pads (contiguous, Gemma4), or without them (round
    robin, where torch's context cannot count an axis from the end)."""
    shapes = (([batch_size, seq_len], 1), ([batch_size, seq_len, 2], 1), ([seq_len, 2], 0),
              ([batch_size, 2, seq_len], 2), ([batch_size, 2, seq_len], -1),
              ([batch_size, seq_len, 3], -2), ([batch_size, seq_len, 2, 2], 1))
    axes: dict[str, int] = {}
    values: dict[str, Any] = {}
    for number in range(draw.pick((0, 0, 1, 2, 3))):
        name = ("vision_groups", "teacher_logits", "routes")[number]
        shape, axis = draw.pick(shapes)
        axis = axis if pads else axis % len(shape)
        dtype = draw.pick(DTYPES)
        case.batch[name] = running(dtype, shape, 3000)
        axes[name] = axis
        if pads and draw.chance(60):
            values[name] = draw.pick(pads_of(dtype))
    if not axes:
        return
    case.args["extra_seq_keys" if pads else "extra_seq_buffers"] = axes
    if values:
        case.args["extra_pad_values"] = values


def pads_of(dtype: str) -> tuple[Any, ...]:
    """Pads that the type can hold. Negative ones are for signed types alone: D5."""
    if dtype == "bool":
        return (True, 0, 3, 0.5)
    if dtype == "u8":
        return (9, 2.75, True)
    if dtype in INTS:
        return (-1, 7, 2.75, -3.5, True)
    return (-1, 0.1, -2.5, 1000.3, True)


def draw_attention_mask(draw: Draw, case: Case, batch_size: int, seq_len: int) -> None:
    """Any mask that the contiguous family converts. Not a 4-D integer one: D6."""
    kind = draw.integer(0, 4)
    valid = draw_valid_lengths(draw, batch_size, seq_len)
    if kind == 1:
        dtype = draw.pick(("i64", "bool") + DTYPES)
        case.batch["attention_mask"] = tail_mask(dtype, valid, seq_len)
    elif kind == 2:
        mask = indexed_mask(draw, draw.pick(INTS + ("u8", "f32")), valid, seq_len)
        case.batch["attention_mask"] = mask
    elif kind >= 3 and seq_len <= 16:
        dtype = draw.pick(("bool",) + FLOATS)
        more_keys = draw.pick((0, 0, 0, 3))
        mask = square_mask(dtype, valid, seq_len, draw.integer(1, 2), more_keys)
        case.batch["attention_mask"] = mask
    if kind and draw.chance(15):
        put_odd_floats(draw, case.batch.get("attention_mask"))


def put_odd_floats(draw: Draw, mask: Value | None) -> None:
    """Scatters values that compare in their own way over a floating mask."""
    if mask is None or mask["dtype"] not in FLOATS:
        return
    flat = flatten(mask["data"])
    for _ in range(min(len(flat), 12)):
        odd = draw.pick((-0.0, 0.0, -1.0, math.nan, math.inf, -math.inf))
        flat[draw.integer(0, len(flat) - 1)] = odd
    if flat:
        mask["data"] = nest(flat, mask["shape"])


def draw_padding_mask(draw: Draw, case: Case, batch_size: int, seq_len: int,
                      dtypes: Sequence[str] = MASK_DTYPES, percent: int = 30) -> None:
    if draw.chance(percent):
        valid = draw_valid_lengths(draw, batch_size, seq_len)
        case.batch["padding_mask"] = rows(
            draw.pick(dtypes), [[int(t >= n) for t in range(seq_len)] for n in valid], seq_len)

"""Cases of Qwen3.8-Flash-Next."""

import faults
from bshd import draw_loss_streams
from case import Case
from deepseek import packed_by_name
from documents import draw_documents
from draw import Draw
from model_lengths import cumulative, draw_whole_rows
from streams import (MASK_DTYPES, draw_ids, draw_labels, draw_pad_id, draw_passengers,
                     draw_positions, draw_valid_lengths, tail_mask)
from values import rows, running, scalar


def qwen3_8_flash_next(draw: Draw) -> Case:
    case = Case("qwen3_8_flash_next", draw.pick((2, 1, 3, 4, 8)))
    if draw.chance(60):
        case.args["pad_multiple"] = draw.integer(2, 8)
    draw_pad_id(draw, case.args)
    packed = draw.chance(40)
    shape = draw_whole_rows(draw, 1 if packed else 4)
    case.batch["input_ids"] = draw_ids(draw, shape, ("i64", "i32"))
    case.batch["labels"] = draw_labels(draw, shape)
    positions = draw_positions(draw, *shape)
    if positions is not None:
        case.batch["position_ids"] = positions
    draw_passengers(draw, case)
    draw_loss_streams(draw, case, shape)
    if packed:
        draw_boundaries(draw, case, shape[1])
    else:
        draw_right_tails(draw, case, shape)
    return faults.spoil(draw, case, (
        faults.no_primary, faults.two_primaries, faults.no_labels, faults.flat_positions,
        faults.overlong_document, left_pads, nonbinary_mask, unfit_multiple, packed_by_name,
        longest))


def draw_boundaries(draw: Draw, case: Case, seq_len: int) -> None:
    if draw.chance(50):
        case.batch["cu_seqlens"] = cumulative(draw, draw.pick(("i32", "i64")), seq_len)
    else:
        documents = draw_documents(draw, 1, seq_len, short_rows=(0,), empty=False)
        documents.real = [[max(1, n) for n in row if n] or [1] for row in documents.real]
        documents.padded = documents.real
        case.batch["seq_lens"], padded = documents.streams(draw)
        if draw.chance(50):
            case.batch["seq_lens_padded"] = padded
    if draw.chance(60):
        case.batch["qkv_format"] = scalar("thd")


def draw_right_tails(draw: Draw, case: Case, shape: tuple[int, int]) -> None:
    valid = draw_valid_lengths(draw, *shape)
    kind = draw.integer(0, 3)
    if kind in (1, 3):
        dtype = draw.pick(MASK_DTYPES)
        case.batch["attention_mask"] = tail_mask(dtype, valid, shape[1])
    if kind in (2, 3):
        case.batch["padding_mask"] = rows(draw.pick(MASK_DTYPES), [
            [int(t >= n) for t in range(shape[1])] for n in valid])


def left_pads(case: Case) -> None:
    batch_size, seq_len = case.batch["input_ids"]["shape"]
    case.batch["attention_mask"] = rows("i64", [[0] + [1] * (seq_len - 1)] * batch_size)


def nonbinary_mask(case: Case) -> None:
    batch_size, seq_len = case.batch["input_ids"]["shape"]
    case.batch["attention_mask"] = rows("i64", [[2] * seq_len] * batch_size)


def unfit_multiple(case: Case) -> None:
    case.args["pad_multiple"] = 1


def longest(case: Case) -> None:
    case.batch["max_seqlen"] = running("i32", [1], 8)

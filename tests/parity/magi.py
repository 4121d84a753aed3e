"""Cases of Magi. Its dispatch is a stand-in of the public formula (contract section 7.4)."""

import faults
from case import Case
from draw import Draw
from streams import (MASK_DTYPES, draw_flags, draw_ids, draw_labels, draw_pad_id,
                     draw_padding_mask, draw_passengers)
from thd import draw_flat
from values import running, scalar


def magi(draw: Draw) -> Case:
    if draw.chance(50):
        return magi_packed(draw)
    case = Case("magi", draw.pick((2, 1, 3, 4, 8)), {"variant": "hf"})
    seq_len = draw.integer(4 * case.cp_size, 64)
    draw_pad_id(draw, case.args)
    case.batch["input_ids"] = draw_ids(draw, [1, seq_len])
    if draw.chance(85):
        case.batch["labels"] = draw_labels(draw, [1, seq_len], unsigned=False)
    if draw.chance(40):
        mask = draw_flags(draw, draw.pick(MASK_DTYPES), [1, seq_len])
        case.batch["attention_mask"] = mask
    draw_padding_mask(draw, case, 1, seq_len)
    draw_passengers(draw, case)
    return faults.spoil(draw, case, (two_rows,))


def magi_packed(draw: Draw) -> Case:
    cp_size = draw.pick((2, 3, 4, 8, 1))
    case, _ = draw_flat(draw, "magi", cp_size, 4 * cp_size, short=False, chunked=False)
    case.args["variant"] = "custom"
    case.batch["input_ids"] = draw_ids(draw, case.batch["input_ids"]["shape"][:2])
    case.batch["labels"] = draw_labels(draw, case.batch["labels"]["shape"], unsigned=False)
    if draw.chance(85):
        case.batch["qkv_format"] = scalar("thd")
    else:
        case.batch.pop("qkv_format", None)
    return faults.spoil(draw, case, (faults.without("labels"),))


def two_rows(case: Case) -> None:
    for name in ("input_ids", "labels"):
        case.batch[name] = running("i64", [2, 8])

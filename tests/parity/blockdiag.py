"""Cases of block-diagonal packed CP. No 4-D floating mask: D6."""

import faults
from bshd import draw_common
from case import Case
from draw import Draw
from streams import (MASK_DTYPES, draw_flags, draw_loss_mask, draw_pad_id, draw_padding_mask,
                     draw_valid_lengths, indexed_mask, square_mask, tail_mask)
from values import INTS, flatten, running


def blockdiag(draw: Draw) -> Case:
    case = Case("blockdiag", draw.pick((2, 1, 3, 4, 8)))
    shape = (1, draw.integer(1, 40))
    if draw.chance(40):
        case.args["shard_primary"] = draw.pick((True, False))
    draw_pad_id(draw, case.args)
    draw_common(draw, case, shape)
    if draw.chance(15):
        del case.batch["labels"]
    draw_padding_mask(draw, case, *shape)
    if draw.chance(35):
        case.loss_mask = draw_loss_mask(draw, shape)
    valid = draw_valid_lengths(draw, *shape)
    kind = draw.integer(0, 4)
    if kind == 1:
        case.batch["attention_mask"] = indexed_mask(draw, draw.pick(INTS + ("u8",)), valid,
                                                    shape[1])
    elif kind == 2:
        case.batch["attention_mask"] = tail_mask(draw.pick(MASK_DTYPES), valid, shape[1])
    elif kind == 3 and shape[1] <= 16:
        case.batch["attention_mask"] = square_mask(draw.pick(MASK_DTYPES), valid, shape[1],
                                                   draw.integer(1, 2))
    elif kind == 4:
        case.batch["_packed_seq_ids"] = indexed_mask(draw, draw.pick(INTS), valid, shape[1])
    if draw.chance(25):
        draw_visuals(draw, case, shape)
    return faults.spoil(draw, case, (faults.no_primary, faults.two_primaries, second_row))


def draw_visuals(draw: Draw, case: Case, shape: tuple[int, int]) -> None:
    mask = draw_flags(draw, "bool", shape)
    case.batch["visual_pos_masks"] = mask
    if draw.chance(60):
        tokens = sum(flatten(mask["data"]))
        layers = [running("f32", [tokens, 2], 1 + 100 * i) for i in range(draw.integer(1, 3))]
        case.batch["_deepstack_visual_embeds"] = {"list": layers}


def second_row(case: Case) -> None:
    """Only one packed row is possible."""
    seq_len = faults.row_shape(case)[1]
    case.batch = {"input_ids": running("i64", [2, seq_len]),
                  "labels": running("i64", [2, seq_len], 501)}
    case.loss_mask = None

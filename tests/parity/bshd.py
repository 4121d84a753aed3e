"""Cases of the layouts on [B, S] rows: identity, contiguous, round robin, aux-only and Gemma4."""

import faults
from case import Case
from draw import Draw
from streams import (MASK_DTYPES, draw_attention_mask, draw_extras, draw_labels, draw_loss_mask,
                     draw_pad_id, draw_padding_mask, draw_passengers, draw_positions,
                     draw_primary, draw_rows, draw_valid_lengths, indexed_mask)
from values import FLOATS, INTS, running, scalar

MESHES = (1, 2, 3, 4, 8)
FAULTS = (faults.no_primary, faults.two_primaries, faults.no_labels, faults.flat_positions)
ROUND_ROBIN_FAULTS = FAULTS + (faults.labels_as_loss_mask, faults.missing_extra,
                               faults.long_labels, faults.long_loss_mask)


def draw_common(draw: Draw, case: Case, shape: tuple[int, int]) -> None:
    """Primary, labels, positions and what is handed on."""
    draw_primary(draw, case, *shape)
    case.batch["labels"] = draw_labels(draw, shape)
    positions = draw_positions(draw, *shape)
    if positions is not None:
        case.batch["position_ids"] = positions
    draw_passengers(draw, case)


def draw_loss_streams(draw: Draw, case: Case, shape: tuple[int, int]) -> None:
    """A loss mask beside the labels or, now and then, instead of them."""
    if draw.chance(35):
        case.loss_mask = draw_loss_mask(draw, shape)
        missing = draw.pick((False, False, False, True))
        if missing and draw.chance(50):
            del case.batch["labels"]
        elif missing:
            case.batch["labels"] = scalar(None)


def identity(draw: Draw) -> Case:
    """The loss mask is a stream of the batch here: as an argument it is what D17 decides."""
    case = Case("identity", draw.pick((None, 1)))
    shape = draw_rows(draw)
    if draw.chance(90):
        draw_common(draw, case, shape)
    if draw.chance(10):
        case.batch["input_ids"] = running(draw.pick(INTS), shape[1:])
    draw_attention_mask(draw, case, *shape)
    draw_padding_mask(draw, case, *shape, MASK_DTYPES + FLOATS)
    if draw.chance(30):
        case.batch["loss_mask"] = draw_loss_mask(draw, shape)
    return case


def contiguous(draw: Draw) -> Case:
    case = Case("contiguous", draw.pick(MESHES))
    shape = draw_rows(draw)
    if draw.chance(60):
        case.args["pad_multiple"] = draw.pick((2, 0, 1, 3, 4, 5, 8, -2, None))
    if draw.chance(30):
        case.args["shard_primary"] = draw.pick((True, False, False))
    draw_pad_id(draw, case.args, null=True)
    draw_common(draw, case, shape)
    draw_attention_mask(draw, case, *shape)
    draw_padding_mask(draw, case, *shape, MASK_DTYPES + FLOATS)
    draw_loss_streams(draw, case, shape)
    draw_extras(draw, case, *shape, pads=True)
    if draw.chance(5):  # a name that the layout handles anyway
        case.args.setdefault("extra_seq_keys", {})["labels"] = 1
    return faults.spoil(draw, case, FAULTS + (faults.huge_pad_id, faults.null_pad_id))


def round_robin(draw: Draw) -> Case:
    """No document streams: D18 refuses them. Unsigned labels go where nothing is padded: D5."""
    return draw_round_robin(draw, "round_robin")


def round_robin_aux_only(draw: Draw) -> Case:
    return draw_round_robin(draw, "round_robin_aux_only")


def draw_round_robin(draw: Draw, backend: str) -> Case:
    case = Case(backend, draw.pick((2, 1, 3, 4, 8)))
    shape = draw_rows(draw)
    draw_pad_id(draw, case.args, null=True)
    draw_common(draw, case, shape)
    draw_attention_mask(draw, case, *shape)
    draw_padding_mask(draw, case, *shape, MASK_DTYPES + FLOATS)
    if draw.chance(35):
        case.loss_mask = draw_loss_mask(draw, shape)
    draw_extras(draw, case, *shape, pads=False)
    return faults.spoil(draw, case, ROUND_ROBIN_FAULTS)


def gemma4(draw: Draw) -> Case:
    case = Case("gemma4", draw.pick(MESHES))
    shape = draw_rows(draw)
    draw_pad_id(draw, case.args, null=True)
    draw_common(draw, case, shape)
    draw_attention_mask(draw, case, *shape)
    draw_padding_mask(draw, case, *shape, MASK_DTYPES + FLOATS)
    draw_loss_streams(draw, case, shape)
    draw_extras(draw, case, *shape, pads=True)
    if draw.chance(40):
        valid = draw_valid_lengths(draw, *shape)
        ids = indexed_mask(draw, draw.pick(INTS), valid, shape[1])
        case.batch["_packed_seq_ids"] = ids
    if draw.chance(30):  # declared, whether it was sent or is made
        case.args.setdefault("extra_seq_keys", {})["_packed_seq_ids"] = draw.pick((1, -1))
        if draw.chance(60):
            case.args.setdefault("extra_pad_values", {})["_packed_seq_ids"] = draw.pick((0, 5))
    if draw.chance(30):
        case.batch["mm_token_type_ids"] = running(draw.pick(INTS), shape, 0)
    return faults.spoil(draw, case, FAULTS)

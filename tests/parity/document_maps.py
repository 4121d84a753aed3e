"""Cases of the layouts that attach a document map: Kimi (both) and GLM-5-next. No 3-D positions,
and lengths as D5 asks."""

import faults
from case import Case
from draw import Draw
from model_lengths import MESHES_OR_NONE, cumulative, draw_lengths, draw_whole_rows, flat
from streams import (MASK_DTYPES, draw_ids, draw_labels, draw_loss_mask, draw_pad_id,
                     draw_padding_mask, draw_passengers, draw_positions, draw_rows,
                     draw_valid_lengths, indexed_mask, tail_mask)
from values import INTS, scalar


def kimi_k3(draw: Draw) -> Case:
    return draw_kimi(draw, "kimi_k3")


def kimi_linear(draw: Draw) -> Case:
    return draw_kimi(draw, "kimi_linear")


def draw_kimi(draw: Draw, backend: str) -> Case:
    case = Case(backend, draw.pick(MESHES_OR_NONE))
    shape = draw_rows(draw)
    draw_pad_id(draw, case.args)
    case.batch["input_ids"] = draw_ids(draw, shape)
    draw_token_streams(draw, case, shape)
    draw_document_map(draw, case, shape)
    return faults.spoil(draw, case, (faults.without("input_ids"),))


def draw_token_streams(draw: Draw, case: Case, shape: tuple[int, int]) -> None:
    """Labels, 2-D positions, masks: each may be absent."""
    if draw.chance(85):
        case.batch["labels"] = draw_labels(draw, shape)
    positions = draw_positions(draw, *shape, axes=False)
    if positions is not None:
        case.batch["position_ids"] = positions
    draw_padding_mask(draw, case, *shape)
    if draw.chance(35):
        case.loss_mask = draw_loss_mask(draw, shape)
    draw_passengers(draw, case)


def draw_document_map(draw: Draw, case: Case, shape: tuple[int, int]) -> None:
    """The sources of a document map, several at once now and then: the first rule wins."""
    kinds = {draw.pick(("none", "ids", "mask", "lengths", "lengths"))
             for _ in range(draw.pick((1, 1, 2)))}
    valid = draw_valid_lengths(draw, *shape)
    if "ids" in kinds:
        ids = indexed_mask(draw, draw.pick(INTS), valid, shape[1])
        case.batch["_packed_seq_ids"] = ids
    if "mask" in kinds:
        dtype = draw.pick(MASK_DTYPES)
        make = draw.pick((tail_mask, None)) if dtype != "bool" else tail_mask
        mask = make(dtype, valid, shape[1]) if make else indexed_mask(draw, dtype, valid, shape[1])
        case.batch["attention_mask"] = mask
    if "lengths" in kinds and shape[0]:
        past = draw.pick((0, 0, 0, 0, 5))  # documents are cut at S
        # Kimi reads lengths of one axis as a row each, which cpshard refuses.
        draw_lengths(draw, case, (shape[0], shape[1] + past), one_axis=case.backend == "glm5_next")
        if draw.chance(15) and "seq_lens_padded" in case.batch:
            del case.batch["seq_lens"]
        if draw.chance(50):
            case.batch["qkv_format"] = scalar("thd")


def glm5_next(draw: Draw) -> Case:
    case = Case("glm5_next", draw.pick(MESHES_OR_NONE))
    if draw.chance(50):
        case.args["shard_primary"] = draw.pick((False, True))
    shape = draw_whole_rows(draw)
    draw_pad_id(draw, case.args)
    case.batch["input_ids"] = draw_ids(draw, shape)
    draw_token_streams(draw, case, shape)
    if draw.chance(25):
        case.batch["cu_seqlens"] = cumulative(draw, "i32", shape[1], whole=draw.chance(50))
    draw_document_map(draw, case, shape)
    if shape[0] == 1 and draw.chance(20):
        drop_row_axis(case)
    return faults.spoil(draw, case, (faults.without("input_ids"),))


def drop_row_axis(case: Case) -> None:
    """One row without its axis; the loss mask keeps it (contract 4.16)."""
    for name in ("input_ids", "labels", "position_ids", "attention_mask", "padding_mask",
                 "_packed_seq_ids"):
        if name in case.batch:
            case.batch[name] = flat(case.batch[name])

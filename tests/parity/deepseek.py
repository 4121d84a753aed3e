"""Cases of DeepSeek V4 and V4.1. Document lengths keep D5: no negative ones but the sentinel,
real <= padded, equal counts."""

import faults
from bshd import FAULTS, draw_common, draw_loss_streams
from case import Case
from draw import Draw
from model_lengths import MESHES_OR_NONE, draw_lengths, draw_whole_rows
from streams import (draw_attention_mask, draw_ids, draw_labels, draw_loss_mask, draw_pad_id,
                     draw_padding_mask, draw_passengers, draw_positions, draw_rows)
from values import running, scalar


def dsv4(draw: Draw) -> Case:
    case = Case("dsv4", draw.pick((2, 1, 3, 4, 8)))
    if draw.chance(80):
        case.args["pad_multiple"] = draw.integer(1, 8)
    draw_pad_id(draw, case.args)
    if draw.chance(40):
        shape = draw_rows(draw)
        draw_common(draw, case, shape)
        draw_loss_streams(draw, case, shape)
        drop_null_labels(case)
        draw_attention_mask(draw, case, *shape)
        draw_padding_mask(draw, case, *shape)
        return faults.spoil(draw, case, FAULTS + (cumulative_only,))
    shape = draw_whole_rows(draw)
    draw_common(draw, case, shape)
    case.batch["labels"] = draw_labels(draw, shape, unsigned=False)
    if draw.chance(35):
        case.loss_mask = draw_loss_mask(draw, shape)
    draw_attention_mask(draw, case, *shape)
    draw_padding_mask(draw, case, *shape)
    draw_lengths(draw, case, shape)
    if draw.chance(60):
        case.batch["qkv_format"] = scalar("thd")
    return faults.spoil(draw, case, (faults.no_primary, faults.two_primaries, faults.no_labels,
                                     faults.overlong_document, faults.only_sentinels,
                                     faults.without("seq_lens")))


def drop_null_labels(case: Case) -> None:
    """Null and absent differ in the reference at cp 1: D8."""
    if case.batch.get("labels") == scalar(None):
        del case.batch["labels"]


def cumulative_only(case: Case) -> None:
    case.batch["cu_seqlens"] = running("i32", [2], 0)


def dsv41(draw: Draw) -> Case:
    """No floating padding masks (the reference inverts bits); without a mesh and packing no
    attention mask alone: D19."""
    case = Case("dsv41", draw.pick(MESHES_OR_NONE))
    if draw.chance(70):
        case.args["pad_multiple"] = draw.integer(1, 8)
    if draw.chance(70):
        case.args["packed_alignment"] = draw.integer(1, 8)
    draw_pad_id(draw, case.args, null=True)
    shape = draw_whole_rows(draw)
    case.batch["input_ids"] = draw_ids(draw, shape)
    if draw.chance(90):
        case.batch["labels"] = draw_labels(draw, shape, unsigned=False)
    positions = draw_positions(draw, *shape)
    if positions is not None:
        case.batch["position_ids"] = positions
    draw_passengers(draw, case)
    case.batch.pop("pixel_values", None)  # a fault here
    if draw.chance(35):
        case.loss_mask = draw_loss_mask(draw, shape)
        if "labels" not in case.batch and case.loss_mask["dtype"] in ("u8", "bool"):
            case.loss_mask = None  # would become labels without a sign: D5
    packed = draw.chance(60)
    draw_padding_mask(draw, case, *shape)
    if packed or case.cp_size is not None or "padding_mask" in case.batch:
        draw_attention_mask(draw, case, *shape)
    if packed:  # a document of slots without a token is a fault here
        draw_lengths(draw, case, shape, least=0 if draw.chance(5) else 1)
        if draw.chance(60):
            case.batch["qkv_format"] = scalar("thd")
    return faults.spoil(draw, case, (embeds_too, images, packed_by_name, faults.no_labels,
                                     faults.overlong_document))


def embeds_too(case: Case) -> None:
    case.batch["inputs_embeds"] = running("f32", [*case.batch["input_ids"]["shape"], 2])


def images(case: Case) -> None:
    case.batch["pixel_values"] = running("f32", [1, 2])


def packed_by_name(case: Case) -> None:
    case.batch.pop("seq_lens", None)
    case.batch["qkv_format"] = scalar("thd")

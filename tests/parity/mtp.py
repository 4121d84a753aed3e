"""Cases of the MTP inputs: future tokens per depth, before anything is cut."""

import faults
from case import Case
from documents import draw_documents
from draw import Draw
from model_lengths import cumulative, draw_whole_rows, flat
from streams import draw_ids, draw_labels, indexed_mask
from values import INTS, running


def mtp_inputs(draw: Draw) -> Case:
    case = Case("mtp_inputs", None, {"num_depths": draw.integer(1, 4)})
    if draw.chance(20):
        case.args["ignore_index"] = draw.pick((-100, -1, 7))
    shape = draw_whole_rows(draw)
    case.batch["input_ids"] = draw_ids(draw, shape)
    case.batch["labels"] = draw_labels(draw, shape, unsigned=False)
    kind = draw.integer(0, 3)
    if kind:
        lead = ([], [1], [3])[kind - 1]
        size = [*lead, shape[1]] if kind == 2 else [*lead, *shape]
        case.batch["position_ids"] = running(draw.pick(INTS), size, 0)
    draw_sequence_ids(draw, case, shape)
    return faults.spoil(draw, case, (no_depths, short_cumulative, ids_of_other_shape))


def draw_sequence_ids(draw: Draw, case: Case, shape: tuple[int, int]) -> None:
    kind = draw.integer(0, 5)
    if kind in (1, 2):
        ids = indexed_mask(draw, draw.pick(INTS), [shape[1]] * shape[0], shape[1])
        if shape[0] == 1 and draw.chance(30):
            ids = flat(ids)
        case.batch["seq_idx" if kind == 1 else "_packed_seq_ids"] = ids
    elif kind == 3:
        documents = draw_documents(draw, *shape, pads=False)
        case.batch["seq_lens_padded"] = documents.streams(draw)[1]
    elif kind >= 4 and shape[0] == 1:
        name = "cu_seqlens" if kind == 4 else "cu_seqlens_padded"
        case.batch[name] = cumulative(draw, "i32", shape[1])


def no_depths(case: Case) -> None:
    case.args["num_depths"] = 0


def short_cumulative(case: Case) -> None:
    case.batch = {name: case.batch[name] for name in ("input_ids", "labels")}
    case.batch["cu_seqlens"] = running("i32", [2], 0)


def ids_of_other_shape(case: Case) -> None:
    batch_size, seq_len = case.batch["input_ids"]["shape"]
    case.batch["seq_idx"] = running("i32", [batch_size, seq_len + 1])

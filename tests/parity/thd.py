"""Cases of the layouts that flatten rows to one stream: the THD conversion, TE/THD, GLM DSA and
MiMo. S and the documents keep D5: no 3-D positions at cp > 1 or in chunks, no rows that
chunks leave over, padded lengths that are multiples of 2 * cp where TE cuts."""

from typing import Optional

import faults
from case import Case
from documents import Documents, draw_documents
from draw import Draw
from streams import (MASK_DTYPES, draw_embeds, draw_ids, draw_labels, draw_loss_mask,
                     draw_pad_id, draw_padding_mask, draw_passengers, draw_valid_lengths,
                     tail_mask)
from values import INTS, rows, running, scalar, tensor

FAULTS = (faults.without("input_ids"), faults.without("labels"), faults.no_tokens,
          faults.only_sentinels)
CUT_FAULTS = FAULTS + (faults.null_lengths, faults.null_positions, faults.three_axis_positions)


def draw_chunks(draw: Draw, case: Case) -> int:
    """num_chunks, which may stay absent."""
    chunks = draw.pick((1, 1, 1, 2, 3))
    if chunks > 1 or draw.chance(30):
        case.args["num_chunks"] = chunks
    return chunks


def draw_ids_or_embeds(draw: Draw, case: Case, batch_size: int, seq_len: int) -> None:
    kind = draw.integer(0, 7)
    if kind == 7:
        case.batch["input_ids"] = draw_embeds(draw, batch_size, seq_len)
    elif kind == 6:
        case.batch["input_ids"] = running(draw.pick(INTS), [batch_size, seq_len, 1])
    else:
        case.batch["input_ids"] = draw_ids(draw, [batch_size, seq_len], INTS + ("u8",))


def last_rows(batch_size: int, chunks: int) -> tuple[int, ...]:
    """The last row of every chunk: the only ones that may be short."""
    size = batch_size // chunks
    return tuple(size * (i + 1) - 1 for i in range(chunks))


def draw_flat(draw: Draw, backend: str, cp_size: Optional[int], multiple: int,
              short: bool, empty: bool = True, chunked: bool = True) -> tuple[Case, int]:
    """Everything but positions, with S a multiple of `multiple`. Gives the case and its chunks."""
    case = Case(backend, cp_size)
    chunks = draw_chunks(draw, case) if chunked else 1
    batch_size = chunks * draw.integer(1, 3 if chunks == 1 else 2)
    seq_len = multiple * draw.integer(1, max(1, 40 // multiple))
    draw_pad_id(draw, case.args)
    draw_ids_or_embeds(draw, case, batch_size, seq_len)
    case.batch["labels"] = draw_labels(draw, [batch_size, seq_len])
    documents = draw_documents(draw, batch_size, seq_len, multiple,
                               last_rows(batch_size, chunks) if short else (), empty)
    put_lengths(draw, case, documents)
    case.batch["position_ids"] = documents.positions(draw.pick(INTS), seq_len)
    draw_thd_passengers(draw, case, batch_size, seq_len, chunks)
    return case, chunks


def put_lengths(draw: Draw, case: Case, documents: Documents) -> None:
    case.batch["seq_lens"], case.batch["seq_lens_padded"] = documents.streams(draw)


def draw_thd_passengers(draw: Draw, case: Case, batch_size: int, seq_len: int,
                        chunks: int) -> None:
    draw_passengers(draw, case, zero_dim=chunks == 1)
    if draw.chance(60):
        case.batch["qkv_format"] = scalar("thd")
    if draw.chance(25):
        valid = draw_valid_lengths(draw, batch_size, seq_len)
        case.batch["attention_mask"] = tail_mask(draw.pick(MASK_DTYPES), valid, seq_len)
    draw_padding_mask(draw, case, batch_size, seq_len)  # replaced: the lengths say it


def vary_uncut(draw: Draw, case: Case, chunks: int) -> None:
    """What is well-formed only as long as nothing cuts the stream. Null positions and lengths in
    one chunk alone: in several the reference stumbles over them, D8 takes them."""
    batch_size, seq_len = case.batch["input_ids"]["shape"][:2]
    kind = draw.integer(0, 9)
    if kind == 1 and chunks == 1:
        case.batch["position_ids"] = running("i64", [3, batch_size, seq_len], 0)
    elif kind == 2 and chunks == 1:
        case.batch["position_ids"] = scalar(None)
    elif kind == 3:  # one length for both: rows but the last of a chunk are full
        documents = draw_documents(draw, batch_size, seq_len, 1, last_rows(batch_size, chunks),
                                   pads=False)
        case.batch["seq_lens"], _ = documents.streams(draw)
        case.batch["seq_lens_padded"] = scalar(None)
    elif kind == 4 and chunks == 1 and len(case.batch["input_ids"]["shape"]) == 2:
        without_lengths(draw, case)
    elif kind == 5 and chunks == 1:
        case.batch["cu_seqlens_padded"] = running("i32", [3], 0)  # stale
    elif kind == 6 and chunks == 1:
        case.batch["max_seqlen"] = running("i32", [], 77)  # stale


def without_lengths(draw: Draw, case: Case) -> None:
    """The pads are the ids at the end that are the pad id; now and then it is content as well."""
    batch_size, seq_len = case.batch["input_ids"]["shape"]
    case.batch["seq_lens"] = case.batch["seq_lens_padded"] = scalar(None)
    case.args["padding_token_id"] = 9999
    pads = min(draw.integer(0, 6), seq_len - 1)
    content = draw.integer(0, batch_size * seq_len - 1) if draw.chance(20) else -1
    full = batch_size * seq_len
    case.batch["input_ids"] = tensor(
        draw.pick(INTS), [batch_size, seq_len],
        lambda i: 9999 if i >= full - pads or i == content else 1 + i)


def thd_convert(draw: Draw) -> Case:
    case, _ = draw_flat(draw, "thd_convert", None, 1, short=True, chunked=False)
    vary_uncut(draw, case, 1)
    return faults.spoil(draw, case, FAULTS)


def thd_chunks(draw: Draw) -> Case:
    case, chunks = draw_flat(draw, "thd_chunks", None, 1, short=True)
    case.args.setdefault("num_chunks", chunks)
    vary_uncut(draw, case, chunks)
    return faults.spoil(draw, case, FAULTS + (faults.too_many_chunks, no_axis_to_chunk))


def no_axis_to_chunk(case: Case) -> None:
    case.batch["temperature"] = running("f32", [])


def te_thd(draw: Draw) -> Case:
    """At cp > 1 only the row that absorption extends is short (contract 5.3, D5)."""
    cp_size = draw.pick((2, None, 1, 2, 3, 4, 8))
    if (cp_size or 1) == 1:
        case, chunks = draw_flat(draw, "te_thd", cp_size, 1, short=True)
        vary_uncut(draw, case, chunks)
        chosen = FAULTS
    else:
        case, chunks = draw_flat(draw, "te_thd", cp_size, 2 * cp_size, short=False)
        if chunks == 1 and draw.chance(15):
            absorb(draw, case, 2 * cp_size)
        chosen = CUT_FAULTS
    if draw.chance(4):
        case.loss_mask = draw_loss_mask(draw, case.batch["labels"]["shape"])
    return faults.spoil(draw, case, chosen)


def absorb(draw: Draw, case: Case, multiple: int) -> None:
    """One row or more, all documents full but the very last, which ends early on both sides."""
    batch_size, seq_len = case.batch["input_ids"]["shape"][:2]
    documents = draw_documents(draw, batch_size, seq_len, multiple, empty=False, pads=False)
    if sum(map(len, documents.padded)) < 2:
        return
    last = documents.padded[-1]
    last[-1] -= draw.integer(1, last[-1]) if last[-1] > 1 else 0
    documents.real[-1][-1] = max(0, last[-1] - draw.integer(0, 3))
    put_lengths(draw, case, documents)
    case.batch["position_ids"] = documents.positions("i64", seq_len)


def glm_dsa(draw: Draw) -> Case:
    cp_size = draw.pick((2, 1, 3, 4, 8))
    case, _ = draw_flat(draw, "glm_dsa", cp_size, cp_size, short=True)
    if draw.chance(20):  # documents of any length: only T has to be a multiple of cp
        batch_size, seq_len = case.batch["input_ids"]["shape"][:2]
        chunks = case.args.get("num_chunks", 1)
        documents = draw_documents(draw, batch_size, seq_len, 1, last_rows(batch_size, chunks))
        put_lengths(draw, case, documents)
    if draw.chance(4):
        case.loss_mask = draw_loss_mask(draw, case.batch["labels"]["shape"])
    return faults.spoil(draw, case, FAULTS + (faults.null_positions, odd_tokens,
                                              faults.three_axis_positions))


def odd_tokens(case: Case) -> None:
    """T is no multiple of cp > 1: a row of one token more than a multiple."""
    seq_len = 8 * (case.cp_size or 1) + 1
    case.args.pop("num_chunks", None)
    for name, start in (("input_ids", 1), ("labels", 501), ("position_ids", 0)):
        case.batch[name] = running("i64", [1, seq_len], start)
    case.batch["seq_lens"] = case.batch["seq_lens_padded"] = rows("i64", [[seq_len]])
    for name in ("attention_mask", "padding_mask"):
        case.batch.pop(name, None)


def mimo_te(draw: Draw) -> Case:
    """No empty documents: MiMo refuses them."""
    cp_size = draw.pick((2, None, 1, 3, 4, 8))
    multiple = 2 * cp_size if (cp_size or 1) > 1 else 1
    case, _ = draw_flat(draw, "mimo_te", cp_size, multiple, short=False, empty=False)
    if len(case.batch["input_ids"]["shape"]) != 2:
        case.batch["input_ids"] = running("i64", case.batch["input_ids"]["shape"][:2])
    case.batch["qkv_format"] = scalar("thd")
    for name in ("image_token_id", "video_token_id"):
        if draw.chance(40):
            case.args[name] = draw.integer(0, 40)
    if draw.chance(20):
        case.batch["_vlm_pp_media_chunks"] = scalar("side-channel")
    chosen = CUT_FAULTS if multiple > 1 else FAULTS
    return faults.spoil(draw, case, chosen + (faults.without("qkv_format"), with_loss_mask))


def with_loss_mask(case: Case) -> None:
    case.loss_mask = running("i64", case.batch["labels"]["shape"])

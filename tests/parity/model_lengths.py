"""Document lengths that the layouts of single models take."""

from case import Case
from documents import draw_documents
from draw import Draw
from values import Value, rows

MESHES_OR_NONE = (2, None, 1, 3, 4, 8)


def draw_whole_rows(draw: Draw, most_rows: int = 4) -> tuple[int, int]:
    return draw.integer(1, most_rows), draw.integer(1, 40)


def draw_lengths(draw: Draw, case: Case, shape: tuple[int, int], least: int = 0,
                 one_axis: bool = True) -> None:
    """seq_lens, mostly with seq_lens_padded; rows may end before S; one row may be 1-D where
    `one_axis` allows it. `least`: the real length of a document that has slots."""
    documents = draw_documents(draw, *shape, short_rows=tuple(range(shape[0])), least=least)
    real, padded = documents.streams(draw)
    if one_axis and shape[0] == 1 and draw.chance(20):
        real, padded = flat(real), flat(padded)
    case.batch["seq_lens"] = real
    if draw.chance(70):
        case.batch["seq_lens_padded"] = padded


def flat(value: Value) -> Value:
    return {"dtype": value["dtype"], "shape": [len(value["data"][0])], "data": value["data"][0]}


def draw_ends(draw: Draw, seq_len: int, whole: bool) -> list[int]:
    """0 and where documents end; `whole`: the last one at S."""
    ends = {draw.integer(1, seq_len) for _ in range(draw.integer(0 if whole else 1, 3))}
    return [0, *sorted(ends | {seq_len} if whole else ends)]


def cumulative(draw: Draw, dtype: str, seq_len: int, whole: bool = True) -> Value:
    """cu_seqlens, 1-D."""
    return flat(rows(dtype, [draw_ends(draw, seq_len, whole)]))

"""Document lengths of packed rows, real and padded, well-formed as contract section 5.7 and D5 ask:
every padded length covers its real one, entries of both have equal counts, and the padded lengths
of a row sum to S - but for a row that may be short."""

from dataclasses import dataclass

from draw import Draw
from values import Value, rows

SENTINEL = -1000


@dataclass
class Documents:
    """Per row the real and the padded lengths, in equal counts."""

    real: list[list[int]]
    padded: list[list[int]]

    def streams(self, draw: Draw, dtypes: tuple[str, ...] = ("i64", "i32")) -> tuple[Value, Value]:
        """seq_lens and seq_lens_padded, [B, D]: sentinels fill short rows up, and now and then
        stand between documents."""
        real, padded = [list(row) for row in self.real], [list(row) for row in self.padded]
        if draw.chance(15):
            for r, p in zip(real, padded):
                at = draw.integer(0, len(r))
                r.insert(at, SENTINEL)
                p.insert(at, SENTINEL)
        width = max((len(row) for row in real), default=0) + int(draw.chance(20))
        dtype = draw.pick(dtypes)

        def filled(lists: list[list[int]]) -> Value:
            return rows(dtype, [row + [SENTINEL] * (width - len(row)) for row in lists])

        return filled(real), filled(padded)

    def positions(self, dtype: str, seq_len: int) -> Value:
        """[B, S]: 0, 1, ... in each document; what no document covers counts from 500."""
        lists = []
        for lengths in self.padded:
            row = [t for length in lengths for t in range(length)]
            lists.append(row + list(range(500, 500 + seq_len - len(row))))
        return rows(dtype, lists)


def draw_documents(draw: Draw, batch_size: int, seq_len: int, multiple: int = 1,
                   short_rows: tuple[int, ...] = (), empty: bool = True,
                   pads: bool = True, least: int = 0) -> Documents:
    """Lengths padded to `multiple`, which S has to be one of. Rows in `short_rows` may end before
    S. `empty`: documents of no slots as well. `least`: of the real lengths of the others."""
    documents = Documents([], [])
    for row in range(batch_size):
        padded = draw_split(draw, seq_len, multiple, empty)
        if row in short_rows and draw.chance(50) and padded:
            padded[-1] -= draw.integer(0, padded[-1])
        documents.padded.append(padded)
        style = draw.integer(0, 2) if pads else 0  # full; any; only the last one is short
        last = len(padded) - 1
        documents.real.append([
            length - draw.integer(0, min(max(0, length - least), 5))
            if style == 1 or (style == 2 and i == last) else length
            for i, length in enumerate(padded)])
    return documents


def draw_split(draw: Draw, seq_len: int, multiple: int, empty: bool) -> list[int]:
    """Lengths, multiples of `multiple`, that sum to S; at least one."""
    units = seq_len // multiple
    lengths = []
    while units > 0 and len(lengths) < 4 and draw.chance(60):
        taken = draw.integer(0 if empty and draw.chance(15) else 1, units)
        lengths.append(taken * multiple)
        units -= taken
    if units > 0 or not lengths:
        lengths.append(units * multiple)
    if empty and draw.chance(8):
        lengths.append(0)
    return lengths

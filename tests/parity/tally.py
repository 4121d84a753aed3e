"""Counts what a run reached in a layout, and prints it."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Optional

from case import Case
from layouts import Layout
from values import DTYPES, flatten, is_tensor

DOCUMENT_STREAMS = ("seq_lens", "seq_lens_padded", "cu_seqlens", "cu_seqlens_padded",
                    "_packed_seq_ids", "seq_idx")


def was_packed(case: Case) -> bool:
    """Documents are named by lengths, ids or an indexed mask."""
    if any(is_tensor(case.batch.get(name)) for name in DOCUMENT_STREAMS):
        return True
    mask = case.batch.get("attention_mask")
    return is_tensor(mask) and len(mask["shape"]) == 2 and max(flatten(mask["data"]) or [0]) > 1


def length_sum(value: Any) -> Optional[int]:
    if not is_tensor(value):
        return None
    return sum(n for n in flatten(value["data"]) if n > 0)


def was_padded(case: Case, ranks: list[dict[str, Any]]) -> bool:
    """The layout made its rows longer, or documents have slots that hold no token."""
    if any("error" in rank for rank in ranks):
        return False
    layout = ranks[0]["layout"] or {}
    state = ranks[0].get("state")
    if state:
        return any(max(rank["state"]["slots"]) >= state["total"] for rank in ranks)
    positions = layout.get("input_token_stream_positions")
    if positions:
        return positions["shape"][-1] < layout["padded_seq_len"]
    if layout.get("original_seq_len", 0) < layout.get("padded_seq_len", 0) and \
            "original_seq_len" in layout:
        return True
    real, padded = (length_sum(case.batch.get(name)) for name in ("seq_lens", "seq_lens_padded"))
    return real is not None and padded is not None and real < padded


@dataclass
class Tally:
    layout: Layout
    cases: int = 0
    failed: int = 0
    skipped: int = 0
    left_out: int = 0
    refused: int = 0  # by both
    decided: int = 0
    padded: int = 0
    packed: int = 0
    dtypes: Counter = field(default_factory=Counter)
    cp_sizes: Counter = field(default_factory=Counter)

    @property
    def passed(self) -> int:
        return self.cases - self.failed - self.skipped

    @property
    def built(self) -> bool:
        return self.skipped == 0

    def add(self, case: Case, ranks: list[dict[str, Any]], product: dict[str, Any]) -> None:
        self.cases += 1
        self.refused += product["same"] and "expect" in product
        self.decided += not product["same"]
        self.padded += was_padded(case, ranks)
        self.packed += was_packed(case)
        streams = [*case.batch.values(), case.loss_mask]
        self.dtypes.update({value["dtype"] for value in streams if is_tensor(value)})
        self.cp_sizes.update([case.cp_size])

    def unreached(self) -> list[str]:
        """What the layout allows and no case had."""
        missing = [name for name in ("padded", "packed", "refused")
                   if getattr(self.layout, name) and not getattr(self, name)]
        missing += [dtype for dtype in self.layout.dtypes if not self.dtypes[dtype]]
        return missing + [f"cp {cp_name(cp_size)}" for cp_size in self.layout.cp_sizes
                          if not self.cp_sizes[cp_size]]


def cp_name(cp_size: Optional[int]) -> str:
    return "none" if cp_size is None else str(cp_size)


COLUMNS = ("cases", "passed", "failed", "refused", "decided", "padded", "packed")
CP_COLUMNS = (None, 1, 2, 3, 4, 8)


def table(tallies: list[Tally]) -> str:
    """Two tables: outcomes and cp sizes; dtypes. Formula-only rows are not in the total."""
    lines = [row("layout", [*COLUMNS, *(f"cp {cp_name(cp)}" for cp in CP_COLUMNS)])]
    built = [tally for tally in tallies if tally.built]
    for tally in tallies:
        if not tally.built:
            lines.append(f"{tally.layout.name:24} not built yet")
            continue
        counts = [*(getattr(tally, name) for name in COLUMNS),
                  *(tally.cp_sizes[cp] for cp in CP_COLUMNS)]
        note = "formula only" if tally.layout.formula_only else ""
        lines.append(row(tally.layout.name, counts, note))
    counted = [tally for tally in built if not tally.layout.formula_only]
    lines.append(row("total", [sum(getattr(tally, name) for tally in counted)
                               for name in COLUMNS]))
    lines += ["", row("layout", list(DTYPES))]
    lines += [row(tally.layout.name, [tally.dtypes[dtype] for dtype in DTYPES])
              for tally in built]
    return "\n".join(lines)


def row(name: str, cells: list[Any], note: str = "") -> str:
    return f"{name:24}" + "".join(f"{cell or '-':>8}" for cell in cells) + \
        (f"  {note}" if note else "")

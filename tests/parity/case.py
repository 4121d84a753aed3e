"""One input of a sharder, as the generators make it."""

from dataclasses import dataclass, field
from typing import Any, Optional

from values import Value


@dataclass
class Case:
    """`fault`: what is wrong with it; it is kept only if the reference itself refuses it."""

    backend: str
    cp_size: Optional[int]  # None: no mesh
    args: dict[str, Any] = field(default_factory=dict)
    batch: dict[str, Value] = field(default_factory=dict)
    loss_mask: Optional[Value] = None
    fault: Optional[str] = None

    def to_json(self, case_id: str) -> dict[str, Any]:
        """The input's part of a line of the corpus."""
        line = {"id": case_id, "title": f"fault: {self.fault}" if self.fault else "random",
                "backend": self.backend, "cp_size": self.cp_size, "args": self.args,
                "batch": self.batch}
        if self.loss_mask is not None:
            line["loss_mask_arg"] = self.loss_mask
        return line

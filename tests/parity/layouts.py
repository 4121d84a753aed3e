"""The layouts that are compared, and what a run must have reached in each."""

from dataclasses import dataclass
from typing import Callable, Optional

import blockdiag
import bshd
import deepseek
import document_maps
import magi
import mtp
import qwen
import thd
from case import Case
from draw import Draw
from values import DTYPES

CP_SIZES = (1, 2, 3, 4, 8)
OR_NONE = (None,) + CP_SIZES


@dataclass(frozen=True)
class Layout:
    """`formula_only`: the reference runs with a stand-in of a GPU-only package, so its row is
    printed and not counted. `padded`, `packed`, `refused`: the layout allows such cases."""

    name: str
    generate: Callable[[Draw], Case]
    cp_sizes: tuple[Optional[int], ...] = CP_SIZES
    padded: bool = True
    packed: bool = True
    refused: bool = True
    dtypes: tuple[str, ...] = DTYPES
    formula_only: bool = False


LAYOUTS = (
    Layout("identity", bshd.identity, (None, 1), padded=False, packed=False, refused=False),
    Layout("contiguous", bshd.contiguous),
    Layout("round_robin", bshd.round_robin, packed=False),
    Layout("round_robin_aux_only", bshd.round_robin_aux_only, packed=False),
    Layout("thd_convert", thd.thd_convert, (None,)),
    Layout("thd_chunks", thd.thd_chunks, (None,)),
    Layout("te_thd", thd.te_thd, OR_NONE, formula_only=True),
    Layout("glm_dsa", thd.glm_dsa),
    Layout("dsv4", deepseek.dsv4),
    Layout("dsv41", deepseek.dsv41, OR_NONE),
    Layout("gemma4", bshd.gemma4),
    Layout("kimi_linear", document_maps.kimi_linear, OR_NONE),
    Layout("kimi_k3", document_maps.kimi_k3, OR_NONE),
    Layout("blockdiag", blockdiag.blockdiag),
    Layout("glm5_next", document_maps.glm5_next, OR_NONE),
    Layout("mimo_te", thd.mimo_te, OR_NONE, formula_only=True),
    Layout("qwen3_8_flash_next", qwen.qwen3_8_flash_next),
    Layout("magi", magi.magi, formula_only=True),
    Layout("mtp_inputs", mtp.mtp_inputs, (None,), padded=False,
           dtypes=("i64", "i32", "i16", "f32", "bf16", "f16", "f64")),
)

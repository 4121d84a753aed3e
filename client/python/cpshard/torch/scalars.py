"""Numbers that callers give as fills, pads and token ids."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import torch

Number = bool | int | float | complex


def number_of(value: Any, what: str) -> Number:
    """As Python's own: of Python, numpy or a tensor without axes.

    TypeError: anything else; the text begins with `what`.
    """
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)) and value.ndim == 0:
        value = value.item()
    if isinstance(value, (bool, int, float, complex)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise TypeError(f"{what} is {value!r}, a {type(value).__name__}; give a number")

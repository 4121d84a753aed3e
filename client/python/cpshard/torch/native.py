"""The operators of libcpshard_torch.so, which are built against the installed torch.

It registers the operators of `torch.ops.cpshard`, once in a process.
"""

from __future__ import annotations

from typing import Any

import torch

from ..native import find

OBJECT = "libcpshard_torch.so"


def load() -> Any:
    """torch.ops.cpshard. ImportError: the object is missing, or of another torch."""
    path = find(OBJECT, "Build it with cmake -DCPSHARD_TORCH=<folder of the installed torch "
                        "package> and `ninja cpshard_torch`")
    try:
        torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
    except OSError as error:
        raise ImportError(f"{path} does not go with the installed torch {torch.__version__}; it "
                          f"must be built against that one: {error}") from error
    return torch.ops.cpshard


ops = load()

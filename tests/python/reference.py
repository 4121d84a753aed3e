"""The real reference package, without its model zoo, for tests that compare with it.

What makes it importable (path-only stubs, stand-ins of two GPU-only packages), what runs its batch
shards and what draws inputs for them stands in tests/parity, and is used from there.
"""

import importlib.util
import pathlib
import sys
import types
from typing import Any

PARITY = pathlib.Path(__file__).resolve().parents[1] / "parity"
CONTEXT_PARALLEL = "components.distributed.context_parallel"


def _parity_reference() -> types.ModuleType:
    """tests/parity/reference.py, under another name than this file's."""
    if str(PARITY) not in sys.path:
        sys.path.append(str(PARITY))
    spec = importlib.util.spec_from_file_location("parity_reference", PARITY / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


parity = _parity_reference()
parity.prepare()


def module(path: str) -> Any:
    """A module of the package, by its path below it."""
    return parity.module(path)


sharder = module(f"{CONTEXT_PARALLEL}.sharder")
utils = module(f"{CONTEXT_PARALLEL}.utils")
deepseek_v41 = module("components.models.deepseek_v41.cp")

"""Values in the golden corpus' form: a tensor is {"dtype", "shape", "data"}, nested lists."""

import math
from typing import Any, Callable, Sequence

Value = dict[str, Any]

INTS = ("i64", "i32", "i16")
FLOATS = ("f32", "bf16", "f16", "f64")
DTYPES = INTS + ("u8", "bool") + FLOATS

# Integers from 0 up to here are exact and distinct in the type; running values wrap around there.
DISTINCT = {"i64": 1 << 40, "i32": 1 << 30, "i16": 1 << 15, "u8": 256, "bool": 2, "f64": 1 << 40,
            "f32": 1 << 24, "f16": 2048, "bf16": 256}


def typed(number: float, dtype: str) -> Any:
    """The number as an element of the type."""
    if dtype == "bool":
        return bool(number)
    return float(number) if dtype in FLOATS else int(number)


def nest(flat: Sequence[Any], shape: Sequence[int]) -> Any:
    """A flat row-major list as nested lists."""
    if not shape:
        return flat[0]
    if len(shape) == 1:
        return list(flat)
    step = math.prod(shape[1:])
    return [nest(flat[i * step:(i + 1) * step], shape[1:]) for i in range(shape[0])]


def tensor(dtype: str, shape: Sequence[int], number: Callable[[int], float]) -> Value:
    """A tensor whose flat position i holds number(i)."""
    flat = [typed(number(i), dtype) for i in range(math.prod(shape))]
    return {"dtype": dtype, "shape": list(shape), "data": nest(flat, shape)}


def running(dtype: str, shape: Sequence[int], start: int = 1) -> Value:
    """start, start + 1, ... as far as the type has distinct integers."""
    return tensor(dtype, shape, lambda i: (start + i) % DISTINCT[dtype])


def rows(dtype: str, lists: Sequence[Sequence[float]], width: int = 0) -> Value:
    """A matrix from rows of one length; `width` is that length where there are no rows."""
    width = len(lists[0]) if lists else width
    flat = [element for row in lists for element in row]
    return tensor(dtype, [len(lists), width], lambda i: flat[i])


def scalar(value: Any) -> Value:
    """A value that is no tensor."""
    return {"value": value}


def is_tensor(value: Any) -> bool:
    return isinstance(value, dict) and "dtype" in value


def flatten(data: Any) -> list[Any]:
    """The elements of nested lists."""
    if not isinstance(data, list):
        return [data]
    return [element for part in data for element in flatten(part)]

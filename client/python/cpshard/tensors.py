"""Tensors of either library as bytes, and back: numpy arrays, and torch tensors where torch is
there. torch is never imported here unless something of it is asked for."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Iterator

import numpy as np
from numpy.typing import NDArray

from .errors import error_of, invalid

Bytes = NDArray[np.uint8]

# The wire's names and numbers (types.proto), numpy's and torch's names. numpy has no bfloat16.
_ROWS = (("bool", 1, "bool", "bool", 1), ("u8", 2, "uint8", "uint8", 1),
         ("i8", 3, "int8", "int8", 1), ("i16", 4, "int16", "int16", 2),
         ("i32", 5, "int32", "int32", 4), ("i64", 6, "int64", "int64", 8),
         ("f16", 7, "float16", "float16", 2), ("bf16", 8, None, "bfloat16", 2),
         ("f32", 9, "float32", "float32", 4), ("f64", 10, "float64", "float64", 8))
DTYPE_NUMBERS = {name: number for name, number, *_ in _ROWS}
DTYPE_NAMES = {number: name for name, number, *_ in _ROWS}
ITEM_SIZES = {name: size for name, _, _, _, size in _ROWS}
NUMPY_NAMES = {name: numpy_name for name, _, numpy_name, _, _ in _ROWS}
TORCH_NAMES = {name: torch_name for name, _, _, torch_name, _ in _ROWS}
_OF_NUMPY = {np.dtype(numpy_name): name for name, numpy_name in NUMPY_NAMES.items() if numpy_name}
_OF_TORCH = {f"torch.{torch_name}": name for name, torch_name in TORCH_NAMES.items()}

MAX_INT = (1 << 63) - 1
_SAMPLED_BYTES = 2048  # of a tensor


@dataclasses.dataclass(frozen=True, eq=False)
class DenseTensor:
    """A tensor as the wire knows it: `data` is uint8 [nbytes], little endian, dense, row-major; a
    window on the caller's memory where that already is so, else a copy. Keeps it alive."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    data: Bytes

    @property
    def nbytes(self) -> int:
        return self.data.size


def is_torch(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_tensor(value: object) -> bool:
    return isinstance(value, np.ndarray) or is_torch(value)


def entries_of(batch: object) -> Iterator[tuple[str, Any]]:
    """(name, tensor or scalar) of a batch, with a list of tensors taken apart (name.0, name.1, ...)
    and without what is None. InvalidArgument: it is no mapping with names, or holds something that
    is neither."""
    if not hasattr(batch, "items"):
        raise invalid(f"a batch is a mapping of names to tensors; this is a {type(batch).__name__}")
    for name, value in batch.items():
        if not isinstance(name, str) or not _is_text(name):
            raise invalid(f"a stream is named {name!r}; names are strings, of Unicode")
        if isinstance(value, (list, tuple)) and value and all(is_tensor(item) for item in value):
            yield from ((f"{name}.{i}", item) for i, item in enumerate(value))
            continue
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, str) and not _is_text(value):
            raise invalid(f"stream '{name}' is the string {value!r}, which is no Unicode")
        if is_tensor(value) or isinstance(value, (bool, int, float, str)):
            yield name, value
        elif value is not None:
            raise invalid(f"stream '{name}' is a {type(value).__name__}; tensors of numpy or "
                          "torch, lists of them, bool, int, float and str can be sent: leave it "
                          "out")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def dense(name: str, value: Any) -> DenseTensor:
    """A numpy array or CPU tensor as bytes, without a copy where it is dense already. What requires
    grad is sent as values. InvalidArgument: a dtype or a device that cannot be sent."""
    if is_torch(value):
        return _dense_torch(name, value)
    if isinstance(value, np.ma.MaskedArray):
        raise invalid(f"stream '{name}' is a masked array, whose mask cannot be sent: fill it "
                      "(.filled()), and send the mask as a stream of its own")
    value = np.asarray(value)  # a matrix has two axes whatever one does with it
    dtype = _OF_NUMPY.get(value.dtype) or _OF_NUMPY.get(value.dtype.newbyteorder("="))
    if dtype is None:
        raise invalid(f"stream '{name}' is a numpy array of {value.dtype}; "
                      f"{', '.join(map(str, _OF_NUMPY))} can be sent")
    array = value
    if not (value.flags.c_contiguous and value.dtype.str[0] in "<|"):
        array = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
    return DenseTensor(name, dtype, value.shape, array.reshape(-1).view(np.uint8))


def _dense_torch(name: str, tensor: Any) -> DenseTensor:
    torch = sys.modules["torch"]
    dtype = _OF_TORCH.get(str(tensor.dtype))
    if dtype is None or tensor.layout != torch.strided:
        raise invalid(f"stream '{name}' is a tensor of {tensor.dtype}, {tensor.layout}; strided "
                      f"ones of {', '.join(_OF_TORCH)} can be sent")
    if tensor.device.type != "cpu":
        raise invalid(f"stream '{name}' is on {tensor.device}; what is sent has to be on the CPU: "
                      "call .cpu()")
    if tensor.numel() == 0:  # torch takes no window on nothing
        return DenseTensor(name, dtype, tuple(tensor.shape), np.empty(0, np.uint8))
    rows = tensor.detach().resolve_conj().resolve_neg().contiguous()
    try:
        # Of axes of one it keeps any stride, with which torch shows no bytes.
        data = rows.as_strided((rows.numel(),), (1,)).view(torch.uint8).numpy()
    except (RuntimeError, TypeError) as error:  # of a tensor of another kind, without memory
        raise invalid(f"stream '{name}' is a {type(tensor).__name__} and has no bytes to send: "
                      f"{error}") from error
    return DenseTensor(name, dtype, tuple(tensor.shape), data)


def sample_of(data: Bytes) -> bytes:
    """Some bytes of uint8 [nbytes], by which it shows that something else was written there."""
    # An odd distance, so that all bytes of elements take part.
    return data[::data.size // _SAMPLED_BYTES | 1].tobytes()


def check_library(tensors: str) -> None:
    if tensors not in ("numpy", "torch"):
        raise invalid(f"tensors is {tensors!r}; 'numpy' and 'torch' are possible")


def library_of(batch: object) -> str:
    """Of the tensors of a batch: "torch" if one of them is, else "numpy"."""
    if "torch" not in sys.modules:
        return "numpy"
    return "torch" if any(is_torch(value) for _, value in entries_of(batch)) else "numpy"


def view(memory: Bytes, dtype: str, dims: tuple[int, ...], library: str = "numpy") -> Any:
    """A tensor [dims] of `library` ("numpy" or "torch") on `memory`, uint8 [nbytes], without a
    copy; it keeps the memory alive. Unimplemented: bfloat16 in numpy, which does not have it."""
    numpy_name = NUMPY_NAMES[dtype]
    if library == "torch":
        import torch
        if memory.size == 0:  # torch takes no window on nothing
            return torch.empty(dims, dtype=getattr(torch, TORCH_NAMES[dtype]), device="cpu")
        of_torch = torch.from_numpy(memory).view(getattr(torch, TORCH_NAMES[dtype]))
        return of_torch.reshape(dims)
    if numpy_name is None:
        raise error_of("UNIMPLEMENTED", f"numpy has no {dtype}: ask for tensors='torch'")
    return memory.view(numpy_name).reshape(dims)


def converted(batch: Any, library: str) -> dict[str, Any]:
    """The batch with all of its tensors of `library`, without a copy where they are dense."""
    def convert(name: str, value: Any) -> Any:
        if not is_tensor(value) or is_torch(value) == (library == "torch"):
            return value
        tensor = dense(name, value)
        # A tensor of torch can be written to whatever it lies on: a mapped file would be a fault.
        data = tensor.data if tensor.data.flags.writeable or library != "torch" else \
            tensor.data.copy()
        return view(data, tensor.dtype, tensor.dims, library)

    return {name: convert(name, value) for name, value in entries_of(batch)}


def owned(name: str, value: Any) -> Any:
    """A copy of a tensor, dense and little endian as what comes of a server."""
    if is_torch(value) and value.device.type != "cpu":
        return value.detach().clone()
    tensor = dense(name, value)
    library = "torch" if is_torch(value) else "numpy"
    return view(tensor.data.copy(), tensor.dtype, tensor.dims, library)


def empty(dtype: str, dims: tuple[int, ...], library: str = "numpy") -> Any:
    """A new tensor [dims], whose values are anything."""
    nbytes = ITEM_SIZES[dtype] * int(np.prod(dims, dtype=np.int64))
    return view(np.empty(nbytes, np.uint8), dtype, dims, library)


def scalar_field(name: str, value: object) -> tuple[str, Any]:
    """Which field of the wire's Scalar a value goes into. InvalidArgument: an int over 64 bits."""
    if isinstance(value, bool):
        return "bool_value", value
    if isinstance(value, int):
        if not -MAX_INT - 1 <= value <= MAX_INT:
            raise invalid(f"scalar '{name}' is {value}, which is over 64 bits")
        return "int_value", value
    return ("float_value", value) if isinstance(value, float) else ("string_value", value)


__all__ = ["Bytes", "DTYPE_NAMES", "DTYPE_NUMBERS", "DenseTensor", "ITEM_SIZES", "converted",
           "dense", "empty", "entries_of", "is_tensor", "is_torch", "library_of", "owned",
           "sample_of", "scalar_field", "view"]

"""Batches that several tests of the drop-in shard, a mesh for them, and comparing to the bit."""

from typing import Any

import torch


def same(made: torch.Tensor, expected: torch.Tensor) -> bool:
    """Dtype, shape and bits; NaN is NaN."""
    if made.dtype != expected.dtype or made.shape != expected.shape:
        return False
    if not made.dtype.is_floating_point:
        return torch.equal(made, expected)
    signs = torch.equal(torch.signbit(made), torch.signbit(expected))
    return torch.equal(made.nan_to_num(), expected.nan_to_num()) and signs


def packed() -> dict[str, Any]:
    """Two rows of documents, S = 24, padded lengths that are multiples of 8."""
    return {"input_ids": torch.arange(48).reshape(2, 24), "labels": torch.arange(48).reshape(2, 24),
            "position_ids": torch.arange(24).repeat(2, 1), "qkv_format": "thd",
            "seq_lens": torch.tensor([[7, 13], [5, -1000]]),
            "seq_lens_padded": torch.tensor([[8, 16], [24, -1000]])}


def plain(length: int) -> dict[str, Any]:
    return {"input_ids": torch.arange(2 * length).reshape(2, length),
            "labels": torch.arange(2 * length).reshape(2, length)}


def copied(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value.clone() if isinstance(value, torch.Tensor) else value
            for name, value in batch.items()}


class Ranks:
    """A mesh without processes, and so without anybody to gather from (T53)."""

    mesh_dim_names = ("cp",)
    device_type = "cpu"

    def __init__(self, size: int, rank: int = 0):
        self._size, self._rank = size, rank

    def __getitem__(self, name: str) -> "Ranks":
        return self

    def size(self) -> int:
        return self._size

    def get_local_rank(self) -> int:
        return self._rank

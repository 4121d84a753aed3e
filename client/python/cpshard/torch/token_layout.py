"""The token verbs over one layout, whose maps are tensors: what a compiled function takes."""

from __future__ import annotations

import dataclasses
from typing import Optional

import torch

from .native import ops
from .token_verbs import slices_gradient


@dataclasses.dataclass(frozen=True, eq=False)
class TokenLayout:
    """Where the tokens of a batch are, on one device; made once per batch by
    `ContextParallelSharder.token_layout` and handed to a compiled function as an argument. Lengths
    are symbolic there: one graph serves the batches to come.

    indices: int64 [L], padded columns of the local slots.
    order, moves, sizes: of all ranks, see token_maps.TokenMap.
    positions: int64 [B, S], padded column of every token, -1 = dropped; or None.
    input_row_shape, original_seq_len, padded_seq_len: of the ShardLayout; or None.
    captured_columns: what `indices` of all ranks cover, where they came with the batch; or None.
    group: name of the process group; "" = nobody to exchange anything with.
    """

    indices: torch.Tensor
    order: torch.Tensor
    moves: torch.Tensor
    sizes: tuple[int, ...]
    positions: Optional[torch.Tensor]
    input_row_shape: Optional[tuple[int, ...]]
    original_seq_len: Optional[int]
    padded_seq_len: Optional[int]
    captured_columns: Optional[int]
    group: str

    def shard_token_tensor(self, tensor: torch.Tensor, seq_dim: int = 1,
                           fill: Optional[float | int] = None) -> torch.Tensor:
        """As ContextParallelSharder.shard_token_tensor."""
        return ops.shard_token_tensor(  # type: ignore[no-any-return]
            tensor, self.indices, self.positions, self.input_row_shape, self.original_seq_len,
            self.padded_seq_len, seq_dim, fill, self.captured_columns)

    def gather_token_tensor(self, tensor: torch.Tensor, seq_dim: int = 1, trim: bool = False,
                            fill: Optional[float | int] = None, *, gradient: str = "sum"
                            ) -> torch.Tensor:
        """As ContextParallelSharder.gather_token_tensor. A collective."""
        return ops.gather_token_tensor(  # type: ignore[no-any-return]
            tensor, self.order, self.moves, self.sizes, self.positions, self.input_row_shape,
            self.original_seq_len, self.padded_seq_len, seq_dim, trim, fill, self.group,
            slices_gradient(gradient), self.captured_columns)

"""The token verbs over one layout, whose maps are tensors: what a compiled function takes."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

import torch

from .native import ops
from .scalars import number_of
from .token_maps import TokenMap, in_column_order
from .token_verbs import slices_gradient

_NO_MOVES = torch.zeros((2, 4), dtype=torch.long, device="cpu")


@dataclasses.dataclass(frozen=True, eq=False)
class TokenLayout:
    """Where the tokens of a batch are, on one device; made once per batch by
    `ContextParallelSharder.token_layout` and handed to a compiled function as an argument. Lengths
    are symbolic there: one graph serves the batches to come.

    indices: int64 [L], padded columns of the local slots.
    order, moves, sizes: of all ranks, see token_maps.TokenMap.
    positions: int64 [B, S], padded column of every token, -1 = dropped; or None.
    input_row_shape, original_seq_len, padded_seq_len: of the ShardLayout; or None.
    captured_columns: what `indices` of all ranks cover, where they came with the batch and are as
        many on every rank; or None.
    group: name of the process group; "" = nobody to exchange anything with.
    reordered: of one rank alone, whose slots are in another order than the columns: `order` tells.
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
    reordered: bool = False

    def shard_token_tensor(self, tensor: torch.Tensor, seq_dim: int = 1,
                           fill: Optional[float | int] = None) -> torch.Tensor:
        """As ContextParallelSharder.shard_token_tensor."""
        return ops.shard_token_tensor(  # type: ignore[no-any-return]
            tensor, self.indices, self.positions, self.input_row_shape, self.original_seq_len,
            self.padded_seq_len, seq_dim, _number(fill), self.captured_columns)

    def gather_token_tensor(self, tensor: torch.Tensor, seq_dim: int = 1, trim: bool = False,
                            fill: Optional[float | int] = None, *, gradient: str = "sum"
                            ) -> torch.Tensor:
        """As ContextParallelSharder.gather_token_tensor. A collective."""
        if self.reordered:
            by_positions = trim and self.positions is not None and tensor.dim() == 2
            tensor = in_column_order(tensor, self.order, 1 if by_positions else seq_dim)
        return ops.gather_token_tensor(  # type: ignore[no-any-return]
            tensor, self.order, self.moves, self.sizes, self.positions, self.input_row_shape,
            self.original_seq_len, self.padded_seq_len, seq_dim, trim, _number(fill), self.group,
            slices_gradient(gradient), self.captured_columns)

    def of_group(self, token_map: TokenMap, group: str) -> TokenLayout:
        """The same for gathers, with the map of all ranks."""
        as_many = len(set(token_map.sizes)) == 1
        return dataclasses.replace(
            self, order=token_map.order, moves=token_map.moves, sizes=token_map.sizes, group=group,
            captured_columns=self.captured_columns if as_many else None)

    def of_one(self, order: Optional[torch.Tensor]) -> TokenLayout:
        """The same for gathers, where there is nobody to ask.

        Args:
            order: see token_maps.order_of_one.
        """
        if order is None:
            return self
        return dataclasses.replace(self, order=order.to(self.indices.device), reordered=True)


def for_shards(layout: Any, indices: torch.Tensor, ranks: int) -> TokenLayout:
    """For shards alone, which exchange nothing: without the maps of other ranks.

    Args:
        layout: a ShardLayout, of this package or of another with the reference's five fields.
        indices: int64 [L] on the device of the tensors.
        ranks: that the layout is for, whether or not there is a group of them.
    """
    columns: Optional[int] = indices.shape[0] * ranks
    padded = layout.padded_seq_len
    if layout.local_token_global_indices is None:
        columns = None
    elif getattr(layout, "runs", None) is not None and padded not in (None, columns):
        columns = None  # cpshard's own, and not as many on every rank: padded_seq_len counts
    positions = layout.input_token_stream_positions
    return TokenLayout(
        indices=indices, order=indices, moves=_NO_MOVES, sizes=(indices.shape[0],) * ranks,
        positions=None if positions is None else torch.as_tensor(positions).to(indices.device),
        input_row_shape=layout.input_row_shape, original_seq_len=layout.original_seq_len,
        padded_seq_len=padded, captured_columns=columns, group="")


def _number(fill: Any) -> Any:
    return None if fill is None else number_of(fill, "fill")

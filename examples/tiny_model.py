"""A transformer small enough for a test, whose attention sees the whole row from each rank's part."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

Gather = Callable[[torch.Tensor], torch.Tensor]


class Attention(nn.Module):
    """Causal attention by column: queries are this rank's, keys and values those of all ranks."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (
            nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor, columns: torch.Tensor, gather: Gather) -> torch.Tensor:
        """x `[B, L, W]`, columns int64 `[L]`: the padded columns of the slots -> `[B, L, W]`."""
        key, value = gather(self.key(x)), gather(self.value(x))  # [B, P, W], in column order
        query, key, value = (
            t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in (self.query(x), key, value))
        # Padding lies behind the tokens of a row, so no token sees it.
        visible = columns[:, None] >= torch.arange(key.shape[2], device=x.device)
        out = functional.scaled_dot_product_attention(query, key, value, attn_mask=visible)
        return self.out(out.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor, columns: torch.Tensor, gather: Gather) -> torch.Tensor:
        x = x + self.attention(self.before_attention(x), columns, gather)
        return x + self.mlp(self.before_mlp(x))


class TinyTransformer(nn.Module):
    def __init__(self, vocabulary: int = 64, width: int = 32, heads: int = 4, blocks: int = 2,
                 positions: int = 128) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, columns: torch.Tensor,
                gather: Gather) -> torch.Tensor:
        """input_ids, position_ids `[B, L]`, columns `[L]` -> logits `[B, L, vocabulary]`.

        `gather` puts a `[B, L, W]` tensor of every rank together to `[B, P, W]`, with gradient.
        """
        x = self.tokens(input_ids) + self.positions(position_ids)
        for block in self.blocks:
            x = block(x, columns, gather)
        return self.head(self.norm(x))

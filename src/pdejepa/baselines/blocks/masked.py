"""Masked autoencoders: an encoder that sees some tokens of a clip, and a light decoder that says the others.

    z       = Encoder( W x_i + position_i,  i visible )
    x_hat_j = Decoder( W z_i + position_i,  mask + position_j )       at the masked places j

Features for other uses are taken with nothing masked.
Letters: B rows, n tokens, m visible ones, V values of a token, w width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pdejepa.baselines.blocks.tokens import BlockConfig, TokenBlock, make_norm, pick, run_blocks


class Positions(nn.Module):
    """Added to tokens: a fixed table (n,w), or a learned one of that shape."""

    table: Tensor

    def __init__(self, table: Tensor | None, shape: tuple[int, int]) -> None:
        super().__init__()
        if table is None:
            self.table = nn.Parameter(0.02 * torch.randn(shape))
        else:
            self.register_buffer("table", table, persistent=False)

    def forward(self, idx: Tensor | None = None) -> Tensor:
        """Positions (B,m,w) of the tokens idx (B,m), or (1,n,w) of all."""
        return self.table[None] if idx is None else pick(self.table[None], idx)


class MaskedEncoder(nn.Module):
    def __init__(self, embed: nn.Module, positions: Positions, block: BlockConfig, depth: int) -> None:
        super().__init__()
        self.embed, self.positions = embed, positions
        self.blocks = nn.ModuleList(TokenBlock(block) for _ in range(depth))
        self.norm = make_norm(block)

    def forward(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        """Features (B,m,w) of the tokens `seen` (B,m) of x (B,n,V), or of all of them."""
        x = x if seen is None else pick(x, seen)
        return self.norm(run_blocks(self.blocks, self.embed(x) + self.positions(seen)))


class MaskedDecoder(nn.Module):
    def __init__(
        self, n_in: int, n_values: int, positions: Positions, block: BlockConfig, depth: int, narrow_bias: bool
    ) -> None:
        super().__init__()
        self.narrow = nn.Linear(n_in, block.width, bias=narrow_bias)
        self.mask = nn.Parameter(0.02 * torch.randn(block.width))
        self.positions = positions
        self.blocks = nn.ModuleList(TokenBlock(block) for _ in range(depth))
        self.norm = make_norm(block)
        self.head = nn.Linear(block.width, n_values)

    def forward(self, z: Tensor, seen: Tensor, masked: Tensor) -> Tensor:
        """Values (B,n-m,V) of the masked tokens from the features z (B,m,.) of the visible ones."""
        x = torch.cat((self.narrow(z) + self.positions(seen), self.mask + self.positions(masked)), 1)  # (B,n,w)
        return self.head(self.norm(run_blocks(self.blocks, x)[:, z.shape[1] :]))

"""Attention of Swin v2 (Liu et al., CVPR 2022): cosine, inside windows that every other block shifts by half.

    A(x) = softmax( e^s cos(q, k) + 16 sigmoid(b(offset)) ) v

s is one number per head, at most log 100; b a small network of the offset between two tokens, on a logarithmic scale.
Letters: B rows, h and v tokens down and across, c width, K heads, d head width, n window, m windows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

START_SCALE, LARGEST_SCALE = math.log(10.0), math.log(100.0)
UNSEEN = -100.0  # added where a shifted window brings tokens together that are no neighbours
Pair = tuple[int, int]


class WindowAttention(nn.Module):
    """Cosine attention inside windows of n x n tokens, shifted by `shift`, with a learned bias of the offset."""

    offsets: Tensor
    mask: Tensor | None

    def __init__(self, width: int, heads: int, grid: Pair, window: Pair, shift: Pair, hidden: int) -> None:
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.query, self.value = nn.Linear(width, width), nn.Linear(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.logit_scale = nn.Parameter(torch.full((heads, 1, 1), START_SCALE))
        self.continuous_position_bias_mlp = nn.Sequential(
            nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, heads, bias=False)
        )
        self.register_buffer("offsets", log_offsets(window), persistent=False)
        self.register_buffer("mask", shift_mask(grid, window, shift) if any(shift) else None, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B,h,v,c) -> (B,h,v,c)."""
        h, v = x.shape[1:3]
        if self.mask is not None:
            x = x.roll((-self.shift[0], -self.shift[1]), (1, 2))
        q, k, values = (self._split(part) for part in (self.query(x), self.key(x), self.value(x)))
        n_windows = q.shape[1]
        scale = self.logit_scale.clamp(max=LARGEST_SCALE).exp()  # (K,1,1)
        q, k = nn.functional.normalize(q, dim=-1) * scale, nn.functional.normalize(k, dim=-1)  # (B,m,K,n^2,d)
        bias = self.bias().expand(n_windows, -1, -1, -1)  # (m,K,n^2,n^2)
        if self.mask is not None:
            bias = bias + self.mask[:, None]
        q, k, values = (part.flatten(1, 2) for part in (q, k, values))  # (B,m*K,n^2,d)
        y = nn.functional.scaled_dot_product_attention(q, k, values, attn_mask=bias.flatten(0, 1)[None], scale=1.0)
        y = y.unflatten(1, (h // self.window[0], v // self.window[1], self.heads)).unflatten(-2, self.window)
        y = y.permute(0, 1, 4, 2, 5, 3, 6).reshape(x.shape)  # (B,h/n,n,v/n,n,K,d) -> (B,h,v,c)
        return y.roll(self.shift, (1, 2)) if self.mask is not None else y

    def bias(self) -> Tensor:
        """(K,n^2,n^2): the value at the offset from key to query, for all pairs of one window.

        8 tanh(x/2) is the published 16 sigmoid(x) less 8, which softmax does not see; around 8, bfloat16 would see
        steps of 1/32 and more.
        """
        x = self.continuous_position_bias_mlp(self.offsets)  # (2n-1,2n-1,K)
        table = 8.0 * torch.tanh(0.5 * x).permute(2, 0, 1)
        pairs = table.unfold(1, self.window[0], 1).unfold(2, self.window[1], 1)  # (K,n,n,n,n): table at i + l
        return pairs.flip((3, 4)).flatten(3, 4).flatten(1, 2)  # l = n-1-j: table at i - j + n-1

    def _split(self, x: Tensor) -> Tensor:
        """(B,h,v,c) -> (B,windows,K,n^2,d)."""
        x = x.unflatten(2, (-1, self.window[1])).unflatten(1, (-1, self.window[0])).unflatten(-1, (self.heads, -1))
        return x.permute(0, 1, 3, 5, 2, 4, 6).flatten(4, 5).flatten(1, 2)


def log_offsets(window: Pair) -> Tensor:
    """(2n-1,2n-1,2): offsets -(n-1) .. n-1 scaled to -8 .. 8, then sign(a) log2(1 + |a|) / 3."""
    axes = [8.0 * torch.arange(1 - n, n, device="cpu") / max(n - 1, 1) for n in window]
    offsets = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)
    return offsets.sign() * torch.log2(1.0 + offsets.abs()) / 3.0


def shift_mask(grid: Pair, window: Pair, shift: Pair) -> Tensor:
    """(windows,n^2,n^2): UNSEEN between tokens of one window that only the roll has brought together, else 0."""
    sides = []
    for m, n, s in zip(grid, window, shift, strict=True):
        place = torch.arange(m, device="cpu")
        sides.append((place >= m - n).long() + (place >= m - s).long() if s else 0 * place)
    region = 3 * sides[0][:, None] + sides[1]  # (h,v)
    parts = region.unflatten(1, (-1, window[1])).unflatten(0, (-1, window[0])).permute(0, 2, 1, 3)
    parts = parts.flatten(2).flatten(0, 1)  # (windows,n^2)
    return UNSEEN * (parts[:, :, None] != parts[:, None, :]).float()

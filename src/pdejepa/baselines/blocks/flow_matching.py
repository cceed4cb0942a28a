"""Tokens drawn by a flow (flow matching, Lipman et al. 2023), and how many are drawn at once.

    dz/dr = v(z, r, c),   z(0) noise,  z(1) a token;   learned from z_r = (1-r) eps + r z with the target z - eps

The network v sees one token at a time, and what stands around it through the condition c only (Li et al., 2024):
its time is embedded by 256 sinusoids, added to a linear map of c, and modulates every block.
Letters: B rows, N tokens of a frame, D latent channels, w width, S rounds.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from pdejepa.baselines.blocks.tokens import modulate

TIME_WIDTH = 256
TIME_SCALE = 1000.0


class FlowBlock(nn.Module):
    """x + gate Mlp(LN(x) (1 + scale) + shift)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 3 * width))

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift, scale, gate = self.modulation(c).chunk(3, -1)
        return x + gate * self.mlp(modulate(self.norm(x), shift, scale))


class FlowHead(nn.Module):
    """The velocity v(z, r, c) (..,D) of tokens z (..,D) at flow times r (..) under conditions c (..,w)."""

    rates: Tensor

    def __init__(self, latent: int, n_condition: int, width: int, depth: int) -> None:
        super().__init__()
        half = TIME_WIDTH // 2
        rates = TIME_SCALE * 1e4 ** (-torch.arange(half, dtype=torch.float32) / half)
        self.register_buffer("rates", rates, persistent=False)
        self.time = nn.Sequential(nn.Linear(TIME_WIDTH, width), nn.SiLU(), nn.Linear(width, width))
        self.condition = nn.Linear(n_condition, width)
        self.start = nn.Linear(latent, width)
        self.blocks = nn.ModuleList(FlowBlock(width) for _ in range(depth))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width))
        self.end = nn.Linear(width, latent)

    def reset(self) -> None:
        """Modulations and output start at zero."""
        last = [self.modulation[1], self.end]
        last += [block.modulation[1] for block in self.blocks if isinstance(block, FlowBlock)]
        for layer in last:
            nn.init.zeros_(layer.weight)  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, z: Tensor, r: Tensor, c: Tensor) -> Tensor:
        angles = r[..., None] * self.rates
        c = self.time(torch.cat((angles.cos(), angles.sin()), -1)) + self.condition(c)
        x = self.start(z)
        for block in self.blocks:
            x = block(x, c)
        shift, scale = self.modulation(c).chunk(2, -1)
        return self.end(modulate(nn.functional.layer_norm(x, x.shape[-1:], eps=1e-6), shift, scale))


def filled_per_round(n_tokens: int, n_rounds: int) -> list[int]:
    """How many tokens each round fills: floor(N cos(pi s / 2S)) stay masked after round s; each fills one or more."""
    left, counts = n_tokens, []
    for s in range(1, n_rounds + 1):
        stay = 0 if s == n_rounds else math.floor(n_tokens * math.cos(math.pi * s / (2 * n_rounds)))
        stay = max(0, min(stay, left - 1))
        if left:
            counts.append(left - stay)
        left = stay
    return counts


def integrate(head: FlowHead, z: Tensor, c: Tensor, n_steps: int) -> Tensor:
    """Noise z -> tokens (..,D) by midpoint steps of dz/dr = v(z, r, c)."""
    h = 1.0 / n_steps
    for step in range(n_steps):
        r = torch.full(z.shape[:-1], step * h, device=z.device)
        middle = z + 0.5 * h * head(z, r, c)
        z = z + h * head(middle, r + 0.5 * h, c)
    return z

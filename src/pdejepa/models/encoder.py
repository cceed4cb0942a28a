"""Encoder: a vision transformer over the space-time tokens of a clip.

    x_0 = W patch + b,   x_l = Block_l(x_{l-1}),   z = LayerNorm(x_depth)

With four levels the features after 1/4, 1/2, 3/4 and all of the blocks are kept, each with its own LayerNorm.
Positions enter only through rotary angles of time and space, so a frame encoded alone does not know its time.
Tokens of a clip are numbered time-major: frame t, site s is token t N + s.
Letters: B rows, T frames, C channels, N tokens per frame, n tokens of a sequence, D width, L levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from pdejepa.core.errors import ConfigError, DataError
from pdejepa.models.blocks import Trunk, init_weights
from pdejepa.models.patches import PatchGrid
from pdejepa.models.rope import Rotary, token_axes
from pdejepa.models.sizes import choice_faults, refuse, size_faults, transformer_faults

EPS = 1e-6


@dataclass(frozen=True)
class EncoderConfig:
    """`n_levels` = 4 also returns the features after one, two and three quarters of the depth."""

    patch: int = 4
    width: int = 192
    depth: int = 12
    heads: int = 3
    mlp_ratio: float = 4.0
    positions: Literal["rope", "ring"] = "rope"
    n_levels: int = 1

    def __post_init__(self) -> None:
        problems = [*size_faults(self, "patch"), *transformer_faults(self), *choice_faults(self)]
        if self.n_levels not in (1, 4):
            problems.append(f"n_levels must be 1 or 4, got {self.n_levels}.")
        elif self.depth % self.n_levels:
            problems.append(f"depth must be a multiple of n_levels = {self.n_levels}, got {self.depth}.")
        refuse(problems)


class Encoder(nn.Module):
    def __init__(self, config: EncoderConfig, patches: PatchGrid, n_channels: int, n_frames: int) -> None:
        super().__init__()
        if config.patch != patches.patch:
            raise ConfigError(f"The encoder has patch {config.patch}, but the grid is cut with {patches.patch}.")
        self.patches, self.n_frames = patches, n_frames
        self.levels = tuple(config.depth * i // config.n_levels for i in range(1, config.n_levels + 1))
        self.embed = nn.Linear(n_channels * patches.patch_points, config.width)
        self.rotary = Rotary(token_axes(patches, config.positions, n_frames), config.width // config.heads)
        self.trunk = Trunk(config.depth, config.width, config.heads, config.mlp_ratio, eps=EPS)
        self.norms = nn.ModuleList(nn.LayerNorm(config.width, eps=EPS) for _ in self.levels)
        init_weights(self)

    def forward(self, u: Tensor, idx: Tensor | None = None, with_levels: bool = False) -> Tensor:
        """Normalised fields u (B,T,C,*grid) -> (B,n,D), or (B,n,L*D) `with_levels`, first level first.

        idx (B,n) picks tokens before the first block: what is left out is never seen.
        """
        if u.shape[1] > self.n_frames:
            raise DataError(f"The encoder was built for clips of {self.n_frames} frames or fewer; got {u.shape[1]}.")
        x = self.patches.split(u).flatten(1, 2)  # (B,T*N,C*p^k)
        if idx is None:
            cos, sin = self.rotary.first(x.shape[1])
        else:
            x = x.gather(1, idx[..., None].expand(-1, -1, x.shape[-1]))  # (B,n,C*p^k)
            cos, sin = self.rotary(idx)
        outputs = self.trunk(self.embed(x), cos, sin, levels=self.levels)  # L of (B,n,D)
        if not with_levels:
            return self.norms[-1](outputs[-1])
        return torch.cat([norm(y) for norm, y in zip(self.norms, outputs, strict=True)], dim=-1)  # (B,n,L*D)

    def frames(self, u: Tensor) -> Tensor:
        """u (B,T,C,*grid) -> (B,T,N,D): every frame as a clip of its own."""
        alone = u.flatten(0, 1).unsqueeze(1)  # (B*T,1,C,*grid)
        return self(alone).unflatten(0, u.shape[:2])  # (B,T,N,D)

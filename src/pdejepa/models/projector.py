"""Projector from features to the coordinates in which the latent dynamics lives:  q = z + W_2 GELU(W_1 LayerNorm(z)).

W_2 and its bias start at zero, so that q = z at the start of training.
Letters: D width of the features.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from pdejepa.models.blocks import Mlp, init_weights
from pdejepa.models.sizes import refuse, size_faults

EPS = 1e-5


@dataclass(frozen=True)
class ProjectorConfig:
    hidden: int = 384

    def __post_init__(self) -> None:
        refuse(size_faults(self, "hidden"))


class Projector(nn.Module):
    """Returns the residual only: the caller adds z, and may weigh the residual by itself."""

    def __init__(self, width: int, config: ProjectorConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=EPS)
        self.mlp = Mlp(width, config.hidden)
        init_weights(self)
        nn.init.zeros_(self.mlp.out.weight)

    def forward(self, z: Tensor) -> Tensor:
        return self.mlp(self.norm(z))  # (...,D)

"""Predictor of the next latent frame from all frames so far, given the parameters of the equation.

    dq_hat_t = W LayerNorm(Trunk(q_0, ..., q_t; condition))      an estimate of q_{t+1} - q_t

Every frame is [condition token, N tokens]; a token sees all tokens of its own and of earlier frames.  A condition
token has the time of its frame and angle 0 on every axis of space.  W starts at zero: "nothing changes".
Letters: B rows, T frames, N tokens per frame, D latent width, P parameters, n = T (N + 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pdejepa.core.errors import DataError
from pdejepa.models.blocks import Trunk, in_float32, init_weights
from pdejepa.models.encoder import EncoderConfig
from pdejepa.models.patches import PatchGrid
from pdejepa.models.rope import Rotary, token_axes
from pdejepa.models.sizes import refuse, transformer_faults

EPS = 1e-6


@dataclass(frozen=True)
class CausalPredictorConfig:
    width: int = 384
    depth: int = 24
    heads: int = 12
    mlp_ratio: float = 4.0

    def __post_init__(self) -> None:
        refuse(transformer_faults(self))


class CausalPredictor(nn.Module):
    places: Tensor

    def __init__(
        self,
        config: CausalPredictorConfig,
        encoder: EncoderConfig,
        patches: PatchGrid,
        n_frames: int,
        n_conditions: int,
    ) -> None:
        super().__init__()
        self.n_frames, width = n_frames, config.width
        self.embed = nn.Linear(encoder.width, width)
        self.embed_condition = nn.Linear(n_conditions, width)
        self.rotary = Rotary(token_axes(patches, encoder.positions, n_frames), width // config.heads)
        self.trunk = Trunk(config.depth, width, config.heads, config.mlp_ratio, eps=EPS)
        self.norm = nn.LayerNorm(width, eps=EPS)
        self.head = nn.Linear(width, encoder.width)
        self.register_buffer("places", _places(n_frames, patches.n_tokens), persistent=False)
        init_weights(self)
        nn.init.zeros_(self.head.weight)

    def forward(self, q: Tensor, condition: Tensor) -> Tensor:
        """q (B,T,N,D) and condition (B,P), or (B,T,P) if it changes with time -> dq_hat (B,T,N,D)."""
        B, T, N, _ = q.shape
        if self.n_frames < T:
            raise DataError(f"The causal predictor was built for {self.n_frames} frames or fewer; got {T}.")
        if condition.ndim == 2:
            condition = condition[:, None].expand(-1, T, -1)  # (B,T,P)
        first = in_float32(self.embed_condition, condition)[:, :, None]  # (B,T,1,width)
        x = torch.cat((first, self.embed(q)), dim=2).flatten(1, 2)  # (B,n,width)
        n = T * (N + 1)
        cos, sin = self.rotary(self.places[None, :n])
        x = self.trunk(x, cos, sin, mask=block_causal_mask(T, N + 1, q.device))
        x = x.view(B, T, N + 1, -1)[:, :, 1:]  # (B,T,N,width), without the condition
        return self.head(self.norm(x))  # (B,T,N,D)


def block_causal_mask(n_frames: int, n_per_frame: int, device: torch.device) -> Tensor:
    """(n,n), True where row i may look at column j: the frame of j is not later than that of i."""
    frame = torch.arange(n_frames * n_per_frame, device=device) // n_per_frame  # (n,)
    return frame[:, None] >= frame[None, :]


def _places(n_frames: int, n_tokens: int) -> Tensor:
    """Row of the rotary table for each token; a condition token stands at the origin of space of its frame."""
    site = torch.cat((torch.zeros(1, dtype=torch.int64), torch.arange(n_tokens)))  # (N+1,)
    return (torch.arange(n_frames)[:, None] * n_tokens + site).flatten()  # (n,)

"""Predictor of masked features from visible ones (Bardes et al. 2024, V-JEPA).

    [ W z_context,  m_kind m_kind ... ]  --rotary positions, blocks, LayerNorm-->  [ z_hat_context,  z_hat_target ]

A target enters as a learned vector m, one per type of mask, and is told apart by its position only.
Letters: B rows, K_c context tokens, K_t target tokens, D width of the encoder, L its levels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pdejepa.models.blocks import Trunk, init_weights
from pdejepa.models.encoder import EncoderConfig
from pdejepa.models.patches import PatchGrid
from pdejepa.models.rope import Rotary, token_axes
from pdejepa.models.sizes import refuse, transformer_faults

EPS = 1e-6


@dataclass(frozen=True)
class JepaPredictorConfig:
    width: int = 384
    depth: int = 12
    heads: int = 12
    mlp_ratio: float = 4.0

    def __post_init__(self) -> None:
        refuse(transformer_faults(self))


class JepaPredictor(nn.Module):
    def __init__(
        self,
        config: JepaPredictorConfig,
        encoder: EncoderConfig,
        patches: PatchGrid,
        n_frames: int,
        n_mask_types: int = 2,
        has_context_head: bool = True,
    ) -> None:
        super().__init__()
        width, n_features = config.width, encoder.n_levels * encoder.width
        self.embed = _embedding(encoder, width)
        self.mask_token = nn.Parameter(torch.zeros(n_mask_types, width))
        self.rotary = Rotary(token_axes(patches, encoder.positions, n_frames), width // config.heads)
        self.trunk = Trunk(config.depth, width, config.heads, config.mlp_ratio, eps=EPS)
        self.norm = nn.LayerNorm(width, eps=EPS)
        self.head = nn.Linear(width, n_features)
        self.context_head = nn.Linear(width, n_features) if has_context_head else None
        init_weights(self)

    def forward(
        self, context: Tensor, context_idx: Tensor, target_idx: Tensor, kind: int
    ) -> tuple[Tensor, Tensor | None]:
        """context (B,K_c,L*D) and token numbers (B,K_c), (B,K_t) -> predictions of target and context.

        They have shapes (B,K_t,L*D) and (B,K_c,L*D); the second is None without a context head.
        """
        B, n_context, _ = context.shape
        seen = self.embed(context)
        masked = self.mask_token[kind].to(seen.dtype).expand(B, target_idx.shape[1], -1)  # (B,K_t,width)
        x = torch.cat((seen, masked), dim=1)  # (B,K_c+K_t,width)
        cos, sin = self.rotary(torch.cat((context_idx, target_idx), dim=1))
        x = self.norm(self.trunk(x, cos, sin))
        target = self.head(x[:, n_context:])  # (B,K_t,L*D)
        if self.context_head is None:
            return target, None
        return target, self.context_head(x[:, :n_context])  # (B,K_c,L*D)


def _embedding(encoder: EncoderConfig, width: int) -> nn.Module:
    """One Linear for one level; several levels are mixed down to one encoder width first."""
    if encoder.n_levels == 1:
        return nn.Linear(encoder.width, width)
    mixed = nn.Linear(encoder.n_levels * encoder.width, encoder.width)
    return nn.Sequential(mixed, nn.GELU(), nn.Linear(encoder.width, width))

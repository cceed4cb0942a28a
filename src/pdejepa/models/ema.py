"""Moving average of a network's weights:  theta_target <- m theta_target + (1 - m) theta_online."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pdejepa.core.errors import ConfigError


@torch.no_grad()
def update_ema(target: nn.Module, online: nn.Module, momentum: float) -> None:
    """Move all parameters of `target` towards those of `online`; momentum 1 keeps them, 0 copies."""
    averaged: list[Tensor] = list(target.parameters())
    latest: list[Tensor] = list(online.parameters())
    if [p.shape for p in averaged] != [p.shape for p in latest]:
        raise ConfigError("A moving average needs two networks with the same parameters; build both from one config.")
    torch._foreach_lerp_(averaged, latest, 1.0 - momentum)

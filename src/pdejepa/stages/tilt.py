"""Training more often on sharp trajectories.

Parameters beyond the training range mostly make fields sharper than usual, which rare training trajectories are as
well.  Letters: n trajectories, T frames, C channels.
"""

from __future__ import annotations

import torch
from torch import Tensor


def sharpness(fields: Tensor) -> Tensor:
    """Rms difference of neighbouring points over rms deviation from the mean, a number per trajectory (n,)."""
    result = []
    for part in fields.split(256):
        u = part.flatten(0, 2)  # (rows*T*C,*grid)
        axes = tuple(range(1, u.ndim))
        spread = (u - u.mean(axes, keepdim=True)).square().sum(axes)
        steps = torch.stack([u.diff(dim=axis).square().sum(axes) for axis in axes]).sum(0)
        ratio = (steps / spread.clamp(min=1e-12)).sqrt()
        result.append(ratio.reshape(len(part), -1).mean(1))
    return torch.cat(result)


def tilted(sharp: Tensor, power: float) -> Tensor:
    """Rows (n,) in which trajectory i occurs in proportion to sharp_i^power, n in all; some occur more than once."""
    weight = sharp.double().cpu() ** power
    share = (weight / weight.sum()).cumsum(0)
    at = (torch.arange(len(sharp), dtype=torch.float64) + 0.5) / len(sharp)
    return torch.searchsorted(share, at).clamp(max=len(sharp) - 1).to(sharp.device)

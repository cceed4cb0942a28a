"""The exact solution of damped oscillators, x'' + 2 a x' + (Omega^2 + a^2) x = 0.

    x(t) = e^{-at} [cos(Omega t) x(0) + sin(Omega t)/Omega (x'(0) + a x(0))]

with cosh and sinh where Omega^2 < 0 (overdamped).
"""

from __future__ import annotations

import torch
from torch import Tensor


def damped_waves(omega2: Tensor, a: Tensor, t: float | Tensor) -> tuple[Tensor, Tensor]:
    """e^{-at} cos(Omega t) and e^{-at} sin(Omega t)/Omega for either sign of Omega^2; the limit t at Omega = 0.

    Gradients are finite everywhere: the branch that is not taken is computed at a harmless place.
    """
    tiny = torch.finfo(omega2.dtype).tiny
    overdamped = omega2 < 0
    root = omega2.abs().clamp(min=tiny).sqrt()
    turn, growth = root.masked_fill(overdamped, 0.0), root.masked_fill(~overdamped, 0.0)
    decay = torch.exp(-a * t)
    grow, fade = torch.exp((growth - a) * t), torch.exp(-(growth + a) * t)
    cosine = torch.where(overdamped, 0.5 * (grow + fade), decay * torch.cos(turn * t))
    sine = torch.where(overdamped, 0.5 * (grow - fade), decay * torch.sin(turn * t)) / root
    return cosine, torch.where(root * t < 1e-6, decay * t, sine)

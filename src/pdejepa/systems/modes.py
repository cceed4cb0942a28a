"""Random sums of sines, the initial conditions and forcings of the 1-D systems."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def sine_sum(x: Tensor, length: float, amplitude: Tensor, mode: Tensor, phase: Tensor) -> Tensor:
    """sum_j A_j sin(2 pi l_j x / L + phi_j): coefficients (B,J), x (N,) -> (B,N)."""
    angle = 2 * math.pi / length * mode[..., None] * x + phase[..., None]  # (B,J,N)
    return (amplitude[..., None] * torch.sin(angle)).sum(-2)


def cell_mean_factor(mode: Tensor, n_points: int) -> Tensor:
    """Mean of exp(2 pi i l x / L) over a cell of width L/n_points, relative to its centre value."""
    return torch.sinc(mode / n_points)

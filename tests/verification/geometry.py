"""The turning angle, defined once: how sharply a trajectory bends from one frame to the next."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def turning_angles(fields: Tensor) -> Tensor:
    """Angles in degrees between consecutive increments, (B,T-2), of fields (B,T,...).

    An increment is frame t+1 minus frame t as one long vector over channels and grid, with the plain Euclidean inner
    product (no quadrature weights, also on Chebyshev nodes).
    """
    steps = fields.double().flatten(2).diff(dim=1)  # (B,T-1,D)
    before, after = steps[:, :-1], steps[:, 1:]
    cosine = (before * after).sum(2) / (before.norm(dim=2) * after.norm(dim=2)).clamp(min=1e-300)
    return torch.rad2deg(torch.acos(cosine.clamp(-1.0, 1.0)))


def mean_turning_angle(fields: Tensor) -> tuple[float, float]:
    """Mean over frames and rows, and its standard error over rows."""
    rows = turning_angles(fields).mean(1)
    return float(rows.mean()), float(rows.std() / len(rows) ** 0.5)


def repeat_first_error(fields: Tensor) -> float:
    """Mean relative L2 error over frames 1.. of the forecast "nothing changes"."""
    first, rest = fields[:, :1].double(), fields[:, 1:].double()
    return float(((rest - first).flatten(1).norm(dim=1) / rest.flatten(1).norm(dim=1)).mean())


def quadrature(n: int, half: float) -> Tensor:
    """Clenshaw-Curtis weights (n,) for integrals over [-half, half] from values at the nodes."""
    theta = math.pi * torch.arange(n, dtype=torch.float64) / (n - 1)
    total = torch.ones(n, dtype=torch.float64)
    for j in range(1, (n - 1) // 2 + 1):
        factor = 1.0 if 2 * j == n - 1 else 2.0
        total -= factor / (4 * j**2 - 1) * torch.cos(2 * j * theta)
    weights = 2 * half / (n - 1) * total
    weights[[0, -1]] *= 0.5
    return weights

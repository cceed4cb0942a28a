"""Finite differences on periodic axes, and the four-ghost-free matrix of the same stencil between walls.

Fourth-order second difference:  (-1/12, 4/3, -5/2, 4/3, -1/12) / dx^2
"""

from __future__ import annotations

import torch
from torch import Tensor

SECOND_DIFFERENCE = (-1 / 12, 4 / 3, -5 / 2, 4 / 3, -1 / 12)


def second_difference(u: Tensor, dx: float) -> Tensor:
    """Fourth-order u_xx along the last, periodic axis."""
    total = torch.zeros_like(u)
    for offset, weight in zip(range(-2, 3), SECOND_DIFFERENCE, strict=True):
        total = total + weight * torch.roll(u, -offset, -1)
    return total / dx**2


def second_difference_symbol(n: int, dx: float) -> Tensor:
    """Eigenvalues (K,) float64 of `second_difference` on the real Fourier modes: real, never positive."""
    phase = 2 * torch.pi * torch.arange(n // 2 + 1, dtype=torch.float64) / n
    far, near, centre = SECOND_DIFFERENCE[:3]
    return (centre + 2 * near * torch.cos(phase) + 2 * far * torch.cos(2 * phase)) / dx**2


def wall_matrix(n: int, dx: float, bc: str) -> Tensor:
    """The stencil on n nodes between two walls, (n,n) float64, symmetric and never positive.

    `dirichlet`: values beyond the ends are zero.  `neumann`: values beyond an end mirror those inside it.
    """
    matrix = torch.zeros(n, n, dtype=torch.float64)
    for i in range(n):
        for offset, weight in zip(range(-2, 3), SECOND_DIFFERENCE, strict=True):
            j = i + offset
            if bc == "neumann":
                j = -1 - j if j < 0 else 2 * n - 1 - j if j >= n else j
            if 0 <= j < n:
                matrix[i, j] += weight
    return matrix / dx**2


def nine_point_laplacian(u: Tensor, dx: float) -> Tensor:
    """Periodic 2-D Laplacian: centre -3, edge neighbours 1/2, corner neighbours 1/4, over dx^2; second order."""
    up, down = torch.roll(u, 1, -2), torch.roll(u, -1, -2)
    edges = up + down + torch.roll(u, 1, -1) + torch.roll(u, -1, -1)
    both = up + down
    corners = torch.roll(both, 1, -1) + torch.roll(both, -1, -1)
    return (-3.0 * u + 0.5 * edges + 0.25 * corners) / dx**2

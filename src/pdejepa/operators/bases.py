"""Orthonormal waves of a grid: sines, cosines or both, as the boundaries say."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor


def waves(
    n: int, gap: float, boundary: Literal["periodic", "dirichlet", "neumann", "open"]
) -> tuple[Tensor, Tensor]:
    """Waves on n points as rows (modes,n), float64, ascending, and their wave numbers (modes,).

    Sines that vanish one point beyond the ends (dirichlet), cosines that are flat half a point beyond them (neumann and
    open), or both on a ring (periodic).
    """
    i, k = torch.arange(n, dtype=torch.float64), torch.arange(n, dtype=torch.float64)[:, None]
    if boundary == "dirichlet":
        rows, numbers = torch.sin(math.pi * (k + 1) * (i + 1) / (n + 1)), math.pi * (k + 1) / ((n + 1) * gap)
    elif boundary == "periodic":
        turns = (k + 1).div(2, rounding_mode="floor")
        rows = torch.cos(2 * math.pi * turns * i / n - (k % 2) * math.pi / 2)  # cosines in even rows, sines in odd ones
        if n % 2 == 0:
            rows[-1] = torch.cos(math.pi * i)
        numbers = 2 * math.pi * turns / (n * gap)
    else:
        rows, numbers = torch.cos(math.pi * k * (i + 0.5) / n), math.pi * k / (n * gap)
    return rows / rows.norm(dim=1, keepdim=True), numbers[:, 0]


def along(values: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """A matrix (m,n) applied to an axis of length n."""
    return (values.movedim(axis, -1) @ matrix.T).movedim(-1, axis)

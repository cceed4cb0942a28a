"""Chebyshev extremal nodes on [-half, half]: interpolation, differentiation and boundary conditions.

Nodes ascend, x_i = -half cos(pi i / (n-1)), and cluster at both ends.  Matrices are float64.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def nodes(n: int, half: float) -> Tensor:
    """(n,) ascending, both ends included."""
    return -half * torch.cos(math.pi * torch.arange(n, dtype=torch.float64) / (n - 1))


def barycentric_weights(n: int) -> Tensor:
    weights = torch.ones(n, dtype=torch.float64)
    weights[1::2] = -1.0
    weights[0] *= 0.5
    weights[-1] *= 0.5
    return weights


def interpolation(n: int, half: float, points: Tensor) -> Tensor:
    """Matrix (P,n): values at the nodes -> values of the interpolating polynomial at `points` (P,) inside."""
    x, weights = nodes(n, half), barycentric_weights(n)
    gap = points[:, None].double() - x[None, :]  # (P,n)
    hit = gap.abs() < 1e-13 * half
    ratio = weights / torch.where(hit, torch.ones_like(gap), gap)
    matrix = ratio / ratio.sum(1, keepdim=True)
    on_node = hit.any(1, keepdim=True)
    return torch.where(on_node, hit.double(), matrix)


def differentiation(n: int, half: float) -> Tensor:
    """First-derivative matrix (n,n); the diagonal makes every row sum to zero, so constants have slope 0."""
    x, weights = nodes(n, half), barycentric_weights(n)
    gap = x[:, None] - x[None, :] + torch.eye(n, dtype=torch.float64)
    matrix = (weights[None, :] / weights[:, None]) / gap
    matrix.fill_diagonal_(0.0)
    return matrix - torch.diag(matrix.sum(1))


def extension(n: int, half: float, left: str, right: str) -> Tensor:
    """Matrix (n,n) that keeps the interior values and replaces the end values by those that meet the conditions.

    `left` and `right` are "D" (u = 0) or "N" (u_x = 0).  The two end values of the input are ignored.
    """
    first = differentiation(n, half)
    rows = torch.stack([_condition(first, 0, left), _condition(first, n - 1, right)])  # (2,n)
    matrix = torch.zeros(n, n, dtype=torch.float64)
    matrix[1:-1, 1:-1] = torch.eye(n - 2, dtype=torch.float64)
    matrix[[0, n - 1], 1:-1] = -torch.linalg.solve(rows[:, [0, n - 1]], rows[:, 1:-1])
    return matrix


def bordered_second_derivative(n: int, half: float, left: str, right: str) -> Tensor:
    """u_xx (n,n) of the polynomial that keeps the interior values and meets the end conditions."""
    first = differentiation(n, half)
    return first @ first @ extension(n, half, left, right)


def _condition(first: Tensor, end: int, kind: str) -> Tensor:
    if kind == "N":
        return first[end]
    row = torch.zeros(len(first), dtype=torch.float64)
    row[end] = 1.0
    return row

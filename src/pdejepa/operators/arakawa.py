"""Second-order operators of 2-D incompressible flow on a periodic square, u[..., i, j] = u(x_i, y_j).

Arakawa's Jacobian (1966) averages three second-order forms of psi_x omega_y - psi_y omega_x so that mean
vorticity, energy and enstrophy are all conserved by the space discretisation.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Neighbours = Callable[[int, int], Tensor]


def neighbours(field: Tensor) -> Neighbours:
    """at(i, j) = field shifted so that entry (x, y) holds the value at (x+i, y+j), |i|, |j| <= 1.

    On a CPU the field is padded once and the shifts are views; a fused GPU kernel reads shifted addresses directly.
    """
    if field.is_cuda:
        return lambda i, j: torch.roll(field, (-i, -j), (-2, -1))
    wide = torch.cat((field[..., -1:, :], field, field[..., :1, :]), -2)
    wide = torch.cat((wide[..., -1:], wide, wide[..., :1]), -1)
    n, m = field.shape[-2:]
    return lambda i, j: wide[..., 1 + i : 1 + i + n, 1 + j : 1 + j + m]


def jacobian(psi: Neighbours, omega: Neighbours, dx: float) -> Tensor:
    """J(psi, omega) = psi_x omega_y - psi_y omega_x, Arakawa's (J++ + J+x + Jx+) / 3."""
    p_e, p_w, p_n, p_s = psi(1, 0), psi(-1, 0), psi(0, 1), psi(0, -1)
    p_ne, p_nw, p_se, p_sw = psi(1, 1), psi(-1, 1), psi(1, -1), psi(-1, -1)
    o_e, o_w, o_n, o_s = omega(1, 0), omega(-1, 0), omega(0, 1), omega(0, -1)
    o_ne, o_nw, o_se, o_sw = omega(1, 1), omega(-1, 1), omega(1, -1), omega(-1, -1)
    centred = (p_e - p_w) * (o_n - o_s) - (p_n - p_s) * (o_e - o_w)
    flux_psi = p_e * (o_ne - o_se) - p_w * (o_nw - o_sw) - p_n * (o_ne - o_nw) + p_s * (o_se - o_sw)
    flux_omega = o_n * (p_ne - p_nw) - o_s * (p_se - p_sw) - o_e * (p_ne - p_se) + o_w * (p_nw - p_sw)
    return (centred + flux_psi + flux_omega) / (12 * dx * dx)


def five_point_laplacian(u: Neighbours, dx: float) -> Tensor:
    return (u(1, 0) + u(-1, 0) + u(0, 1) + u(0, -1) - 4 * u(0, 0)) / dx**2


def block_mean(u: Tensor, factor: int) -> Tensor:
    """Mean over factor x factor blocks of the last two axes: (...,N,N) -> (...,N/factor,N/factor)."""
    if factor == 1:
        return u
    n, m = u.shape[-2] // factor, u.shape[-1] // factor
    return u.reshape(*u.shape[:-2], n, factor, m, factor).mean((-3, -1))

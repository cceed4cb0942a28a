"""Plausible mistakes, put into the solvers for the length of a `with` block.

A mutant replaces one operator where the system looks it up; caches built from operators are emptied on the way in and
on the way out, so that neither the mistake nor the correct table survives where it should not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from pdejepa.operators import differences, spectral
from pdejepa.operators.arakawa import Neighbours
from pdejepa.solve.integrators import Etdrk4, Stage
from pdejepa.systems import heterns, wave_2d, wave_b


def _empty_caches() -> None:
    for function in (wave_b._propagator, wave_b._exponential, wave_2d._eigenbasis):
        function.cache_clear()


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """`owner.name` is `value` inside the block."""
    _empty_caches()
    try:
        with mock.patch.object(owner, name, value):
            yield
    finally:
        _empty_caches()


def swap(owner: Any, name: str, value: Any) -> Callable[[], Any]:
    """A function that opens `replaced(...)`: what a `Mutant` wants."""
    return lambda: replaced(owner, name, value)


def rk4_reusing_first_slope(stage: Stage, u: Tensor, weights: tuple[Tensor, ...]) -> Tensor:
    """RK4 whose third stage starts from the first slope again: order 2, though it still looks like RK4."""
    sixth, third, half, full = weights
    total, v = stage(u, u, u, sixth, half)
    total, _ignored = stage(v, u, total, third, half)
    total, v = stage(v, u, total, third, full)
    return stage(v, u, total, sixth, None)[0]


def etd_step_reusing_first_slope(
    self: Etdrk4, nonlinear: Callable[[float, Tensor], Tensor], t: float, v: Tensor
) -> Tensor:
    """ETDRK4 whose second stage takes N(v) again in place of N(a)."""
    n_v = nonlinear(t, v)
    a = self.half * v + self.q * n_v
    n_a = nonlinear(t + self.h / 2, a)
    n_b = nonlinear(t + self.h / 2, self.half * v + self.q * n_v)
    c = self.half * a + self.q * (2 * n_b - n_v)
    return self.full * v + self.f1 * n_v + 2 * self.f2 * (n_a + n_b) + self.f3 * nonlinear(t + self.h, c)


def etd_symbol_with_wrong_q(
    symbol: Tensor, h: float, n_points: int = 32, *, correct: Any = Etdrk4.for_symbol
) -> Etdrk4:
    """The stage coefficient as if the linear part were zero: Q = h/2."""
    good = correct(symbol, h, n_points)
    return Etdrk4(good.full, good.half, torch.full_like(good.q, h / 2), good.f1, good.f2, good.f3, h)


def lawson_stage_three_without_half_factor(
    products: Any, v: Tensor, total: Tensor, flow: Any, symbols: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """The third slope enters without its decay over half a step."""
    h, c = flow[3], heterns._transport(products, symbols)
    full = heterns._half_flow(heterns._half_flow(v, flow), flow)
    return total + h / 3 * c, *heterns._velocity_modes(full + h * c, symbols)


def jacobian_without_one_form(psi: Neighbours, omega: Neighbours, dx: float) -> Tensor:
    """Two of Arakawa's three forms, still divided by three."""
    flux = (
        psi(1, 0) * (omega(1, 1) - omega(1, -1))
        - psi(-1, 0) * (omega(-1, 1) - omega(-1, -1))
        - psi(0, 1) * (omega(1, 1) - omega(-1, 1))
        + psi(0, -1) * (omega(1, -1) - omega(-1, -1))
    )
    return (advective_jacobian(psi, omega, dx) + flux / (4 * dx**2)) / 3


def advective_jacobian(psi: Neighbours, omega: Neighbours, dx: float) -> Tensor:
    """J++ alone: second order and consistent, but it conserves neither energy nor enstrophy."""
    across = (psi(1, 0) - psi(-1, 0)) * (omega(0, 1) - omega(0, -1))
    return (across - (psi(0, 1) - psi(0, -1)) * (omega(1, 0) - omega(-1, 0))) / (4 * dx**2)


def five_point_with_wrong_centre(u: Neighbours, dx: float) -> Tensor:
    """Edges 0.99 instead of 1; rows still sum to zero."""
    return 0.99 * (u(1, 0) + u(-1, 0) + u(0, 1) + u(0, -1) - 4 * u(0, 0)) / dx**2


def nine_point_with_wrong_corners(u: Tensor, dx: float) -> Tensor:
    """Rows sum to zero, but the corners weigh 0.3 and the edges 0.45: diffusion is 5 % too strong."""
    edges = sum(torch.roll(u, shift, axis) for shift in (1, -1) for axis in (-2, -1))
    corners = sum(torch.roll(u, (i, j), (-2, -1)) for i in (1, -1) for j in (1, -1))
    return (-3.0 * u + 0.45 * edges + 0.3 * corners) / dx**2


def second_difference_of_order_two(u: Tensor, dx: float) -> Tensor:
    return (torch.roll(u, 1, -1) - 2 * u + torch.roll(u, -1, -1)) / dx**2


def symbol_of_order_two(n: int, dx: float) -> Tensor:
    """Eigenvalues of the three-point second difference."""
    phase = 2 * torch.pi * torch.arange(n // 2 + 1, dtype=torch.float64) / n
    return (2 * torch.cos(phase) - 2) / dx**2


def wavenumbers_of_differences(
    n: int, length: float, *, real: bool, like: Tensor, correct: Any = spectral.wavenumbers
) -> Tensor:
    """sin(k dx)/dx in place of k: a centred difference instead of a spectral derivative."""
    dx = length / n
    return torch.sin(correct(n, length, real=real, like=like) * dx) / dx


def shift_by_whole_points(u: Tensor, distance: Tensor, length: float, *, correct: Any = spectral.shift) -> Tensor:
    """Rounds the distance to whole grid points."""
    dx = length / u.shape[-1]
    return correct(u, torch.round(distance / dx) * dx, length)


def steady_response(slope: Tensor, omega: Tensor, tau: Tensor) -> Tensor:
    """The forced mode without its transient."""
    tau = tau.reshape(1, -1, 1)
    return torch.polar(torch.ones_like(omega * tau), omega * tau) / torch.complex(slope, omega)


def waves_without_sinh(omega2: Tensor, half_damping: Tensor, t: float) -> tuple[Tensor, Tensor]:
    """Every mode treated as underdamped."""
    root = omega2.abs().sqrt().clamp(min=1e-300)
    decay = torch.exp(-half_damping * t)
    return decay * torch.cos(root * t), decay * torch.sin(root * t) / root


def leg_that_never_flips(z: Tensor, n: int, turn: float, *, correct: Any = wave_b._leg) -> Tensor:
    """Forgets that a round trip between unlike ends changes the sign."""
    return correct(z, n, 1.0)


def equal_barycentric_weights(n: int) -> Tensor:
    """The two end weights are not halved."""
    weights = torch.ones(n, dtype=torch.float64)
    weights[1::2] = -1.0
    return weights


def other_walls(n: int, dx: float, bc: str, *, correct: Any = differences.wall_matrix) -> Tensor:
    """Mirrors where the field should vanish, and the other way round."""
    return correct(n, dx, "neumann" if bc == "dirichlet" else "dirichlet")


def no_dealiasing(n: int, ndim: int, device: torch.device) -> Tensor:
    """Keeps every mode."""
    half = torch.ones(n // 2 + 1, dtype=torch.bool, device=device)
    return half if ndim == 1 else half.expand(n, -1)

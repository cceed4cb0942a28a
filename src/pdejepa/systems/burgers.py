"""Burgers: u_t + (u^2/2)_x = beta u_xx + F(t,x) on [0,16), periodic, with five travelling sines as forcing.

Finite volumes on 256 cells: u_i is the mean over a cell centred at x_i = i L / N.  Transport by conservative
WENO5 with the exact Riemann (Godunov) flux, diffusion by the fourth-order difference, which is diagonal in Fourier
space and integrated exactly by ETDRK4; so one step, limited by transport alone, serves every diffusivity.

The 256-cell scheme *is* the benchmark: where diffusion is too weak to spread a shock over a few cells, the shock's
width is the grid's.  `refinement_report` tells how far 512 cells are from 256, by diffusivity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pdejepa.operators import differences, spectral, weno
from pdejepa.solve.integrators import EtdTable
from pdejepa.solve.march import Stepper
from pdejepa.systems.base import SteppedSystem, relative_l2
from pdejepa.systems.forced import ForcedSystem
from pdejepa.systems.modes import cell_mean_factor
from pdejepa.systems.refinement import by_range
from pdejepa.systems.structure import Check, Reference

MAX_COURANT = 1.2
DECADES = (0.0, 1e-2, 1e-1, 1.0, float("inf"))


@dataclass(frozen=True)
class Burgers(SteppedSystem, ForcedSystem):
    name = "burgers"
    title = "Burgers"
    equation = "u_t + (u^2/2)_x = beta u_xx + F(t,x)"
    expect = "waves steepen into fronts; fronts merge; strong diffusion smooths them at once"
    reference = Reference("time step halved (the 256-cell scheme defines the benchmark)", 2e-3)
    chunk = (60, 16384)
    is_cell_mean = True

    dt: float = 4.0 / 249

    def stepper(self, xi: Tensor, like: Tensor) -> Stepper:
        return _Stepper(self, xi, like)

    def shared(self, u: Tensor) -> Tensor:
        return weno.burgers_tendency(u, self.dx)

    def operators(self, u: Tensor) -> Tensor:
        return differences.second_difference(u, self.dx)[:, None]

    def invariants(self, fields: Tensor, xi: Tensor, times: Tensor) -> list[Check]:
        amplitude = self.forcing_coefficients(xi)[0].abs().sum(1)  # (B,)
        bound = fields[:, 0].abs().amax((1, 2))[:, None] + amplitude[:, None] * times  # (B,T)
        mean = fields.mean((2, 3))  # (B,T)
        excess = (fields.abs().amax((2, 3)) - bound) / bound.amax()
        return [
            Check("mean is conserved (the forcing has none)", float((mean - mean[:, :1]).abs().amax()), 1e-5),
            Check("maximum principle: |u| <= max|u0| + t sum|A|", float(excess.amax()), 1e-2),
        ]

    def refinement_report(self, u0: Tensor, xi: Tensor, fields: Tensor) -> dict[str, float]:
        """Relative L2 between N and 2N cells, mean over rows in each decade of diffusivity."""
        fine = replace(self, n_points=2 * self.n_points, dt=self.dt / 2)
        solved = fine.solve(change_cells(u0, fine.n_points), xi).as_subclass(Tensor)
        error = relative_l2(fields, change_cells(solved, self.n_points))
        return by_range(f"{self.n_points} -> {fine.n_points} cells", "diffusivity", xi[:, 0], error, DECADES)


class _Stepper:
    """ETDRK4 on the rfft of the cell means: L = beta * difference symbol, N = WENO transport + forcing."""

    def __init__(self, system: Burgers, xi: Tensor, like: Tensor, table: EtdTable | None = None) -> None:
        self.system = system
        symbol = differences.second_difference_symbol(system.n_points, system.dx).to(like.device)
        self.table = table or EtdTable((xi[:, :1] * symbol).to(like.dtype))
        self.take = lambda rows: _Stepper(system, xi[rows], like, self.table.take(rows))
        amplitude, self.omega, self.mode, phase = system.forcing_coefficients(xi)
        self.force_bound = amplitude.abs().sum(1)  # (B,)
        # sin(y) = Im e^{iy}: its rfft coefficient at l is -i N/2
        self.force = torch.polar(system._means(amplitude, self.mode), phase) * (-0.5j * system.n_points)  # (B,J)

    def start(self, u0: Tensor) -> Tensor:
        return torch.fft.rfft(u0[:, 0])  # (B,K)

    def observe(self, state: Tensor) -> Tensor:
        return torch.fft.irfft(state, n=self.system.n_points)[:, None]

    def tail(self, state: Tensor) -> Tensor | None:
        return None  # a captured shock always reaches the grid scale here; see `refinement_report`

    def stable_dt(self, state: Tensor, gap: float) -> Tensor:
        """Courant number of the largest speed the forcing can build up within the gap (maximum principle)."""
        speed = torch.fft.irfft(state, n=self.system.n_points).abs().amax(1) + gap * self.force_bound
        return MAX_COURANT * self.system.dx / speed.clamp(min=1e-6)

    def advance(self, state: Tensor, t: float, h: float, n: int) -> Tensor:
        scheme = self.table.scheme(h)
        nonlinear = self._nonlinear()
        for i in range(n):
            state = scheme.step(nonlinear, t + i * h, state)
        return state

    def _nonlinear(self) -> Callable[[float, Tensor], Tensor]:
        n, dx, column = self.system.n_points, self.system.dx, self.mode.round().long()

        def nonlinear(t: float, state: Tensor) -> Tensor:
            modes = torch.fft.rfft(weno.burgers_tendency(torch.fft.irfft(state, n=n), dx))
            turned = self.force * torch.polar(torch.ones_like(self.omega), self.omega * t)  # (B,J)
            return modes.scatter_add(1, column, turned.to(modes.dtype))

        return nonlinear


def change_cells(u: Tensor, n: int) -> Tensor:
    """Cell means on n cells of the same centres' grid, by Fourier modes: undo one cell width, apply the other."""
    old = u.shape[-1]
    k = torch.arange(old // 2 + 1, dtype=u.dtype, device=u.device)
    factor = cell_mean_factor(k, n) / cell_mean_factor(k, old)
    return spectral.resample(torch.fft.irfft(torch.fft.rfft(u) * factor, n=old), n, 1)


SYSTEM = Burgers

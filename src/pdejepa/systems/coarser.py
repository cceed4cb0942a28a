"""Our own solvers with less work: coarser grids, larger time steps, single precision.

    settings(system) -> [Setting, ...]        the first one is the solver as it makes the data

A setting starts from the state at the first stored frame, restricted to its own grid, and brings its frames to the
stored grid: by Fourier modes where the domain is periodic, by the Chebyshev polynomial for Wave-B, by local polynomials
for Wave-2D.  Burgers keeps cell means and Vorticity means over blocks, as in the data.
Letters: B rows, T frames, C channels, N points per axis, S points per axis of the solver that makes the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from pdejepa.operators import chebyshev, spectral
from pdejepa.systems.base import SteppedSystem, System
from pdejepa.systems.burgers import change_cells
from pdejepa.systems.flow import FlowSystem
from pdejepa.systems.wave_b import HALF

SMALLEST = 8  # points per axis
DEGREE = 5  # of local polynomials

Move = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Setting:
    """One way to run the solver of a system.  step: factor on the largest time step; 0 for closed forms."""

    system: System
    n: int
    step: float
    dtype: torch.dtype
    restrict: Move  # state (B,C,*solver grid) -> (B,C,*own grid)
    lift: Move  # frames (B,T,C,*own grid) -> (B,T,C,*stored grid)

    @property
    def label(self) -> str:
        step = f", dt x {self.step:g}" if self.step else ""
        return f"{self.n} points{step}, {str(self.dtype).removeprefix('torch.')}"

    def start(self, state: Tensor) -> Tensor:
        """The state in the setting's own grid and precision."""
        return self.restrict(state.double()).to(self.dtype)

    def run(self, start: Tensor, xi: Tensor, times: Tensor | None = None, t0: float | None = None) -> Tensor:
        """Frames (B,T,C,*stored grid) from the state at the first of them, or at other times from that at t0."""
        times = self.system.times if times is None else times
        solved = self.system.solve(start, xi, times=times, t0=float(times[0]) if t0 is None else t0)
        return self.lift(solved.as_subclass(Tensor))


def first_state(system: System, u0: Tensor, xi: Tensor) -> Tensor:
    """The state (B,C,*solver grid) at the first stored frame, which not all systems store at t = 0."""
    if float(system.times[0]) == 0.0:
        return u0
    fine = replace(system, n_points=u0.shape[-1])  # type: ignore[call-arg]
    return fine.solve(u0, xi, times=system.times[:1]).as_subclass(Tensor)[:, 0]


def settings(system: System) -> list[Setting]:
    """From the finest to the coarsest grid; on each, from the smallest to the largest step."""
    finest = grid_of(system)
    dtypes = dict.fromkeys((system.dtype, torch.float32))
    return [
        setting(system, n, step, dtype)
        for dtype in dtypes
        for n in _sizes(finest, system.ndim)
        for step in _steps(system)
    ]


def setting(system: System, n: int, step: float, dtype: torch.dtype) -> Setting:
    """One setting by its numbers."""
    return Setting(_coarse(system, n, step), n, step, dtype, *_moves(system, n))


def grid_of(system: System) -> int:
    """Points per axis of the solver that makes the data."""
    return int(getattr(system, "solver_grid", system.grid[0]))


def _sizes(finest: int, ndim: int) -> Iterator[int]:
    """Halves of the finest grid; in two dimensions, where half is a quarter of the work, three quarters as well."""
    n = finest
    while n >= SMALLEST:
        yield n
        if ndim == 2 and n % 4 == 0 and 3 * n // 4 >= SMALLEST:
            yield 3 * n // 4
        n //= 2


def _steps(system: System) -> list[float]:
    """Up to one step for a frame; the solver itself goes back to a stable one where that is too large."""
    if not isinstance(system, SteppedSystem):
        return [0.0]
    most = float(system.times.diff().max()) / system.dt
    return [1.0, 1.5, *(2.0**k for k in range(1, 1 + math.ceil(math.log2(most))))]


def _coarse(system: System, n: int, step: float) -> System:
    changes: dict[str, Any] = {}
    if step > 1:
        changes["dt"] = system.dt * step  # type: ignore[attr-defined]
    if n != grid_of(system):
        changes["n_points"] = n
        if isinstance(system, FlowSystem):
            changes["solver_grid"] = n
        elif system.name == "gray_scott":
            changes["dx"] = system.dx * system.grid[0] / n  # type: ignore[attr-defined]
    return replace(system, **changes)


def _moves(system: System, n: int) -> tuple[Move, Move]:
    """How a state comes to the grid of n points, and frames from there to the stored grid."""
    stored = system.grid[0]
    if n == grid_of(system):
        return _same, _same
    if system.name == "burgers":
        return lambda u: change_cells(u, n), lambda u: change_cells(u, stored)
    if system.name == "vorticity":
        fine = grid_of(system)
        return _to(n, 2), lambda u: _sampled(_block_means(u, fine, fine // stored), stored)
    if system.name == "heterns":
        return _to(n, 2), lambda u: _sampled(u, stored)
    if all(system.problem.periodic_axes):
        return _to(n, system.ndim), _to(stored, system.ndim)
    return _between(system, stored, n), _between(system, n, stored)


def _same(u: Tensor) -> Tensor:
    return u


def _to(n: int, ndim: int) -> Move:
    return lambda u: spectral.resample(u, n, ndim)


def _sampled(u: Tensor, n: int) -> Tensor:
    """Values (...,N,N) at the n x n points of the stored grid: every so many points, or interpolated."""
    old = u.shape[-1]
    u = spectral.resample(u, math.lcm(old, n) if old > n else n, 2)
    stride = u.shape[-1] // n
    return u[..., ::stride, ::stride]


def _block_means(u: Tensor, fine: int, m: int) -> Tensor:
    """At every point, the mean over the m x m points of a grid of `fine` points per axis that begin there.

    The mean of e^{ikx} over x, x + d, .., x + (m-1) d is e^{ikx} times the mean of e^{ikjd}, d the fine spacing.
    """
    for axis in (-2, -1):
        n = u.shape[axis]
        k = torch.arange(n // 2, dtype=torch.float64, device=u.device)  # without the Nyquist mode, which has no place
        angle = 2 * math.pi / fine * k[:, None] * torch.arange(m, dtype=torch.float64, device=u.device)
        factor = torch.polar(torch.ones_like(angle), angle).mean(1)
        modes = torch.fft.rfft(u, dim=axis).narrow(axis, 0, n // 2)
        factor = factor.to(modes.dtype).reshape(-1, *[1] * (-1 - axis))
        u = torch.fft.irfft(modes * factor, n=n, dim=axis)
    return u


# ---- domains with walls ------------------------------------------------------------------------------------------
def _between(system: System, old: int, new: int) -> Move:
    make = _chebyshev_matrix if system.name == "wave_b" else _local_matrix
    return lambda u: _apply(make(old, new).to(u), u, system.ndim)


def _apply(matrix: Tensor, u: Tensor, ndim: int) -> Tensor:
    u = u @ matrix.T
    return matrix @ u if ndim == 2 else u


@cache
def _chebyshev_matrix(old: int, new: int) -> Tensor:
    return chebyshev.interpolation(old, HALF, chebyshev.nodes(new, HALF))


@cache
def _local_matrix(old: int, new: int) -> Tensor:
    """(new, old): the polynomial through the DEGREE + 1 nearest of `old` equally spaced nodes, at `new` ones."""
    matrix = torch.zeros((new, old), dtype=torch.float64)
    for row, x in enumerate(torch.linspace(0, old - 1, new, dtype=torch.float64).tolist()):
        first = min(max(round(x - DEGREE / 2), 0), old - 1 - DEGREE)
        nodes = range(first, first + DEGREE + 1)
        for j in nodes:
            matrix[row, j] = math.prod((x - i) / (j - i) for i in nodes if i != j)
    return matrix

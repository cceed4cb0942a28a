"""A ready stepper for equations on a periodic line: u_t = L u + N(u), pseudo-spectral in space, ETDRK4 in time.

A system fills in `symbol`, the Fourier symbol of the linear part under its parameters, and `nonlinear`, the rest as
tendencies on the grid.  The linear part is exact, so stiffness costs nothing; products are dealiased by the 2/3 rule.
Letters: B rows, K kept modes, N points, P parameters.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pdejepa.operators import spectral
from pdejepa.solve.integrators import EtdTable
from pdejepa.solve.march import Stepper
from pdejepa.systems.base import SteppedSystem

COURANT = 2.0  # of the fastest kept mode; RK4's limit on the imaginary axis is 2.83


@dataclass(frozen=True)
class SpectralLine(SteppedSystem):
    """One field u on [0, L), periodic."""

    fields = ("u",)
    axes_names = ("x",)
    boundaries = ("periodic",)

    n_points: int = 256
    length: float = 1.0

    @abstractmethod
    def symbol(self, k: Tensor, xi: Tensor) -> Tensor:
        """L as multipliers (B,K) of the modes with wave numbers k (K,) = 2 pi n / L, for parameters xi (B,P)."""

    @abstractmethod
    def nonlinear(self, u: Tensor, xi: Tensor) -> Tensor:
        """N(u) on the grid, (B,N) -> (B,N)."""

    def speed(self, u: Tensor, xi: Tensor) -> Tensor:
        """Speed (B,) at which the explicit part carries information; for u u_x it is max |u|."""
        return u.abs().amax(1)

    @property
    def axes(self) -> dict[str, Tensor]:
        return {"x": torch.arange(self.n_points, dtype=torch.float64) * (self.length / self.n_points)}

    def stepper(self, xi: Tensor, like: Tensor) -> Stepper:
        return _Stepper(self, xi, like)

    def solve_reference(self, u0: Tensor, xi: Tensor) -> Tensor:
        """Twice as many points and half the time step."""
        fine = replace(self, n_points=2 * self.n_points, dt=self.dt / 2)
        solved = fine.solve(spectral.resample(u0, fine.n_points, 1), xi)
        return solved.as_subclass(Tensor)[..., ::2]


class _Stepper:
    """The K < N/3 kept modes of every row."""

    def __init__(self, system: SpectralLine, xi: Tensor, like: Tensor, table: EtdTable | None = None) -> None:
        self.system, self.xi, self.like, self.n = system, xi, like, like.shape[-1]
        self.n_kept = int(spectral.dealias_mask(self.n, 1, like.device).sum())
        self.k = spectral.wavenumbers(self.n, system.length, real=True, like=xi)[: self.n_kept]  # (K,)
        kind = torch.complex128 if like.dtype == torch.float64 else torch.complex64
        self.table = table or EtdTable(system.symbol(self.k, xi).to(kind))

    def take(self, rows: Tensor) -> _Stepper:
        return _Stepper(self.system, self.xi[rows], self.like, self.table.take(rows))

    def start(self, u0: Tensor) -> Tensor:
        return torch.fft.rfft(u0[:, 0])[:, : self.n_kept]  # (B,K)

    def observe(self, state: Tensor) -> Tensor:
        return self._field(state)[:, None]

    def _field(self, state: Tensor) -> Tensor:
        return torch.fft.irfft(state, n=self.n)

    def tail(self, state: Tensor) -> Tensor | None:
        padded = torch.nn.functional.pad(state, (0, self.n // 2 + 1 - self.n_kept))
        return spectral.tail_share(padded, 1, self.n)

    def stable_dt(self, state: Tensor, gap: float) -> Tensor:
        fastest = 2 * self.system.speed(self._field(state), self.xi)  # peaks may double within a gap
        return COURANT / (fastest * float(self.k[-1])).clamp(min=1e-9)

    def advance(self, state: Tensor, t: float, h: float, n: int) -> Tensor:
        scheme = self.table.scheme(h)
        for _ in range(n):
            state = scheme.step(self._nonlinear, t, state)
        return state

    def _nonlinear(self, t: float, state: Tensor) -> Tensor:
        return torch.fft.rfft(self.system.nonlinear(self._field(state), self.xi))[:, : self.n_kept]

"""What the two incompressible flows share: a periodic square, a fine solver grid, a coarser stored grid."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pdejepa.core.errors import DataError
from pdejepa.operators import spectral
from pdejepa.solve.integrators import rk4_step, rk4_weights
from pdejepa.systems.base import SteppedSystem

RK4_RADIUS = 2.6  # an ellipse of this half-width lies inside the stability region of RK4
SPEED_MARGIN = 1.2  # speeds may grow a little from one frame to the next


@dataclass(frozen=True)
class FlowSystem(SteppedSystem):
    """Vorticity on [0,L)^2.  u0 may be given on the stored grid or any multiple of it; it is solved where it lives."""

    fields = ("vorticity",)
    axes_names = ("x", "y")
    dtype = torch.float32
    slope_bound = 0.3  # `rhs` is spectral; stencils and dealiasing of coarse solver grids move otherwise

    solver_grid: int = 256
    n_points: int = 64
    length: float = 1.0

    @property
    def axes(self) -> dict[str, Tensor]:
        nodes = torch.arange(self.n_points, dtype=torch.float64) * (self.length / self.n_points)
        return {"x": nodes, "y": nodes}

    def _check_points(self, n: int) -> None:
        if n % self.n_points:
            raise DataError(f"{self.name} expects a multiple of {self.n_points} points per axis; got {n}.")

    def shared(self, u: Tensor) -> Tensor:
        return spectral.advection2(u, self.length)

    def operators(self, u: Tensor) -> Tensor:
        return spectral.laplacian2(u, self.length)[:, None]

    def max_speed(self, omega: Tensor) -> Tensor:
        """Largest |u| + |v| of the flow with vorticity omega (B,N,N), (B,)."""
        n = omega.shape[-1]
        kx, ky = spectral.mesh(n, self.length, omega)
        psi = spectral.inverse_laplacian_symbol(n, self.length, omega) * torch.fft.rfft2(omega)
        u, v = (torch.fft.irfft2(1j * k * psi, s=(n, n)) for k in (ky, kx))
        return (u.abs() + v.abs()).flatten(1).amax(1)

    def energy(self, omega: Tensor) -> Tensor:
        """Mean of |velocity|^2 / 2 over the square, for omega (...,N,N)."""
        n = omega.shape[-1]
        psi = torch.fft.irfft2(
            spectral.inverse_laplacian_symbol(n, self.length, omega) * torch.fft.rfft2(omega), s=(n, n)
        )
        return 0.5 * (psi * omega).mean((-2, -1))


class SpectralStepper:
    """Unforced flow on the rfft2 of the vorticity, 2/3 dealiased, by RK4; exact in space where all is resolved.

        omega_t = -(u . grad) omega + nu Lap omega

    Letters: K = N/2 + 1 kept modes.
    """

    def __init__(self, system: FlowSystem, xi: Tensor, n: int, like: Tensor) -> None:
        self.take = lambda rows: SpectralStepper(system, xi[rows], n, like)
        self.system, self.n = system, n
        kx, ky = spectral.mesh(n, system.length, like)
        self.mask = spectral.dealias_mask(n, 2, like.device)  # (N,K)
        self.ikx, self.iky = 1j * kx, 1j * ky
        self.inverse = spectral.inverse_laplacian_symbol(n, system.length, like)
        self.loss = xi[:, :1, None].to(like.dtype) * (kx**2 + ky**2)  # (B,N,K)

    def start(self, u0: Tensor) -> Tensor:
        return torch.fft.rfft2(u0[:, 0]) * self.mask  # (B,N,K)

    def observe(self, state: Tensor) -> Tensor:
        return torch.fft.irfft2(state, s=(self.n, self.n))[:, None]

    def tail(self, state: Tensor) -> Tensor | None:
        return None

    def stable_dt(self, state: Tensor, gap: float) -> Tensor:
        """Transport lies on the imaginary axis, diffusion on the real one; both together inside an ellipse."""
        k_max = 2 * math.pi / self.system.length * self.n / 3
        transport = SPEED_MARGIN * k_max * self.system.max_speed(self.observe(state)[:, 0])
        return RK4_RADIUS / torch.hypot(transport, (self.loss * self.mask).amax((1, 2))).clamp(min=1e-9)

    def advance(self, state: Tensor, t: float, h: float, n: int) -> Tensor:
        weights = rk4_weights(h, state.real)
        for _ in range(n):
            state = rk4_step(self._stage, state, weights)
        return state

    def _stage(self, v: Tensor, u: Tensor, total: Tensor, w: Tensor, a: Tensor | None) -> tuple[Tensor, Tensor]:
        """k = f(v); returns (total + w k, u + a k)."""
        psi, size = self.inverse * v, (self.n, self.n)
        along_x, along_y = (torch.fft.irfft2(modes, s=size) for modes in (self.iky * psi, -self.ikx * psi))
        omega_x, omega_y = (torch.fft.irfft2(modes, s=size) for modes in (self.ikx * v, self.iky * v))
        transport = torch.fft.rfft2(along_x * omega_x + along_y * omega_y)
        k = -(self.mask * transport + self.loss * v)
        return total + w * k, total if a is None else u + a * k

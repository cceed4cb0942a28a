"""What the two incompressible flows share: a periodic square, a fine solver grid, a coarser stored grid."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pdejepa.core.errors import DataError
from pdejepa.operators import spectral
from pdejepa.systems.base import SteppedSystem


@dataclass(frozen=True)
class FlowSystem(SteppedSystem):
    """Vorticity on [0,L)^2.  u0 may be given on the stored grid or any multiple of it; it is solved where it lives."""

    fields = ("vorticity",)
    axes_names = ("x", "y")
    dtype = torch.float32

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

"""Heat: u_t = beta u_xx + F(t,x) on [0,16), periodic, with five travelling sines as forcing.

Every Fourier mode is a linear ODE, so the solution is closed: with lambda = beta (2 pi l / L)^2 and tau = t - t0,

    U_l(t) = U_l(t0) e^{-lambda tau}
           + sum_{j: l_j = l} A_j e^{i(phi_j + omega_j t0)} (e^{i omega_j tau} - e^{-lambda tau}) / (lambda + i omega_j)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from pdejepa.operators import spectral
from pdejepa.systems.forced import ForcedSystem
from pdejepa.systems.structure import Check, Reference


@dataclass(frozen=True)
class Heat(ForcedSystem):
    name = "heat"
    title = "Heat"
    equation = "u_t = beta u_xx + F(t,x)"
    expect = "the initial waves fade at the rate of their diffusivity, then the forcing alone shapes the field"
    reference = Reference("SciPy DOP853 at rtol 1e-10 on the forced Fourier modes instead of the closed form", 2e-6)

    def _solve(self, u0: Tensor, xi: Tensor, times: list[float], t0: float) -> tuple[Tensor, Tensor]:
        n = self.n_points
        tau = torch.tensor(times, dtype=torch.float64, device=u0.device) - t0  # (T,)
        k = spectral.wavenumbers(n, self.length, real=True, like=xi)
        rate = xi[:, :1] * k**2  # (B,K)
        decay = torch.exp(-rate[:, None] * tau[:, None])  # (B,T,K)
        modes = torch.fft.rfft(u0[:, 0].double())[:, None] * decay  # (B,T,K)
        modes = self._add_forced(modes, xi, rate, tau, t0)
        fields = torch.fft.irfft(modes, n=n)[:, :, None].to(u0.dtype)  # (B,T,1,N)
        return fields, torch.zeros(len(u0), dtype=torch.int8)

    def _add_forced(self, modes: Tensor, xi: Tensor, rate: Tensor, tau: Tensor, t0: float) -> Tensor:
        """Add the response to each forcing sine to its mode."""
        amplitude, omega, mode, phase = self.forcing_coefficients(xi)  # (B,J)
        column = mode.round().long()
        slope = torch.gather(rate, 1, column)  # (B,J)
        start = torch.polar(amplitude, phase + omega * t0)  # (B,J)
        response = start[:, None] * _response(slope[:, None], omega[:, None], tau[:, None])  # (B,T,J)
        index = column[:, None].expand_as(response)
        # sin(y) = Im e^{iy}: its rfft coefficient at l is -i N/2
        return modes.scatter_add(2, index, response * (-0.5j * self.n_points))

    def shared(self, u: Tensor) -> Tensor:
        return torch.zeros_like(u)

    def operators(self, u: Tensor) -> Tensor:
        return spectral.derivative(u, 2, self.length)[:, None]

    def invariants(self, fields: Tensor, xi: Tensor, times: Tensor) -> list[Check]:
        amplitude = self.forcing_coefficients(xi)[0].abs().sum(1)  # (B,)
        bound = fields[:, 0].abs().amax((1, 2))[:, None] + amplitude[:, None] * times  # (B,T)
        mean = fields.mean((2, 3))  # (B,T)
        excess = fields.abs().amax((2, 3)) - bound
        return [
            Check("mean is conserved (the forcing has none)", float((mean - mean[:, :1]).abs().amax()), 1e-5),
            Check("maximum principle: |u| <= max|u0| + t sum|A|", float(excess.amax()), 1e-5),
        ]

    def solve_reference(self, u0: Tensor, xi: Tensor) -> Tensor:
        rows = [self._reference_row(u0[i, 0].double().cpu().numpy(), xi[i].cpu()) for i in range(len(u0))]
        return torch.stack(rows)[:, :, None].to(u0.device)

    def _reference_row(self, u0: np.ndarray, xi: Tensor) -> Tensor:
        """The modes that are present as one ODE; the forcing is sampled on the grid and transformed at every call."""
        n, times = self.n_points, self.times.numpy()
        start = np.fft.rfft(u0)
        force = np.fft.rfft(self._force_row(0.0, xi))
        size = np.abs(start) + np.abs(force)
        live = size > 1e-12 * size.max()
        decay = float(xi[0]) * (2 * math.pi / self.length * np.flatnonzero(live)) ** 2

        def slope(t: float, v: np.ndarray) -> np.ndarray:
            return np.asarray(np.fft.rfft(self._force_row(t, xi))[live] - decay * v)

        solved = solve_ivp(slope, (0.0, times[-1]), start[live], "DOP853", times, rtol=1e-10, atol=1e-10, max_step=0.05)
        modes = np.zeros((len(times), n // 2 + 1), dtype=complex)
        modes[:, live] = solved.y.T
        return torch.from_numpy(np.fft.irfft(modes, n=n))

    def _force_row(self, t: float, xi: Tensor) -> np.ndarray:
        return self.forcing(t, xi[None], torch.empty(0, dtype=torch.float64))[0, 0].numpy()


def _response(slope: Tensor, omega: Tensor, tau: Tensor) -> Tensor:
    """(e^{i omega tau} - e^{-slope tau}) / (slope + i omega), with its limit tau where the denominator vanishes."""
    tau = tau.reshape(*[1] * (slope.ndim - 2), -1, 1)  # (1,T,1)
    denominator = torch.complex(slope, omega)
    z = denominator * tau
    series = tau * torch.exp(-slope * tau) * (1 + z / 2 + z**2 / 6 + z**3 / 24)
    oscillation = torch.polar(torch.ones_like(omega * tau), omega * tau)
    quotient = (oscillation - torch.exp(-slope * tau)) / torch.where(denominator == 0, 1.0, denominator)
    return torch.where(z.abs() < 1e-3, series, quotient)


SYSTEM = Heat

"""Advection: u_t + beta u_x = 0 on [0,128), periodic.

The profile moves to the right at speed beta and keeps its shape.  Closed form: u(t,x) = u0(x - beta t), evaluated
by shifting Fourier phases, which is exact for the three random cosines of the initial condition.  The source data
hold 250 times on [0,100]; the last 140 are kept, every fifth of them, the first 14: the first stored frame is t = 44.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pdejepa.core.seeds import Draws
from pdejepa.operators import spectral
from pdejepa.systems.base import System
from pdejepa.systems.broad import line_states
from pdejepa.systems.modes import sine_sum
from pdejepa.systems.problem import Parameter, Structure, Term, Uniform, power
from pdejepa.systems.structure import Check, Reference


@dataclass(frozen=True)
class Advection(System):
    name = "advection"
    title = "Advection"
    equation = "u_t + beta u_x = 0"
    expect = "three smooth waves drift to the right without changing shape; faster for a larger speed"
    fields = ("u",)
    axes_names = ("x",)
    parameters = (
        Parameter(
            "speed",
            "beta",
            "transport speed",
            Uniform(0.0, 4.0),
            (-100.0, 100.0),
            unit="length/time",
            ood=Uniform(4.0, 5.0),
        ),
    )
    boundaries = ("periodic",)
    structure = Structure(
        terms=(Term("speed", "beta", power("speed"), "rms", "-u_x"),),
        has_shared=False,  # zero speed means no motion
        scaling={},  # linear
    )
    reference = Reference("direct trigonometric sum at x - beta t instead of Fourier phases", 2e-6)

    n_points: int = 256
    length: float = 128.0

    @property
    def axes(self) -> dict[str, Tensor]:
        return {"x": torch.arange(self.n_points, dtype=torch.float64) * (self.length / self.n_points)}

    @property
    def raw_times(self) -> Tensor:
        return torch.linspace(0.0, 100.0, 250, dtype=torch.float64)[110:]

    @property
    def frame_idx(self) -> slice:
        return slice(0, 70, 5)

    def initial(self, draws: Draws) -> Tensor:
        """Three cosines: A in [-.5,.5], l in 1..5, phase in [0,2pi]."""
        amplitude, mode = draws.uniform(3, -0.5, 0.5, at=0), draws.integers(3, 1, 5, at=1)
        phase = draws.uniform(3, 0.0, 2 * math.pi, at=2) + math.pi / 2  # cos(y) = sin(y + pi/2)
        return sine_sum(self.axes["x"].to(draws.device), self.length, amplitude, mode, phase)[:, None]

    def broad(self, draws: Draws) -> Tensor:
        """Three cosines, Gaussian pulses, plateaus between tanh fronts, modes 1 to 8, or cosines with a pulse, all
        times .3 to 3, half of them with an offset up to 1.  Widths are at least four grid points."""
        x = self.axes["x"].to(draws.device)
        return line_states(draws, x, self.length, lambda part: self.initial(part)[:, 0])[:, None]

    def _solve(self, u0: Tensor, xi: Tensor, times: list[float], t0: float) -> tuple[Tensor, Tensor]:
        elapsed = torch.tensor(times, dtype=torch.float64, device=u0.device) - t0
        distance = (xi[:, :1] * elapsed)[..., None].to(u0.dtype)  # (B,T,1)
        return spectral.shift(u0[:, None], distance, self.length), torch.zeros(len(u0), dtype=torch.int8)

    def shared(self, u: Tensor) -> Tensor:
        return torch.zeros_like(u)

    def operators(self, u: Tensor) -> Tensor:
        return -spectral.derivative(u, 1, self.length)[:, None]

    def invariants(self, fields: Tensor, xi: Tensor, times: Tensor) -> list[Check]:
        size = fields.abs().amax((1, 2, 3)).clamp(min=1e-3)
        mean, norm = fields.mean((2, 3)), fields.pow(2).mean((2, 3)).sqrt()  # (B,T)
        return [
            Check("mean is conserved", float(((mean - mean[:, :1]) / size[:, None]).abs().amax()), 1e-5),
            Check("L2 norm is conserved", float(((norm - norm[:, :1]) / size[:, None]).abs().amax()), 1e-5),
        ]

    def solve_reference(self, u0: Tensor, xi: Tensor) -> Tensor:
        """Sum the Fourier series of u0 term by term at the points x - beta t."""
        n, times = self.n_points, self.times.to(u0.device)
        modes = torch.fft.rfft(u0[:, 0].double())[:, : n // 2] / n  # (B,K)
        factor = torch.full((n // 2,), 2.0, dtype=torch.float64, device=u0.device)
        factor[0] = 1.0
        x = self.axes["x"].to(u0.device) - xi[:, :1, None] * times[:, None]  # (B,T,N)
        total = torch.zeros_like(x)
        for k in range(n // 2):
            angle = 2 * math.pi * k / self.length * x
            part = modes[:, k, None, None]
            total += factor[k] * (part.real * torch.cos(angle) - part.imag * torch.sin(angle))
        return total[:, :, None]


SYSTEM = Advection

"""What Burgers and Heat share: a periodic axis, a diffusivity, and a random forcing of five travelling sines.

    F(t,x) = sum_{j=1..5} A_j sin(omega_j t + 2 pi l_j x / L + phi_j)
    A in [-.5,.5]   omega in [-.4,.4]   l in {1,2,3}   phi in [0,2 pi]        L = 16

Diffusivity (log-uniform) and the twenty forcing numbers belong to an environment; the initial condition is an
independent sum of five sines of the same law, without omega, drawn for every trajectory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from pdejepa.core.seeds import Draws
from pdejepa.systems.base import System
from pdejepa.systems.broad import line_states
from pdejepa.systems.modes import cell_mean_factor, sine_sum
from pdejepa.systems.problem import LogUniform, Parameter, Structure, Term, power
from pdejepa.systems.structure import Split

N_SINES = 5


def _forcing_parameters() -> tuple[Parameter, ...]:
    laws = (
        ("forcing_amplitude", "A", "amplitude of forcing sine", (-0.5, 0.5), (-100.0, 100.0), "uniform", 0.0),
        (
            "forcing_frequency",
            "omega",
            "angular frequency of forcing sine",
            (-0.4, 0.4),
            (-100.0, 100.0),
            "uniform",
            0.0,
        ),
        ("forcing_mode", "l", "whole waves of forcing sine per domain", (1.0, 3.0), (1.0, 40.0), "one of {1,2,3}", 1.0),
        ("forcing_phase", "phi", "phase of forcing sine", (0.0, 2 * math.pi), (-100.0, 100.0), "uniform", 0.0),
    )
    return tuple(
        Parameter(
            f"{name}_{j}",
            f"{symbol}_{j}",
            f"{meaning} {j}",
            train,
            limits,
            law,
            choices=tuple(float(k) for k in range(1, 41)) if name == "forcing_mode" else (),
            default=default,
            period=2 * math.pi if name == "forcing_phase" else 0.0,
        )
        for name, symbol, meaning, train, limits, law, default in laws
        for j in range(1, N_SINES + 1)
    )


@dataclass(frozen=True)
class ForcedSystem(System):
    """Grid, times, splits, random laws and forcing of Burgers and Heat."""

    fields = ("u",)
    axes_names = ("x",)
    parameters = (
        Parameter(
            "diffusivity",
            "beta",
            "diffusion coefficient",
            LogUniform(1e-3, 5.0),
            (0.0, 100.0),
            unit="length^2/time",
            ood=LogUniform(5.0, 10.0),
        ),
        *_forcing_parameters(),
    )
    boundaries = ("periodic",)
    structure = Structure(
        terms=(Term("diffusivity", "beta", power("diffusivity"), "rms", "u_xx"),),
        has_shared=True,
        forcing="time",
    )

    n_points: int = 256
    length: float = 16.0
    is_cell_mean = False  # whether values are means over cells (finite volumes) or point values

    @property
    def dx(self) -> float:
        return self.length / self.n_points

    @property
    def axes(self) -> dict[str, Tensor]:
        return {"x": torch.arange(self.n_points, dtype=torch.float64) * self.dx}

    @property
    def raw_times(self) -> Tensor:
        return torch.linspace(0.0, 4.0, 250, dtype=torch.float64)

    @property
    def frame_idx(self) -> slice:
        return slice(0, 250, 10)

    def environment(self, split: Split, draws: Draws) -> Tensor:
        diffusivity = self.law(self.parameters[0], split)
        return torch.cat(
            (
                diffusivity.draw(draws.uniform(1, at=0)),
                draws.uniform(N_SINES, -0.5, 0.5, at=1),
                draws.uniform(N_SINES, -0.4, 0.4, at=2),
                draws.integers(N_SINES, 1, 3, at=3),
                draws.uniform(N_SINES, 0.0, 2 * math.pi, at=4),
            ),
            dim=1,
        )

    def initial(self, draws: Draws) -> Tensor:
        amplitude, mode, phase = _sines(draws)
        x = self.axes["x"].to(draws.device)
        return sine_sum(x, self.length, self._means(amplitude, mode), mode, phase)[:, None]

    def broad(self, draws: Draws) -> Tensor:
        """Five sines, Gaussian pulses, plateaus between tanh fronts, modes 1 to 8, or sines with a pulse, all times
        .3 to 3, half of them with an offset up to 1.  Widths are at least four grid points, so that the start is
        resolved; fronts that Burgers' equation makes of it are captured by its scheme as those of the benchmark."""
        n, x = self.n_points, self.axes["x"].to(draws.device)
        u = line_states(draws, x, self.length, lambda part: sine_sum(x, self.length, *_sines(part)))
        if self.is_cell_mean:
            mode = torch.arange(n // 2 + 1, dtype=torch.float64, device=draws.device)
            u = torch.fft.irfft(torch.fft.rfft(u) * cell_mean_factor(mode, n), n=n)
        return u[:, None]

    def forcing(self, t: float | Tensor, xi: Tensor, like: Tensor) -> Tensor:
        """F(t,x) as (B,1,N)."""
        amplitude, omega, mode, phase = self.forcing_coefficients(xi)
        x = _axis(self.n_points, self.dx, like.device)
        t = t.reshape(-1, 1) if isinstance(t, Tensor) else t  # (B,1)
        field = sine_sum(x, self.length, self._means(amplitude, mode), mode, phase + omega * t)
        return field[:, None].to(like.dtype)

    def forcing_coefficients(self, xi: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """A, omega, l, phi, each (B,5)."""
        amplitude, omega, mode, phase = xi[:, 1:].reshape(len(xi), 4, N_SINES).unbind(1)
        return amplitude, omega, mode, phase

    def _means(self, amplitude: Tensor, mode: Tensor) -> Tensor:
        return amplitude * cell_mean_factor(mode, self.n_points) if self.is_cell_mean else amplitude


def _sines(draws: Draws) -> tuple[Tensor, Tensor, Tensor]:
    """Amplitudes, modes and phases of an initial condition, (B,5) each."""
    amplitude, mode = draws.uniform(N_SINES, -0.5, 0.5, at=0), draws.integers(N_SINES, 1, 3, at=1)
    return amplitude, mode, draws.uniform(N_SINES, 0.0, 2 * math.pi, at=2)


@lru_cache(maxsize=8)
def _axis(n: int, dx: float, device: torch.device) -> Tensor:
    """The coordinates on a device, made once: a forcing is evaluated at every stage of every step."""
    return torch.arange(n, dtype=torch.float64, device=device) * dx

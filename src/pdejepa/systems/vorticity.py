"""Vorticity: decaying 2-D turbulence, omega_t = J(psi, omega) + nu Lap omega on [0,2pi)^2, -Lap psi = omega.

Velocity is (psi_y, -psi_x).  Arakawa's Jacobian, 5-point Laplacian, FFT Poisson solve and RK4 on 512 x 512 points; the
stored 128 x 128 frames are means over 4 x 4 blocks (a block is labelled by its first point).

The 512 x 512 scheme *is* the benchmark.  `refinement_report` tells how far it is from a spectral solution, by
viscosity; below about 5e-4 filaments are thinner than either grid resolves, and the difference to the PDE may be
larger than told.

Initial vorticity: independent random phases on every integer wave vector, amplitude sqrt(k E(k) / pi) with
E(k) = 4/3 pi^{-1/2} (k/k0)^4 / k0 exp(-(k/k0)^2) and k0 = 5, which makes the rms velocity one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from pdejepa.core.device import fuse
from pdejepa.core.seeds import Draws
from pdejepa.operators import arakawa, spectral
from pdejepa.solve.integrators import rk4_step, rk4_weights
from pdejepa.solve.march import March, Stepper
from pdejepa.systems.base import relative_l2
from pdejepa.systems.broad import OTHER, factor, mixed, patches, shear_layers, vortices
from pdejepa.systems.flow import RK4_RADIUS, SPEED_MARGIN, FlowSystem, SpectralStepper
from pdejepa.systems.problem import Parameter, Structure, Term, Uniform, power
from pdejepa.systems.refinement import by_range
from pdejepa.systems.structure import Check, Reference, Split

FRAME = 2.0 / 29
SPECTRAL_GRID = 256
VISCOSITIES = (0.0, 1e-4, 1e-3, 3e-3, math.inf)  # ranges in which the error in space is told
K_CUT = 40  # the spectrum is below 1e-12 of its peak beyond
PEAKS = (3.0, 4.0, 5.0, 6.0, 7.0)  # k0 of the wider law
VORTEX, PATCH, LAYER = 16.0, 10.0, 8.0  # largest vorticity of its shapes, which gives them the benchmark's enstrophy
MODE_STRIDE = 4096  # random phases are keyed by wave vector, so that every grid draws the same flow


@dataclass(frozen=True)
class Vorticity(FlowSystem):
    name = "vorticity"
    title = "Vorticity"
    equation = "omega_t + u . grad omega = nu Lap omega"
    expect = "vortices of one sign merge and wind up thin filaments; viscosity smooths them away"
    parameters = (
        Parameter(
            "viscosity",
            "nu",
            "kinematic viscosity",
            Uniform(1e-3, 1e-2),
            (0.0, 0.1),
            unit="length^2/time",
            ood="linspace(1e-5, 1e-4, 12); bridge [1e-4, 1e-3]",
        ),
    )
    boundaries = ("periodic", "periodic")
    structure = Structure(
        terms=(Term("viscosity", "nu", power("viscosity"), "midrange", "Lap omega"),),
        has_shared=True,
    )
    reference = Reference("time step halved (the solver grid defines the benchmark)", 1e-3)
    chunk = (5, 128)
    shard = 64

    dt: float = FRAME / 20
    solver_grid: int = 512
    n_points: int = 128
    length: float = 2 * math.pi
    k0: float = 5.0

    def at_size(self, size: str) -> Self:
        """Simulated on 128 x 128 points for `tiny`; `laptop` is simulated on 256 x 256 and stored on 64 x 64."""
        if size == "laptop":
            return replace(self, solver_grid=256, n_points=64, dt=FRAME / 10)
        return replace(self, solver_grid=128, dt=FRAME / 6) if size == "tiny" else self

    @property
    def raw_times(self) -> Tensor:
        return torch.linspace(0.0, 2.0, 30, dtype=torch.float64)

    @property
    def frame_idx(self) -> slice:
        return slice(0, 30)

    def environment(self, split: Split, draws: Draws) -> Tensor:
        if split.name == "ood":
            return torch.linspace(1e-5, 1e-4, 12, dtype=torch.float64)[draws.rows][:, None]
        laws = {"bridge": (1e-4, 1e-3), "valid_ood": (1e-5, 1e-4)}
        return draws.uniform(1, *laws.get(split.name, (1e-3, 1e-2)))

    def initial(self, draws: Draws) -> Tensor:
        return self._flow(draws, lambda k: self._amplitude(k, self.k0))

    def _flow(self, draws: Draws, amplitude_of: Callable[[Tensor], Tensor]) -> Tensor:
        """Random phases on every wave vector; amplitudes (2cut+1,cut+1) of its length, or those of every row."""
        n, cut = self.solver_grid, min(K_CUT, self.solver_grid // 2 - 1)
        kx = torch.arange(-cut, cut + 1, device=draws.device)[:, None]
        ky = torch.arange(0, cut + 1, device=draws.device)[None, :]
        turns, _ = draws.pairs((kx % MODE_STRIDE) * MODE_STRIDE + ky)  # (B,2cut+1,cut+1)
        turns[:, :cut, 0] = -turns[:, cut + 1 :, 0].flip(1)  # the field is real: phase(-k) = -phase(k)
        k = torch.sqrt((kx**2 + ky**2).double())
        amplitude = amplitude_of(k).expand_as(turns)
        modes = torch.zeros((len(draws.rows), n, n // 2 + 1), dtype=torch.complex128, device=draws.device)
        modes[:, (kx % n), ky] = torch.polar(amplitude, 2 * math.pi * turns)
        return torch.fft.irfft2(modes, s=(n, n), norm="forward")[:, None]

    @staticmethod
    def _amplitude(k: Tensor, k0: float) -> Tensor:
        energy = 4 / 3 / math.sqrt(math.pi) * (k / k0) ** 4 / k0 * torch.exp(-((k / k0) ** 2))
        return torch.sqrt(k * energy / math.pi)

    def broad(self, draws: Draws) -> Tensor:
        """The benchmark's spectrum with k0 from 3 to 7 at equal enstrophy, Gaussian vortices and opposite ones,
        soft-edged patches, or shear layers, all times .3 to 2.  Faster flows make thinner filaments, which this grid
        would not resolve at the lowest viscosity."""
        n = self.solver_grid
        kinds = (
            self._other_spectra,
            lambda part: VORTEX * vortices(part, n, self.length),
            lambda part: PATCH * patches(part, n, self.length),
            lambda part: LAYER * shear_layers(part, n, self.length),
        )
        return (factor(draws, high=2.0)[..., None] * mixed(draws, kinds))[:, None]

    def _other_spectra(self, draws: Draws) -> Tensor:
        chosen = draws.integers(1, 0, len(PEAKS) - 1, at=OTHER)[:, 0].long()
        table = lambda k: torch.stack([self.k0 / k0 * self._amplitude(k, k0) for k0 in PEAKS])  # noqa: E731
        return self._flow(draws, lambda k: table(k)[chosen])[:, 0]

    def stepper(self, xi: Tensor, like: Tensor) -> Stepper:
        return _Stepper(self, xi, like)

    def refinement_report(self, u0: Tensor, xi: Tensor, fields: Tensor) -> dict[str, float]:
        """Against a dealiased spectral solution of the same flow, by viscosity.

        It has the same grid, or 256 x 256 points where that is finer.  Below a viscosity of about 5e-4 the filaments
        are thinner than either grid, and the difference is only a lower bound of the distance to the PDE.
        """
        n, factor = u0.shape[-1], u0.shape[-1] // self.n_points
        fine = max(n, SPECTRAL_GRID)
        march = March(SpectralStepper(self, xi, fine, u0), len(u0), self.dt, self.max_steps, self.tail_limit)
        solved, _ = march.run(spectral.resample(u0, fine, 2), self.times.tolist(), 0.0)  # (B,T,1,fine,fine)
        on_grid = arakawa.block_mean(spectral.resample(solved, n, 2), factor)
        what = f"{n} x {n} points against spectral on {fine} x {fine}"
        return by_range(what, "viscosity", xi[:, 0], relative_l2(fields, on_grid), VISCOSITIES)

    def invariants(self, fields: Tensor, xi: Tensor, times: Tensor) -> list[Check]:
        # The solver's own energy and enstrophy fall at every step.  Block means fold filaments thinner than a block
        # into the stored frames, whose energy then fluctuates by up to 1e-3 at the lowest viscosities.
        omega = fields[:, :, 0]
        enstrophy, energy = omega.pow(2).mean((-2, -1)), self.energy(omega)  # (B,T)
        return [
            Check("mean vorticity is zero", float(omega.mean((-2, -1)).abs().amax()), 1e-4),
            Check(
                "enstrophy never grows", float(((enstrophy[:, 1:] - enstrophy[:, :-1]) / enstrophy[:, :1]).amax()), 2e-3
            ),
            Check("energy never grows", float(((energy[:, 1:] - energy[:, :-1]) / energy[:, :1]).amax()), 3e-3),
            self._energy_budget(energy, enstrophy, xi, times),
        ]

    def _energy_budget(self, energy: Tensor, enstrophy: Tensor, xi: Tensor, times: Tensor) -> Check:
        """dE/dt = -nu <omega^2>, integrated by the trapezoidal rule over the stored frames."""
        loss = xi * torch.cumulative_trapezoid(enstrophy, times.to(enstrophy), dim=1)  # (B,T-1)
        gap = (energy[:, :1] - energy[:, 1:] - loss) / energy[:, :1]
        return Check("energy is lost at the rate nu <omega^2>", float(gap.abs().amax()), 2e-2)


class _Stepper:
    """RK4 in physical space; each stage is one Poisson solve and one fused stencil pass."""

    def __init__(self, system: Vorticity, xi: Tensor, like: Tensor) -> None:
        self.take = lambda rows: _Stepper(system, xi[rows], like)
        self.system = system
        self.n, self.factor = like.shape[-1], like.shape[-1] // system.n_points
        self.dx = system.length / self.n
        self.nu = xi[:, :1, None].to(like.dtype).contiguous()  # (B,1,1)
        # the inverse FFT below is left unscaled; its 1/N^2 is part of the symbol, which saves a pass over memory
        self.poisson = spectral.inverse_laplacian_symbol(self.n, system.length, like) / self.n**2

    def start(self, u0: Tensor) -> Tensor:
        return u0[:, 0].contiguous()  # (B,N,N)

    def observe(self, state: Tensor) -> Tensor:
        return arakawa.block_mean(state, self.factor)[:, None]

    def tail(self, state: Tensor) -> Tensor | None:
        return None

    def stable_dt(self, state: Tensor, gap: float) -> Tensor:
        """Transport lies on the imaginary axis, diffusion on the real one; both together inside an ellipse."""
        transport = SPEED_MARGIN * self.system.max_speed(state) / self.dx
        return RK4_RADIUS / torch.hypot(transport, 8 * self.nu.flatten() / self.dx**2).clamp(min=1e-9)

    def advance(self, state: Tensor, t: float, h: float, n: int) -> Tensor:
        weights = rk4_weights(h, state)
        for _ in range(n):
            state = rk4_step(self._stage, state, weights)
        return state

    def _stage(self, v: Tensor, u: Tensor, total: Tensor, w: Tensor, a: Tensor | None) -> tuple[Tensor, Tensor]:
        psi = torch.fft.irfft2(torch.fft.rfft2(v).mul_(self.poisson), s=(self.n, self.n), norm="forward")
        return _stencil_stage(v, psi, u, total, w, a, self.nu, self.dx)


@fuse
def _stencil_stage(
    v: Tensor, psi: Tensor, u: Tensor, total: Tensor, w: Tensor, a: Tensor | None, nu: Tensor, dx: float
) -> tuple[Tensor, Tensor]:
    """k = J(psi, v) + nu Lap v; returns (total + w k, u + a k)."""
    around = arakawa.neighbours(v)
    k = arakawa.jacobian(arakawa.neighbours(psi), around, dx) + nu * arakawa.five_point_laplacian(around, dx)
    return total + w * k, total if a is None else u + a * k


SYSTEM = Vorticity

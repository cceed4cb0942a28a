"""Combined equation: u_t = -alpha u u_x + beta u_xx - gamma u_xxx on [0,16), periodic.

Transport, diffusion and dispersion with independent strengths: heat, Burgers and Korteweg-de Vries are its corners.
Pseudo-spectral on 256 points, 2/3 dealiasing; diffusion and dispersion are exact in ETDRK4.  The solution is
resolved except when diffusion and dispersion are both nearly zero; such rows are marked `under-resolved`.

The flux is alpha u^2 / 2, the form of the published generators; `flux="alpha u^2"` gives the printed form,
which is twice as strong for the same alpha.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pdejepa.core.errors import ConfigError
from pdejepa.core.seeds import Draws
from pdejepa.operators import spectral
from pdejepa.solve.integrators import EtdTable
from pdejepa.solve.march import Stepper
from pdejepa.systems.base import SteppedSystem
from pdejepa.systems.broad import line_states
from pdejepa.systems.modes import sine_sum
from pdejepa.systems.problem import Parameter, Structure, Term, Uniform, power
from pdejepa.systems.structure import Check, Reference, Split

FLUXES = {"alpha u^2/2": 1.0, "alpha u^2": 2.0}
N_SINES, N_MODES = 5, 3
UNLIKE = 1e-12  # share of energy in the mean and beyond the third mode of a start that no sum of its sines has
TURNING = 0.25  # rad per unit time: how fast dispersion may turn the rms of u at the full step


@dataclass(frozen=True)
class Combined(SteppedSystem):
    name = "combined"
    title = "Combined equation"
    equation = "u_t = -alpha u u_x + beta u_xx - gamma u_xxx"
    expect = "waves steepen, spread into wave trains by dispersion, and fade by diffusion"
    fields = ("u",)
    axes_names = ("x",)
    parameters = (
        Parameter(
            "advection",
            "alpha",
            "strength of nonlinear transport",
            Uniform(0.0, 1.0),
            (-20.0, 20.0),
            ood=Uniform(1.0682, 1.7581),
        ),
        Parameter("diffusivity", "beta", "diffusion coefficient", Uniform(0.0, 0.4), (0.0, 20.0), unit="length^2/time"),
        Parameter(
            "dispersion", "gamma", "dispersion coefficient", Uniform(0.0, 1.0), (-20.0, 20.0), unit="length^3/time"
        ),
    )
    boundaries = ("periodic",)
    structure = Structure(
        terms=(
            Term("advection", "alpha", power("advection"), "rms", "u u_x", sign=-1),
            Term("diffusivity", "beta", power("diffusivity"), "rms", "u_xx"),
            Term("dispersion", "gamma", power("dispersion"), "rms", "u_xxx", sign=-1),
        ),
        has_shared=False,
        scaling={"advection": -1},
    )
    reference = Reference("512 points and half the time step (rows marked under-resolved are only reported)", 1e-5)
    chunk = (120, 16384)
    tail_limit = 1e-4

    dt: float = 10.0 / 139 / 2
    n_points: int = 256
    length: float = 16.0
    flux: str = "alpha u^2/2"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.flux not in FLUXES:
            raise ConfigError(f"combined: flux must be one of {list(FLUXES)}, got {self.flux!r}.")

    @property
    def axes(self) -> dict[str, Tensor]:
        return {"x": torch.arange(self.n_points, dtype=torch.float64) * (self.length / self.n_points)}

    @property
    def raw_times(self) -> Tensor:
        return torch.linspace(0.0, 10.0, 140, dtype=torch.float64)

    @property
    def frame_idx(self) -> slice:
        return slice(0, 140, 10)

    def environment(self, split: Split, draws: Draws) -> Tensor:
        """Three numbers of one draw."""
        unit = draws.uniform(3).unbind(1)
        return torch.stack([self.law(p, split).draw(u) for p, u in zip(self.parameters, unit, strict=True)], 1)

    def initial(self, draws: Draws) -> Tensor:
        """Five sines: A in [-.5,.5], l in {1,2,3}, phase in [0,2pi]."""
        amplitude, mode = draws.uniform(N_SINES, -0.5, 0.5, at=0), draws.integers(N_SINES, 1, 3, at=1)
        phase = draws.uniform(N_SINES, 0.0, 2 * math.pi, at=2)
        return sine_sum(self.axes["x"].to(draws.device), self.length, amplitude, mode, phase)[:, None]

    def broad(self, draws: Draws) -> Tensor:
        """Five sines, Gaussian pulses, plateaus between tanh fronts, modes 1 to 8, or sines with a pulse, all times
        .3 to 3, half of them with an offset up to 1.  Widths are at least four grid points.  Strong transport with
        little diffusion and dispersion may steepen such a state beyond the grid; it is then drawn again."""
        x = self.axes["x"].to(draws.device)
        return line_states(draws, x, self.length, lambda part: self.initial(part)[:, 0])[:, None]

    def stepper(self, xi: Tensor, like: Tensor) -> Stepper:
        return _Stepper(self, xi, like)

    def shared(self, u: Tensor) -> Tensor:
        return torch.zeros_like(u)

    def operators(self, u: Tensor) -> Tensor:
        transport = FLUXES[self.flux] * u * spectral.derivative(u, 1, self.length)
        return torch.stack((transport, *(spectral.derivative(u, order, self.length) for order in (2, 3))), 1)

    def invariants(self, fields: Tensor, xi: Tensor, times: Tensor) -> list[Check]:
        energy = fields.pow(2).mean((2, 3))  # (B,T)
        growth = (energy[:, 1:] - energy[:, :-1]) / energy[:, :1]
        return [
            Check("mean is conserved", float((fields.mean((2, 3)) - fields[:, :1].mean((2, 3))).abs().amax()), 1e-5),
            Check("L2 norm never grows", float(growth.amax()), 1e-5),
        ]

    def solve_reference(self, u0: Tensor, xi: Tensor) -> Tensor:
        n = 2 * self.n_points
        fine = replace(self, n_points=n, dt=self.dt / 2).solve(spectral.resample(u0, n, 1), xi)
        return fine.as_subclass(Tensor)[..., ::2]


class _Stepper:
    """ETDRK4 on the dealiased modes: L = -beta k^2 + i gamma k^3, N = -alpha i k rfft(u^2) / 2.

    Only the K < N/3 kept modes are stored; the inverse FFT pads the rest with zeros.
    is_unlike: which rows start with other modes than the benchmark's, (B,).
    """

    def __init__(
        self, system: Combined, xi: Tensor, u0: Tensor, table: EtdTable | None = None, is_unlike: Tensor | None = None
    ) -> None:
        self.n, self.dt = u0.shape[-1], system.dt
        self.n_kept = int(spectral.dealias_mask(self.n, 1, u0.device).sum())
        k = spectral.wavenumbers(self.n, system.length, real=True, like=xi)[: self.n_kept]  # (K,)
        alpha, beta, gamma = xi.unbind(1)
        self.k, self.k_max, self.gamma = k, float(k[-1]), gamma.abs()
        self.strength = FLUXES[system.flux] * alpha.abs()  # (B,)
        self.complex = torch.complex128 if u0.dtype == torch.float64 else torch.complex64
        symbol = torch.complex(-beta[:, None] * k**2, gamma[:, None] * k**3).to(self.complex)  # (B,K)
        self.flux = (-0.5j * FLUXES[system.flux] * alpha[:, None] * k).to(self.complex)  # (B,K)
        self.table = table or EtdTable(symbol)
        self.is_unlike = is_unlike if is_unlike is not None else _has_other_modes(u0)
        self.take = lambda rows: _Stepper(system, xi[rows], u0, self.table.take(rows), self.is_unlike[rows])

    def start(self, u0: Tensor) -> Tensor:
        return torch.fft.rfft(u0[:, 0])[:, : self.n_kept]  # (B,K)

    def observe(self, state: Tensor) -> Tensor:
        return torch.fft.irfft(state, n=self.n)[:, None]

    def tail(self, state: Tensor) -> Tensor | None:
        padded = torch.nn.functional.pad(state, (0, self.n // 2 + 1 - self.n_kept))
        return spectral.tail_share(padded, 1, self.n)

    def stable_dt(self, state: Tensor, gap: float) -> Tensor:
        """The explicit part is transport: keep its largest dealiased frequency well inside the stability region.

        Short waves that dispersion turns fast need finer steps to be accurate.  The benchmark has none at the start,
        and its steps define its data; so only a start with other modes than the benchmark's takes them.
        """
        speed = 2 * self.strength * torch.fft.irfft(state, n=self.n).abs().amax(1)  # peaks may double within a gap
        stable = 2.0 / (speed * self.k_max).clamp(min=1e-9)
        power = state[:, 1:].abs().square()
        turning = self.gamma * ((power * self.k[1:] ** 6).sum(1) / power.sum(1).clamp(min=1e-300)).sqrt()  # (B,)
        accurate = self.dt * TURNING / turning.clamp(min=1e-9)
        return torch.where(self.is_unlike, torch.minimum(stable, accurate), stable)

    def advance(self, state: Tensor, t: float, h: float, n: int) -> Tensor:
        scheme = self.table.scheme(h)
        for _ in range(n):
            state = scheme.step(self._nonlinear, t, state)
        return state

    def _nonlinear(self, t: float, state: Tensor) -> Tensor:
        return self.flux * torch.fft.rfft(torch.fft.irfft(state, n=self.n) ** 2)[:, : self.n_kept]


def _has_other_modes(u0: Tensor) -> Tensor:
    """Which starts (B,1,N) are no sum of sines of the benchmark's modes, (B,)."""
    power = torch.fft.rfft(u0[:, 0]).abs().square()  # (B,N/2+1)
    return power[:, N_MODES + 1 :].sum(1) + power[:, 0] > UNLIKE * power.sum(1)


SYSTEM = Combined

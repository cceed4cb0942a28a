"""HeterNS: forced 2-D flow on the unit torus, omega_t + u . grad omega = nu Lap omega + f(x, y).

    f = 0.1 [sin(m pi (x+y)) + cos(m pi (x+y))]        m = forcing frequency

f is periodic only for even m; for other m it jumps at the seam, and that jump belongs to the benchmark: f is evaluated
on the 256 x 256 solver grid and transformed without filtering, and its mean makes the mean vorticity drift.

Pseudo-spectral with 2/3 dealiasing.  In the form omega_t = -(d_xx - d_yy)(u v) - d_xy (v^2 - u^2) + ... a tendency
costs four FFTs.  Lawson's integrating-factor RK4 solves diffusion and forcing exactly and steps only the transport.
The field starts from a Gaussian random field at t = 0; stored are t = 1..20 on every fourth point.
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
from pdejepa.operators import spectral
from pdejepa.solve.march import Stepper
from pdejepa.systems.base import relative_l2
from pdejepa.systems.broad import OTHER, factor, mixed, patches, shear_layers, vortices
from pdejepa.systems.flow import FlowSystem
from pdejepa.systems.problem import Parameter, Structure, Term, power
from pdejepa.systems.refinement import by_range
from pdejepa.systems.structure import Check, Reference, Split

TRAIN_VISCOSITY = (1e-5, 5e-5, 1e-4, 5e-4, 1e-3)
TRAIN_FREQUENCY = (1.0, 2.0, 3.0)
_DIGITS = (2, 3, 4, 6, 7, 8, 9)
INTERP_VISCOSITY = tuple(d * 1e-5 for d in _DIGITS) + tuple(d * 1e-4 for d in _DIGITS)
EXTRAP_VISCOSITY = tuple(d * 1e-3 for d in range(2, 10))
ENVIRONMENTS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "ood_viscosity_interp": (INTERP_VISCOSITY, TRAIN_FREQUENCY),
    "ood_viscosity_extrap": (EXTRAP_VISCOSITY, TRAIN_FREQUENCY),
    "ood_forcing": ((1e-5,), (0.5, 1.5, 2.5, 3.5)),
}
VALID_OOD = (  # viscosity and forcing frequency: between, beyond, and unseen forcing
    *((nu, m) for nu, m in zip((2.5e-5, 7.5e-5, 2.5e-4, 7.5e-4), (1.0, 3.0, 1.0, 3.0), strict=True)),
    *((nu, m) for nu, m in zip((2.5e-3, 4.5e-3, 6.5e-3, 8.5e-3), (1.0, 2.0, 3.0, 1.0), strict=True)),
    *((1e-5, m) for m in (0.75, 1.25, 2.25, 3.25)),
)
GRF_ALPHA, GRF_TAU = 2.5, 7.0
SPECTRA = ((GRF_ALPHA, GRF_TAU), (2.5, 3.0), (2.5, 14.0), (3.5, 7.0), (3.5, 20.0))  # of the wider law: alpha and tau
VORTEX, PATCH, LAYER = 0.8, 0.5, 0.5  # largest vorticity of its shapes, which gives them the benchmark's enstrophy
MODE_STRIDE = 4096  # random modes are keyed by wave vector, so that every grid draws the same flow
MAX_SPECTRAL_COURANT = 2.75  # on k_max (|u| + |v|) dt; RK4's limit on the imaginary axis is 2.83
VISCOSITIES = (0.0, 1e-4, 1e-3, math.inf)  # ranges in which the error in space is told
FORCED_ACCELERATION = 0.03  # growth of |u| + |v| per unit time


@dataclass(frozen=True)
class HeterNS(FlowSystem):
    name = "heterns"
    title = "HeterNS"
    equation = "omega_t + u . grad omega = nu Lap omega + 0.1 [sin(m pi (x+y)) + cos(m pi (x+y))]"
    expect = (
        "smooth random vortices are slowly sheared into diagonal bands by the forcing; low viscosity keeps filaments"
    )
    parameters = (
        Parameter(
            "viscosity",
            "nu",
            "kinematic viscosity",
            (1e-5, 1e-3),
            (0.0, 1.0),
            "one of {1,5,10,50,100}e-5",
            "length^2/time",
            ood="14 values between, 8 values in [2e-3, 9e-3]",
        ),
        Parameter(
            "forcing_frequency",
            "m",
            "half waves of the forcing per unit length",
            (1.0, 3.0),
            (0.0, 64.0),
            "one of {1,2,3}",
            "1/length",
            ood="{0.5, 1.5, 2.5, 3.5}",
        ),
    )
    boundaries = ("periodic", "periodic")
    structure = Structure(
        terms=(Term("viscosity", "nu", power("viscosity"), "midrange", "Lap omega"),),
        has_shared=True,
        forcing="constant",
    )
    reference = Reference("time step halved; the grid is refined for even forcing frequency only, and reported", 1e-3)
    chunk = (10, 500)
    shard = 100
    tail_limit = 1e-2

    dt: float = 1.0 / 125
    solver_grid: int = 256
    n_points: int = 64
    length: float = 1.0

    def at_size(self, size: str) -> Self:
        """Simulated on 64 x 64 points for `tiny` and on 128 x 128 for `laptop`."""
        coarse = {"tiny": (64, 1.0 / 40), "laptop": (128, 1.0 / 64)}
        return replace(self, solver_grid=coarse[size][0], dt=coarse[size][1]) if size in coarse else self

    @property
    def raw_times(self) -> Tensor:
        return torch.arange(1.0, 21.0, dtype=torch.float64)

    @property
    def frame_idx(self) -> slice:
        return slice(0, 20)

    def environment(self, split: Split, draws: Draws) -> Tensor:
        """Every combination of the split's viscosities and frequencies, frequency varying fastest."""
        if split.name == "valid_ood":
            return torch.tensor(VALID_OOD, dtype=torch.float64)[draws.rows]
        viscosities, frequencies = ENVIRONMENTS.get(split.name, (TRAIN_VISCOSITY, TRAIN_FREQUENCY))
        pairs = [(nu, m) for nu in viscosities for m in frequencies]
        return torch.tensor(pairs, dtype=torch.float64)[draws.rows]

    def initial(self, draws: Draws) -> Tensor:
        """Gaussian random field with spectrum sqrt(2) tau^{1.5} (4 pi^2 k^2 + tau^2)^{-1.25}, real part, zero mean."""
        return self._random_field(draws, lambda k2: self._amplitude(k2, GRF_ALPHA, GRF_TAU))

    def _random_field(self, draws: Draws, amplitude_of: Callable[[Tensor], Tensor]) -> Tensor:
        """Real part of random modes; amplitudes (N,N) of the squared wave number, or those of every row."""
        n = self.solver_grid
        k = torch.fft.fftfreq(n, 1.0 / n, device=draws.device, dtype=torch.float64)
        whole = k.long() % MODE_STRIDE
        normal = draws.complex_normal(whole[:, None] * MODE_STRIDE + whole[None, :])  # (B,N,N)
        k2 = 4 * math.pi**2 * (k[:, None] ** 2 + k[None, :] ** 2)
        return torch.fft.ifft2(normal * amplitude_of(k2), norm="forward").real[:, None]

    @staticmethod
    def _amplitude(k2: Tensor, alpha: float, tau: float) -> Tensor:
        amplitude = math.sqrt(2) * tau ** (alpha - 1) * (k2 + tau**2) ** (-alpha / 2)
        amplitude[0, 0] = 0.0
        return amplitude

    def broad(self, draws: Draws) -> Tensor:
        """Random fields of other spectra at equal enstrophy (steeper, longer and shorter waves), Gaussian vortices and
        opposite ones, soft-edged patches, or shear layers, all times .3 to 3."""
        n = self.solver_grid
        kinds = (
            self._other_spectra,
            lambda part: VORTEX * vortices(part, n, self.length),
            lambda part: PATCH * patches(part, n, self.length),
            lambda part: LAYER * shear_layers(part, n, self.length),
        )
        return (factor(draws)[..., None] * mixed(draws, kinds))[:, None]

    def _other_spectra(self, draws: Draws) -> Tensor:
        chosen = draws.integers(1, 0, len(SPECTRA) - 1, at=OTHER)[:, 0].long()

        def amplitudes(k2: Tensor) -> Tensor:
            found = torch.stack([self._amplitude(k2, alpha, tau) for alpha, tau in SPECTRA])  # (S,N,N)
            energy = found.square().sum((1, 2), keepdim=True)
            return (found * (energy[:1] / energy).sqrt())[chosen]

        return self._random_field(draws, amplitudes)[:, 0]

    def forcing(self, t: float | Tensor, xi: Tensor, like: Tensor) -> Tensor:
        """f(x,y) as (B,1,N,N), the same at all times."""
        x = torch.arange(like.shape[-1], dtype=torch.float64, device=like.device) / like.shape[-1]
        angle = math.pi * xi[:, 1, None, None] * (x[:, None] + x[None, :])
        return (0.1 * (torch.sin(angle) + torch.cos(angle)))[:, None].to(like.dtype)

    def stepper(self, xi: Tensor, like: Tensor) -> Stepper:
        return _Stepper(self, xi, like)

    def invariants(self, fields: Tensor, xi: Tensor, times: Tensor) -> list[Check]:
        fine = torch.empty((1, 1, self.solver_grid, self.solver_grid), dtype=fields.dtype)
        drift = self.forcing(0.0, xi, fine).mean((1, 2, 3))[:, None] * times  # (B,T)
        mean = fields.mean((2, 3, 4))
        growth = (
            fields.pow(2).mean((2, 3, 4)).sqrt() - 0.15 * times
        )  # |omega| <= |omega_0| + t |f|, |f| <= .1 sqrt 2 rms
        return [
            Check("mean vorticity drifts as t <f>", float((mean - drift).abs().amax()), 2e-2),
            Check("rms vorticity <= its start + t rms f", float((growth - growth[:, :1]).amax()), 5e-2),
        ]

    def refinement_report(self, u0: Tensor, xi: Tensor, fields: Tensor) -> dict[str, float]:
        """Doubling the solver grid, by viscosity, for rows whose forcing is periodic (even m)."""
        rows = (xi[:, 1] % 2 == 0).nonzero().flatten()
        if not len(rows):
            return {}
        n = 2 * u0.shape[-1]
        fine = replace(self, dt=self.dt / 2).solve(spectral.resample(u0[rows], n, 2), xi[rows])
        error = relative_l2(fields[rows], fine.as_subclass(Tensor))
        what = f"solver grid {n // 2} -> {n}, even forcing frequency"
        return by_range(what, "viscosity", xi[rows, 0], error, VISCOSITIES)


class _Stepper:
    """Lawson RK4 on the rfft2 of the vorticity; complex numbers are pairs of reals so that passes can be fused.

    With E = e^{-nu k^2 h/2}, flow(v) = E v + g the exact diffusion and forcing over half a step, and N the transport:
        a = N(v)                          b = N(flow(v) + h/2 E a)
        c = N(flow(v) + h/2 b)            d = N(flow(flow(v)) + h E c)
        v' = flow(flow(v)) + h/6 (E^2 a + 2 E (b + c) + d)
    Letters: K = N/2 + 1 kept modes, 2 the real and imaginary part.
    """

    def __init__(self, system: HeterNS, xi: Tensor, like: Tensor) -> None:
        self.take = lambda rows: _Stepper(system, xi[rows], like)
        n = like.shape[-1]
        self.system, self.n, self.stride = system, n, n // system.n_points
        self.nu = xi[:, 0, None, None, None].double()  # (B,1,1,1)
        force = torch.fft.rfft2(system.forcing(0.0, xi, like.double())[:, 0])
        self.force = torch.view_as_real(force)  # (B,N,K,2)
        self.kx, self.ky = (k[..., None] for k in spectral.mesh(n, system.length, like.double()))  # (N,1,1), (1,K,1)
        self.mask = spectral.dealias_mask(n, 2, like.device)  # (N,K)
        self.symbols = self._symbols(like)

    def _symbols(self, like: Tensor) -> tuple[Tensor, ...]:
        """Factors that turn vorticity into velocity, i ky / k^2 and -i kx / k^2, and products into the transport.

        i (a + ib) = -b + ia: the first two multiply the exchanged real and imaginary part.  They also carry the
        1/N^2 of the inverse FFT, which is left unscaled to save a pass over memory.
        """
        k2 = self.kx**2 + self.ky**2  # (N,K,1)
        mask = self.mask[..., None].double()
        inverse = torch.where(k2 > 0, mask / torch.where(k2 > 0, k2, 1.0), 0.0) / self.n**2
        turn = torch.tensor([-1.0, 1.0], dtype=torch.float64, device=like.device)
        velocity = (self.ky * inverse * turn, -self.kx * inverse * turn)
        symbols = (*velocity, mask * (self.kx**2 - self.ky**2), mask * self.kx * self.ky)
        return tuple(symbol.to(like.dtype).contiguous() for symbol in symbols)

    def start(self, u0: Tensor) -> Tensor:
        return torch.fft.rfft2(u0[:, 0])  # (B,N,K)

    def observe(self, state: Tensor) -> Tensor:
        omega = torch.fft.irfft2(state, s=(self.n, self.n))
        return omega[:, None, :: self.stride, :: self.stride]

    def tail(self, state: Tensor) -> Tensor | None:
        return spectral.tail_share(state * self.mask, 2, self.n)

    def stable_dt(self, state: Tensor, gap: float) -> Tensor:
        """Largest frequency of the explicit transport, with room for what the forcing adds within the gap."""
        speed = self.system.max_speed(torch.fft.irfft2(state, s=(self.n, self.n))) + FORCED_ACCELERATION * gap
        return MAX_SPECTRAL_COURANT / (2 * math.pi / self.system.length * self.n / 3 * speed)

    def advance(self, state: Tensor, t: float, h: float, n: int) -> Tensor:
        v = torch.view_as_real(state).contiguous()  # (B,N,K,2)
        flow = self._flow(h, v)
        for _ in range(n):
            v = self._step(v, flow)
        return torch.view_as_complex(v)

    def _flow(self, h: float, like: Tensor) -> Flow:
        """E - 1 of the x and y factors of E, g = h/2 phi(nu k^2 h/2) f_hat, and h, in the working precision.

        E itself, rounded to float32, would lose most digits of a small nu k^2 h, always in the same direction.
        """
        z = self.nu * (self.kx**2 + self.ky**2) * (h / 2)  # (B,N,K,1)
        phi = torch.where(z > 1e-8, -torch.expm1(-z) / torch.where(z > 1e-8, z, 1.0), 1.0)
        along_x, along_y = (torch.expm1(-self.nu * k**2 * (h / 2)) for k in (self.kx, self.ky))
        step = torch.tensor(h, dtype=torch.float64, device=like.device)
        exact = (along_x, along_y, h / 2 * phi * self.force, step)
        along_x, along_y, added, step = (part.to(like.dtype).contiguous() for part in exact)
        return along_x, along_y, added, step

    def _step(self, v: Tensor, flow: Flow) -> Tensor:
        symbols = self.symbols
        x, y = _velocity(v, symbols)
        total, x, y = _stage_one(self._products(x, y), v, flow, symbols)
        total, x, y = _stage_two(self._products(x, y), v, total, flow, symbols)
        total, x, y = _stage_three(self._products(x, y), v, total, flow, symbols)
        return _stage_four(self._products(x, y), total, flow, symbols)

    def _products(self, u_modes: Tensor, v_modes: Tensor) -> Pair:
        """Velocity modes -> modes of u v and v^2 - u^2, each (B,N,K,2): the four FFTs of a tendency."""
        u, v = (
            torch.fft.irfft2(torch.view_as_complex(modes), s=(self.n, self.n), norm="forward")
            for modes in (u_modes, v_modes)
        )
        uv, difference = _quadratic(u, v)
        return torch.view_as_real(torch.fft.rfft2(uv)), torch.view_as_real(torch.fft.rfft2(difference))


Pair = tuple[Tensor, Tensor]
Flow = tuple[Tensor, Tensor, Tensor, Tensor]  # E - 1 along x and along y, g, h
Symbols = tuple[Tensor, ...]
Staged = tuple[Tensor, Tensor, Tensor]  # running total, u modes, v modes


def _velocity_modes(v: Tensor, symbols: Symbols) -> Pair:
    turned = v.flip(-1)
    return turned * symbols[0], turned * symbols[1]


def _transport(products: Pair, symbols: Symbols) -> Tensor:
    """N = (kx^2 - ky^2) (u v)_hat + kx ky (v^2 - u^2)_hat, dealiased."""
    return symbols[2] * products[0] + symbols[3] * products[1]


@fuse
def _velocity(v: Tensor, symbols: Symbols) -> Pair:
    return _velocity_modes(v, symbols)


@fuse
def _quadratic(u: Tensor, v: Tensor) -> Pair:
    return u * v, v * v - u * u


def _half_flow(v: Tensor, flow: Flow) -> Tensor:
    """flow(v) = E v + g over half a step."""
    return v + (_loss(flow) * v + flow[2])


def _loss(flow: Flow) -> Tensor:
    """E - 1."""
    return flow[0] + flow[1] + flow[0] * flow[1]


@fuse
def _stage_one(products: Pair, v: Tensor, flow: Flow, symbols: Symbols) -> Staged:
    h, half = flow[3], _half_flow(v, flow)
    kick = (1 + _loss(flow)) * _transport(products, symbols)  # E a
    return _half_flow(half + h / 6 * kick, flow), *_velocity_modes(half + h / 2 * kick, symbols)


@fuse
def _stage_two(products: Pair, v: Tensor, total: Tensor, flow: Flow, symbols: Symbols) -> Staged:
    h, b = flow[3], _transport(products, symbols)
    total = total + h / 3 * (1 + _loss(flow)) * b
    return total, *_velocity_modes(_half_flow(v, flow) + h / 2 * b, symbols)


@fuse
def _stage_three(products: Pair, v: Tensor, total: Tensor, flow: Flow, symbols: Symbols) -> Staged:
    h = flow[3]
    kick = (1 + _loss(flow)) * _transport(products, symbols)  # E c
    full = _half_flow(_half_flow(v, flow), flow)
    return total + h / 3 * kick, *_velocity_modes(full + h * kick, symbols)


@fuse
def _stage_four(products: Pair, total: Tensor, flow: Flow, symbols: Symbols) -> Tensor:
    return total + flow[3] / 6 * _transport(products, symbols)


SYSTEM = HeterNS

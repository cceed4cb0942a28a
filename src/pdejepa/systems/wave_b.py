"""Wave-B: u_tt = c^2 u_xx on [-8,8] with c = 2, each end Dirichlet (u = 0) or Neumann (u_x = 0).

The start is one left-moving pulse, u = exp(-(x-s)^2) and u_t = c u_x.  Closed form by reflections: u = F(x+ct) +
G(x-ct), where a wave returns from a Dirichlet end with the opposite sign and from a Neumann end unchanged,

    G(-8-y) = a F(-8+y)    F(8+y) = b G(8-y)    a, b = -1 (Dirichlet) or +1 (Neumann)    F = u0, G = 0 inside at t = 0

so F(z) = u0(z) on [-8,8], 0 on (8,24), and F(z) = a b F(z-32) beyond.  Grid: 256 Chebyshev nodes, on which u0 is
interpolated to near machine precision.  A frame step moves the pulse by half the domain, and one frame does not show
which way it travels: the system is second order in time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import torch
from scipy.linalg import expm
from torch import Tensor

from pdejepa.core.errors import ParameterError
from pdejepa.core.seeds import Draws
from pdejepa.operators import chebyshev
from pdejepa.systems.base import System
from pdejepa.systems.broad import (
    CENTRE,
    N_SHAPES,
    OTHER,
    PHASE,
    SIGN,
    WIDTH,
    Kind,
    factor,
    heights,
    mixed,
)
from pdejepa.systems.problem import Coefficient, Parameter, Structure, Term, one_hot
from pdejepa.systems.structure import Check, Reference, Split

CODES = ("DD", "DN", "ND", "NN")  # left, right
C = 2.0
HALF = 8.0
N_BETWEEN = 8_193


def _code(code: str) -> Coefficient:
    """One-hot of a boundary pair."""
    left, right = (float(kind == "N") for kind in code)
    return one_hot(bc_left=left, bc_right=right)


@dataclass(frozen=True)
class WaveB(System):
    name = "wave_b"
    title = "Wave-B"
    equation = "u_tt = c^2 u_xx, c = 2; ends Dirichlet or Neumann"
    expect = "one pulse bounces between the ends, flipping sign at every Dirichlet end"
    fields = ("u",)
    axes_names = ("x",)
    parameters = (
        Parameter(
            "bc_left",
            "b_l",
            "left end: 0 Dirichlet, 1 Neumann",
            (0.0, 1.0),
            (0.0, 1.0),
            "all four pairs",
            choices=(0.0, 1.0),
        ),
        Parameter(
            "bc_right",
            "b_r",
            "right end: 0 Dirichlet, 1 Neumann",
            (0.0, 1.0),
            (0.0, 1.0),
            "all four pairs",
            choices=(0.0, 1.0),
        ),
    )
    constants = MappingProxyType({"celerity": C})
    boundaries = ("dirichlet",)  # Neumann where the parameters say so
    structure = Structure(
        terms=tuple(
            Term(code, code, _code(code), "unit", f"boundary part of c^2 u_xx for ends {code}") for code in CODES
        ),
        has_shared=True,
        time_order=2,
        scaling={},  # linear
        boundary_codes=CODES,
    )
    reference = Reference("matrix exponential of the bordered Chebyshev operator instead of reflections", 2e-5)
    chunk = (240, 4096)

    n_points: int = 256

    @property
    def axes(self) -> dict[str, Tensor]:
        return {"x": chebyshev.nodes(self.n_points, HALF)}

    @property
    def raw_times(self) -> Tensor:
        return torch.linspace(0.0, 100.0, 250, dtype=torch.float64)

    @property
    def frame_idx(self) -> slice:
        return slice(0, 250, 10)

    def environment(self, split: Split, draws: Draws) -> Tensor:
        codes = [[float(kind == "N") for kind in CODES[row]] for row in (draws.rows % 4).tolist()]
        return torch.tensor(codes, dtype=torch.float64)

    def initial(self, draws: Draws) -> Tensor:
        centre = draws.uniform(1, -4.0, 4.0)  # (B,1)
        return torch.exp(-((self.axes["x"].to(draws.device) - centre) ** 2))[:, None]

    def broad(self, draws: Draws) -> Tensor:
        """Left-moving profiles that vanish at both ends: one to three pulses of other widths and either sign, wave
        packets, plateaus between tanh fronts, or the benchmark's pulse, all times .3 to 3."""
        x = self.axes["x"].to(draws.device)
        kinds = (lambda part: self.initial(part)[:, 0], _pulses(x), _packets(x), _plateaus(x))
        return (factor(draws) * mixed(draws, kinds))[:, None]

    def _solve(self, u0: Tensor, xi: Tensor, times: list[float], t0: float) -> tuple[Tensor, Tensor]:
        if t0 != 0.0:
            raise ParameterError(
                "wave_b starts from a left-moving pulse at t0 = 0; a later frame alone is not a state."
            )
        fields = u0.new_empty((len(u0), len(times), 1, self.n_points))
        for code in range(4):
            left, right = (float(kind == "N") for kind in CODES[code])
            rows = ((xi[:, 0] == left) & (xi[:, 1] == right)).nonzero().flatten()
            if len(rows):
                flow = _propagator(self.n_points, tuple(times), CODES[code]).to(u0)  # (T N, N)
                fields[rows] = (u0[rows, 0] @ flow.T).reshape(len(rows), len(times), 1, self.n_points)
        return fields, torch.zeros(len(u0), dtype=torch.int8)

    @property
    def n_rhs(self) -> int:
        """Channels of the state that `rhs` acts on: (u, u_t)."""
        return 2

    def shared(self, u: Tensor) -> Tensor:
        """(u_t, c^2 u_xx) with the plain polynomial derivative, for states (B,2,N) of u and u_t."""
        first = chebyshev.differentiation(self.n_points, HALF).to(u)
        return torch.stack((u[:, 1], C**2 * (u[:, 0] @ (first @ first).T)), 1)

    def operators(self, u: Tensor) -> Tensor:
        """What each boundary pair changes: bordered minus plain second derivative, in the u_t equation."""
        first = chebyshev.differentiation(self.n_points, HALF).to(u)
        free = first @ first
        parts = []
        for code in CODES:
            bordered = chebyshev.bordered_second_derivative(self.n_points, HALF, *code).to(u)
            change = C**2 * (u[:, 0] @ (bordered - free).T)
            parts.append(torch.stack((torch.zeros_like(change), change), 1))
        return torch.stack(parts, 1)  # (B,4,2,N)

    def invariants(self, fields: Tensor, xi: Tensor, times: Tensor) -> list[Check]:
        first = chebyshev.differentiation(self.n_points, HALF).to(fields)
        size = fields[:, :1].abs().amax((1, 2, 3), keepdim=True).clamp(min=1e-30)
        scaled = fields / size
        slope = scaled @ first.T
        peak = (fields[:, 0, 0] @ _between(self.n_points).to(fields).T).abs().amax(1)  # (B,)
        checks = []
        for j, end in enumerate((0, -1)):
            side = ("left", "right")[j]
            dirichlet, neumann = xi[:, j] == 0, xi[:, j] == 1
            if bool(dirichlet.any()):
                checks.append(
                    Check(f"u = 0 at a Dirichlet {side} end", float(scaled[dirichlet][..., end].abs().amax()), 1e-5)
                )
            if bool(neumann.any()):  # float32 rounding times the derivative row's norm, about n^2
                checks.append(
                    Check(f"u_x = 0 at a Neumann {side} end", float(slope[neumann][..., end].abs().amax()), 1e-2)
                )
        excess = (fields.abs().amax((1, 2, 3)) - 2 * peak) / peak.clamp(min=1e-30)
        checks.append(Check("|u| <= 2 max|u0| (two legs of one profile)", float(excess.amax()), 1e-5))
        return checks

    def solve_reference(self, u0: Tensor, xi: Tensor) -> Tensor:
        """Step (u, u_t) by the exact exponential of [[0, 1], [c^2 D2, 0]], end values set by the conditions."""
        rows = []
        first = chebyshev.differentiation(self.n_points, HALF).numpy()
        for i in range(len(u0)):
            code = "".join("DN"[int(kind)] for kind in xi[i].tolist())
            flow = _exponential(self.n_points, code, float(self.times[1] - self.times[0]))
            u = u0[i, 0].double().cpu().numpy()
            state = np.concatenate((u[1:-1], (C * first @ u)[1:-1]))
            frames = [u]
            for _ in range(len(self.times) - 1):
                state = flow @ state
                frames.append(_with_ends(state[: self.n_points - 2], self.n_points, code))
            rows.append(torch.from_numpy(np.stack(frames)))
        return torch.stack(rows)[:, :, None].to(u0.device)


# ---- profiles of the wider law, (B,N) on the nodes x (N,) ----------------------------------------------------------
def _pulses(x: Tensor) -> Kind:
    """One to three Gaussians, e^{-(x-s)^2/w^2} with w in [.5,1.5], four widths or more away from the ends."""

    def profile(draws: Draws) -> Tensor:
        width = draws.uniform(N_SHAPES, 0.5, 1.5, at=WIDTH)
        centre = (HALF - 4 * width) * draws.uniform(N_SHAPES, -1.0, 1.0, at=CENTRE)
        bumps = torch.exp(-(((x - centre[..., None]) / width[..., None]) ** 2))  # (B,3,N)
        return (heights(draws, 0.4, 1.0)[..., None] * bumps).sum(1)

    return profile


def _packets(x: Tensor) -> Kind:
    """A Gaussian with w in [.8,1.5] times cos(k (x-s) + phi), k in [1,5]."""

    def profile(draws: Draws) -> Tensor:
        width, number = draws.uniform(1, 0.8, 1.5, at=WIDTH), draws.uniform(1, 1.0, 5.0, at=OTHER)
        distance = x - (HALF - 4 * width) * draws.uniform(1, -1.0, 1.0, at=CENTRE)
        waves = torch.cos(number * distance + draws.uniform(1, 0.0, 2 * math.pi, at=PHASE))
        return torch.exp(-((distance / width) ** 2)) * waves

    return profile


def _plateaus(x: Tensor) -> Kind:
    """One plateau .8 to 4 wide between fronts tanh(x/w), w in [.4,.5]; eight front widths away from the ends."""

    def profile(draws: Draws) -> Tensor:
        front, half = draws.uniform(1, 0.4, 0.5, at=WIDTH), draws.uniform(1, 0.4, 2.0, at=OTHER)
        distance = x - (HALF - 8 * front - half) * draws.uniform(1, -1.0, 1.0, at=CENTRE)
        box = (torch.tanh((distance + half) / front) - torch.tanh((distance - half) / front)) / 2
        return torch.where(draws.uniform(1, at=SIGN) < 0.5, -box, box)

    return profile


@lru_cache(maxsize=2)
def _between(n: int) -> Tensor:
    """Linear map (M, n) from nodes to so many points that a peak is met to five digits."""
    return chebyshev.interpolation(n, HALF, torch.linspace(-HALF, HALF, N_BETWEEN, dtype=torch.float64))


@lru_cache(maxsize=16)
def _propagator(n: int, times: tuple[float, ...], code: str) -> Tensor:
    """Linear map (T n, n) from the left-moving start u0 to the frames: both legs, with their reflection signs."""
    x = chebyshev.nodes(n, HALF)
    a, b = (1.0 if kind == "N" else -1.0 for kind in code)
    t = torch.tensor(times, dtype=torch.float64)[:, None]
    left_going, right_going = x + C * t, C * t - x - 2 * HALF  # arguments of F in F(x+ct) and a F(ct-x-16)
    return _leg(left_going.flatten(), n, a * b) + a * _leg(right_going.flatten(), n, a * b)


def _leg(z: Tensor, n: int, turn: float) -> Tensor:
    """Rows that evaluate F(z): u0(z) on [-8,8], 0 on (8,24), factor `turn` per period of 32; 0 for z < -8."""
    period = 4 * HALF
    laps = torch.floor((z + HALF) / period)
    inside = z - period * laps  # in [-8,24)
    live = (inside <= HALF) & (laps >= 0)
    sign = torch.where(laps % 2 == 0, 1.0, turn).double() * live
    return sign[:, None] * chebyshev.interpolation(n, HALF, inside.clamp(max=HALF))


@lru_cache(maxsize=8)
def _exponential(n: int, code: str, dt: float) -> np.ndarray:
    """exp(dt A) of the interior first-order system, by repeated squaring inside SciPy's expm."""
    second = C**2 * chebyshev.bordered_second_derivative(n, HALF, *code).numpy()[1:-1, 1:-1]
    m = n - 2
    scale = math.sqrt(abs(np.linalg.eigvals(second)).max())  # balance the two blocks: evolve (u, u_t / scale)
    matrix = np.block([[np.zeros((m, m)), scale * np.eye(m)], [second / scale, np.zeros((m, m))]])
    flow = expm(dt * matrix)
    flow[:m, m:] /= scale
    flow[m:, :m] *= scale
    return np.asarray(flow)


def _with_ends(interior: np.ndarray, n: int, code: str) -> np.ndarray:
    """Interior values plus the two end values that satisfy the boundary conditions."""
    return np.asarray(chebyshev.extension(n, HALF, *code).numpy()[:, 1:-1] @ interior)


SYSTEM = WaveB

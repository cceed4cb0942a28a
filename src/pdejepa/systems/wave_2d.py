"""Wave-2D: u_tt = c^2 Lap u - k u_t on the unit square, 64 x 64 nodes, walls with u = 0.

The Laplacian adds the fourth-order second difference along each axis, with zeros beyond the walls.  That matrix is
symmetric, so the problem is solved exactly in time in the eigenbasis V of its 1-D part: each mode is a damped
oscillator with mu = c^2 (lambda_i + lambda_j) <= 0 and Omega^2 = -mu - k^2/4,

    u   = e^{-kt/2} [(cos Omega t + k/2 sin(Omega t)/Omega) u(0) + sin(Omega t)/Omega u_t(0)]
    u_t = e^{-kt/2} [mu sin(Omega t)/Omega u(0) + (cos Omega t - k/2 sin(Omega t)/Omega) u_t(0)]

with cosh and sinh where a mode is overdamped.  Both channels are stored; u_t is about 5,000 times larger than u.
`bc="neumann"` mirrors the field at the walls instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from pdejepa.core.errors import ConfigError
from pdejepa.core.seeds import Draws
from pdejepa.operators.differences import wall_matrix
from pdejepa.solve.oscillators import damped_waves
from pdejepa.systems.base import System
from pdejepa.systems.broad import CENTRE, N_SHAPES, OTHER, PHASE, WIDTH, Kind, factor, heights, mixed, summed
from pdejepa.systems.problem import Parameter, Structure, Term, Uniform, power
from pdejepa.systems.structure import Check, Reference, Split

N_GAUSSIANS = 5
N_GRID = 100  # celerities and dampings of the in-distribution splits lie on a 100 x 100 grid
FIRST_CELL = {  # disjoint runs of one shuffled order of that grid
    "train": 0,
    "valid": 1_200,
    "test": 1_320,
    "broad_train": 1_440,
    "broad_valid": 2_640,
    "broad_test": 2_760,
}
FIRST_OOD_CELL = {"ood": 0, "valid_ood": 12}  # of the other grid
OOD_GRID = 5
N_BUMPS = 10  # of the wider law, at most


@dataclass(frozen=True)
class Wave2D(System):
    name = "wave_2d"
    title = "Wave-2D"
    equation = "u_tt = c^2 Lap u - k u_t, stored as (u, u_t)"
    expect = "five bumps collapse into rings that cross, reflect with opposite sign at the walls, and slowly fade"
    fields = ("u", "u_t")
    axes_names = ("x", "y")
    parameters = (
        Parameter(
            "celerity",
            "c",
            "wave speed",
            Uniform(100.0, 500.0),
            (0.0, 2000.0),
            "100-point grid",
            "length/time",
            ood=Uniform(500.0, 550.0),
        ),
        Parameter(
            "damping",
            "k",
            "damping rate",
            Uniform(0.0, 50.0),
            (0.0, 1e4),
            "100-point grid",
            "1/time",
            ood=Uniform(50.0, 60.0),
        ),
    )
    boundaries = ("dirichlet", "dirichlet")
    edges = "reflect"  # of the decoder; zeros, which the boundary says, were not tried
    structure = Structure(
        terms=(
            Term("celerity", "c^2", power("celerity", 2), "rms", "(0, Lap u)"),
            Term("damping", "k", power("damping"), "rms", "(0, u_t)", sign=-1),
        ),
        has_shared=True,
        scaling={},  # linear
        wave=("celerity", "damping"),
    )
    reference = Reference("SciPy DOP853 at rtol 1e-9 on the same matrix instead of its eigenbasis", 1e-5)
    chunk = (60, 1024)
    shard = 500

    n_points: int = 64
    bc: str = "dirichlet"

    def __post_init__(self) -> None:
        if self.bc not in ("dirichlet", "neumann"):
            raise ConfigError(f"wave_2d: bc must be 'dirichlet' or 'neumann', got {self.bc!r}.")

    @property
    def dx(self) -> float:
        return 1.0 / (self.n_points - 1)

    @property
    def axes(self) -> dict[str, Tensor]:
        nodes = torch.arange(self.n_points, dtype=torch.float64) * self.dx
        return {"x": nodes, "y": nodes}

    @property
    def raw_times(self) -> Tensor:
        return torch.linspace(0.0, 5e-3, 30, dtype=torch.float64)

    @property
    def frame_idx(self) -> slice:
        return slice(0, 30)

    def environment(self, split: Split, draws: Draws) -> Tensor:
        """Pairs without replacement: one shuffled order of the grid, cut into the splits; outside another grid."""
        if split.is_ood:
            side = OOD_GRID
            order = _shuffled(self.name, "ood", draws.seed, side * side)
            order = torch.cat(
                (order.new_zeros(1), order[order != 0])
            )  # first the corner of the training box, (500, 50)
            cell = order[draws.rows + FIRST_OOD_CELL[split.name]]
        else:
            side = N_GRID
            cell = _shuffled(self.name, "id", draws.seed, side * side)[draws.rows + FIRST_CELL[split.name]]
        c_range, k_range = (self.law(parameter, split) for parameter in self.parameters)
        celerity = torch.linspace(c_range.low, c_range.high, side, dtype=torch.float64)[cell // side]
        damping = torch.linspace(k_range.low, k_range.high, side, dtype=torch.float64)[cell % side]
        return torch.stack((celerity, damping), 1)

    def initial(self, draws: Draws) -> Tensor:
        """Five unit Gaussians: centres uniform in the square, sigma in [.025,.1]; at rest."""
        x = self.axes["x"].to(draws.device)
        centre_x, centre_y = draws.uniform(N_GAUSSIANS, at=0), draws.uniform(N_GAUSSIANS, at=1)
        width = 2 * draws.uniform(N_GAUSSIANS, 0.025, 0.1, at=2)[..., None] ** 2
        along_x = torch.exp(-((x - centre_x[..., None]) ** 2) / width)  # (B,5,N)
        along_y = torch.exp(-((x - centre_y[..., None]) ** 2) / width)
        u = torch.einsum("bgi,bgj->bij", along_x, along_y)
        return torch.stack((u, torch.zeros_like(u)), 1)

    def broad(self, draws: Draws) -> Tensor:
        """At rest: one to ten bumps of either sign with sigma in [.025,.2], plane stripes that fade towards the walls,
        standing waves, soft-edged plates, or the benchmark's bumps, all times .3 to 3."""
        x = self.axes["x"].to(draws.device)
        kinds = (lambda part: self.initial(part)[:, 0], _bumps(x), _stripes(x), _standing(x), _plates(x))
        u = factor(draws)[..., None] * mixed(draws, kinds)
        return torch.stack((u, torch.zeros_like(u)), 1)

    def _solve(self, u0: Tensor, xi: Tensor, times: list[float], t0: float) -> tuple[Tensor, Tensor]:
        values, basis = (tensor.to(u0) for tensor in _eigenbasis(self.n_points, self.dx, self.bc))
        start = basis.T @ u0 @ basis  # (B,2,N,N) modal amplitudes
        c2, k = (xi[:, 0] ** 2).to(u0.dtype)[:, None, None], xi[:, 1].to(u0.dtype)[:, None, None]
        mu = c2 * (values[:, None] + values[None, :])  # (B,N,N)
        fields = u0.new_empty((len(u0), len(times), *u0.shape[1:]))
        for i, t in enumerate(times):
            cosine, sine = damped_waves(-mu - k**2 / 4, k / 2, t - t0)
            u, u_t = start[:, 0], start[:, 1]
            now = ((cosine + k / 2 * sine) * u + sine * u_t, mu * sine * u + (cosine - k / 2 * sine) * u_t)
            fields[:, i] = basis @ torch.stack(now, 1) @ basis.T
        return fields, torch.zeros(len(u0), dtype=torch.int8)

    def _laplacian(self, u: Tensor) -> Tensor:
        matrix = wall_matrix(self.n_points, self.dx, self.bc).to(u)
        return matrix @ u + u @ matrix

    def shared(self, u: Tensor) -> Tensor:
        return torch.stack((u[:, 1], torch.zeros_like(u[:, 1])), 1)

    def operators(self, u: Tensor) -> Tensor:
        zero = torch.zeros_like(u[:, 0])
        wave = torch.stack((zero, self._laplacian(u[:, 0])), 1)
        drag = torch.stack((zero, u[:, 1]), 1)
        return torch.stack((wave, drag), 1)

    def energy(self, fields: Tensor, xi: Tensor) -> Tensor:
        """(u_t^2 - c^2 u Lap u) / 2 summed over the nodes, (B,T)."""
        u, u_t = fields[:, :, 0], fields[:, :, 1]
        c2 = (xi[:, 0] ** 2)[:, None]
        return 0.5 * (u_t.pow(2).sum((-2, -1)) - c2 * (u * self._laplacian(u)).sum((-2, -1)))

    def invariants(self, fields: Tensor, xi: Tensor, times: Tensor) -> list[Check]:
        energy = self.energy(fields, xi)  # (B,T)
        start = energy[:, :1].clamp(min=1e-30)
        floor = start * torch.exp(-2 * xi[:, 1:] * (times - times[0]))  # dE/dt = -k |u_t|^2 >= -2 k E
        return [
            Check("energy never grows", float(((energy[:, 1:] - energy[:, :-1]) / start).amax()), 1e-5),
            Check("energy falls no faster than e^{-2kt}", float(((floor - energy) / start).amax()), 1e-5),
            Check("starts at rest", float(fields[:, 0, 1].abs().amax()), 1e-6),
        ]

    def solve_reference(self, u0: Tensor, xi: Tensor) -> Tensor:
        matrix = wall_matrix(self.n_points, self.dx, self.bc).numpy()
        times, pairs = self.times.numpy(), xi.tolist()
        rows = [_ode_row(matrix, u0[i].double().cpu().numpy(), c, k, times) for i, (c, k) in enumerate(pairs)]
        return torch.stack(rows).to(u0.device)


# ---- states of the wider law, (B,N,N) on the nodes x (N,) of both axes ------------------------------------------
def _bumps(x: Tensor) -> Kind:
    def state(draws: Draws) -> Tensor:
        width = 2 * draws.uniform(N_BUMPS, 0.025, 0.2, at=WIDTH)[..., None] ** 2
        centre_x, centre_y = (draws.uniform(N_BUMPS, at=place)[..., None] for place in (CENTRE, PHASE))
        along_x, along_y = (torch.exp(-((x - centre) ** 2) / width) for centre in (centre_x, centre_y))  # (B,10,N)
        return summed(heights(draws, 0.3, 1.0, N_BUMPS), lambda j: along_x[:, j, :, None] * along_y[:, j, None, :])

    return state


def _stripes(x: Tensor) -> Kind:
    """One to three Gaussian ridges of any direction, times sin(pi x) sin(pi y)."""

    def state(draws: Draws) -> Tensor:
        angle, width = draws.uniform(N_SHAPES, 0.0, math.pi, at=OTHER), draws.uniform(N_SHAPES, 0.03, 0.12, at=WIDTH)
        middle = draws.uniform(2 * N_SHAPES, 0.2, 0.8, at=CENTRE)
        cosine, sine = torch.cos(angle), torch.sin(angle)

        def ridge(j: int) -> Tensor:
            across = (x - middle[:, j, None]) * cosine[:, j, None]
            down = (x - middle[:, N_SHAPES + j, None]) * sine[:, j, None]
            distance = (across[:, :, None] + down[:, None, :]) / width[:, j, None, None]
            return torch.exp(-(distance**2) / 2)

        fading = torch.sin(math.pi * x)
        return summed(heights(draws, 0.3, 1.0), ridge) * fading[:, None] * fading

    return state


def _standing(x: Tensor) -> Kind:
    """One to three products sin(m pi x) sin(n pi y), m and n from 1 to 8."""

    def state(draws: Draws) -> Tensor:
        mode = draws.integers(2 * N_SHAPES, 1, 8, at=OTHER)
        along = torch.sin(math.pi * mode[..., None] * x)  # (B,6,N)
        return summed(
            heights(draws, 0.3, 1.0), lambda j: along[:, j, :, None] * along[:, N_SHAPES + j, None, :]
        )

    return state


def _plates(x: Tensor) -> Kind:
    """One to three rectangles with tanh edges two to four nodes wide, away from the walls."""

    def state(draws: Draws) -> Tensor:
        edge = draws.uniform(N_SHAPES, 0.03, 0.06, at=WIDTH)[..., None]
        half = draws.uniform(2 * N_SHAPES, 0.06, 0.2, at=OTHER)[..., None]
        middle = draws.uniform(2 * N_SHAPES, 0.35, 0.65, at=CENTRE)[..., None]
        edge = edge.repeat(1, 2, 1)
        box = (torch.tanh((x - middle + half) / edge) - torch.tanh((x - middle - half) / edge)) / 2  # (B,6,N)
        return summed(heights(draws, 0.3, 1.0), lambda j: box[:, j, :, None] * box[:, N_SHAPES + j, None, :])

    return state


def _ode_row(matrix: np.ndarray, u0: np.ndarray, celerity: float, damping: float, times: np.ndarray) -> Tensor:
    shape, scale = u0.shape, max(celerity, 1.0)  # u_t / scale has the size of u, so one tolerance fits both

    def slope(t: float, flat: np.ndarray) -> np.ndarray:
        u, v = flat.reshape(shape)
        return np.stack((scale * v, celerity**2 / scale * (matrix @ u + u @ matrix) - damping * v)).ravel()

    start = np.stack((u0[0], u0[1] / scale)).ravel()
    solved = solve_ivp(slope, (0.0, times[-1]), start, "DOP853", times, rtol=1e-9, atol=1e-9)
    out = solved.y.T.reshape(len(times), *shape)
    out[:, 1] *= scale
    return torch.from_numpy(out)


@lru_cache(maxsize=8)
def _eigenbasis(n: int, dx: float, bc: str) -> tuple[Tensor, Tensor]:
    values, basis = torch.linalg.eigh(wall_matrix(n, dx, bc))
    return values.clamp(max=0.0), basis


@lru_cache(maxsize=8)
def _shuffled(system: str, purpose: str, seed: int, n: int) -> Tensor:
    """A random order of 0..n-1, the same on every machine."""
    keys = Draws(system, purpose, "order", seed, torch.zeros(1, dtype=torch.int64)).uniform(n)[0]
    return torch.argsort(keys, stable=True)


SYSTEM = Wave2D

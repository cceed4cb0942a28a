"""Gray-Scott: two species on a 32 x 32 periodic grid of spacing 2.

    a_t = D_a Lap a - a b^2 + F (1 - a)          D_a = 0.204
    b_t = D_b Lap b + a b^2 - (F + k) b          D_b = 0.102

b feeds on a and decays.  The 9-point Laplacian on this coarse grid is part of the benchmark: patterns are a few
points wide, so it is the time step that is refined, never the grid.  The signs and the faster diffusion of a follow the
published generators; with the printed constants (exchanged) the pattern dies before t = 200.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch import Tensor

from pdejepa.core.device import fuse
from pdejepa.core.seeds import Draws
from pdejepa.operators.arakawa import block_mean
from pdejepa.operators.differences import nine_point_laplacian
from pdejepa.solve.integrators import rk4_step, rk4_weights
from pdejepa.solve.march import Stepper
from pdejepa.solve.outcome import Fields
from pdejepa.systems.base import SteppedSystem, relative_l2
from pdejepa.systems.broad import CENTRE, COUNT, FACTOR, OTHER, WIDTH, mixed
from pdejepa.systems.problem import Parameter, Structure, Term, Uniform, power
from pdejepa.systems.refinement import by_range
from pdejepa.systems.structure import Check, Reference

D_A, D_B = 0.204, 0.102
N_SEEDS = 3
MIN_SPREAD = 0.05  # of b in a pattern
N_SPOTS = 8  # of the wider law, at most
FEEDS = (0.0, 0.035, 0.045, math.inf)  # ranges in which the error in space is told


@dataclass(frozen=True)
class GrayScott(SteppedSystem):
    name = "gray_scott"
    title = "Gray-Scott"
    equation = "a_t = D_a Lap a - a b^2 + F(1-a);  b_t = D_b Lap b + a b^2 - (F+k) b"
    expect = "three seeds of b spread into rings, spots and stripes that keep reacting"
    fields = ("a", "b")
    axes_names = ("x", "y")
    parameters = (
        Parameter(
            "feed", "F", "supply rate of a", Uniform(0.028, 0.045), (0.0, 1.0), unit="1/time", ood=Uniform(0.045, 0.047)
        ),
        Parameter(
            "kill",
            "k",
            "removal rate of b",
            Uniform(0.059, 0.064),
            (0.0, 1.0),
            unit="1/time",
            ood=Uniform(0.057, 0.059),
        ),
    )
    constants = MappingProxyType({"D_a": D_A, "D_b": D_B})
    boundaries = ("periodic", "periodic")
    structure = Structure(
        terms=(
            Term("feed", "F", power("feed"), "mean_abs", "(1 - a, -b)"),
            Term("kill", "k", power("kill"), "mean_abs", "(0, -b)"),
        ),
        has_shared=True,
    )
    reference = Reference("time step halved (the 32 x 32 grid defines the benchmark)", 1e-5)
    chunk = (120, 16384)

    dt: float = 0.5
    n_points: int = 32
    dx: float = 2.0

    @property
    def axes(self) -> dict[str, Tensor]:
        nodes = torch.arange(self.n_points, dtype=torch.float64) * self.dx
        return {"x": nodes, "y": nodes}

    @property
    def raw_times(self) -> Tensor:
        return 10.0 * torch.arange(20, dtype=torch.float64)

    @property
    def frame_idx(self) -> slice:
        return slice(0, 20)

    def initial(self, draws: Draws) -> Tensor:
        """a = .95, b = .05, and three blocks of a tenth of the width with a = 0, b = 1; no noise."""
        n = self.n_points
        width = n // 10
        corner = draws.integers(2 * N_SEEDS, 0, n - 1 - width, at=0)  # (B,6): first and second index of each block
        node = torch.arange(n, device=draws.device)
        inside = (node >= corner[..., None]) & (node < corner[..., None] + width)  # (B,6,N)
        seeded = (inside[:, :N_SEEDS, :, None] & inside[:, N_SEEDS:, None, :]).any(1)  # (B,N,N)
        a = torch.where(seeded, 0.0, 0.95).double()
        b = torch.where(seeded, 1.0, 0.05).double()
        return torch.stack((a, b), 1)

    def broad(self, draws: Draws) -> Tensor:
        """Other backgrounds (a in [.9,1], b in [0,.05]) with two to eight painted spots: squares, discs or strokes of
        other sizes, inside of which a is in [0,.4] and b in [.6,1].  A pattern dies where so much b eats up all a: the
        paint is a third of the square at most, and one that dies before the last frame is drawn again."""
        kinds = (self._squares, self._discs, self._strokes)
        painted = mixed(draws, kinds)  # (B,N,N)
        level = draws.uniform(4, at=FACTOR)[..., None, None]  # (B,4,1,1)
        around = (0.9 + 0.1 * level[:, 0], 0.05 * level[:, 1])
        inside = (0.4 * level[:, 2], 0.6 + 0.4 * level[:, 3])
        return torch.stack([out + (within - out) * painted for out, within in zip(around, inside, strict=True)], 1)

    def is_poor(self, solved: Fields) -> Tensor:
        return super().is_poor(solved) | (_spread(solved.as_subclass(Tensor)) < MIN_SPREAD).cpu()

    def _squares(self, draws: Draws) -> Tensor:
        """Rectangles with sides of 3 to 7 points."""
        side = draws.integers(2 * N_SPOTS, 3, 7, at=WIDTH)[..., None]
        place = torch.floor(self.n_points * draws.uniform(2 * N_SPOTS, at=CENTRE))[..., None]
        node = torch.arange(self.n_points, device=draws.device)
        inside = (node - place) % self.n_points < side  # (B,2S,N), across the edges
        return self._painted(draws, lambda j: inside[:, j, :, None] & inside[:, N_SPOTS + j, None, :])

    def _discs(self, draws: Draws) -> Tensor:
        """Discs with radii of 1.6 to 4.5 points."""
        radius = draws.uniform(N_SPOTS, 1.6, 4.5, at=WIDTH)[..., None, None]
        square = self._distance(draws) ** 2
        return self._painted(
            draws, lambda j: square[:, j, :, None] + square[:, N_SPOTS + j, None, :] < radius[:, j] ** 2
        )

    def _strokes(self, draws: Draws) -> Tensor:
        """Straight strokes of any direction, 3 to 5 points wide and 6 to 16 long."""
        half = draws.uniform(2 * N_SPOTS, at=WIDTH)[..., None, None]
        angle = draws.uniform(N_SPOTS, 0.0, math.pi, at=OTHER)[..., None, None]
        cosine, sine, distance = torch.cos(angle), torch.sin(angle), self._distance(draws)

        def stroke(j: int) -> Tensor:
            x, y = distance[:, j, :, None], distance[:, N_SPOTS + j, None, :]
            along, across = x * cosine[:, j] + y * sine[:, j], y * cosine[:, j] - x * sine[:, j]
            return (along.abs() < 3 + 5 * half[:, j]) & (across.abs() < 1.5 + half[:, N_SPOTS + j])

        return self._painted(draws, stroke)

    def _distance(self, draws: Draws) -> Tensor:
        """From the nodes to the centres of the spots, in points, periodic; (B,2S,N), first index, then second."""
        n = self.n_points
        node = torch.arange(n, dtype=torch.float64, device=draws.device)
        return (node - n * draws.uniform(2 * N_SPOTS, at=CENTRE)[..., None] + n / 2) % n - n / 2

    def _painted(self, draws: Draws, spot: Callable[[int], Tensor]) -> Tensor:
        """1 inside the first two to eight spots (B,N,N), 0 elsewhere."""
        count = draws.integers(1, 2, N_SPOTS, at=COUNT)[..., None]
        return torch.stack([spot(j) & (j < count) for j in range(N_SPOTS)]).any(0).double()

    def refinement_report(self, u0: Tensor, xi: Tensor, fields: Tensor) -> dict[str, float]:
        """Half the spacing, by feed rate.  A point is seen as a cell: it becomes four, and four are averaged again."""
        fine = replace(self, n_points=2 * self.n_points, dx=self.dx / 2, dt=self.dt / 2)
        solved = fine.solve(u0.repeat_interleave(2, -1).repeat_interleave(2, -2), xi).as_subclass(Tensor)
        error = relative_l2(fields, block_mean(solved, 2))
        what = f"{self.n_points} -> {fine.n_points} points per axis"
        return by_range(what, "feed", xi[:, 0], error, FEEDS)

    def stepper(self, xi: Tensor, like: Tensor) -> Stepper:
        return _Stepper(xi.to(like.dtype), self.dx)

    def shared(self, u: Tensor) -> Tensor:
        a, b = u[:, 0], u[:, 1]
        reaction = a * b**2
        return torch.stack(
            (D_A * nine_point_laplacian(a, self.dx) - reaction, D_B * nine_point_laplacian(b, self.dx) + reaction), 1
        )

    def operators(self, u: Tensor) -> Tensor:
        a, b = u[:, 0], u[:, 1]
        return torch.stack((torch.stack((1 - a, -b), 1), torch.stack((torch.zeros_like(b), -b), 1)), 1)

    def invariants(self, fields: Tensor, xi: Tensor, times: Tensor) -> list[Check]:
        return [
            Check("species stay non-negative", float(-fields.amin()), 1e-3),
            Check("species stay below about 1", float(fields.amax() - 1), 1e-2),
            Check("every run keeps a pattern to the last frame", float(MIN_SPREAD - _spread(fields).amin()), 0.0),
        ]


def _spread(fields: Tensor) -> Tensor:
    """Of b in the last frame, (B,)."""
    return fields[:, -1, 1].amax((-2, -1)) - fields[:, -1, 1].amin((-2, -1))


class _Stepper:
    """Classical RK4 on (a, b), one fused pass per stage."""

    def __init__(self, xi: Tensor, dx: float) -> None:
        self.take = lambda rows: _Stepper(xi[rows], dx)
        self.feed, self.kill = xi[:, 0, None, None].contiguous(), xi[:, 1, None, None].contiguous()
        self.dx = dx

    def start(self, u0: Tensor) -> Tensor:
        return u0.contiguous()

    def observe(self, state: Tensor) -> Tensor:
        return state

    def tail(self, state: Tensor) -> Tensor | None:
        return None

    def stable_dt(self, state: Tensor, gap: float) -> Tensor:
        """Diffusion has eigenvalues up to 4 D_a / dx^2, reactions up to about max(a b, b^2) + F + k."""
        peak = state.abs().amax((1, 2, 3)).clamp(min=1.0)
        return 2.0 / (4 * D_A / self.dx**2 + 2 * peak**2 + (self.feed + self.kill).flatten())

    def advance(self, state: Tensor, t: float, h: float, n: int) -> Tensor:
        def stage(v: Tensor, u: Tensor, total: Tensor, w: Tensor, a: Tensor | None) -> tuple[Tensor, Tensor]:
            return _stage(v, u, total, w, a, self.feed, self.kill, self.dx)

        weights = rk4_weights(h, state)
        for _ in range(n):
            state = rk4_step(stage, state, weights)
        return state


@fuse
def _stage(
    v: Tensor, u: Tensor, total: Tensor, w: Tensor, step: Tensor | None, feed: Tensor, kill: Tensor, dx: float
) -> tuple[Tensor, Tensor]:
    """k = f(v); returns (total + w k, u + step k)."""
    a, b = v[:, 0], v[:, 1]
    reaction = a * b * b
    k_a = D_A * nine_point_laplacian(a, dx) - reaction + feed * (1 - a)
    k_b = D_B * nine_point_laplacian(b, dx) + reaction - (feed + kill) * b
    k = torch.stack((k_a, k_b), 1)
    return total + w * k, total if step is None else u + step * k


SYSTEM = GrayScott

"""A latent field for linear waves: linear in the state, and solved exactly, mode by mode, however far a frame is.

    y = q + L(q)           tokens hold pairs (p, v) for the points of the grid, seen as amplitudes of its waves
    dp/ds = kappa v        dv/ds = -r_1 kappa p - 2 a v        2 a = mu |r_2|            r_1 ~ c^2,  r_2 ~ k

This is C(y) + r_1 D_1(y) + r_2 D_2(y), the structure of u_tt = c^2 Lap u - k u_t stored as (u, u_t).  With
Omega^2 = r_1 kappa^2 - a^2 and S = sin(Omega s)/Omega,

    p(s) = e^{-as} [(cos Omega s + a S) p(0) + kappa S v(0)]
    v(s) = e^{-as} [-r_1 kappa S p(0) + (cos Omega s - a S) v(0)]

and hyperbolic functions where a mode is overdamped.  A wave that turns by many radians from frame to frame costs no
more than a slow one; no step limits the speed.  Latents of an encoder are not linear in its fields; the lift L learns
the coordinates in which they are.  The waves of the grid start as sines, cosines or both, as the
boundaries say, and kappa as their wave numbers; both are learned from there.

Letters: B rows, T frames, N tokens, D width, G pairs, *grid spatial axes, M terms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pdejepa.core.device import without_autocast
from pdejepa.core.errors import ConfigError
from pdejepa.models.field_config import FieldConfig
from pdejepa.models.patches import PatchGrid
from pdejepa.models.projector import Projector, ProjectorConfig
from pdejepa.operators.bases import along, waves
from pdejepa.solve.oscillators import damped_waves
from pdejepa.systems.problem import Problem

RATE = 0.02  # of what is learned about kappa and the waves, so that one rate suits all parameters


class LinearWaves(nn.Module):
    """The latent states of whole forecasts, without a step in time."""

    turns: Tensor  # (*grid), radians per frame at speed 1

    def __init__(self, config: FieldConfig, patches: PatchGrid, width: int, problem: Problem) -> None:
        super().__init__()
        self.patches = patches
        self.terms = [[term.name for term in problem.structure.terms].index(name) for name in wave_terms(problem)]
        n_pairs, rest = divmod(width, 2 * patches.patch_points)
        if rest:
            raise ConfigError(
                f"Waves need pairs of channels for every point: a width that is a multiple of "
                f"{2 * patches.patch_points} (2 x the points of a patch); got {width}."
            )
        self.lifting = Projector(width, ProjectorConfig(round(config.mlp_ratio * config.width)))
        found = [waves(len(axis.points), axis.points[1] - axis.points[0], axis.boundary) for axis in problem.axes]
        for number, (basis, _) in enumerate(found):
            self.register_buffer(f"basis_{number}", basis.float(), persistent=False)  # (modes,n)
        numbers = torch.meshgrid(*[wave_numbers for _, wave_numbers in found], indexing="ij")
        self.frame_gap = problem.frame_gap
        total = torch.stack(numbers).square().sum(0).sqrt() * self.frame_gap  # (*grid)
        self.register_buffer("turns", total.float(), persistent=False)  # per frame, at speed 1
        # analysis and synthesis of every axis: what they differ from the waves above, in units of RATE
        self.bases = nn.ParameterList(nn.Parameter(torch.zeros(2, n, n)) for n in patches.grid)
        self.kappa = nn.Parameter(torch.zeros(n_pairs, *patches.grid))
        self.mu = nn.Parameter(torch.zeros(n_pairs, *[1] * patches.ndim))
        self.set_scales((1.0, 1.0))

    def set_scales(self, scales: Sequence[float]) -> None:
        """Of r_1 and r_2, fitted on the train split: c^2 = scale r_1, k = scale |r_2|."""
        self.speed, self.drag = math.sqrt(scales[0]), scales[1]

    def lift(self, q: Tensor) -> Tensor:
        """Latents (...,N,D) in the coordinates in which they are linear."""
        return q + self.lifting(q).to(q.dtype)

    def forward(self, y: Tensor, r: Tensor, n_frames: int) -> Tensor:
        """States (B,n_frames,N,D) at the frames after y (B,N,D), under coefficients r (B,M)."""
        y, r = y.to(self.turns.dtype), r.to(self.turns.dtype)
        with without_autocast(y.device):
            return self._synthesis(self._turned(self._analysis(y), r, n_frames))

    def _analysis(self, y: Tensor) -> Tensor:
        """(B,N,D) -> amplitudes (B,G,2,*grid)."""
        points = self.patches.join(y).unflatten(1, (-1, 2))
        for axis, matrix in enumerate(self._matrices(0)):
            points = along(points, matrix, axis - self.patches.ndim)
        return points

    def _synthesis(self, amplitudes: Tensor) -> Tensor:
        """(B,T,G,2,*grid) -> (B,T,N,D)."""
        for axis, matrix in enumerate(self._matrices(1)):
            amplitudes = along(amplitudes, matrix.T, axis - self.patches.ndim)
        return self.patches.split(amplitudes.flatten(2, 3))

    def _matrices(self, which: int) -> list[Tensor]:
        """One per axis, (modes,n)."""
        waves = [self.get_buffer(f"basis_{axis}") for axis in range(self.patches.ndim)]
        return [basis + RATE * change[which] for basis, change in zip(waves, self.bases, strict=True)]

    def _turned(self, amplitudes: Tensor, r: Tensor, n_frames: int) -> Tensor:
        """Amplitudes (B,G,2,*grid) at the frames 1 .. n_frames, (B,T,G,2,*grid)."""
        shape = (-1, *[1] * (self.patches.ndim + 1))
        r_1, r_2 = (r[:, term].abs().reshape(shape) for term in self.terms)  # (B,1,1..)
        kappa = self.speed * self.turns * (1 + RATE * self.kappa)  # (G,*grid)
        a = r_2 * self.drag * self.frame_gap * (1 + self.mu) / 2  # (B,G,1..)
        s = torch.arange(1, n_frames + 1, device=r.device, dtype=torch.float32)
        s = s.reshape(-1, *[1] * (self.patches.ndim + 1))
        a, stiffness = a[:, None], (r_1 * kappa.square())[:, None]  # (B,1,G,..)
        cosine, sine = damped_waves(stiffness - a.square(), a, s)  # (B,T,G,*grid)
        p, v = amplitudes[:, None].unbind(3)  # (B,1,G,*grid)
        now = ((cosine + a * sine) * p + kappa * sine * v, (cosine - a * sine) * v - r_1[:, None] * kappa * sine * p)
        return torch.stack(now, 3)


def wave_terms(problem: Problem) -> tuple[str, str]:
    """The terms c^2 and k of a linear wave equation."""
    if len(problem.structure.wave) != 2:
        raise ConfigError(
            f"field.integrator=exact is for linear waves stored as (u, u_t); {problem.name} is none. "
            "Choose euler, rk2, rk4 or rk8."
        )
    square, drag = problem.structure.wave
    return square, drag

"""Weak SINDy with parameters (Messenger & Bortz 2021; Reinbold, Gurevich & Grigoriev 2020): the equation is found as a
sparse sum of derivatives of powers, and then solved.

    u_t = sum_j c_j(xi) sum_(p,k) W_j,pk d^k(u^p)/dx^k + f(t,x)          c = (1, coefficients of the equation's terms)

Nothing is differentiated but test functions phi(t,x) = (1 - tau^2)^6 (1 - xi^2)^7 on windows of the data:

    - int u phi_t - int f phi = sum_j c_j sum_(p,k) W_j,pk (-1)^k int u^p d^k phi/dx^k

Candidates are u .. u_xxx, u^2 .. (u^2)_xx, u^3 and (u^3)_x, each times every c_j; a known forcing f enters as it is.
Which are kept is decided by sequentially thresholded least squares (`pysindy.STLSQ`, extra `classical`).  The
threshold, as a share of what the data say of u_t, and the width of the windows are those with the lowest error of whole
forecasts on valid.  What was found is solved by Fourier modes and ETDRK4, linear terms exactly; rows that blow up are
counted.

The features are made here, and not by `pysindy.WeakPDELibrary`, which knows no forcing and holds the features of all
trajectories at once: here they are summed into normal equations.  `weak_sindy_fine` sees ten times finer frames.
It is for one field on a periodic line, of first order in time.
Letters: B rows, T frames, X points, M coefficients, L candidates, K Fourier modes, S windows.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.polynomial import Polynomial
from torch import Tensor

from pdejepa.baselines.baseline import Recipe
from pdejepa.baselines.blocks.fine_frames import checked_system, fine_times, trajectories
from pdejepa.baselines.closed_form import ClosedForm, at_once
from pdejepa.baselines.task import Task
from pdejepa.core.errors import ConfigError
from pdejepa.forecast.interface import Card, State
from pdejepa.operators.spectral import wavenumbers
from pdejepa.solve.integrators import Etdrk4
from pdejepa.training.stage import Say
from pdejepa.training.training_data import TrainingData

CANDIDATES = ((1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1))  # (p, k)
POWER_T, POWER_X = 6, 7  # of test functions; three derivatives of them vanish at the edges
REFINE = 10
MAX_LEVEL, COURANT = 8, 0.5  # 2^8 steps per frame at most; of the speed at the start of a forecast


@dataclass(frozen=True)
class SindyConfig:
    """widths: of a window, as a part of the line; thresholds: what valid chooses from; n_train: trajectories."""

    widths: tuple[float, ...] = (0.25, 0.12)
    thresholds: tuple[float, ...] = (0.1, 0.03, 0.01, 0.003, 0.0)
    n_train: int = 300
    refine: int = 1


class WeakSindy(ClosedForm):
    card = Card(
        name="weak_sindy",
        title="Weak SINDy",
        paper="Messenger & Bortz, Weak SINDy for Partial Differential Equations, J. Comput. Phys. 2021",
        needs=frozenset({"xi"}),
        package="pysindy",
        is_closed_form=True,
    )
    refine: ClassVar[int] = 1
    weights: Tensor  # (M,L) float64, physical units

    def __init__(self, config: SindyConfig, task: Task) -> None:
        super().__init__(config, task)
        problem = task.problem
        if len(problem.fields) != 1 or problem.ndim != 1 or not task.is_periodic or problem.structure.time_order != 1:
            raise ConfigError(
                f"{self.card.title} finds equations of first order in time for one field on a periodic line; "
                f"{problem.name} is not such a problem. Use opinf."
            )
        self.register_buffer("weights", torch.zeros(1 + len(problem.structure.terms), len(CANDIDATES)).double())

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        model = SindyConfig(refine=cls.refine, n_train=100 if cls.refine > 1 else SindyConfig.n_train)
        if name == "tiny":
            model = dataclasses.replace(model, widths=(0.25,), thresholds=(0.03, 0.0), n_train=10)
        return at_once(model)

    @property
    def dx(self) -> float:
        points = self.task.problem.axes[0].points
        return points[1] - points[0]

    # ---- fitting -------------------------------------------------------------------------------------------------
    def solve_for(self, data: TrainingData, say: Say) -> None:
        config, best = self.config, math.inf
        if config.refine > 1:
            checked_system(data, self.card.title)
        blocks = list(trajectories(data, config.refine, config.n_train, self.card.title))
        kept = self.weights.clone()
        for width in config.widths:
            gram, right, square = self._equations(blocks, width)
            for threshold in config.thresholds:
                self.weights.copy_(sparse_solution(gram, right, square, threshold, self.card.title))
                error, n = self.error_on_valid(data), int((self.weights != 0).sum())
                say(f"{self.card.title}: width {width:g}, threshold {threshold:g}: {n} terms, {error:.4g} on valid")
                if error < best:
                    best, kept = error, self.weights.clone()
        self.weights.copy_(kept)

    def _equations(self, blocks: list[tuple[Tensor, Tensor]], width: float) -> tuple[Tensor, Tensor, float]:
        """G (M,L,M,L), R (M,L) and the square of the left-hand sides, summed over trajectories."""
        M, L = self.weights.shape
        gram, right, square = torch.zeros(M, L, M, L).double(), torch.zeros(M, L).double(), 0.0
        problem, refine = self.task.problem, self.config.refine
        times, gap = fine_times(problem.times, refine), problem.frame_gap / refine
        for u, xi in blocks:
            fields, c = self._physical(u), self._coefficients(xi).cpu()
            force = None
            if problem.structure.forcing != "none":
                like = fields[:, :1]
                force = torch.stack([problem.forcing(t, xi, like)[:, 0].double() for t in times], 1)  # (B,T,X)
            a, b = (part.cpu() for part in weak_form(fields, force, gap, self.dx, width))  # (B,S,L), (B,S)
            gram += torch.einsum("bi,bj,bpq->ipjq", c, c, a.mT @ a)
            right += torch.einsum("bi,bsp,bs->ip", c, a, b)
            square += float(b.square().sum())
        return gram, right, square

    def _physical(self, u: Tensor) -> Tensor:
        """(B,T,X) float64, physical units, of standardised fields (B,T,1,X)."""
        mean, std = self.task.statistics.moments(1, u.device)
        return (u * std + mean)[:, :, 0].double()

    def _coefficients(self, xi: Tensor) -> Tensor:
        """(B,M): one, and the coefficients of the equation's terms."""
        named, terms = self.task.problem.named(xi.double()), self.task.problem.structure.terms
        return torch.stack([torch.ones(len(xi), device=xi.device).double(), *(t.coefficient(named) for t in terms)], 1)

    # ---- forecasts -----------------------------------------------------------------------------------------------
    def rollout(
        self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None
    ) -> Tensor:
        if n_frames == 0:
            return u_hist[:, :0]
        problem, xi = self.task.problem, state["xi"]
        u, w = self._physical(u_hist[:, -1:])[:, 0], self._coefficients(xi) @ self.weights  # (B,X), (B,L)
        start = problem.times[0] + problem.frame_gap * (u_hist.shape[1] - 1)
        frames = u.new_empty(len(u), n_frames, u.shape[1])
        levels = self._levels(u, w)
        for level in levels.unique().tolist():
            rows = (levels == level).nonzero()[:, 0]
            frames[rows] = self._solved(u[rows], w[rows], xi[rows], start, n_frames, 2**level)
        mean, std = self.task.statistics.moments(1, u.device)
        return ((frames[:, :, None] - mean) / std).float()

    def _levels(self, u: Tensor, w: Tensor) -> Tensor:
        """Every row takes 2^level steps per frame (B,), by how far its transport moves in a frame."""
        size = u.abs().amax(1)
        square, cube = (w[:, CANDIDATES.index((p, 1))].abs() for p in (2, 3))
        distance = self.task.problem.frame_gap * (2 * square * size + 3 * cube * size**2) / (COURANT * self.dx)
        return distance.nan_to_num(1.0).clamp(4.0, 2.0**MAX_LEVEL).log2().ceil().long()

    def _solved(self, u: Tensor, w: Tensor, xi: Tensor, t: float, n_frames: int, n_steps: int) -> Tensor:
        """Frames (B,n_frames,X) after u (B,X) at time t under the weights w (B,L)."""
        X, problem = u.shape[1], self.task.problem
        k = wavenumbers(X, X * self.dx, real=True, like=u)  # (K,)
        symbols = [(1j * k) ** order for order in range(4)]
        for odd in (symbols[1], symbols[3]):
            odd[-1] = 0 if X % 2 == 0 else odd[-1]
        linear = sum(w[:, i, None] * symbols[order] for i, (p, order) in enumerate(CANDIDATES) if p == 1)
        keep = (torch.arange(len(k), device=u.device) <= X // 3).double()
        powers = [(p, w[:, i, None] * symbols[order] * keep) for i, (p, order) in enumerate(CANDIDATES) if p > 1]
        has_forcing, like = problem.structure.forcing != "none", u[:, None]

        def nonlinear(at: float, modes: Tensor) -> Tensor:
            now = torch.fft.irfft(modes, n=X)
            total = sum(factor * torch.fft.rfft(now**p) for p, factor in powers)
            if has_forcing:
                total = total + torch.fft.rfft(problem.forcing(at, xi, like)[:, 0].double())
            return total

        h, modes, frames = problem.frame_gap / n_steps, torch.fft.rfft(u), []
        scheme = Etdrk4.for_symbol(linear, h)  # type: ignore[arg-type]
        for _ in range(n_frames):
            for m in range(n_steps):
                modes = scheme.step(nonlinear, t + m * h, modes)
            t += problem.frame_gap
            frames.append(torch.fft.irfft(modes, n=X))
        return torch.stack(frames, 1)


def weak_form(u: Tensor, force: Tensor | None, gap: float, dx: float, width: float) -> tuple[Tensor, Tensor]:
    """Candidates (B,S,L) and left-hand sides (B,S) on windows of u (B,T,X); force (B,T,X) is what is known of u_t."""
    T, X = u.shape[1:]
    m, n = max(2, min((T - 1) // 2, T // 8)), max(5, round(width * X / 2))  # half a window
    bump = Polynomial([1.0, 0.0, -1.0])
    in_time = _values(bump**POWER_T, m, u) * gap
    slope = _values((bump**POWER_T).deriv(), m, u)  # gap cancels: d/dt = d/dtau / (m gap)
    stride = max(1, m // 2)

    def over_time(g: Tensor, weights: Tensor) -> Tensor:
        return g.unfold(1, 2 * m + 1, stride) @ weights  # (B,W,X)

    def over_space(g: Tensor, order: int) -> Tensor:
        kernel = _values((bump**POWER_X).deriv(order) if order else bump**POWER_X, n, u) * dx / (n * dx) ** order
        line = g.new_zeros(X)
        line[torch.arange(-n, n + 1, device=g.device) % X] = kernel
        found = torch.fft.irfft(torch.fft.rfft(g) * torch.fft.rfft(line).conj(), n=X)[..., :: max(1, n // 2)]
        return found.flatten(1)  # (B,S)

    held = {p: over_time(u**p, in_time) for p in (1, 2, 3)}
    left = over_space(over_time(u, -slope / m), 0)
    if force is not None:
        left = left - over_space(over_time(force, in_time), 0)
    return torch.stack([(-1) ** k * over_space(held[p], k) for p, k in CANDIDATES], 2), left


def _values(polynomial: Any, n: int, like: Tensor) -> Tensor:
    """At 2n+1 points from -1 to 1."""
    return torch.as_tensor(polynomial(np.linspace(-1, 1, 2 * n + 1))).to(like)


def sparse_solution(gram: Tensor, right: Tensor, square: float, threshold: float, title: str) -> Tensor:
    """W (M,L) of few terms.

    Columns are scaled to length 1 and the left-hand side too, so that a threshold is a share of it.  G = C C^T gives
    a small problem with the same solutions, |C^T W - C^-1 R|.
    """
    try:
        pysindy = importlib.import_module("pysindy")
    except ImportError:
        raise ConfigError(
            f'{title} is fitted by pysindy, which is not installed. Install it with: pip install "pdejepa[classical]"'
        ) from None
    size = right.numel()
    matrix = gram.reshape(size, size)
    scale = matrix.diagonal().sqrt().clamp(min=1e-300)
    matrix = matrix / (scale[:, None] * scale) + 1e-10 * torch.eye(size).double()
    factor = torch.linalg.cholesky(matrix)
    target = torch.linalg.solve_triangular(factor, (right.flatten() / scale / math.sqrt(square))[:, None], upper=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that all terms are below the threshold
        found = pysindy.STLSQ(threshold=threshold, alpha=1e-8).fit(factor.mT.numpy(), target.numpy())
    weights = torch.as_tensor(np.asarray(found.coef_)[0]).double()
    return (weights * math.sqrt(square) / scale).reshape(right.shape)


class FineWeakSindy(WeakSindy):
    card = dataclasses.replace(WeakSindy.card, name="weak_sindy_fine", title="Weak SINDy, fine frames")
    refine = REFINE


SOLVER = WeakSindy

"""Least squares through a forecast: which parameters make it meet observed frames.

    min over theta   |W (u_hat(theta) - u)|^2       phi in [0, 1]^K, the training range of every unknown parameter

Levenberg-Marquardt inside that box, from the best of many starts.

Letters: S starts, n observed frames after the first, C channels, *grid spatial axes, P parameters, K unknown ones,
M observed values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pdejepa.core.errors import DataError, ParameterError, did_you_mean
from pdejepa.forecast import request, sensitivity
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.systems.inputs import as_floats
from pdejepa.systems.problem import Parameter, Problem

N_STARTS = 24  # parameters that are tried before the descent begins
N_DESCENTS = 2  # of the best of them
N_ITERATIONS = 20
CLOSE = 1e-4  # of the training range: a shorter step ends a descent
FLAT = 1e-3  # so does a step that lowers the cost, in units of the log likelihood, by less
LOG_RATIO = 20.0  # positive ranges whose ends differ by this factor are searched on a logarithmic scale
FLOOR = 1e-3  # relative error that a forecast has at least


@dataclass
class Fit:
    """The end of a descent: coordinates (K,), under some values of the discrete parameters."""

    phi: Tensor
    cost: float
    choice: dict[str, float]


@dataclass
class Task:
    """Observed values, unknown parameters, and the forecasts between them."""

    model: Forecaster
    u: Tensor  # (1,H,C,*grid), where the forecast begins
    seen: Tensor  # (n,C,*grid), the other observed frames
    is_seen: Tensor  # (n,C,*grid)
    rows: Tensor  # (n,) which new frames they are, from 0
    unknown: list[str]
    known: dict[str, float]
    weights: Tensor  # (n,C,1..)
    n_forecasts: int = 0

    @classmethod
    def of(
        cls,
        model: Forecaster,
        frames: Any,
        unknown: Sequence[str] | None,
        known: Mapping[str, float],
        at: Sequence[int] | None,
        mask: Any,
    ) -> Task:
        problem, history = model.problem, model.surrogate.history
        fields = as_floats(problem, frames, "observed frames").cpu()
        frame = (len(problem.fields), *problem.grid)
        if fields.ndim == len(frame) and frame[0] == 1:
            fields = fields[:, None]
        if tuple(fields.shape[1:]) != frame or len(fields) <= history:
            raise DataError(
                f"{problem.name} expects observed frames as (T, {', '.join(map(str, frame))}) with T = {history + 1} "
                f"or more: {history} to begin with and at least one to compare with; got {tuple(fields.shape)}."
            )
        numbers = list(range(len(fields))) if at is None else [int(k) for k in at]
        if len(numbers) != len(fields) or numbers[:history] != list(range(history)) or sorted(set(numbers)) != numbers:
            raise DataError(
                f"at must number the {len(fields)} frames in ascending order, beginning with "
                f"{', '.join(map(str, range(history)))}; got {numbers[:8]}."
            )
        u = request.observed_frames(problem, fields[None, :history], history)
        seen, rows = fields[history:], torch.tensor(numbers[history:]) - history
        is_seen = seen.isfinite()
        if mask is not None:
            is_seen &= torch.as_tensor(mask).cpu().bool().expand(fields.shape)[history:]
        if not bool(is_seen.any()):
            raise DataError(f"{problem.name}: nothing was observed after the frames that a forecast begins with.")
        names = unknown_names(model, unknown, known)
        weights = torch.ones(len(seen), frame[0], *[1] * problem.ndim, dtype=torch.float64)
        return cls(model, u, seen.nan_to_num(), is_seen, rows, names, dict(known), weights)

    @property
    def parameters(self) -> dict[str, Parameter]:
        return {parameter.name: parameter for parameter in self.model.problem.parameters}

    @property
    def continuous(self) -> list[str]:
        return [name for name in self.unknown if not self.parameters[name].choices]

    @property
    def varied(self) -> list[int]:
        """Numbers of the continuous unknowns among all parameters."""
        return [self.model.problem.parameter_names.index(name) for name in self.continuous]

    @property
    def choices(self) -> list[dict[str, float]]:
        """Every combination of the unknown parameters that only take certain values; one empty one if there is none."""
        names = [name for name in self.unknown if self.parameters[name].choices]
        values = itertools.product(*(self.parameters[name].choices for name in names))
        return [dict(zip(names, combination, strict=True)) for combination in values]

    @property
    def n_frames(self) -> int:
        return int(self.rows.max()) + 1

    @property
    def rms(self) -> Tensor:
        """Of every channel over all that was observed, (C,1..)."""
        return rms_of(self.seen)

    def xi(self, phi: Tensor, choice: Mapping[str, float]) -> Tensor:
        """Parameters (S,P) at coordinates phi (S,K)."""
        named = {**self.known, **choice}
        columns = {name: value_at(self.parameters[name], phi[:, k]) for k, name in enumerate(self.continuous)}
        given = {name: torch.full((len(phi),), float(value), dtype=torch.float64) for name, value in named.items()}
        defaults = {
            p.name: torch.full((len(phi),), p.default, dtype=torch.float64)
            for p in self.model.problem.parameters
            if p.default is not None
        }
        found = {**defaults, **given, **columns}
        return torch.stack([found[name] for name in self.model.problem.parameter_names], 1)

    def weigh(self, noise: float, errors: Tensor | None) -> None:
        """Weights (n,C,1..) from the noise and the forecast's own relative error (n,C), both relative to the rms."""
        own = torch.full(self.weights.shape[:2], FLOOR, dtype=torch.float64) if errors is None else errors
        size = (noise**2 + own.clamp(min=FLOOR) ** 2).sqrt()
        self.weights = 1.0 / (size.reshape(self.weights.shape) * self.rms)

    def residuals(self, new: Tensor) -> Tensor:
        """Weighted differences (S,M) of new frames (S,n_frames,C,*grid) from what was observed."""
        chosen = new[:, self.rows].cpu().double()
        return ((chosen - self.seen) * self.weights)[:, self.is_seen].nan_to_num(1e3, 1e3, -1e3)

    def frames(self, xi: Tensor) -> Tensor:
        """New frames (S,n_frames,C,*grid) under parameters (S,P)."""
        u = self.u.expand(len(xi), *self.u.shape[1:])
        return sensitivity.frames(self.model, u, xi, self.n_frames)

    def derivatives(self, xi: Tensor) -> tuple[Tensor, Tensor]:
        """The same under one row of parameters (1,P), and derivatives (1,K,n_frames,C,*grid)."""
        return sensitivity.derivatives(self.model, self.u, xi, self.n_frames, self.varied)

    def costs(self, phi: Tensor, choice: Mapping[str, float]) -> Tensor:
        """Half of the sum of squares (S,)."""
        self.n_forecasts += len(phi)
        return self.residuals(self.frames(self.xi(phi, choice))).square().sum(1) / 2

    def linearised(self, phi: Tensor, choice: Mapping[str, float]) -> tuple[Tensor, Tensor]:
        """Residuals (M,) at phi (K,) and their derivatives (M,K)."""
        self.n_forecasts += 1 + len(phi)
        value, slopes = self.derivatives(self.xi(phi[None], choice))
        scales = torch.stack([slope_at(self.parameters[name], phi[k]) for k, name in enumerate(self.continuous)])
        J = (slopes[0][:, self.rows].cpu().double() * self.weights)[:, self.is_seen] * scales[:, None]  # (K,M)
        return self.residuals(value)[0], J.T.nan_to_num()

    def jacobian(self, fit: Fit) -> Tensor:
        return self.linearised(fit.phi, fit.choice)[1]

    def misfit(self, fit: Fit) -> float:
        """Relative L2 distance from what was observed, channels by their rms."""
        new = self.frames(self.xi(fit.phi[None], fit.choice))
        apart = ((new[0, self.rows].cpu().double() - self.seen) / self.rms)[self.is_seen]
        return float((apart.square().sum() / (self.seen / self.rms)[self.is_seen].square().sum()).sqrt())


def unknown_names(model: Forecaster, unknown: Sequence[str] | None, known: Mapping[str, float]) -> list[str]:
    """The names to find, in declared order; every other parameter must be known or have a default."""
    problem = model.problem
    names = list(problem.parameter_names)
    for name in (*(unknown or ()), *known):
        if name not in names:
            hint = did_you_mean(name, names) or "."
            raise ParameterError(f"{problem.name} has no parameter {name!r}{hint} It has {', '.join(names)}.")
    wanted = [name for name in names if (name in unknown if unknown is not None else name not in known)]
    twice = [name for name in wanted if name in known]
    if twice:
        raise ParameterError(f"{twice[0]} is both known and unknown. Say one of them.")
    missing = [p.name for p in problem.parameters if p.name not in (*wanted, *known) and p.default is None]
    if missing:
        raise ParameterError(f"{problem.name} needs {', '.join(missing)} too: give known values, or name them unknown.")
    if not wanted:
        raise ParameterError(f"{problem.name}: nothing is unknown. Name a parameter: {', '.join(names)}.")
    return wanted


def findable(problem: Problem) -> list[str]:
    """The parameters that one would look for: those without a usual value, such as that of an absent forcing."""
    return [parameter.name for parameter in problem.parameters if parameter.default is None]


def checked_noise(noise: float) -> float:
    if not (math.isfinite(noise) and 0 <= noise < 10):
        raise ParameterError(f"noise is relative to the rms of a channel, 0.01 for 1 %; got {noise!r}.")
    return float(noise)


def rms_of(fields: Tensor) -> Tensor:
    """Of every channel of frames (n,C,*grid), (C,1..)."""
    dims = (0, *range(2, fields.ndim))
    return fields.double().square().mean(dims, keepdim=True)[0].sqrt().clamp(min=1e-30)


# ---- coordinates -------------------------------------------------------------------------------------------------
def is_log(parameter: Parameter) -> bool:
    """Whether a parameter is searched on a logarithmic scale."""
    low, high = parameter.train
    return low > 0 and (parameter.law.startswith("log") or high / low >= LOG_RATIO)


def value_at(parameter: Parameter, phi: Tensor) -> Tensor:
    """The parameter at a coordinate; [0, 1] is its training range."""
    low, high = parameter.train
    if is_log(parameter):
        return low * torch.exp(phi.double() * math.log(high / low))
    return low + phi.double() * (high - low)


def slope_at(parameter: Parameter, phi: Tensor) -> Tensor:
    low, high = parameter.train
    if is_log(parameter):
        return value_at(parameter, phi) * math.log(high / low)
    return torch.tensor(high - low, dtype=torch.float64)


def coordinate(parameter: Parameter, value: float) -> float:
    """Where a value lies in its training range, 0 to 1 inside."""
    low, high = parameter.train
    return math.log(value / low) / math.log(high / low) if is_log(parameter) else (value - low) / (high - low)


# ---- descent -----------------------------------------------------------------------------------------------------
def fit_choice(task: Task, choice: dict[str, float], report: Callable[[str], object]) -> Fit:
    """The best of some descents from the best of many starts."""
    n = len(task.continuous)
    if n == 0:
        return Fit(torch.zeros(0, dtype=torch.float64), float(task.costs(torch.zeros(1, 0), choice)[0]), choice)
    starts = torch.quasirandom.SobolEngine(n, scramble=True, seed=0).draw(N_STARTS).double()
    costs = task.costs(starts, choice)
    fits = [_descend(task, starts[i], choice, report) for i in costs.argsort()[:N_DESCENTS].tolist()]
    return min(fits, key=lambda fit: fit.cost)


def _descend(task: Task, phi: Tensor, choice: dict[str, float], report: Callable[[str], object]) -> Fit:
    """Levenberg-Marquardt inside the box [0, 1]^K."""
    damping, cost = 1e-2, math.inf
    for number in range(N_ITERATIONS):
        r, J = task.linearised(phi, choice)
        cost = float(r.square().sum() / 2)
        report(f"step {number + 1}: {_told(task, phi)}, cost {cost:.4g}")
        step, damping, lower = _step(task, phi, choice, (r, J, cost), damping)
        if step is None:
            break
        gain, phi, cost = cost - lower, phi + step, lower
        if gain < FLAT or float(step.abs().max()) < CLOSE:
            break
    return Fit(phi, cost, choice)


def _step(
    task: Task, phi: Tensor, choice: dict[str, float], here: tuple[Tensor, Tensor, float], damping: float
) -> tuple[Tensor | None, float, float]:
    """A step that lowers the cost, the damping for the next one, and the cost there; None if none was found.

    Coordinates that stand at an end of the box and would leave it stay where they are.
    """
    r, J, cost = here
    g = J.T @ r
    free = ((phi > 0) | (g < 0)) & ((phi < 1) | (g > 0))  # (K,)
    if not bool(free.any()):
        return None, damping, cost
    A = J[:, free].T @ J[:, free]
    for _ in range(8):
        scaled = A + damping * torch.diag(A.diagonal().clamp(min=1e-12 * float(A.diagonal().max()) + 1e-300))
        step = torch.zeros_like(phi)
        step[free] = -torch.linalg.solve(scaled, g[free])
        step = (phi + step).clamp(0.0, 1.0) - phi
        lower = float(task.costs((phi + step)[None], choice)[0])
        if lower < cost:
            return step, max(damping / 5, 1e-9), lower
        if float(step.abs().max()) < CLOSE:
            break
        damping *= 6
    return None, damping, cost


def _told(task: Task, phi: Tensor) -> str:
    values = [float(value_at(task.parameters[name], phi[k])) for k, name in enumerate(task.continuous)]
    return ", ".join(f"{name} {value:.4g}" for name, value in zip(task.continuous, values, strict=True))

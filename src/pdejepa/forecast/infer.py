"""Parameters from observed frames: least squares through the forecast, with intervals that hold.

    min over theta   |W (u_hat(theta) - u)|^2,      1/W^2 = noise^2 + (the forecast's own error)^2

by Levenberg-Marquardt in coordinates where the training range of every parameter is [0, 1], from the best of many
starts.  The errors of a forecast are alike from point to point, so a Hessian alone would promise far too much.
Intervals are calibrated instead: the same linearised estimate is made on trajectories of `valid` with known parameters,
the same frames, mask and noise, and the spread of its errors scales the Hessian's standard deviations.

Letters: S starts, n new frames, C channels, *grid spatial axes, P parameters, K unknown ones, M observed values.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import torch
from torch import Tensor

from pdejepa.core.errors import DataError
from pdejepa.forecast import sensitivity
from pdejepa.forecast.denoise import FirstFrames
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.forecast.interface import Forecast
from pdejepa.forecast.least_squares import FLOOR, Fit, Task, checked_noise, coordinate, fit_choice, slope_at, value_at

N_CALIBRATION = 12  # trajectories with known parameters
SPREAD = 1 / math.sqrt(12)  # standard deviation of knowing no more than the training range
VAGUE = 0.5  # of it: above, a parameter counts as not identifiable
EDGE = 1e-3  # of the training range: nearer to its ends is at the border
Outcome = Literal["ok", "not identifiable", "at the border of the training range"]


@dataclass(frozen=True)
class Estimate:
    """One parameter.  low and high: the interval that holds the truth in `level` of the cases; nan for choices."""

    name: str
    value: float
    sd: float
    low: float
    high: float
    train: tuple[float, float]
    outcome: Outcome

    def to_dict(self) -> dict[str, Any]:
        """Numbers that are not known are None."""
        plain = dataclasses.asdict(self)
        return {word: None if isinstance(v, float) and math.isnan(v) else v for word, v in plain.items()}

    @property
    def sentence(self) -> str:
        told = "" if self.outcome == "ok" else f": {self.outcome}"
        interval = "" if math.isnan(self.low) else f" [{self.low:.4g}, {self.high:.4g}]"
        return f"{self.name} = {self.value:.5g}{interval}{told}"


@dataclass(frozen=True, repr=False)
class Inference:
    """What observed frames say about parameters.

    correlation: (K,K) of the continuous unknowns in the coordinates of the search     level: of the intervals
    misfit: relative L2 distance of the fitted forecast from what was observed         forecast: under the estimate
    noise: standard deviation of the measurement, relative to the rms of a channel, as given or as estimated
    alternatives: misfit of every combination of parameters that only take certain values
    """

    estimates: tuple[Estimate, ...]
    correlation: Tensor
    level: float
    misfit: float
    noise: float
    forecast: Forecast
    n_forecasts: int
    seconds: float
    alternatives: tuple[tuple[dict[str, float], float], ...] = ()

    def __getitem__(self, name: str) -> Estimate:
        return next(estimate for estimate in self.estimates if estimate.name == name)

    def __repr__(self) -> str:
        return f"<Inference: {'; '.join(e.sentence for e in self.estimates)}. Misfit {100 * self.misfit:.3g}%.>"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words."""
        return {
            "parameters": {e.name: e.to_dict() for e in self.estimates},
            "level": self.level,
            "correlation": self.correlation.tolist(),
            "misfit": self.misfit,
            "noise": self.noise,
            "alternatives": [{"parameters": named, "misfit": value} for named, value in self.alternatives],
            "n_forecasts": self.n_forecasts,
            "seconds": round(self.seconds, 2),
        }


def infer(
    model: Forecaster,
    frames: Any,
    unknown: Sequence[str] | None = None,
    known: Mapping[str, float] | None = None,
    *,
    at: Sequence[int] | None = None,
    noise: float | None = None,
    mask: Any = None,
    level: float = 0.9,
    report: Callable[[str], object] = lambda _: None,
) -> Inference:
    """Parameters of one trajectory from some of its frames (T,C,*grid), in physical units.

    frames: those that a forecast begins with (one, or two for waves), then any others; values that are NaN, or False in
    `mask` (T,C,*grid), were not observed.  at: numbers of all frames, 0, 1, .. if not given.
    unknown: names to find; if not given, all that are not `known`.
    noise: standard deviation of the measurement, relative to the rms of each channel; estimated if not given.
    """
    began = time.perf_counter()
    task = Task.of(model, frames, unknown, known or {}, at, mask)
    law = FirstFrames.of(model.system, model.surrogate.history)
    task.u, sd = law.filtered(task.u, None if noise is None else checked_noise(noise) * task.rms)
    spread = float((sd / task.rms).mean()) if noise is None else noise
    report(f"calibrating on {N_CALIBRATION} trajectories with known parameters")
    calibration = _calibrate(task, law, spread) if task.varied else None
    task.weigh(spread, calibration.errors if calibration is not None else None)
    fits = [fit_choice(task, choice, report) for choice in task.choices]
    best = min(fits, key=lambda fit: fit.cost)
    result = model.forecast(task.u, task.xi(best.phi[None], best.choice), n_frames=task.n_frames)
    misfit = task.misfit(best)
    covariance, estimates = torch.zeros(0, 0, dtype=torch.float64), []
    if calibration is not None:
        covariance = _covariance(task.jacobian(best))
        estimates = _continuous(task, best, covariance, calibration, level)
    discrete = _discrete(task, fits, best)
    sd = covariance.diagonal().sqrt()
    return Inference(
        estimates=tuple(sorted((*estimates, *discrete), key=lambda e: task.unknown.index(e.name))),
        correlation=covariance / torch.outer(sd, sd),
        level=level,
        misfit=misfit,
        noise=spread,
        forecast=result,
        n_forecasts=task.n_forecasts,
        seconds=time.perf_counter() - began,
        alternatives=tuple((fit.choice, task.misfit(fit)) for fit in fits) if len(fits) > 1 else (),
    )


# ---- how sure ----------------------------------------------------------------------------------------------------
@dataclass
class _Calibration:
    """errors: of the forecast on valid, relative to the rms, (n,C).

    ratios: |error| / standard deviation of the linearised estimates, (N,K).
    """

    errors: Tensor
    ratios: Tensor

    @property
    def inflation(self) -> Tensor:
        """What the standard deviations of the Hessian are to be multiplied with, (K,); never less than 1."""
        return self.ratios.square().mean(0).sqrt().clamp(min=1.0)

    def factor(self, level: float) -> Tensor:
        """How many standard deviations hold the truth in `level` of the cases, (K,); never fewer than without error."""
        n = len(self.ratios)
        rank = min(n, math.ceil((n + 1) * level)) - 1
        return self.ratios.sort(0).values[rank].clamp(min=NormalDist().inv_cdf((1 + level) / 2))


def _calibrate(task: Task, law: FirstFrames, noise: float) -> _Calibration:
    """Linearised estimates on trajectories of valid, seen like those of the task."""
    model, history = task.model, task.model.surrogate.history
    made = model.system.generate("valid", N_CALIBRATION)
    draws = torch.Generator().manual_seed(0)
    size = made.fields.double().square().mean((0, 1, *range(3, made.fields.ndim)), keepdim=True).sqrt()
    noisy = made.fields + noise * size * torch.randn(made.fields.shape, generator=draws)
    u, rows = noisy[:, :history].float(), task.rows
    u = law.filtered(u, noise * size[0, 0])[0]
    if int(rows.max()) + history >= made.fields.shape[1]:
        raise DataError(
            f"Frames up to number {int(rows.max()) + history} were given; intervals are calibrated on trajectories of "
            f"{made.fields.shape[1]} frames. Leave the later ones out."
        )
    value, slopes = sensitivity.derivatives(model, u, made.xi, task.n_frames, task.varied)
    value, slopes = value[:, rows].double(), slopes[:, :, rows].double()
    truth = made.fields[:, history:][:, rows].double()
    rms = truth.square().mean((1, *range(3, truth.ndim)), keepdim=True).sqrt().clamp(min=1e-30)  # (N,1,C,1..)
    errors = ((value - truth) / rms).square().flatten(3).mean(3).mean(0).sqrt()  # (n,C)
    weights = 1.0 / ((noise**2 + errors.clamp(min=FLOOR) ** 2).sqrt().reshape(task.weights.shape) * rms)
    apart = (value - noisy[:, history:][:, rows]) * weights  # (N,n,C,*grid)
    named = model.problem.named(made.xi)
    ratios = []
    for i in range(len(value)):
        scales = [
            slope_at(task.parameters[name], torch.tensor(coordinate(task.parameters[name], float(named[name][i]))))
            for name in task.continuous
        ]
        J = (slopes[i] * weights[i])[:, task.is_seen].T * torch.stack(scales)  # (M,K)
        covariance = _covariance(J)
        ratios.append((covariance @ J.T @ apart[i][task.is_seen]).abs() / covariance.diagonal().sqrt())
    return _Calibration(errors, torch.stack(ratios))


def _covariance(J: Tensor) -> Tensor:
    """(J^T J)^-1 of weighted derivatives (M,K), with the training range as what is known beforehand."""
    prior = torch.eye(J.shape[1], dtype=torch.float64) / SPREAD**2
    return torch.linalg.inv(J.T @ J + prior)


def _continuous(
    task: Task, fit: Fit, covariance: Tensor, calibration: _Calibration, level: float
) -> list[Estimate]:
    sd = covariance.diagonal().sqrt()
    spread, half = calibration.inflation * sd, calibration.factor(level) * sd  # (K,) each
    found = []
    for k, name in enumerate(task.continuous):
        parameter, phi = task.parameters[name], fit.phi[k]
        outcome: Outcome = "ok"
        if float(spread[k]) > VAGUE * SPREAD:
            outcome = "not identifiable"
        elif float(phi) < EDGE or float(phi) > 1 - EDGE:
            outcome = "at the border of the training range"
        low, high = (float(value_at(parameter, end)) for end in (phi - half[k], phi + half[k]))
        value = float(value_at(parameter, phi))
        width = float(spread[k] * slope_at(parameter, phi))
        found.append(Estimate(name, value, width, low, high, (parameter.train[0], parameter.train[1]), outcome))
    return found


def _discrete(task: Task, fits: Sequence[Fit], best: Fit) -> list[Estimate]:
    """Values of the best combination; not identifiable where another one fits nearly as well."""
    if not best.choice:
        return []
    others = [task.misfit(fit) for fit in fits if fit is not best]
    is_clear = not others or min(others) > 1.5 * task.misfit(best)
    outcome: Outcome = "ok" if is_clear else "not identifiable"
    ends = [(min(task.parameters[n].choices), max(task.parameters[n].choices)) for n in best.choice]
    return [
        Estimate(name, value, math.nan, math.nan, math.nan, end, outcome)
        for (name, value), end in zip(best.choice.items(), ends, strict=True)
    ]

"""Parameters from observed frames: least squares through the forecast, with intervals that hold.

    min over theta   |W (u_hat(theta) - u)|^2,      1/W^2 = noise^2 + (the forecast's own error)^2

by Levenberg-Marquardt in coordinates where the training range of every parameter is [0, 1], from the best of many
starts.  The errors of a forecast are alike from point to point, so a Hessian alone would promise far too much.
Intervals are calibrated instead: the same linearised estimate is made on trajectories of `valid` with known parameters,
the same frames, mask and noise, and the spread of its errors scales the Hessian's standard deviations.

Letters: T frames, C channels, *grid spatial axes, K unknown parameters.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from pdejepa.core.errors import UsageError
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.forecast.interface import Forecast
from pdejepa.forecast.known_examples import SPREAD, Examples, posterior
from pdejepa.forecast.least_squares import Fit, Task, checked_noise, fit_choice, slope_at, value_at

VAGUE = 0.5  # of it: above, a parameter counts as not identifiable
LEVELS = (0.5, 0.9)  # of intervals that are always told
EDGE = 1e-3  # of the training range: nearer to its ends is at the border
Outcome = Literal["ok", "not identifiable", "at the border of the training range", "another is at the border"]
BORDER: Outcome = "at the border of the training range"


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
    intervals: (low, high) of the continuous unknowns by level: .5, .9 and `level`
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
    intervals: dict[float, dict[str, tuple[float, float]]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Estimate:
        return next(estimate for estimate in self.estimates if estimate.name == name)

    def __repr__(self) -> str:
        return f"<Inference: {'; '.join(e.sentence for e in self.estimates)}. Misfit {100 * self.misfit:.3g}%.>"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words."""
        told = self.intervals.items()
        return {
            "parameters": {e.name: e.to_dict() for e in self.estimates},
            "level": self.level,
            "intervals": {f"{level:g}": {name: list(ends) for name, ends in own.items()} for level, own in told},
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
    examples: Examples | None = None,
    report: Callable[[str], object] = lambda _: None,
) -> Inference:
    """Parameters of one trajectory from some of its frames (T,C,*grid), in physical units.

    frames: those that a forecast begins with (one, or two for waves), then any others; values that are NaN, or False in
    `mask` (T,C,*grid), were not observed.  at: numbers of all frames, 0, 1, .. if not given.
    unknown: names to find; if not given, all that are not `known`.
    noise: standard deviation of the measurement, relative to the rms of each channel; estimated if not given.
    examples: trajectories to calibrate on, `Examples(model, data)` where the model's system is not known.
    """
    if not 0 < level < 1:
        raise UsageError(f"level is the share of cases that an interval holds in, between 0 and 1; got {level!r}.")
    began = time.perf_counter()
    task = Task.of(model, frames, unknown, known or {}, at, mask)
    examples = examples or Examples(model)
    task.u, sd = examples.law.filtered(task.u, None if noise is None else checked_noise(noise) * task.rms)
    spread = float((sd / task.rms).mean()) if noise is None else noise
    report(f"calibrating on {len(examples.known[1])} trajectories with known parameters")
    calibration = examples.calibration(task, spread) if task.varied else None
    task.weigh(spread, calibration.errors if calibration is not None else None)
    fits = [fit_choice(task, choice, report) for choice in task.choices]
    best = min(fits, key=lambda fit: fit.cost)
    result = model.forecast(task.u, task.xi(best.phi[None], best.choice), n_frames=task.n_frames)
    misfit = task.misfit(best)
    covariance, estimates = torch.zeros(0, 0, dtype=torch.float64), []
    intervals: dict[float, dict[str, tuple[float, float]]] = {}
    if calibration is not None:
        covariance = posterior(task.jacobian(best))
        deviations = covariance.diagonal().sqrt()
        intervals = {one: _ends(task, best, calibration.factor(one) * deviations) for one in {*LEVELS, level}}
        estimates = _continuous(task, best, calibration.inflation * deviations, intervals[level])
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
        intervals=dict(sorted(intervals.items())),
    )


# ---- how sure ----------------------------------------------------------------------------------------------------
def _ends(task: Task, fit: Fit, half: Tensor) -> dict[str, tuple[float, float]]:
    """Intervals of half a width (K,) in the coordinates of the search."""
    found = {}
    for k, name in enumerate(task.continuous):
        low, high = (float(value_at(task.parameters[name], fit.phi[k] + sign * half[k])) for sign in (-1, 1))
        found[name] = (low, high)
    return found


def _continuous(task: Task, fit: Fit, spread: Tensor, ends: Mapping[str, tuple[float, float]]) -> list[Estimate]:
    """Estimates with their standard deviations (K,) in the coordinates of the search."""
    found = []
    for k, name in enumerate(task.continuous):
        parameter, phi = task.parameters[name], fit.phi[k]
        outcome: Outcome = "ok"
        if float(spread[k]) > VAGUE * SPREAD:
            outcome = "not identifiable"
        elif float(phi) < EDGE or float(phi) > 1 - EDGE:
            outcome = BORDER
        value, width = float(value_at(parameter, phi)), float(spread[k] * slope_at(parameter, phi))
        range_ = (parameter.train[0], parameter.train[1])
        found.append(Estimate(name, value, width, *ends[name], range_, outcome))
    if any(estimate.outcome == BORDER for estimate in found):  # what that one may not do, the others do instead
        found = [replace(one, outcome="another is at the border") if one.outcome == "ok" else one for one in found]
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

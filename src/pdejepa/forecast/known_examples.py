"""What inference learns from trajectories with known parameters: what first frames look like, and how far off it is.

    examples = Examples(model)              made by the model's system
    examples = Examples(model, data)        of a data set, or arrays in memory
    infer(model, frames, examples=examples)   ... many times: nothing is computed twice

A linearised estimate is made on trajectories of `valid` whose parameters are known, from the same frames and points as
were observed and under the same noise.  Its errors, in units of the standard deviation that the Hessian promises, say
how wide an interval must be.

Letters: N examples, n new frames, C channels, *grid spatial axes, P parameters, K unknown ones, M observed values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pdejepa.core.errors import DataError
from pdejepa.forecast import sensitivity
from pdejepa.forecast.denoise import N_SAMPLED, FirstFrames
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.forecast.least_squares import FLOOR, Task, coordinate, slope_at

if TYPE_CHECKING:
    from pdejepa.data.source import Trajectories

N_CALIBRATION = 12  # trajectories with known parameters
SPREAD = 1 / math.sqrt(12)  # standard deviation of knowing no more than the training range
FEWEST = 3  # trajectories of which the spread of errors can be told


@dataclass(frozen=True)
class Calibration:
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


@dataclass
class Examples:
    """Trajectories of train and valid.  Calibrations for frames that were seen whole are kept."""

    model: Forecaster
    data: Trajectories | None = None
    kept: dict[tuple[object, ...], Calibration] = field(default_factory=dict)

    @cached_property
    def law(self) -> FirstFrames:
        """What first frames of train look like."""
        history = self.model.surrogate.history
        if self.data is None:
            return FirstFrames.of(self.model.system, history)
        n = min(N_SAMPLED, self.data.n("train"))
        return FirstFrames.fitted(self.data.block("train", 0, n).fields[:, :history])

    @cached_property
    def known(self) -> tuple[Tensor, Tensor]:
        """Fields (N,T,C,*grid) and parameters (N,P) of valid."""
        if self.data is None:
            made = self.model.system.generate("valid", N_CALIBRATION)
            return made.fields, made.xi
        n = min(N_CALIBRATION, self.data.n("valid"))
        if n < FEWEST:
            raise DataError(f"Intervals need {FEWEST} trajectories in valid; {self.data.name} has {n}.")
        found = self.data.block("valid", 0, n)
        return found.fields, found.xi

    def calibration(self, task: Task, noise: float) -> Calibration:
        """For what was observed in a task, and noise relative to the rms."""
        key = (*task.rows.tolist(), "of", *task.varied, noise)
        if not bool(task.is_seen.all()):
            return self._calibrated(task, noise)
        if key not in self.kept:
            self.kept[key] = self._calibrated(task, noise)
        return self.kept[key]

    def _calibrated(self, task: Task, noise: float) -> Calibration:
        model, history, rows = self.model, self.model.surrogate.history, task.rows
        fields, xi = self.known
        if int(rows.max()) + history >= fields.shape[1]:
            raise DataError(
                f"Frames up to number {int(rows.max()) + history} were given; intervals are calibrated on "
                f"trajectories of {fields.shape[1]} frames. Leave the later ones out."
            )
        draws = torch.Generator().manual_seed(0)
        size = fields.double().square().mean((0, 1, *range(3, fields.ndim)), keepdim=True).sqrt()
        noisy = fields + noise * size * torch.randn(fields.shape, generator=draws)
        u = self.law.filtered(noisy[:, :history].float(), noise * size[0, 0])[0]
        value, slopes = sensitivity.derivatives(model, u, xi, task.n_frames, task.varied)
        value, slopes = value[:, rows].double(), slopes[:, :, rows].double()
        truth = fields[:, history:][:, rows].double()
        rms = truth.square().mean((1, *range(3, truth.ndim)), keepdim=True).sqrt().clamp(min=1e-30)  # (N,1,C,1..)
        errors = ((value - truth) / rms).square().flatten(3).mean(3).mean(0).sqrt()  # (n,C)
        weights = 1.0 / ((noise**2 + errors.clamp(min=FLOOR) ** 2).sqrt().reshape(task.weights.shape) * rms)
        apart = (value - noisy[:, history:][:, rows]) * weights  # (N,n,C,*grid)
        named, ratios = model.problem.named(xi), []
        for i in range(len(value)):
            places = [(task.parameters[name], float(named[name][i])) for name in task.continuous]
            scales = [slope_at(one, torch.tensor(coordinate(one, there))) for one, there in places]
            J = (slopes[i] * weights[i])[:, task.is_seen].T * torch.stack(scales)  # (M,K)
            covariance = posterior(J)
            ratios.append((covariance @ J.T @ apart[i][task.is_seen]).abs() / covariance.diagonal().sqrt())
        return Calibration(errors, torch.stack(ratios))


def posterior(J: Tensor) -> Tensor:
    """(J^T J)^-1 of weighted derivatives (M,K), with the training range as what is known beforehand."""
    prior = torch.eye(J.shape[1], dtype=torch.float64) / SPREAD**2
    return torch.linalg.inv(J.T @ J + prior)

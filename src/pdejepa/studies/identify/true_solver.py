"""The optimiser of `infer` with the true solver in place of the forecast.

Frames after the first come from the system's solver, started from the same filtered frame; derivatives are central
differences.  Weights know the noise alone.

Letters: S starts, n new frames, C channels, *grid spatial axes, P parameters, K unknown ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pdejepa.forecast.forecaster import Forecaster
from pdejepa.forecast.known_examples import Examples
from pdejepa.forecast.least_squares import Fit, Task, coordinate, fit_choice, slope_at, value_at

CHEAP = ("advection", "burgers", "combined", "gray_scott", "heat")  # milliseconds for a trajectory
STEP = 1e-4  # of the training range, of the differences


@dataclass
class SolverTask(Task):
    """Observed values, unknown parameters, and the solver between them."""

    def frames(self, xi: Tensor) -> Tensor:
        system = self.model.system
        u = self.u[:, -1].double().expand(len(xi), *self.u.shape[2:])
        times = system.times[1 : 1 + self.n_frames]
        return system.solve(u, xi, times=times, t0=float(system.times[0])).as_subclass(Tensor)

    def derivatives(self, xi: Tensor) -> tuple[Tensor, Tensor]:
        """Central differences in the coordinates of the search; one-sided where the parameter has its limit."""
        rows, widths = [xi], []
        for k, column in enumerate(self.varied):
            parameter = self.parameters[self.continuous[k]]
            here = xi[0, column]
            step = STEP * float(slope_at(parameter, self._place(k, float(here))))
            low, high = max(float(here) - step, parameter.limits[0]), min(float(here) + step, parameter.limits[1])
            for end in (low, high):
                row = xi.clone()
                row[0, column] = end
                rows.append(row)
            widths.append(high - low)
        made = self.frames(torch.cat(rows))
        pairs = made[1:].unflatten(0, (len(widths), 2))  # (K,2,n,C,*grid)
        width = torch.tensor(widths, dtype=made.dtype).reshape(-1, *[1] * (made.ndim - 1))
        return made[:1], ((pairs[:, 1] - pairs[:, 0]) / width)[None]

    def _place(self, k: int, value: float) -> Tensor:
        return torch.tensor(coordinate(self.parameters[self.continuous[k]], value))


def can_start(model: Forecaster) -> bool:
    """Whether one frame is a state of the model's system, and its solver is cheap."""
    problem = model.problem
    return problem.name in CHEAP and problem.structure.time_order == 1 and model.surrogate.history == 1


def fitted(
    model: Forecaster,
    frames: Tensor,
    unknown: Sequence[str],
    known: Mapping[str, float],
    noise: float,
    examples: Examples,
) -> dict[str, float]:
    """The parameters under which the solver meets the observed frames (T,C,*grid) best."""
    task = SolverTask.of(model, frames, unknown, known, None, None)
    task.u = examples.law.filtered(task.u, noise * task.rms)[0]
    task.weigh(noise, None)
    best: Fit = fit_choice(task, {}, lambda _: None)
    return {name: float(value_at(task.parameters[name], best.phi[k])) for k, name in enumerate(task.continuous)}

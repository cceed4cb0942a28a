"""A fitted solver in use: physical units in and out, and an outcome for every row; divergence is not an exception.

A solver for unit amplitude is told fields divided by their size, and the parameters of those.
Nor are frames, parameters or support that are not finite: such a row is lost from its first new frame on.
Letters: B rows, H observed frames, n new frames, K support trajectories, C channels, *grid spatial axes, P parameters.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pdejepa.baselines.baseline import Baseline
from pdejepa.core.arrays import as_count
from pdejepa.core.device import full_precision, without_new_code
from pdejepa.core.errors import ConfigError, DataError, ExtrapolationWarning, ParameterError
from pdejepa.forecast import request
from pdejepa.forecast.header import system_of
from pdejepa.forecast.interface import Card, Forecast, Outcome
from pdejepa.forecast.support import Support, judge
from pdejepa.models.amplitude import amplitude, rescale
from pdejepa.systems import System
from pdejepa.systems.inputs import as_floats, as_floats64, as_trajectories, check_columns, trajectories
from pdejepa.systems.problem import Problem

FIELD_SPREADS = 100.0  # a value this many standard deviations from the mean of train counts as divergence


def forecast(
    solver: Baseline,
    u: Any,
    xi: Any,
    n_frames: int,
    support: Any = None,
    generator: torch.Generator | None = None,
) -> Forecast:
    """Forecast n new frames from u (B,H,C,*grid) under xi (B,P), with support (B,K,T,C,*grid); physical units.

    Tensors or arrays of any type of number.  The fields are on the CPU if u was an array, else on its device.
    """
    given, n = _checked(solver, u, xi, support), _checked_frames(n_frames)
    seen, device = given["u"], solver.xi_mean.device
    mean, std = solver.task.statistics.moments(solver.task.ndim, device)
    begun = _now(device)
    told, size = _sized(solver, {name: value.to(device) for name, value in given.items()})
    told, is_lost = _told(solver, told, mean, std)
    with full_precision(device), without_new_code(device):
        state = solver.adapt(told.get("support"), told.get("xi"), generator)  # may need gradients
        adapted = _now(device)
        with torch.no_grad():
            new = solver.rollout(told["u"], state, n, generator)
    done = _now(device)
    is_bad = ~(new.flatten(2).abs().amax(-1) < FIELD_SPREADS) | is_lost[:, None]
    is_gone = is_bad.cumsum(1) > 0  # and all that follow, (B,n)
    fields = ((new * std + mean) * size).masked_fill(is_gone.reshape(*is_gone.shape, *[1] * (new.ndim - 2)), torch.nan)
    problem, total = solver.task.problem, seen.shape[1] + n
    return Forecast(
        problem=problem,
        fields=torch.cat((seen, fields.to(seen.device)), 1),
        times=problem.times[0] + problem.frame_gap * torch.arange(total, dtype=torch.float64),
        xi=given.get("xi"),
        n_observed=seen.shape[1],
        support=_support(solver, given.get("xi"), total),
        outcome=tuple(Outcome.of(seen.shape[1] + n_good, total) for n_good in (~is_gone).sum(1).tolist()),
        seconds=done - begun,
        adapt_seconds=adapted - begun,
    )


def _support(solver: Baseline, xi: Tensor | None, n_frames: int) -> Support:
    """Whether the parameters that a solver reads, and the length, are like the training data's."""
    told = solver.task.problem.named(xi) if xi is not None and "xi" in solver.card.reads else {}
    ranges = {name: solver.task.statistics.ranges[name] for name in told}
    return judge(told, ranges, n_frames, solver.task.n_frames, declared=solver.task.problem.parameters)


def encode(solver: Baseline, u: Any) -> Tensor:
    """Representations (B,T',N,D) of trajectories u (B,T,C,*grid) in physical units, for solvers that have any."""
    _check_solver(solver)
    device = solver.xi_mean.device
    values = trajectories(solver.task.problem, u).to(device)
    mean, std = solver.task.statistics.moments(solver.task.ndim, device)
    told, _ = _sized(solver, {"u": values})
    with torch.no_grad(), full_precision(device), without_new_code(device):
        return solver.encode((told["u"] - mean) / std)


def _sized(solver: Baseline, given: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """What is given, divided by the size (B,1,1,1..) of its rows where the solver is for unit amplitude; and sizes."""
    u, problem = given["u"], solver.task.problem
    if solver.task.amplitude == "as_is":
        return given, u.new_ones((1,) * u.ndim)
    size = amplitude(u)  # (B,)
    divisor = size.to(u.dtype).reshape(-1, *[1] * (u.ndim - 1))
    sized = {**given, "u": u / divisor}
    if "xi" in given:
        sized["xi"] = rescale(problem, given["xi"], 1.0 / size)
    if "support" in given:
        sized["support"] = given["support"] / divisor[:, None]
    return sized, divisor


def _told(solver: Baseline, given: dict[str, Tensor], mean: Tensor, std: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """What the solver is told, fields standardised; and which rows (B,) are lost because it is not finite.

    Those rows are told the mean of train instead, because some solvers make numbers of anything, or fail for all rows.
    """
    told = {name: value if name == "xi" else (value - mean) / std for name, value in given.items()}
    read = [name for name in told if name == "u" or name in solver.card.reads]
    is_lost = torch.stack([~told[name].flatten(1).isfinite().all(1) for name in read]).any(0)
    for name in read:
        rows = is_lost.reshape(-1, *[1] * (told[name].ndim - 1))
        told[name] = torch.where(rows, solver.xi_mean if name == "xi" else 0.0, told[name])
    return told, is_lost


class PublishedSolver:
    """A trained published solver, as `pdejepa.load` returns it.  `recipe`: the one that it was made by."""

    def __init__(self, network: Baseline, recipe: str) -> None:
        _check_solver(network)
        self.network, self.recipe = network, recipe

    @property
    def card(self) -> Card:
        return self.network.card

    @property
    def problem(self) -> Problem:
        return self.network.task.problem

    @property
    def system(self) -> System:
        """The system that made the training data, with its solver and random laws."""
        return system_of(self.problem)

    @property
    def device(self) -> torch.device:
        return self.network.xi_mean.device

    def forecast(
        self,
        u0: Any,
        xi: Any | Mapping[str, Any] | None = None,
        *,
        n_frames: int | None = None,
        support: Any = None,
        generator: torch.Generator | None = None,
        **named: Any,
    ) -> Forecast:
        """Forecast from one frame (C,*grid), frames (B,C,*grid) or trajectories (B,H,C,*grid) in physical units.

        Parameters by name, one value or one per row, as a mapping, or as a tensor (B,P).
        support: (B,K,T,C,*grid), other trajectories of the same environments, for solvers that learn from them.
        """
        u = as_trajectories(self.problem, u0)
        if named or isinstance(xi, Mapping):
            xi = request.parameters(self.problem, xi, named, None)
        if isinstance(xi, Tensor) and xi.ndim == 2:
            u, xi = request.match_rows(self.problem, u, xi)
        n = len(self.problem.times) - u.shape[1] if n_frames is None else n_frames
        result = forecast(self.network, u, xi, n, support, generator)
        if not result.support.is_inside:
            warnings.warn(str(result.support), ExtrapolationWarning, stacklevel=2)
        return result

    def encode(self, u: Any) -> Tensor:
        """Representations (B,T',N,D) of trajectories (B,T,C,*grid), for solvers that have any."""
        return encode(self.network, u)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write what `pdejepa.load` reads."""
        from pdejepa.baselines.solver_folder import save

        save(self.network, folder, self.recipe)


# ---- what was given ----------------------------------------------------------------------------------------------
def _check_solver(solver: Any) -> None:
    if not isinstance(solver, Baseline):
        raise ConfigError(
            f"Expected a published solver, see pdejepa.baselines; got a {type(solver).__name__}. A model of PDE-JEPA "
            "has its own calls: model.forecast(u0, xi), model.encode(u)."
        )


def _checked(solver: Baseline, u: Any, xi: Any, support: Any) -> dict[str, Tensor]:
    """u and, if they are given, xi and support in the types and shapes that solvers expect."""
    _check_solver(solver)
    card, problem = solver.card, solver.task.problem
    if not card.is_forecaster:
        raise ConfigError(f"{card.title} makes representations only; it does not forecast.")
    if "xi" in card.reads:
        card.given("xi", xi)
    if "support" in card.reads:
        card.given("support", support)
    found = {"u": trajectories(problem, u, must_be_finite=False)}
    if xi is not None:
        found["xi"] = _checked_xi(problem, xi, len(found["u"]))
    if support is not None:
        found["support"] = _checked_support(problem, support, len(found["u"]))
    return found


def _checked_xi(problem: Problem, xi: Any, n_rows: int) -> Tensor:
    """(B,P) float64."""
    rows = as_floats64(problem, xi)
    check_columns(problem, rows)
    if len(rows) != n_rows:
        raise ParameterError(f"{problem.name}: expected {n_rows} rows of parameters, one per state; got {len(rows)}.")
    return rows


def _checked_support(problem: Problem, support: Any, n_rows: int) -> Tensor:
    """(B,K,T,C,*grid) float32."""
    values = as_floats(problem, support, "the support")
    shape, frame = tuple(values.shape), (len(problem.fields), *problem.grid)
    if shape[3:] != frame or shape[0] != n_rows or shape[1] < 1 or shape[2] < 2:
        sizes = ", ".join(map(str, frame))
        raise DataError(
            f"{problem.name} expects the support as ({n_rows}, K, T, {sizes}), K = 1 or more trajectories of T = 2 or "
            f"more frames for each of the {n_rows} rows, physical units; got {shape}."
        )
    return values


def _checked_frames(n_frames: int) -> int:
    n = as_count(n_frames)
    if n is None or n < 0:
        raise ParameterError(f"n_frames counts new frames and must be a whole number, 0 or more; got {n_frames!r}.")
    return n


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()

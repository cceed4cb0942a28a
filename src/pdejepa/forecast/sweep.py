"""One initial state under many parameters: what changes, where, by how much, and where the model extrapolates.

    found = model.sweep(u0, {"diffusivity": values}, advection=0.5, dispersion=0.3)
    found.last           (R,C,*grid)   the last frame of every row
    found.distance       (R,)          |u_hat - u_hat of the first row| / |u_hat of the first row|, over all new frames
    found.sensitivity    {name: (R,)}  |d u_hat / d xi_name| / |u_hat|, over all new frames, per unit of the parameter

Rows are forecast in blocks, and of their frames only the last is kept, so memory does not grow with their number
times their frames.
Letters: R rows, H observed frames, n new frames, C channels, *grid spatial axes, P parameters.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pdejepa.core.errors import ExtrapolationWarning, ParameterError
from pdejepa.forecast import request, sensitivity
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.forecast.interface import Forecast, Outcome
from pdejepa.forecast.support import Support
from pdejepa.systems.problem import Problem

MAX_ROWS = 100_000
BLOCK_BYTES = 5e7  # of the frames of a block
MAX_BLOCK = 256  # rows


@dataclass(frozen=True, repr=False)
class Sweep:
    """What became of every row; the first varied parameter changes slowest.

    rms: of every new frame and channel      low, high: smallest and largest value of every channel in all new frames
    outside: per row, sentences about parameters outside the training range
    remarks: what is said of the state and the length of all rows
    """

    problem: Problem
    varied: dict[str, Tensor]  # name -> values
    xi: Tensor  # (R,P) float64
    times: Tensor  # (H+n,) float64
    n_observed: int
    last: Tensor  # (R,C,*grid)
    rms: Tensor  # (R,n,C)
    low: Tensor  # (R,C)
    high: Tensor  # (R,C)
    distance: Tensor  # (R,)
    sensitivity: dict[str, Tensor]  # (R,) each
    outcome: tuple[Outcome, ...]
    outside: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...]

    def __repr__(self) -> str:
        told = " and ".join(f"{len(values)} values of {name}" for name, values in self.varied.items())
        n_outside, n_bad = sum(map(bool, self.outside)), sum(row.label != "ok" for row in self.outcome)
        return f"<Sweep: {len(self.xi)} rows, {told}; {n_outside} extrapolate, {n_bad} unstable.>"

    def rows(self) -> list[dict[str, float | str | bool]]:
        """One row of the table per forecast: plain numbers and words."""
        named = self.problem.named(self.xi)
        found = []
        for row, (outcome, outside) in enumerate(zip(self.outcome, self.outside, strict=True)):
            told: dict[str, float | str | bool] = {name: float(named[name][row]) for name in self.varied}
            for number, name in enumerate(self.problem.fields):
                told[f"final_rms_{name}"] = float(self.rms[row, -1, number])
                told[f"min_{name}"], told[f"max_{name}"] = float(self.low[row, number]), float(self.high[row, number])
            told["distance"] = float(self.distance[row])
            told |= {f"sensitivity_{name}": float(values[row]) for name, values in self.sensitivity.items()}
            found.append({**told, "outcome": outcome.label, "extrapolates": bool(outside)})
        return found


def sweep(
    model: Forecaster,
    u0: Any,
    vary: Mapping[str, Any],
    fixed: Mapping[str, Any],
    *,
    n_frames: int | None = None,
    sensitivities: bool = True,
    report: Callable[[int], object] = lambda _: None,
) -> Sweep:
    """Forecasts of one state u0 under every combination of the values of one or two parameters.

    report: called with the number of rows whenever some are done
    """
    problem, varied = model.problem, _checked(model.problem, vary, fixed)
    u = request.observed_frames(problem, u0, model.surrogate.history)
    if len(u) != 1:
        raise ParameterError(f"A sweep is of one state; got {len(u)} of them. Sweep one after the other.")
    grid = torch.meshgrid(*varied.values(), indexing="ij")
    columns = {name: values.reshape(-1) for name, values in zip(varied, grid, strict=True)}
    xi = request.parameters(problem, {**fixed, **columns}, {}, None)  # (R,P)
    names = _differentiable(problem, varied) if sensitivities else []
    first: Tensor | None = None  # new frames of the first row
    parts: list[_Block] = []
    for rows in xi.split(_block(model, u, n_frames, len(names))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExtrapolationWarning)  # every row says it
            result = model.forecast(u, rows, n_frames=n_frames)
        first = result.new[0].double() if first is None else first
        parts.append(_Block.of(model, result, first, u, names))
        report(len(rows))
    supports = [one for part in parts for one in part.supports]
    return Sweep(
        problem=problem,
        varied=varied,
        xi=xi,
        times=result.times,
        n_observed=result.n_observed,
        **{word: torch.cat([getattr(part, word) for part in parts]) for word in ("last", "rms", "low", "high")},
        distance=torch.cat([part.distance for part in parts]),
        sensitivity={name: torch.cat([part.sensitivity[name] for part in parts]) for name in names},
        outcome=tuple(one for part in parts for one in part.outcome),
        outside=tuple(replace(one, n_frames=0, unlike="").sentences for one in supports),
        remarks=replace(supports[0], parameters=()).sentences,
    )


@dataclass(frozen=True)
class _Block:
    """The part of a `Sweep` that some rows make."""

    last: Tensor
    rms: Tensor
    low: Tensor
    high: Tensor
    distance: Tensor
    sensitivity: dict[str, Tensor]
    outcome: tuple[Outcome, ...]
    supports: tuple[Support, ...]

    @classmethod
    def of(cls, model: Forecaster, result: Forecast, first: Tensor, u: Tensor, names: list[str]) -> _Block:
        new = result.new.cpu()  # (R,n,C,*grid)
        flat = new.double().flatten(3)  # (R,n,C,points)
        sizes = flat.flatten(1).norm(dim=1)
        apart = (new.double() - first.cpu()).flatten(1).norm(dim=1) / first.norm().cpu()
        return cls(
            last=new[:, -1],
            rms=flat.square().mean(3).sqrt(),
            low=_extreme(flat.nan_to_num(math.inf).amin((1, 3))),
            high=_extreme(flat.nan_to_num(-math.inf).amax((1, 3))),
            distance=apart,
            sensitivity=_sensitivities(model, u, result, sizes, names),
            outcome=result.outcome,
            supports=_supports(model, u, result),
        )


def _extreme(values: Tensor) -> Tensor:
    """NaN where there is no sound frame."""
    return values.where(values.isfinite(), math.nan)


def _sensitivities(
    model: Forecaster, u: Tensor, result: Forecast, sizes: Tensor, names: list[str]
) -> dict[str, Tensor]:
    """{name: (R,)}; NaN in rows that are not stable."""
    if not names:
        return {}
    assert result.xi is not None
    order = [model.problem.parameter_names.index(name) for name in names]
    frames, xi = u.expand(len(sizes), *u.shape[1:]), result.xi.cpu()
    _, slopes = sensitivity.derivatives(model, frames, xi, result.new.shape[1], order)
    norms = slopes.double().flatten(2).norm(dim=2).cpu() / sizes[:, None]  # (R,K)
    is_stable = torch.tensor([outcome.label == "ok" for outcome in result.outcome])
    return {name: norms[:, k].where(is_stable, math.nan) for k, name in enumerate(names)}


def _supports(model: Forecaster, u: Tensor, result: Forecast) -> tuple[Support, ...]:
    """Of every row by itself."""
    assert result.xi is not None
    assert result.reconstruction is not None
    pairs = zip(result.reconstruction.split(1), result.xi.cpu().split(1), strict=True)
    return tuple(model.support(u, again, xi, result.fields.shape[1]) for again, xi in pairs)


def _checked(problem: Problem, vary: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Tensor]:
    """{name: values (n,) float64} of one or two parameters."""
    if not 1 <= len(vary) <= 2:
        raise ParameterError(f"A sweep varies one or two parameters; got {len(vary)}: {', '.join(vary) or 'none'}.")
    both = [name for name in vary if name in fixed]
    if both:
        raise ParameterError(f"{problem.name}: {both[0]} is both varied and fixed. Leave out one of them.")
    try:
        varied = {name: torch.as_tensor(values, dtype=torch.float64).reshape(-1) for name, values in vary.items()}
    except (TypeError, ValueError, RuntimeError):
        raise ParameterError(f"{problem.name}: the values of {' and '.join(vary)} must be lists of numbers.") from None
    n_rows = math.prod(len(values) for values in varied.values())
    if not 1 <= n_rows <= MAX_ROWS:
        raise ParameterError(f"A sweep has 1 to {MAX_ROWS:,} rows; got {n_rows:,}. Give fewer values.")
    return varied


def _differentiable(problem: Problem, varied: Mapping[str, Tensor]) -> list[str]:
    """The varied parameters that may take any value."""
    return [parameter.name for parameter in problem.parameters if parameter.name in varied and not parameter.choices]


def _block(model: Forecaster, u: Tensor, n_frames: int | None, n_slopes: int) -> int:
    """Rows of a block: their frames and as many derivatives stay below BLOCK_BYTES."""
    n = n_frames if isinstance(n_frames, int) and n_frames > 0 else model.n_frames
    row = 8 * (1 + n_slopes) * n * u[0, 0].numel()
    return max(1, min(MAX_BLOCK, int(BLOCK_BYTES / row)))

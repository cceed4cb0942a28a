"""How a model is judged: forecasts from the first frame(s) of every trajectory of a split, compared with the solver.

Truth is generated in memory, trajectory for trajectory what a data set would hold, or read from a data set.  Work is
done in blocks, so that memory stays bounded.  An unstable forecast is counted (`n_unstable`) and enters the means as an
error of 100 %.  Frames are counted from the first forecast one.  Solvers that learn from another trajectory of the same
environment are given the next one of the split.
Letters: B trajectories, T frames, C channels, *grid spatial axes, P parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pdejepa.core.errors import DataError
from pdejepa.core.text import printable
from pdejepa.data.source import Generated, Stored, Trajectories
from pdejepa.data.well.reader import Dataset
from pdejepa.evaluate import metrics
from pdejepa.evaluate.record import SplitErrors
from pdejepa.evaluate.truth import source_of
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.systems.problem import Problem

if TYPE_CHECKING:
    from pdejepa.baselines.inference import PublishedSolver

UNSTABLE = 1.0  # the error that an unstable forecast counts as
BLOCK_BYTES = 2e8  # of true fields held at once, about

Judged: TypeAlias = "Forecaster | PublishedSolver"
Block = tuple[Tensor, Tensor, Tensor | None]  # fields (b,T,C,*grid) float32, xi (b,P) float64, support (b,1,T,C,*grid)


def evaluate(
    forecaster: Judged,
    splits: Sequence[str],
    data: Dataset | Trajectories | None = None,
    n: int | None = None,
    observed: int | None = None,
    report: Callable[[int], None] | None = None,
) -> dict[str, SplitErrors]:
    """{split: errors} over the first n trajectories of each split (default: all that the training's size has).

    observed: frames given to the model, if other than its history (2 is allowed for second-order systems).
    """
    source, n_observed = source_of(forecaster, data), observed or forecaster.card.history
    told = "generated" if isinstance(source, Generated) else printable(source.name)
    found = {}
    for split, count in trajectory_counts(forecaster, splits, source, n).items():
        tables = []
        for fields, xi, support in _blocks(forecaster, source, split, count):
            tables.append(_judge(forecaster, fields, xi, n_observed, support))
            if report:
                report(len(fields))
        joined = {key: torch.cat([table[key] for table in tables]) for key in tables[0]}
        found[split] = _summary(joined, forecaster.problem.fields, told)
    return found


def trajectory_counts(
    forecaster: Judged, splits: Sequence[str], data: Dataset | Trajectories | None = None, n: int | None = None
) -> dict[str, int]:
    """How many trajectories of each split will be judged; DataError if the data do not fit or are too few."""
    if n is not None and n < 1:
        raise DataError(f"The number of trajectories must be 1 or more; got {n}.")
    source = source_of(forecaster, data)
    if not isinstance(source, Generated):
        _check_data(forecaster.problem, source)
    return {split: _count(forecaster, source, split, n) for split in splits}


def score(forecaster: Forecaster, fields: Tensor, xi: Tensor, observed: int | None = None) -> SplitErrors:
    """The errors over trajectories in memory, fields (B,T,C,*grid) in physical units and xi (B,P)."""
    n_observed = observed or forecaster.card.history
    return _summary(_judge(forecaster, fields, xi, n_observed), forecaster.problem.fields)


# ---- truth -----------------------------------------------------------------------------------------------------
def _check_data(problem: Problem, source: Trajectories) -> None:
    """The trajectories must be of what the model forecasts."""
    other = source.problem
    pairs = (
        ("system", other.name, problem.name),
        ("fields", other.fields, problem.fields),
        ("parameters", other.parameter_names, problem.parameter_names),
        ("grid", other.grid, problem.grid),
        ("number of frames", _n_frames(source), len(problem.times)),
    )
    for what, there, here in pairs:
        if there != here:
            raise DataError(f"{source.name} does not fit the model: its {what}: {there}; the model's: {here}.")
    times = source.dataset.times if isinstance(source, Stored) else np.asarray(other.times)
    if not np.allclose(times, problem.times, rtol=1e-6):
        raise DataError(f"{source.name} does not fit the model: its output times are others than the model's.")


def _n_frames(source: Trajectories) -> int:
    """As stored, which may be more than the model's (--raw-frames)."""
    return len(source.dataset.times) if isinstance(source, Stored) else len(source.problem.times)


def _count(forecaster: Judged, source: Trajectories, split: str, n: int | None) -> int:
    if not isinstance(source, Generated):
        there = source.n(split)
    else:
        size = forecaster.details.get("size", "paper") if isinstance(forecaster, Forecaster) else "paper"
        there = forecaster.system.split(split).size(size)
        there = max(there, n or 0)  # generated data know no end
    if n is not None and n > there:
        raise DataError(f"{split} has {there} trajectories; {n} were asked for.")
    return there if n is None else n


def _blocks(forecaster: Judged, source: Trajectories, split: str, n: int) -> Iterator[Block]:
    problem, start = forecaster.problem, 0
    row = 4 * len(problem.times) * len(problem.fields) * math.prod(problem.grid)
    for block in source.blocks(split, n, int(BLOCK_BYTES / row), forecaster.device):
        reads = "support" in forecaster.card.reads
        support = _siblings(forecaster, source, split, start, block.xi) if reads else None
        yield block.fields, block.xi, support
        start += len(block.xi)


def _siblings(forecaster: Judged, source: Trajectories, split: str, start: int, xi: Tensor) -> Tensor:
    """One more trajectory (b,1,T,C,*grid) under the same parameters for each row: environments come in turns."""
    first = start + forecaster.system.split(split).n_environments
    stop = first + len(xi)
    found = source.block(split, first, stop, forecaster.device) if _has(source, split, stop) else None
    if found is None or not torch.equal(found.xi, xi):
        raise DataError(
            f"{forecaster.card.title} needs another trajectory of the same environment for every one that it is judged "
            f"on; {source.name} has none for {split} {start} to {start + len(xi) - 1}. Leave --data out."
        )
    return found.fields[:, None]


def _has(source: Trajectories, split: str, n: int) -> bool:
    """Whether a split has n trajectories; generated ones know no end."""
    return isinstance(source, Generated) or n <= source.n(split)


# ---- errors ----------------------------------------------------------------------------------------------------
def _judge(
    forecaster: Judged, fields: Tensor, xi: Tensor, observed: int, support: Tensor | None = None
) -> dict[str, Tensor]:
    """Errors of every trajectory, (B,...) on the CPU; NaN where the forecast is unstable."""
    if not bool(torch.isfinite(fields).all()):
        bad = (~torch.isfinite(fields.flatten(1)).all(1)).nonzero().flatten().tolist()
        raise DataError(f"The true fields of {len(bad)} trajectories are not finite (e.g. row {bad[0]} of a block).")
    more: dict[str, Any] = {} if support is None else {"support": support}
    result = forecaster.forecast(fields[:, :observed], xi, n_frames=fields.shape[1] - observed, **more)
    guess, first = result.fields, observed
    table = {
        "rel_l2": metrics.rel_l2(guess, fields, first),
        "rel_l2_all_frames": metrics.rel_l2(result.decoded, fields, 0),
        "rel_l2_joint": metrics.rel_l2_joint(guess, fields, first),
        "last_frame": metrics.last_frame(guess, fields),
        "per_channel": metrics.per_channel(guess, fields, first),
        "per_frame": metrics.per_frame(guess, fields, first),
        "repeat_first": metrics.rel_l2(metrics.repeat_first(fields, observed), fields, first),
        "is_stable": torch.tensor([outcome.label == "ok" for outcome in result.outcome]),
    }
    return {key: value.cpu() for key, value in table.items()}


def _summary(table: dict[str, Tensor], names: Sequence[str], source: str = "generated") -> SplitErrors:
    """Means over all trajectories; None where there is nothing to average.

    A trajectory whose forecast became unstable counts as an error of UNSTABLE: leaving it out would make a model look
    better the more often it fails.
    """
    stable = table["is_stable"]
    good = {key: _with_failures(values, stable) for key, values in table.items()}
    channels, frames = good["per_channel"].nanmean(0), good["per_frame"].nanmean(0)  # NaN if no row is left
    return SplitErrors(
        rel_l2=_number(good["rel_l2"].nanmean()),
        rel_l2_all_frames=_number(good["rel_l2_all_frames"].nanmean()),
        rel_l2_joint=_number(good["rel_l2_joint"].nanmean()),
        median=_number(good["rel_l2"].nanquantile(0.5)) if len(good["rel_l2"]) else None,
        last_frame=_number(good["last_frame"].nanmean()),
        per_channel={name: _number(value) for name, value in zip(names, channels.tolist(), strict=True)},
        per_frame=tuple(map(_number, frames.tolist())),
        repeat_first=_number(table["repeat_first"].nanmean()),
        n=len(stable),
        n_unstable=int((~stable).sum()),
        trajectories=tuple(map(_number, table["rel_l2"].tolist())),
        source=source,
    )


def _with_failures(values: Tensor, stable: Tensor) -> Tensor:
    if not values.is_floating_point():
        return values
    failed = ~stable.reshape(-1, *[1] * (values.ndim - 1))
    return torch.where(failed & values.isnan(), UNSTABLE, values)


def _number(value: Any) -> float | None:
    """JSON knows no NaN: None instead."""
    return float(value) if math.isfinite(float(value)) else None

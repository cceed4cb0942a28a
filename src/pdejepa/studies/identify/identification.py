"""How well parameters are found from observed frames, and how often their intervals hold.

A cell is a split, a noise and a number of frames after those that a forecast begins with.  A case of it is one
trajectory of the split: its frames with noise go to `infer`, and what comes back is kept beside the truth.

    noise   of every value, independent, relative to the rms of the channel over the frames after the first
    frames  1, 3: the next ones; 0: all of a training trajectory

Where the system has a solver that starts from one frame, the same optimiser is given that solver in place of the
forecast, with the same frames: what is lost then is lost to noise, not to the model.

A record is one JSON file per system.  It is written after every case; cases that it holds are kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pdejepa.core.atomic import write_json
from pdejepa.core.config import load_config
from pdejepa.core.device import machine_name
from pdejepa.core.errors import ConfigError, DataError, UsageError
from pdejepa.core.files import read_json
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.forecast.infer import Inference, infer
from pdejepa.forecast.known_examples import Examples
from pdejepa.forecast.least_squares import findable, is_log, rms_of
from pdejepa.studies.identify.true_solver import can_start, fitted
from pdejepa.systems.problem import Parameter

FORMAT = 1
SEED = 7919  # of the noise, with the number of the trajectory
DIGITS = 6


@dataclass(frozen=True)
class Found:
    """One parameter of one case.  low and high by level: 50 %, 90 %; empty for parameters of certain values."""

    truth: float
    value: float
    outcome: str
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    solver: float | None = None  # found with the true solver


@dataclass(frozen=True)
class Case:
    """seconds: of the processor, for one call of `infer`, with its calibration if `calibrated`."""

    index: int
    found: dict[str, Found]
    misfit: float
    seconds: float
    calibrated: bool


@dataclass
class Cell:
    split: str
    noise: float
    frames: int
    cases: tuple[Case, ...] = ()

    @property
    def label(self) -> str:
        frames = "all frames" if self.frames == 0 else f"{self.frames} frame{'s' * (self.frames != 1)}"
        return f"{self.split}, {frames}, {100 * self.noise:g} % noise"


@dataclass
class Identification:
    """All cells of one model.  ranges: of what is looked for, low, high, and whether that is on a logarithmic scale."""

    system: str
    model: str
    weights_sha256: str
    machine: str
    ranges: dict[str, tuple[float, float, bool]]
    format_version: int = FORMAT
    cells: tuple[Cell, ...] = ()

    def cell(self, split: str, noise: float, frames: int) -> Cell:
        """The cell, which is made if it is not there."""
        for one in self.cells:
            if (one.split, one.noise, one.frames) == (split, noise, frames):
                return one
        self.cells += (Cell(split, noise, frames),)
        return self.cells[-1]


@dataclass(frozen=True)
class Plan:
    """n: cases of a cell.  limit: seconds after which a call begins no further case of a cell; 0: none."""

    splits: tuple[str, ...] = ("test", "ood")
    noises: tuple[float, ...] = (0.0, 0.01, 0.05)
    frames: tuple[int, ...] = (1, 3, 0)
    n: int = 24
    limit: float = 0.0

    def __post_init__(self) -> None:
        if self.n < 1 or self.limit < 0 or not (self.splits and self.noises and self.frames):
            raise UsageError("expected at least one split, noise, number of frames and case, and no negative limit.")
        bad = [x for x in self.noises if not 0 <= x < 1] + [k for k in self.frames if k < 0]
        if bad:
            raise UsageError(f"noise is a share of the rms from 0 to 1, frames are 0 or more; got {bad[0]}.")


def identify(
    model: Forecaster, name: str, path: Path, plan: Plan, report: Callable[[str, int], object] = lambda *_: None
) -> Identification:
    """Add the missing cases of the plan to the record at `path`; `report` is told of every cell and case."""
    record = opened(path, model, name)
    examples = Examples(model)
    for cell in cells_of(record, model, plan, report):
        _fill(cell, model, examples, plan, lambda: write(record, path), report)
    return record


def cells_of(
    record: Identification, model: Forecaster, plan: Plan, report: Callable[[str, int], object]
) -> Iterator[Cell]:
    """The cells of the plan, made where the record lacks them; a split that the system lacks counts as done."""
    known = {split.name for split in model.system.splits}
    for frames in plan.frames:  # the cheap cells first
        for split in plan.splits:
            for noise in plan.noises:
                if split in known:
                    yield record.cell(split, noise, frames)
                else:
                    report("", plan.n)


def n_cases(plan: Plan) -> int:
    """Of one model."""
    return plan.n * len(plan.splits) * len(plan.noises) * len(plan.frames)


def _fill(
    cell: Cell,
    model: Forecaster,
    examples: Examples,
    plan: Plan,
    save: Callable[[], object],
    report: Callable[[str, int], object],
) -> None:
    begun = time.perf_counter()
    report("", min(plan.n, len(cell.cases)))
    for index in range(len(cell.cases), plan.n):
        if plan.limit and time.perf_counter() - begun > plan.limit:
            report(f"{cell.label}: {index} of {plan.n} cases, then {plan.limit:g} s were over", plan.n - index)
            return
        cell.cases += (measured(cell, model, examples, index),)
        save()
        report("", 1)


def measured(cell: Cell, model: Forecaster, examples: Examples, index: int) -> Case:
    """One trajectory with noise, and what is found."""
    made = model.system.generate(cell.split, 1, start=index)
    history, total = model.surrogate.history, made.fields.shape[1]
    last = total if cell.frames == 0 else min(total, history + cell.frames)
    truth = {name: float(values[0]) for name, values in model.system.named(made.xi).items()}
    wanted = findable(model.problem)
    given = {name: value for name, value in truth.items() if name not in wanted}
    frames = with_noise(made.fields[0, :last], history, cell.noise, index)
    before, kept = time.process_time(), len(examples.kept)
    result = infer(model, frames, wanted, given, noise=cell.noise, examples=examples)
    seconds = time.process_time() - before
    solver = fitted(model, frames, wanted, given, cell.noise, examples) if can_start(model) else {}
    found = {name: _found(result, name, truth[name], solver.get(name)) for name in wanted}
    return Case(index, found, _short(result.misfit), round(seconds, 3), len(examples.kept) > kept)


def with_noise(fields: Tensor, history: int, noise: float, index: int) -> Tensor:
    """Frames (T,C,*grid), every value with an error of `noise` times the rms of its channel after the first frames."""
    draws = torch.Generator().manual_seed(SEED + index)
    values = torch.randn(fields.shape, generator=draws, dtype=torch.float64)
    return (fields.double() + noise * rms_of(fields[history:]) * values).float()


def _found(result: Inference, name: str, truth: float, solver: float | None) -> Found:
    estimate = result[name]
    ends = [result.intervals[level][name] for level in (0.5, 0.9)] if not math.isnan(estimate.low) else []
    low, high = (tuple(_short(pair[i]) for pair in ends) for i in (0, 1))
    own = None if solver is None else _short(solver)
    return Found(_short(truth), _short(estimate.value), estimate.outcome, low, high, own)


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


# ---- records -----------------------------------------------------------------------------------------------------
def opened(path: Path, model: Forecaster, name: str) -> Identification:
    """The record at `path`, or a new one; that of other weights is refused."""
    sha256 = str(model.details.get("weights_sha256", ""))
    if path.exists():
        record = read(path)
        if record.weights_sha256 != sha256:
            raise DataError(f"{path} is a record of other weights. Remove it, or give another --out.")
        return record
    parameters = {parameter.name: parameter for parameter in model.problem.parameters}
    ranges = {one: _range(parameters[one]) for one in findable(model.problem)}
    return Identification(model.problem.name, name, sha256, machine_name(model.device), ranges)


def _range(parameter: Parameter) -> tuple[float, float, bool]:
    low, high = parameter.train
    return float(low), float(high), is_log(parameter)


def write(record: Identification, path: Path) -> None:
    write_json(path, asdict(record))


def read(path: Path) -> Identification:
    try:
        plain: dict[str, Any] = dict(read_json(path))
        found = load_config(Identification, defaults=plain)
    except (ValueError, TypeError, ConfigError) as error:
        raise DataError(f"{path} is no record of pdejepa identify: {str(error)[:200]}.") from None
    if found.format_version != FORMAT:
        raise DataError(f"{path} has format {found.format_version}; this version reads {FORMAT}.")
    return found


def read_all(folder: Path) -> list[Identification]:
    """All records of a folder, by system."""
    found = [read(path) for path in sorted(folder.glob("*.json"))]
    if not found:
        raise DataError(f"{folder} holds no record. Make one with: pdejepa identify NAME --out {folder}")
    return found


def coordinates(values: Iterable[float], low: float, high: float, is_log: bool) -> list[float]:
    """Where values lie in a training range, 0 to 1 inside, on the scale of the search."""
    if is_log:
        return [math.log(max(value, 1e-300) / low) / math.log(high / low) for value in values]
    return [(value - low) / (high - low) for value in values]


def errors(cell: Cell, name: str, scale: tuple[float, float, bool], with_solver: bool = False) -> list[float]:
    """|estimate - truth| of every case, in units of the training range."""
    low, high, is_log = scale
    own = [case.found[name] for case in cell.cases]
    values = [one.solver if with_solver else one.value for one in own]
    pairs = [(value, one.truth) for value, one in zip(values, own, strict=True) if value is not None]
    return [abs(a - b) for a, b in (coordinates(pair, low, high, is_log) for pair in pairs)]

"""The records of comparisons, read back, and checked that they belong together.

    combined-fno-fast-paper-180s-s0.json      system, solver, recipe, size of data, budget, seed: errors and cost

One table: one system, size of data, budget and device, and one data set, or the report is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pdejepa.core.errors import ConfigError, DataError
from pdejepa.core.files import read_json
from pdejepa.evaluate.published import metric_of
from pdejepa.evaluate.record import Checked, Number, Record, parse
from pdejepa.studies.compare.cards import names
from pdejepa.training.budget import UNITS, TotalBudget, Unit

KEYS = ("solver", "errors")  # a file that has them, and a budget, is meant to be a record


@dataclass(frozen=True)
class Trial(Checked):
    """A short training with `factor` times the recipe's learning rate; score None: it diverged.

    seconds: with its set-up, where the budget counts them.
    """

    factor: float
    score: Number
    seconds: Number = None


@dataclass(frozen=True)
class Scored(Checked):
    """The error on valid after so many seconds of a training."""

    seconds: float
    score: Number


@dataclass(frozen=True, kw_only=True)
class SolverRecord(Record):
    """One solver in one comparison: its errors, and what it cost.

    network: the recipe whose network a published solver has, if it is not the recipe of the comparison
    budget_...: of the training, one of the three       seconds: of the training, as measured; in comparisons by the
    recipe laptop with set-up and trials, which took trial_seconds of them
    is_blind: told neither parameters nor another trajectory
    adapts: what it does before a forecast, `gradient` if it fits a code
    true_frames: given for the common tail              weights: `scratch`
    amplitude: `unit` if all data were rescaled to rms 1
    curve: errors on valid along the way, see `training_curve`
    flops_per_forecast: operations of a whole forecast of a row, adaptation aside, as `training.flops` counts them
    """

    title: str
    size: str
    budget_seconds: Number = None
    budget_steps: Number = None
    budget_flops: Number = None
    weights: str
    true_frames: int
    is_blind: bool = False
    adapts: str
    seconds: float
    steps: dict[str, int] = field(default_factory=dict)
    learning_rate_factor: float
    trials: tuple[Trial, ...] = ()
    parameters: int
    peak_memory_bytes: float
    ms_per_forecast: float
    ms_per_adaptation: float
    network: str | None = None
    trial_seconds: Number = None
    flops_per_forecast: Number = None
    amplitude: Literal["unit"] | None = None
    curve: tuple[Scored, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.solver not in names():
            raise ConfigError(f"unknown solver {self.solver[:40]!r}")
        told = [key for key in map(budget_key, UNITS) if getattr(self, key) is not None]
        if len(told) != 1:
            raise ConfigError(f"it tells {' and '.join(told) or 'no budget'}")
        if not getattr(self, told[0]) > 0:
            raise ConfigError(f"{told[0]} must be above 0")
        if "test" not in self.errors:
            raise ConfigError("no errors of test")
        for split, found in self.errors.items():
            missing = [key for key in ("rel_l2", "rel_l2_joint", "tail") if getattr(found, key) is None]
            if missing:
                raise ConfigError(f"errors: {split} lacks {missing[0]}")

    @property
    def budget(self) -> TotalBudget:
        found = {unit: getattr(self, budget_key(unit)) for unit in UNITS}
        return next(TotalBudget(unit, amount) for unit, amount in found.items() if amount is not None)

    @property
    def is_at_once(self) -> bool:
        """Whether it was fitted in closed form, without a step or a budget."""
        return bool(self.steps) and not any(self.steps.values())

    @property
    def question(self) -> tuple[Any, ...]:
        """What the name of a record promises."""
        return self.system, self.competitor, self.recipe, self.size, self.budget, self.amplitude, self.seed

    @property
    def competitor(self) -> str:
        """The solver, or SOLVER@RECIPE."""
        return f"{self.solver}@{self.network}" if self.network else self.solver

    @property
    def row(self) -> tuple[str, ...]:
        """Whose line it is in a table over several budgets and seeds."""
        return self.competitor, self.amplitude or "as_is"

    @property
    def row_title(self) -> str:
        return f"{self.title}, unit amplitude" if self.amplitude == "unit" else self.title

    def error(self, split: str) -> float | None:
        """The headline error of a split; one norm over the channels where the published numbers have it so."""
        return getattr(self.errors[split], metric_of(self.system)) if split in self.errors else None


def budget_key(unit: Unit) -> str:
    """Under which name a record tells a budget of that unit: budget_seconds, budget_steps, ..."""
    return f"budget_{unit}"


# ---- reading -----------------------------------------------------------------------------------------------------
def read_record(path: Path) -> SolverRecord | None:
    """The record in a JSON file; None if it holds something else, DataError if it is damaged."""
    try:
        plain = read_json(path)
    except ValueError as error:
        raise DataError(f"{path} cannot be read ({error}). Remove it, or choose another folder.") from None
    is_meant = isinstance(plain, dict) and set(KEYS) <= set(plain) and any(budget_key(unit) in plain for unit in UNITS)
    if not is_meant:
        return None
    try:
        return replace(parse(SolverRecord, plain), file=str(path))
    except (ValueError, ConfigError) as error:
        raise DataError(
            f"{path} is not a record that can be used: {error}. Remove it, and run its comparison again."
        ) from None


def read_records(places: Sequence[Path]) -> list[SolverRecord]:
    """Records in files and folders, best first; DataError if one is damaged, or they do not belong together."""
    paths: dict[Path, Path] = {}
    for place in places:
        if not place.exists():
            raise DataError(f"{place} does not exist. Give folders or files with records of comparisons.")
        here = sorted(place.glob("*.json")) if place.is_dir() else [place]
        paths |= {path.resolve(): path for path in here}  # each once, however often it is named
    found = [record for path in paths.values() if (record := read_record(path)) is not None]
    _check_questions(found)
    _check_data(found)
    return sorted(found, key=lambda r: (r.system, *astuple(r.budget), r.error("test") or 0.0))


def _check_questions(records: list[SolverRecord]) -> None:
    """Refuse two answers to the same question."""
    first: dict[tuple[Any, ...], str] = {}
    for record in records:
        question = (*record.question, record.device)
        before = first.setdefault(question, record.file)
        if before != record.file:
            words = ", ".join(map(str, question))
            raise DataError(f"{before} and {record.file} are records of the same: {words}. Name one of them.")


def _check_data(records: list[SolverRecord]) -> None:
    """Refuse records of one system and size whose data differ; those of two devices may, in their last digits."""
    first: dict[tuple[str, ...], SolverRecord] = {}
    for record in records:
        known = first.setdefault((record.system, record.size, record.device), record)
        before, now = (one.data_hash or "none" for one in (known, record))
        if before != now:
            raise DataError(
                f"{known.file} and {record.file} cannot be in one report: expected the same data of "
                f"{record.system}, got data_hash {before[:12]} and {now[:12]}. Report them apart, or move the one "
                "with the old data away and run its comparison again."
            )


def named(r: SolverRecord, records: Sequence[SolverRecord]) -> str:
    """The title of a record, with its seed where the table has several of that solver."""
    n = sum(other.row == r.row for other in records)
    return f"{r.row_title}, seed {r.seed}" if n > 1 else r.row_title

"""What is compared, and whose turn it is."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from pdejepa.baselines import check_name, known_as
from pdejepa.baselines.pool import Pool
from pdejepa.core.errors import ConfigError, DataError
from pdejepa.core.provenance import commit
from pdejepa.studies.compare.comparison_records import SolverRecord, read_record
from pdejepa.studies.compare.competitors import CARDS, NAMES, Entry, make
from pdejepa.training.budget import TotalBudget


@dataclass(frozen=True)
class Comparison:
    """What is compared."""

    system: str
    solvers: tuple[str, ...]
    budget: TotalBudget
    out: Path
    size: str = "paper"
    recipe: str = "fast"
    seeds: int = 1
    device: torch.device = dataclasses.field(default_factory=lambda: torch.device("cpu"))
    commit: str = dataclasses.field(default_factory=commit)  # of the code that runs, so asked before hours of training

    def name(self, solver: str, seed: int) -> str:
        return f"{self.system}-{solver}-{self.recipe}-{self.size}-{self.budget.name}-s{seed}"


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """Solvers by name; `all` means every forecaster."""
    if not names:
        raise ConfigError(f"Expected names of solvers, or all; got none. Solvers: {', '.join(NAMES)}.")
    wanted = list(NAMES) if "all" in names else [known_as(name) for name in names]
    for name in wanted:
        check_name(name, NAMES)
    return tuple(dict.fromkeys(wanted))


def forecasters(plan: Comparison) -> list[str]:
    return [name for name in plan.solvers if CARDS[name].is_forecaster]


@dataclass(frozen=True)
class Turn:
    """One competitor on the data of a comparison."""

    plan: Comparison
    solver: str
    seed: int
    pool: Pool

    @property
    def folder(self) -> Path:
        """Where it trains."""
        return self.plan.out / "runs" / self.plan.name(self.solver, self.seed)

    def entry(self) -> Entry:
        """The competitor, untrained."""
        return make(self.solver, self.plan.system, self.plan.recipe, self.seed)


def records_before(plan: Comparison, pattern: str) -> list[SolverRecord]:
    """Records in the folder of a comparison, of any budget; a damaged one is none."""
    found = []
    for path in sorted(plan.out.glob(pattern)):
        with contextlib.suppress(DataError):
            found.append(read_record(path))
    return [record for record in found if record is not None]

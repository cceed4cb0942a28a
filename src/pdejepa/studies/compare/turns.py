"""What is compared, and whose turn it is."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from pdejepa.baselines import CLASSICAL, check_name, known_as
from pdejepa.baselines.pool import Pool
from pdejepa.core.errors import ConfigError, DataError
from pdejepa.core.provenance import commit
from pdejepa.studies.compare.cards import card_of, names
from pdejepa.studies.compare.comparison_records import SolverRecord, read_record
from pdejepa.studies.compare.competitors import Entry, make
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


def chosen(wanted: Sequence[str]) -> tuple[str, ...]:
    """Solvers by name; `all` means every forecaster that is trained, `classical` all that are fitted at once."""
    known = names()
    if not wanted:
        raise ConfigError(f"Expected names of solvers, or all; got none. Solvers: {', '.join(known)}.")
    groups = {"all": [name for name in known if name not in CLASSICAL], "classical": list(CLASSICAL)}
    first = sorted(wanted, key=lambda word: word != "all")  # in the usual order, whatever else is named
    found = [name for word in first for name in groups.get(word, [known_as(word)])]
    for name in found:
        check_name(name, known)
    return tuple(dict.fromkeys(found))


def usual_recipe(size: str, device: torch.device) -> str:
    """The recipe of a comparison that names none: what the device can train in minutes."""
    return "tiny" if size == "tiny" or device.type == "cpu" else "fast"


def forecasters(plan: Comparison) -> list[str]:
    return [name for name in plan.solvers if card_of(name).is_forecaster]


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

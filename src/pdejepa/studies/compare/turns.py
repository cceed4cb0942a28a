"""What is compared, and whose turn it is.

A competitor is named by its solver, or as SOLVER@RECIPE: with the network of another recipe, and the budget of all.

    unisolver           in a comparison by the recipe laptop: its network for laptops
    unisolver@fast      in the same table: the published sizes
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from pdejepa.baselines import CLASSICAL, check_name, known_as
from pdejepa.baselines.baseline import check_recipe
from pdejepa.baselines.pool import Pool
from pdejepa.core.errors import ConfigError, DataError
from pdejepa.core.provenance import commit
from pdejepa.evaluate.record import METHOD
from pdejepa.models.amplitude import Amplitude
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
    amplitude: Amplitude = "as_is"
    device: torch.device = dataclasses.field(default_factory=lambda: torch.device("cpu"))
    commit: str = dataclasses.field(default_factory=commit)  # of the code that runs, so asked before hours of training

    @property
    def counts_all(self) -> bool:
        """Whether a budget in seconds counts set-up and trials too: where seconds are of an ordinary machine."""
        return self.recipe == "laptop" and self.device.type == "cpu" and self.budget.unit == "seconds"

    def name(self, solver: str, seed: int) -> str:
        budget = f"{self.budget.name}-unit" if self.amplitude == "unit" else self.budget.name
        return f"{self.system}-{solver}-{self.recipe}-{self.size}-{budget}-s{seed}"


def chosen(wanted: Sequence[str]) -> tuple[str, ...]:
    """Solvers by name; `all` means every forecaster that is trained, `classical` all that are fitted at once."""
    known = names()
    if not wanted:
        raise ConfigError(f"Expected names of solvers, or all; got none. Solvers: {', '.join(known)}.")
    groups = {"all": [name for name in known if name not in CLASSICAL], "classical": list(CLASSICAL)}
    first = sorted(wanted, key=lambda word: word != "all")  # in the usual order, whatever else is named
    found = [name for word in first for name in groups.get(word, [_known_as(word)])]
    for name in found:
        _check(name, known)
    return tuple(dict.fromkeys(found))


def _known_as(word: str) -> str:
    """The name of a competitor as records have it: `poseidon@fast` for `Poseidon-T@fast`."""
    solver, at, network = word.partition("@")
    return f"{known_as(solver)}{at}{network}"


def _check(name: str, known: Sequence[str]) -> None:
    """Refuse what is not the name of a competitor."""
    solver, at, network = name.partition("@")
    check_name(solver, known)
    if at:
        check_recipe(network)
        if solver == METHOD or card_of(solver).is_closed_form:
            raise ConfigError(f"{name}: only published solvers take the network of another recipe. Use {solver}.")


def usual_recipe(size: str, device: torch.device) -> str:
    """The recipe of a comparison that names none: what the device can train in minutes."""
    return "tiny" if size == "tiny" else "laptop" if device.type == "cpu" else "fast"


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
        solver, _, network = self.solver.partition("@")
        return make(solver, self.plan.system, network or self.plan.recipe, self.seed, self.plan.amplitude)


def records_before(plan: Comparison, pattern: str) -> list[SolverRecord]:
    """Records in the folder of a comparison, of any budget at its amplitude; a damaged one is none."""
    found = []
    for path in sorted(plan.out.glob(pattern)):
        with contextlib.suppress(DataError):
            found.append(read_record(path))
    return [record for record in found if record is not None and (record.amplitude or "as_is") == plan.amplitude]

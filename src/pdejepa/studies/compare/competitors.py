"""The competitors: a published solver, or the method of this package, behind the same few calls.

    entry.fit(pool, budget, folder, factor)        train; `factor` scales all learning rates
    entry.forecast(u, xi, n_frames, support)       physical units, an outcome per row

Letters: B rows, H observed frames, n new frames, K support trajectories, C channels, *grid spatial axes.
"""

from __future__ import annotations

import dataclasses
import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pdejepa import baselines
from pdejepa.baselines import check_name
from pdejepa.baselines.baseline import Baseline, Recipe
from pdejepa.baselines.fit import N_SCORED, build, fit
from pdejepa.baselines.inference import forecast
from pdejepa.baselines.pool import Pool
from pdejepa.baselines.solver_folder import save
from pdejepa.baselines.task import Task
from pdejepa.core.errors import ExtrapolationWarning
from pdejepa.forecast.forecaster import CARD, Forecaster
from pdejepa.forecast.interface import Card, Forecast
from pdejepa.method import recipes
from pdejepa.method.chain import train_stages, with_seconds
from pdejepa.method.run_config import RunConfig, map_training
from pdejepa.method.save_model import save_model
from pdejepa.models.amplitude import Amplitude
from pdejepa.models.surrogate import Surrogate
from pdejepa.studies.compare.cards import names
from pdejepa.studies.compare.paper_claims import METHOD
from pdejepa.training.batches import generator
from pdejepa.training.budget import TotalBudget
from pdejepa.training.flops import counted
from pdejepa.training.settings import StageTraining
from pdejepa.training.stage import Keep
from pdejepa.training.timing import Limit
from pdejepa.training.training_data import TrainingData

N_SCORED_IN_TRIALS = 16  # trajectories of valid that PDE-JEPA is scored on where a limit binds its trials


class Entry(ABC):
    """One competitor in one comparison."""

    card: Card
    history: int
    n_parameters: int

    @property
    def field_stages(self) -> tuple[str, ...]:
        """The stages whose score is the error of forecast fields on valid."""
        return ()

    @abstractmethod
    def fit(
        self,
        pool: Pool,
        budget: TotalBudget,
        folder: Path,
        factor: float,
        keep: Keep = "files",
        limit: Limit | None = None,
    ) -> dict[str, Any]:
        """Train in a folder; steps, seconds and score of every stage.  The last score tells how good it became.

        keep: where the weights are kept, see `stage.Keep`.
        limit: when it ends, whatever it does; then the seconds of the budget only tell the shares of the stages.
        """

    @abstractmethod
    def forecast(self, u: Tensor, xi: Tensor, n_frames: int, support: Tensor | None) -> Forecast:
        """Fields in physical units, the observed frames u (B,H,C,*grid) first."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what was trained, to be loaded again by `pdejepa.load`."""

    @abstractmethod
    def forecast_flops(self, pool: Pool) -> float | None:
        """Operations of a whole forecast of one row, what comes before it aside; None where counting misses most."""

    def has_compiled_parts(self, pool: Pool) -> bool:
        """Whether a GPU compiles parts of it before it trains."""
        return True


class SolverEntry(Entry):
    """A published solver."""

    def __init__(self, name: str, recipe: str, seed: int) -> None:
        self.kind, self.recipe_name, self.seed = baselines.get(name), recipe, seed
        self.card, self.history = self.kind.card, self.kind.card.history
        self.solver: Baseline | None = None

    @property
    def field_stages(self) -> tuple[str, ...]:
        return () if self.card.adapts == "gradient" else self.card.stages[-1:]

    def fit(
        self,
        pool: Pool,
        budget: TotalBudget,
        folder: Path,
        factor: float,
        keep: Keep = "files",
        limit: Limit | None = None,
    ) -> dict[str, Any]:
        recipe = faster(self.kind.recipe(self.recipe_name, pool.task), factor)
        self.solver = build(self.kind, recipe, pool, self.seed)
        learnt = self.solver.state_dict().values() if self.kind.card.is_closed_form else self.solver.parameters()
        self.n_parameters = sum(p.numel() for p in learnt)
        self.card, self.history = self.solver.card, self.solver.card.history  # some look at more frames on some systems
        return fit(self.solver, recipe, pool, folder, budget, self.seed, keep=keep, limit=limit)

    def save(self, folder: Path) -> None:
        assert self.solver is not None
        save(self.solver, folder, self.recipe_name)

    def forecast(self, u: Tensor, xi: Tensor, n_frames: int, support: Tensor | None) -> Forecast:
        assert self.solver is not None
        return forecast(self.solver, u, xi, n_frames, support, generator(u.device, self.seed, "forecast"))

    def forecast_flops(self, pool: Pool) -> float | None:
        assert self.solver is not None
        if self.card.is_closed_form:
            return None
        data, draws = pool.data, generator(pool.data.xi["test"].device, self.seed, "operations")
        row = torch.zeros(1, dtype=torch.int64, device=data.xi["test"].device)
        support = pool.support_fields("test", row, 1, torch.zeros((1, 1), device=row.device))
        state, n_new = self.solver.adapt(support, data.xi["test"][row], draws), data.n_frames - self.history
        with torch.no_grad():
            u = data.fields["test"][row, : self.history]
            return counted(lambda: self.solver.rollout(u, state, n_new, draws))  # type: ignore[union-attr]

    def has_compiled_parts(self, pool: Pool) -> bool:
        made = build(self.kind, self.kind.recipe(self.recipe_name, pool.task), pool, self.seed)
        return any(getattr(part, "compiles", False) for part in made.modules())


class MethodEntry(Entry):
    """PDE-JEPA."""

    card = CARD

    def __init__(self, system: str, recipe: str, seed: int, amplitude: Amplitude = "as_is") -> None:
        # The data of a comparison are the same for all: all rescale trajectories, or none.
        self.config = dataclasses.replace(recipes.get(system, recipe), seed=seed, amplitude=amplitude)
        self.recipe_name = recipe
        self.history = self.config.history
        self.model: Surrogate | None = None

    @property
    def field_stages(self) -> tuple[str, ...]:
        return ("decode", "polish")

    def fit(
        self,
        pool: Pool,
        budget: TotalBudget,
        folder: Path,
        factor: float,
        keep: Keep = "files",
        limit: Limit | None = None,
    ) -> dict[str, Any]:
        device = pool.data.fields["train"].device
        precision = self.config.precision if device.type == "cuda" else "fp32"  # as for all others, see `fit`
        config = dataclasses.replace(self.config, device=str(device), precision=precision)
        config = with_seconds(config, budget.amount) if budget.unit == "seconds" else with_parts(config, budget)
        config = scaled(config, factor)
        n_scored = N_SCORED_IN_TRIALS if keep == "trial" else N_SCORED
        data = pool.data if limit is None else _with_valid(pool.data, n_scored)
        trained = train_stages(config, folder, say=lambda _: None, data=data, keep=keep, limit=limit)
        self.model = trained.model
        self.n_parameters = sum(p.numel() for p in trained.model.parameters())
        return trained.reports

    def save(self, folder: Path) -> None:
        assert self.model is not None
        save_model(self.model, folder, {"recipe": self.recipe_name, "seed": self.config.seed})

    def forecast(self, u: Tensor, xi: Tensor, n_frames: int, support: Tensor | None) -> Forecast:
        assert self.model is not None
        forecaster = Forecaster(self.model, {}, u.device)
        forecaster.takes_finer_steps = False  # a rule that was found on the very splits that are judged here
        return forecaster.forecast(u, xi, n_frames=n_frames)

    def forecast_flops(self, pool: Pool) -> float | None:
        data = pool.data
        u, xi = data.fields["test"][:1, : self.history], data.xi["test"][:1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExtrapolationWarning)  # values do not matter
            return counted(lambda: self.forecast(u, xi, data.n_frames - self.history, None))


def make(name: str, system: str, recipe: str, seed: int, amplitude: Amplitude = "as_is") -> Entry:
    """The competitor of that name, untrained."""
    check_name(name, names())
    return MethodEntry(system, recipe, seed, amplitude) if name == METHOD else SolverEntry(name, recipe, seed)


def longest_history(task: Task, recipe: str) -> int:
    """True frames that the most demanding forecaster begins with on this system, whether it takes part or not."""
    kinds = [kind for kind in map(baselines.get, baselines.NAMES) if kind.card.is_forecaster]
    return max(kind.history_of(kind.recipe(recipe, task).model) for kind in kinds)


def faster(recipe: Recipe, factor: float) -> Recipe:
    """The recipe of a solver with all learning rates scaled."""
    return recipe.map_training(lambda part: _scaled(part.training, factor))


def scaled(config: RunConfig, factor: float) -> RunConfig:
    """The same for the method."""
    return map_training(config, lambda _, training: _scaled(training, factor))


def with_parts(config: RunConfig, budget: TotalBudget) -> RunConfig:
    """The method with a number of steps or operations for all stages together, shared out evenly."""
    part = budget.of_stage(1 / len(config.stages))
    return map_training(config, lambda _, training: dataclasses.replace(training, budget=part))


def _with_valid(data: TrainingData, n: int) -> TrainingData:
    """The same data with the first n trajectories of valid: scores cost seconds too."""
    few = torch.arange(min(n, data.n("valid")), device=data.xi["valid"].device)
    fields, xi = {**data.fields, "valid": data.fields["valid"][few]}, {**data.xi, "valid": data.xi["valid"][few]}
    return dataclasses.replace(data, fields=fields, xi=xi)


def _scaled(training: StageTraining, factor: float) -> StageTraining:
    old = training.optimiser
    return dataclasses.replace(
        training, optimiser=dataclasses.replace(old, lr=old.lr * factor, muon_lr=old.muon_lr * factor)
    )

"""Classical solvers: fitted at once, from all trajectories of train, instead of by gradient steps.

    solver = build(kind, recipe, pool)
    fit(solver, recipe, pool, folder)      calls solver.solve_for(data) where others take their steps

They answer the same calls as all solvers, are judged, saved and loaded in the same way, and take no budget: what the
fit costs is its seconds.  What they learn is held in buffers, whose shapes follow from configuration and task.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pdejepa.baselines.baseline import Baseline, Recipe, StageRecipe
from pdejepa.core.errors import ConfigError
from pdejepa.core.weights import first_not_finite, gather
from pdejepa.forecast.interface import State
from pdejepa.operators.norms import relative_error
from pdejepa.training.checkpoint import StageFolder
from pdejepa.training.memory_store import Scratch
from pdejepa.training.metrics_log import append_line
from pdejepa.training.plan import check_upstream
from pdejepa.training.resume import Best
from pdejepa.training.settings import Budget, StageTraining
from pdejepa.training.stage import Batch, Context, Say, Stage
from pdejepa.training.stage_result import load_result, write_result
from pdejepa.training.training_data import TrainingData

N_JUDGED = 32  # trajectories of valid that choose
LOST = 1.0  # error of a row that blew up, as where forecasts are judged
AT_ONCE = StageTraining(budget=Budget(steps=1), batch=1, n_scores=1)


class ClosedForm(Baseline):
    """A solver that is fitted at once.  Subclasses fill in `solve_for`, which sets the buffers."""

    @abstractmethod
    def solve_for(self, data: TrainingData, say: Say) -> None:
        """Learn from the trajectories of train; valid may choose sizes and penalties.  Fields are standardised."""

    def adapt(
        self, support: Tensor | None = None, xi: Tensor | None = None, generator: torch.Generator | None = None
    ) -> State:
        """The parameters of the equation, as they are told."""
        return {"xi": self.card.given("xi", xi)}

    def error_on_valid(self, data: TrainingData) -> float:
        """Mean error of whole forecasts of some trajectories, with what is learned so far."""
        u, xi = data.fields["valid"][:N_JUDGED], data.xi["valid"][:N_JUDGED]
        error = relative_error(self.rollout(u[:, :1], self.adapt(xi=xi), u.shape[1] - 1), u[:, 1:])
        return float(torch.where(error.isfinite(), error.clamp(max=LOST), LOST).mean())

    def loss(self, stage: str, batch: Batch) -> dict[str, Tensor]:
        raise ConfigError(f"{self.card.title} is fitted at once: it takes no steps and has no loss. Use fit.fit(...).")


def at_once(model: Any) -> Recipe:
    """The recipe of a solver that is fitted at once: its configuration, and one stage without a choice."""
    return Recipe(model, (StageRecipe("fit", AT_ONCE),))


def run_at_once(stage: Stage, solve: Callable[[], None], folder: Path, context: Context) -> dict[str, Any]:
    """`run_stage` for a stage that is solved for: the same files and the same report, and 0 steps."""
    kind = StageFolder if context.keep == "files" else Scratch
    store = kind(folder, stage.settings.keep, context.say)
    done = store.read_done()
    if done is not None:
        check_upstream(stage.name, done["upstream"], context.upstream)
        result = load_result(stage, store)
        store.say(f"{stage.name}: finished.")
        return result
    begun = time.monotonic()
    solve()
    bad = first_not_finite(gather(stage.saved()))
    if bad:
        raise ConfigError(f"{stage.name}: {bad} of the fit holds values that are not finite. Look at the data: audit.")
    seconds, scores = time.monotonic() - begun, stage.score()
    store.root.mkdir(parents=True, exist_ok=True)
    append_line(store.root / "metrics.jsonl", {"step": 0, "valid": scores})
    write_result(stage, store, 0, Best(0, scores["score"]), context.upstream, seconds)
    return load_result(stage, store)

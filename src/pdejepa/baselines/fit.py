"""Training a solver: its stages one after the other, through the same loop, files and budgets as the method itself.

    RUN/
      <stage>/            as in any run (see `pdejepa.training.metrics_log`), one folder per stage of the solver
      solver.json         what was asked for, written first; steps, scores and seconds, added when all stages are done
      .lock               one process per run

A folder is continued with what it was begun with, or not at all.
A budget may be given for all stages together, in seconds, steps or FLOPs; each stage gets its share.
Letters: B samples of a step, T frames of a window, K support trajectories.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pdejepa.baselines.baseline import Baseline, Recipe, StageRecipe
from pdejepa.baselines.closed_form import ClosedForm, run_at_once
from pdejepa.baselines.pool import Pool
from pdejepa.baselines.solver_settings import asked_for, remember
from pdejepa.core.device import single_precision, tf32
from pdejepa.core.errors import ConfigError
from pdejepa.core.files import lock, write_json
from pdejepa.core.run_folder import SOLVER_NAME
from pdejepa.core.seeds import derive_seed
from pdejepa.models.blocks import compile_blocks
from pdejepa.operators.norms import relative_error
from pdejepa.training.batches import Shuffles, generator, in_pieces, own_slice
from pdejepa.training.budget import TotalBudget
from pdejepa.training.interrupts import stop_if_asked
from pdejepa.training.loop import run_stage
from pdejepa.training.settings import StageTraining
from pdejepa.training.stage import Batch, Context, Keep, Stage, silent
from pdejepa.training.timing import Limit

N_SCORED = 64  # trajectories of valid that a score looks at
N_DRAWN = 3  # frames of a score that have to be drawn
DIVERGED = 1.0  # the error of a forecast whose values are not finite, as where forecasts are judged


class FitStage(Stage):
    """One stage of one solver, for the training loop."""

    def __init__(self, solver: Baseline, recipe: StageRecipe, pool: Pool, context: Context, seed: int) -> None:
        super().__init__(recipe.training, pool.data.n("train"))
        self.name = recipe.name  # type: ignore[misc]  # a class variable elsewhere: here every object is another stage
        self.solver, self.pool, self.context, self.seed = solver, pool, context, seed
        self.shuffles = Shuffles(self.n_samples, seed, self._word, context.device)
        self.to(context.device)

    @property
    def _word(self) -> str:
        return f"{self.solver.card.name} {self.name}"

    def trained(self) -> dict[str, nn.Module]:
        return self.solver.trained(self.name)

    def saved(self) -> dict[str, nn.Module]:
        return {"solver": self.solver}

    def trajectories(self, step: int) -> list[int]:
        return [int(row) for row in self.shuffles.take(step, self.settings.batch)]

    def batch(self, step: int, n_steps: int) -> Batch:
        rows = own_slice(self.shuffles.take(step, self.settings.batch), self.context.rank, self.context.world)
        return self.windows("train", rows, step / n_steps, ("train", step))

    def windows(self, split: str, rows: Tensor, share: float, words: tuple[object, ...]) -> Batch:
        """Windows of some trajectories at random places; `words` decide all random numbers."""
        data, window = self.pool.data, self.solver.window(self.name, share)
        draws = generator(self.context.device, self.seed, self._word, *words)
        n, width = data.n_frames, min(window.n_frames or data.n_frames, data.n_frames)
        first = torch.randint(-window.lead, n - width + 1, (len(rows),), generator=draws, device=rows.device)
        if window.at_start > 0:
            is_early = torch.rand((len(rows),), generator=draws, device=rows.device) < window.at_start
            first = torch.where(is_early, -window.lead, first)
        frames = (first[:, None] + torch.arange(width, device=rows.device)).clamp(min=0)  # (B,T)
        batch = {
            "u": data.fields[split][rows[:, None], frames],
            "frame": first,
            "xi": data.xi[split][rows],
            "environment": self.pool.environment[split][rows],
            "share": torch.full((), share, device=rows.device),
        }
        if window.n_support:
            picks = torch.rand((len(rows), window.n_support), generator=draws, device=rows.device)
            batch["support"] = self.pool.support_fields(split, rows, window.n_support, picks)
        return {**batch, **self.solver.draws(self.name, batch, draws)}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return self.solver.loss(self.name, batch)

    @torch.no_grad()
    def score(self) -> dict[str, float]:
        """Error of whole rollouts on valid, in the last stage of a forecaster; the loss elsewhere.

        Codes of environments are known for train only, so solvers that fit codes are judged by their loss there.  Those
        that draw their forecasts, which takes long, forecast few frames: losses in latents of their own would prefer
        an autoencoder that keeps little, because little is easy to predict.
        """
        card = self.solver.card
        if card.adapts == "gradient":
            return {"score": self._loss("train")}
        rolls = card.is_forecaster and self.name == card.stages[-1]
        return {"score": self._rollout_error() if rolls else self._loss("valid")}

    def _loss(self, split: str) -> float:
        rows = torch.arange(min(N_SCORED, self.pool.data.n(split)), device=self.context.device)
        parts = [rows[part] for part in in_pieces(len(rows), self.settings.batch)]
        told = [self(self.windows(split, part, 1.0, ("score", split))) for part in parts]
        # Where penalties are added to the error, they may outweigh what is left of it.
        losses = [float(found.get("error", found["loss"])) for found in told]
        return sum(loss * len(part) for loss, part in zip(losses, parts, strict=True)) / len(rows)

    def _rollout_error(self) -> float:
        """Mean over one true frame and as many as the solver has room for, up to where the common tail begins.

        Without a comparison there is no such tail: half a trajectory at most.
        """
        card = self.solver.card
        longest = self.pool.tail_from or self.pool.data.n_frames // 2
        starts = {1, max(card.history, min(card.looks_at, longest))}
        return sum(self._rollout_error_from(n) for n in starts) / len(starts)

    def _rollout_error_from(self, history: int) -> float:
        data, card = self.pool.data, self.solver.card
        n_frames, errors, n_rows = data.n_frames, [], N_SCORED
        if card.is_stochastic:
            n_frames, n_rows = min(n_frames, history + N_DRAWN), N_SCORED // 2
        rows = torch.arange(min(n_rows, data.n("valid")), device=self.context.device)
        for part in in_pieces(len(rows), 32):
            stop_if_asked()
            own, draws = rows[part], generator(self.context.device, self.seed, self._word, "score")
            support = None
            if "support" in card.needs:
                picks = torch.zeros((len(own), 1), device=own.device)
                support = self.pool.support_fields("valid", own, 1, picks)
            state = self.solver.adapt(support, data.xi["valid"][own], draws)
            u = data.fields["valid"][own, :n_frames]
            u_hat = self.solver.rollout(u[:, :history], state, n_frames - history, draws)
            errors.append(relative_error(u_hat, u[:, history:]))
        found = torch.cat(errors)
        return float(torch.where(found.isfinite(), found, DIVERGED).mean())


def fit(
    solver: Baseline,
    recipe: Recipe,
    pool: Pool,
    out: str | os.PathLike[str],
    budget: TotalBudget | None = None,
    seed: int = 0,
    say: Callable[[str], object] = silent,
    keep: Keep = "files",
    limit: Limit | None = None,
) -> dict[str, Any]:
    """Train (or go on with) a solver in the folder `out`; return steps, seconds and score of every stage.

    keep: where the weights are kept, see `stage.Keep`.  limit: in memory, when all stages together end.
    Raises ConfigError if the solver was not built with this recipe for these data, or the folder was begun with
    something else, and what `run_stage` raises.
    """
    _check_pair(solver, recipe, pool)
    device, folder, begun, report = pool.data.fields["train"].device, Path(out), time.monotonic(), {}
    upstream = {"data": pool.data.hash}
    context = Context(device, seed, keep=keep, say=say, shown="bar")
    with lock(folder, wait=False) if keep == "files" else nullcontext():
        asked = remember(folder, asked_for(solver, recipe, pool, "" if budget is None else str(budget), seed))
        if device.type == "cuda":
            compile_blocks(solver)
        parts = _with_budget(recipe, budget).stages
        for number, part in enumerate(parts):
            stage = FitStage(solver, part, pool, Context(device), seed)
            precision = part.precision if device.type == "cuda" else "fp32"
            is_recorded = part.name not in solver.card.unrecorded
            own = dataclasses.replace(context, upstream=dict(upstream), record=is_recorded, precision=precision)
            if limit is not None:
                own = dataclasses.replace(own, limit=limit.of_stage(part.share / sum(p.share for p in parts[number:])))
            with tf32(device), single_precision():
                report[part.name] = _run(stage, folder / part.name, own)
            upstream[part.name] = report[part.name]["weights_sha256"]
        write_json(folder / SOLVER_NAME, {"asked": asked, "stages": report, "seconds": time.monotonic() - begun})
    return report


def _run(stage: FitStage, folder: Path, context: Context) -> dict[str, Any]:
    """Train a stage, or solve for what is fitted at once."""
    solver, data = stage.solver, stage.pool.data
    if isinstance(solver, ClosedForm):
        return run_at_once(stage, lambda: solver.solve_for(data, context.say), folder, context)
    return run_stage(stage, folder, context)


def _check_pair(solver: Baseline, recipe: Recipe, pool: Pool) -> None:
    """Refuse to train a solver on data, or by a recipe, that it was not built for: it would answer in wrong units."""
    name, own, data = solver.card.title, solver.task, pool.data
    if recipe.model != solver.config or [part.name for part in recipe.stages] != list(solver.card.stages):
        raise ConfigError(f"This {name} was not built with this recipe. Build it anew: build(kind, recipe, pool).")
    if (own.problem, own.statistics, own.n_environments) != (data.problem, data.statistics, pool.task.n_environments):
        raise ConfigError(
            f"This {name} was built for other data: its {own.problem.name} has mean {own.statistics.mean} and spread "
            f"{own.statistics.std} in {own.n_environments} environments, the {data.problem.name} of the pool "
            f"{data.statistics.mean}, {data.statistics.std} and {pool.task.n_environments}. Build it with this pool."
        )


def _with_budget(recipe: Recipe, budget: TotalBudget | None) -> Recipe:
    """Every stage with its share of a budget for all of them, and in bf16 judged with rounded weights."""
    total = sum(part.share for part in recipe.stages)

    def change(part: StageRecipe) -> StageTraining:
        own = part.training.budget if budget is None else budget.of_stage(part.share / total)
        return dataclasses.replace(part.training, budget=own, rounds=True)

    return recipe.map_training(change)


def build(solver: type[Baseline], recipe: Recipe, pool: Pool, seed: int = 0) -> Baseline:
    """A fresh solver whose initial weights depend on the seed and its name only."""
    with torch.random.fork_rng(devices=[]), single_precision():
        torch.manual_seed(derive_seed(seed, solver.card.name, "weights"))
        made = solver(recipe.model, pool.task)
    return made.to(pool.data.fields["train"].device)

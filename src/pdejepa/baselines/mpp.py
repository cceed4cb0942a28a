"""MPP (McCabe et al., NeurIPS 2024): the axial transformer AViT-B, which reads the equation off the frames it sees.

    u_{t+1} = AViT(u_{t-k+1}, .., u_t),    k up to 16             (the network is in `avit`)
    L = mean over rows and channels of  |u_hat - u|^2 / (|u|^2 + 1e-7),   means over space

A rollout begins with the frames that are observed; its own frames join them until the history is full.  So training
meets all lengths of history: each step draws one, from 2 to 16 or to what a trajectory allows.  Lines are repeated
along a second axis of 16 points; their forecasts are averaged over it.
Trained with Adan and D-Adaptation, 500 x 125 steps of 16 windows, from random weights.

Ours differs: parts of blocks are dropped for whole rows, not for single frames, at rates up to 0.1 as published (the
public code runs with 0.2).  Training stays in float32 (TF32 in convolutions, as PyTorch has it by default): its norms
divide by the spread of tokens around a mean that may be a thousand times larger, and of tokens rounded to bfloat16
nothing is left but the mean.  How many true frames a rollout starts with is not published; ours takes two, the fewest
from which a speed can be seen (a single one is repeated), or as many as it is given.  Forecasts from one frame begin
with its repetition, which windows at random places hardly ever do (one in 150): so a third of the steps has histories
of two frames, and half of all windows begin with the first frame, repeated.  A channel without any spread (u_t of
Wave-2D, which starts at rest) is not divided by it, or no output could ever move it.  `tiny` uses AdamW: the step size
of Adan begins at 1e-6 and grows by 5 % per step, so a few steps would not move anything.
Letters: B rows, T frames, C channels, *grid spatial axes, k frames of a history.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from torch import Tensor, nn

from pdejepa.baselines.baseline import BUDGETS, Baseline, Recipe, StageRecipe, Window, at_least
from pdejepa.baselines.blocks.avit import PATCH, Avit, AvitConfig
from pdejepa.baselines.blocks.lift import Lift, Repeat, Resize
from pdejepa.baselines.task import Task
from pdejepa.core.seeds import derive_seed
from pdejepa.forecast.interface import Card, State
from pdejepa.training.settings import Budget, OptimiserConfig, ScheduleConfig, StageTraining
from pdejepa.training.stage import Batch

N_STEPS = 500 * 125
N_WARM = 50
EPS = 1e-7


class Mpp(Baseline):
    card = Card(
        name="mpp",
        title="MPP (AViT-B)",
        paper="McCabe et al., Multiple Physics Pretraining for Spatiotemporal Surrogate Models, NeurIPS 2024",
        history=2,
        looks_at=16,
    )
    rates: Tensor

    def __init__(self, config: AvitConfig, task: Task) -> None:
        super().__init__(config, task)
        axes, grid = task.problem.periodic_axes, task.grid
        self.lift: Lift = Repeat(PATCH) if task.ndim == 1 else Resize(grid, grid)
        plane, periodic = ((grid[0], PATCH), (axes[0], False)) if task.ndim == 1 else (grid, axes)
        self.net = Avit(config, task.n_channels, (plane[0], plane[1]), (periodic[0], periodic[1]))
        rates = torch.linspace(0.0, config.drop_path, config.depth, device="cpu")
        self.register_buffer("rates", rates[:, None], persistent=False)  # (depth,1)

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        n_tokens = 1
        for n in task.grid:
            n_tokens *= n // PATCH
        norm: Literal["std", "rms"] = "rms" if n_tokens <= 4 and task.ndim == 2 else "std"
        adan = OptimiserConfig(kind="adan", lr=1.0, weight_decay=1e-3, clip=1.0)
        training = StageTraining(
            budget=Budget(steps=N_STEPS) if name == "paper" else BUDGETS[name](500),
            batch=16 if name != "tiny" else 8,
            optimiser=adan if name != "tiny" else OptimiserConfig(lr=1e-3, weight_decay=1e-3),
            schedule=ScheduleConfig(kind="cosine", warmup=N_WARM / N_STEPS if name == "paper" else 0.01),
            n_scores=5,
        )
        model = AvitConfig(16, 2, 2, norm=norm, history=4) if name == "tiny" else AvitConfig(norm=norm)
        return Recipe(model, (StageRecipe("fit", training),))

    @classmethod
    def laptop(cls, model: AvitConfig, task: Task) -> AvitConfig:
        width, depth = (96, 4) if task.ndim == 1 else (192, 8)
        return dataclasses.replace(model, width=width, depth=depth)

    def trained(self, stage: str) -> dict[str, nn.Module]:
        return {"net": self.net}

    # ---- training ----------------------------------------------------------------------------------------------
    def window(self, stage: str, share: float) -> Window:
        """A history of any length from 2 on, and the frame after it; the middle length in step 0, the usual example."""
        n_lengths = min(self.config.history, self.task.n_frames - 1) - 1
        draw, is_long = divmod(derive_seed(0, "mpp window", repr(share)), 3)
        longer = (draw % n_lengths if is_long else 0) if share > 0 else n_lengths // 2
        return Window(2 + longer + 1, lead=1, at_start=0.5)

    def draws(self, stage: str, batch: Batch, generator: torch.Generator) -> Batch:
        shape = (len(batch["u"]), self.config.depth, 3)
        return {"drop": torch.rand(shape, generator=generator, device=batch["u"].device)}

    def loss(self, stage: str, batch: Batch) -> dict[str, Tensor]:
        u, space = batch["u"], tuple(range(2, batch["u"].ndim - 1))
        keep = (batch["drop"] >= self.rates) / (1.0 - self.rates)  # (B,depth,3)
        error = (self.step(u[:, :-1], keep) - u[:, -1]).square().mean(space)  # (B,C)
        return {"loss": (error / (u[:, -1].square().mean(space) + EPS)).mean()}

    # ---- forecasts ---------------------------------------------------------------------------------------------
    def step(self, u: Tensor, keep: Tensor | None = None) -> Tensor:
        """The frame (B,C,*grid) after the frames u (B,T,C,*grid)."""
        return self.lift.inverse(self.net(self.lift(u), keep))

    def rollout(self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None) -> Tensor:
        frames = at_least(self.card.history, u_hist)  # the network has never seen a history of one frame
        for _ in range(n_frames):
            frames = torch.cat((frames, self.step(frames[:, -self.config.history :])[:, None]), 1)
        return frames[:, frames.shape[1] - n_frames :]


SOLVER = Mpp

"""GEPS (Kassai Koupai et al., NeurIPS 2024): a Fourier network adapted to every environment by a code of four numbers.

    u_{t+1} = u_t + f(u_t; theta(c_e))             one Euler step of a learned rate of change
    W(c) = W + A diag(c) B,   b(c) = b + B_b^T c,   Swish slope softplus(b + w^T c)

f is an FNO on the field and its coordinates; spectral weights have real factors A and B at every mode.  Training fits
the weights and one code per training environment on rollouts of 1, then 2, then 4 steps (a third of the steps each)
with the relative L2 error.  A new environment starts from the mean code of training; the code alone is fitted to its
support trajectory by Adam on the mean square error of 4-step rollouts.

Ours differs: time is counted in frames and the output is not scaled, since fields are standardised here (published:
physical times, in 2-D an output times 5e-4); the network works on the grid of the data; factors of local kernels of
more than one point have one value per point of the kernel, as the spectral ones have per mode; margins follow the
boundary of the system (published: a ring); codes end at a rate of 1e-4 where weights end at 1e-5; a new code is fitted
by Adam with its usual moments.
Letters: B rows, K support trajectories, C channels, *grid spatial axes, d numbers of a code.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from pdejepa.baselines.baseline import BUDGETS, Baseline, Recipe, StageRecipe, Window, march, mean_frame_error
from pdejepa.baselines.blocks.fit_code import fit_code
from pdejepa.baselines.blocks.hypernetworks import Code, Codes, Coding, FourierNet, FourierShape
from pdejepa.baselines.task import Task
from pdejepa.forecast.interface import Card, State
from pdejepa.training.settings import OptimiserConfig, ScheduleConfig, StageTraining
from pdejepa.training.stage import Batch

CURRICULUM = (1, 2, 4)  # rolled steps, a third of training each


@dataclass(frozen=True)
class GepsConfig:
    net: FourierShape
    code: int = 4
    adapt_steps: int = 500
    adapt_lr: float = 1e-2
    adapt_rolled: int = 4


class Geps(Baseline):
    card = Card(
        name="geps",
        title="GEPS",
        paper="Kassai Koupai et al., Boosting Generalization in Parametric PDE Neural Solvers through Adaptive "
        "Conditioning, NeurIPS 2024",
        needs=frozenset({"environment"}),
        adapts="gradient",
    )

    def __init__(self, config: GepsConfig, task: Task) -> None:
        super().__init__(config, task)
        coding = Coding(config.code, "low")
        self.net = FourierNet(task.n_channels, task.n_channels, config.net, task, coding)
        self.codes = Codes(task.n_environments, config.code)

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        published = FourierShape(64, 16, 8) if task.ndim == 1 else FourierShape(16, 12, 4, kernel=7)
        model = GepsConfig(published)
        if name == "tiny":
            model = GepsConfig(FourierShape(8, 4, 2, kernel=3, head=16), adapt_steps=2, adapt_rolled=2)
        training = StageTraining(
            budget=BUDGETS[name](20_000),
            batch={"tiny": 8}.get(name, 256 if task.problem.name == "heterns" else 64),
            optimiser=OptimiserConfig(
                kind="adam", lr=1e-3, betas=(0.9, 0.9), weight_decay=0.0, clip=1.0, factors={"codes": 10.0}
            ),
            schedule=ScheduleConfig(kind="cosine", warmup=0.0, final=1e-2),
            n_scores=5,
        )
        return Recipe(model, (StageRecipe("fit", training),))

    @classmethod
    def laptop(cls, model: GepsConfig, task: Task) -> GepsConfig:
        return dataclasses.replace(model, net=dataclasses.replace(model.net, width=155 if task.ndim == 1 else 16))

    def window(self, stage: str, share: float) -> Window:
        return Window(1 + CURRICULUM[min(int(3 * share), 2)])

    def loss(self, stage: str, batch: Batch) -> dict[str, Tensor]:
        u, code = batch["u"], Code(self.codes(batch["environment"]))
        u_hat = march(lambda history: self.step(history[:, -1], code), u[:, :1], 1, u.shape[1] - 1)
        return {"loss": mean_frame_error(u_hat, u[:, 1:])}

    def step(self, u: Tensor, code: Code) -> Tensor:
        """The frames (B,C,*grid) after u under codes (B,d)."""
        return u + self.net(u, code)

    def adapt(
        self, support: Tensor | None = None, xi: Tensor | None = None, generator: torch.Generator | None = None
    ) -> State:
        support = self.card.given("support", support)
        config, start = self.config, self.codes.table.mean(0)
        return {"code": fit_code(start, support, self.step, config.adapt_rolled, config.adapt_steps, config.adapt_lr)}

    def rollout(
        self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None
    ) -> Tensor:
        code = Code(state["code"])
        return march(lambda history: self.step(history[:, -1], code), u_hist, 1, n_frames)


SOLVER = Geps

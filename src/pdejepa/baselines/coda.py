"""CoDA (Kirchmeyer et al., ICML 2022): a vector field whose weights move with a code of the environment.

    du/dt = f(u; theta + W c_e)                    c_e in R^d, one per environment; W linear, without bias
    loss = mean |u_hat - u|^2 + lambda_c |c_e|^2 + lambda_W sum_rows |W_row|

f is a stack of four convolutions with Swish in between, or, for the two flows in vorticity form, an FNO.  Between
frames f is integrated by a fourth-order Runge-Kutta step (the 3/8 rule), or an Euler step for the flows.  In training
the rollout restarts from the true frame with probability eps = exp(-10 share done).  At test time theta and W are
frozen, and Adam fits the code alone to the support trajectory.

Ours differs: a code has two numbers, as published, where one or two parameters vary, three where three do (Combined),
and four where there are more; time is counted in frames and outputs are not scaled, since fields are standardised here;
rows of a batch may come from any environments and weigh |c_e|^2 by their number, where small published data let all of
them take part; eps falls with the share of the steps done, not with their number; W starts as spread out as the weights
it moves; codes are fitted by 500 steps on short rollouts from every frame in turn; margins follow the boundary of the
system (published: a ring).  On a line, for which nothing is published, kernels have seven points, 1, 2, 4 and 8 apart
in the four layers: so in one step every point sees all others, as on the published grid of 32x32.  `fast` trains on
windows of 8 frames where grids are planes, along a cosine, and with ten times the learning rate for codes, or they
would hardly leave zero in minutes.
Letters: B rows, T frames, C channels, *grid spatial axes, d numbers of a code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from pdejepa.baselines.baseline import BUDGETS, Baseline, Recipe, StageRecipe, Window, march
from pdejepa.baselines.blocks.fit_code import fit_code
from pdejepa.baselines.blocks.hypernetworks import Code, CodedConv, Codes, Coding, FourierNet, FourierShape, Swish
from pdejepa.baselines.task import Task
from pdejepa.forecast.interface import Card, State
from pdejepa.training.settings import OptimiserConfig, ScheduleConfig, StageTraining
from pdejepa.training.stage import Batch

FLOWS = ("vorticity", "heterns")
EPS_FALL = 10.0
N_STEPS = 120_000  # published as epochs of data that are one batch
FEWEST, MOST = 2, 4  # numbers of a code


@dataclass(frozen=True)
class CodaConfig:
    root: Literal["conv", "fourier"] = "conv"
    width: int = 64
    kernel: int = 3
    dilations: tuple[int, int, int, int] = (1, 1, 1, 1)  # of the four convolutions: how far apart their points are
    fourier: FourierShape = field(default_factory=lambda: FourierShape(10, 12))
    integrator: Literal["rk4", "euler"] = "rk4"
    code: int = 2
    lambda_c: float = 1e-4
    lambda_w: float = 1e-6
    n_frames: int = 0  # of a training window; 0: the whole trajectory
    adapt_steps: int = 500
    adapt_lr: float = 1e-3
    adapt_rolled: int = 4


class ConvRoot(nn.Module):
    """(B,C,*grid) -> (B,C,*grid): four convolutions, Swish in between."""

    def __init__(self, config: CodaConfig, task: Task, coding: Coding) -> None:
        super().__init__()
        widths = (task.n_channels, *[config.width] * 3, task.n_channels)
        self.convs = nn.ModuleList(
            CodedConv(n_in, n_out, config.kernel, task.ndim, coding, task.padding, dilation)
            for (n_in, n_out), dilation in zip(pairwise(widths), config.dilations, strict=True)
        )
        self.act = nn.ModuleList(Swish(coding) for _ in range(3))

    def forward(self, u: Tensor, code: Code) -> Tensor:
        for conv, act in zip(self.convs, self.act, strict=False):
            u = act(conv(u, code), code)
        return self.convs[-1](u, code)


def rk4_38(f: Callable[[Tensor], Tensor], u: Tensor) -> Tensor:
    """One step of size 1 of the 3/8 rule: nodes 0, 1/3, 2/3, 1 and weights 1/8, 3/8, 3/8, 1/8."""
    k1 = f(u)
    k2 = f(u + k1 / 3)
    k3 = f(u - k1 / 3 + k2)
    k4 = f(u + k1 - k2 + k3)
    return u + (k1 + 3 * k2 + 3 * k3 + k4) / 8


class Coda(Baseline):
    card = Card(
        name="coda",
        title="CoDA",
        paper="Kirchmeyer et al., Generalizing to New Physical Systems via Context-Informed Dynamics Model, ICML 2022",
        needs=frozenset({"environment"}),
        adapts="gradient",
    )
    TRAINING_ONLY = ("codes",)  # new codes start from zero

    def __init__(self, config: CodaConfig, task: Task) -> None:
        super().__init__(config, task)
        coding, C = Coding(config.code, "full"), task.n_channels
        self.root: nn.Module = (
            ConvRoot(config, task, coding)
            if config.root == "conv"
            else FourierNet(C, C, config.fourier, task, coding)
        )
        self.codes = Codes(task.n_environments, config.code)

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        is_flow, is_line, is_short = task.problem.name in FLOWS, task.ndim == 1, name != "paper"
        model = CodaConfig(
            root="fourier" if is_flow else "conv",
            kernel=7 if is_line else 3,
            dilations=(1, 2, 4, 8) if is_line else (1, 1, 1, 1),
            integrator="euler" if is_flow else "rk4",
            code=min(max(task.n_parameters, FEWEST), MOST),
            n_frames=8 if name == "fast" and task.ndim == 2 else 0,
            adapt_lr=1e-2 if is_short else 1e-3,
        )
        if name == "tiny":
            model = CodaConfig(
                width=6, dilations=model.dilations, n_frames=3, adapt_steps=2, adapt_rolled=1, adapt_lr=1e-2
            )
        factors = {"codes": 10.0} if is_short else {}
        batch = 8 if name == "tiny" else 32
        training = StageTraining(
            budget=BUDGETS[name](N_STEPS * batch / task.n_train),
            batch=batch,
            optimiser=OptimiserConfig(kind="adam", lr=1e-3, weight_decay=0.0, clip=1.0, factors=factors),
            schedule=ScheduleConfig(kind="cosine" if is_short else "constant", warmup=0.0),
            n_scores=5,
        )
        return Recipe(model, (StageRecipe("fit", training),))

    @classmethod
    def laptop(cls, model: CodaConfig, task: Task) -> CodaConfig:
        return dataclasses.replace(model, width=68 if task.ndim == 1 else 30)

    def window(self, stage: str, share: float) -> Window:
        return Window(self.config.n_frames)

    def draws(self, stage: str, batch: Batch, generator: torch.Generator) -> Batch:
        u = batch["u"]
        return {"restart": torch.rand(u.shape[:2], generator=generator, device=u.device)}  # (B,T)

    def loss(self, stage: str, batch: Batch) -> dict[str, Tensor]:
        u, code = batch["u"], Code(self.codes(batch["environment"]))
        is_true = batch["restart"] < torch.exp(-EPS_FALL * batch["share"])  # (B,T)
        now, error = u[:, 0], u.new_zeros(())
        for t in range(1, u.shape[1]):
            now = self.step(now, code)
            error = error + (now - u[:, t]).square().mean()
            now = torch.where(is_true[:, t].reshape(-1, *[1] * (now.ndim - 1)), u[:, t], now)
        error = error / (u.shape[1] - 1)
        loss_c, loss_W = code.values.square().sum(1).mean(), self.row_norms()
        total = error + self.config.lambda_c * loss_c + self.config.lambda_w * loss_W
        return {"loss": total, "error": error, "code": loss_c, "rows": loss_W}

    def row_norms(self) -> Tensor:
        """sum over all entries of theta of |(W_1 .. W_d)|, the row of W that moves that entry."""
        return torch.stack([row_norm(p) for name, p in self.root.named_parameters() if is_direction(name)]).sum()

    def step(self, u: Tensor, code: Code) -> Tensor:
        """The frames (B,C,*grid) after u under codes (B,d)."""
        if self.config.integrator == "euler":
            return u + self.root(u, code)
        return rk4_38(lambda v: self.root(v, code), u)

    def adapt(
        self, support: Tensor | None = None, xi: Tensor | None = None, generator: torch.Generator | None = None
    ) -> State:
        support = self.card.given("support", support)
        config, start = self.config, torch.zeros_like(self.codes.table[0])
        return {"code": fit_code(start, support, self.step, config.adapt_rolled, config.adapt_steps, config.adapt_lr)}

    def rollout(
        self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None
    ) -> Tensor:
        code = Code(state["code"])
        return march(lambda history: self.step(history[:, -1], code), u_hist, 1, n_frames)


def is_direction(name: str) -> bool:
    """Whether a parameter of a coded network belongs to W."""
    return name.endswith(("full", "bias_directions", "slope_directions"))


def row_norm(directions: Tensor) -> Tensor:
    """sum |D| over the first axis, for directions (d,...)."""
    return directions.norm(dim=0).sum()


SOLVER = Coda

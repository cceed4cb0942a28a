"""CAPE (Takamoto, Alesiani and Niepert, ICML 2023): a small module in front of an FNO that knows the parameters.

    h = conv(u)
    s = a_1(xi) conv_1x1(h) + a_2(xi) conv_depthwise(h) + a_3(xi) SpectralConv(h) + W h
    v = u + norm( project( GELU(s) ) )             a provisional next frame
    u_{t+1} = FNO(u_t, v, x)

Every channel of the three branches is scaled by its own two-layer network a_b of the parameters; the norm is over
space.  Loss: relative L2 of the FNO's frames + a small coefficient times that of the provisional ones.  The first
t_ar frames of a window are forecast from forecasts, the later ones from true frames; t_ar grows along
T tanh(2 share)/tanh(2).  At first the module is trained alone.  Light noise is added to all true frames that are read.

Parameters that are positive and span a decade enter by their logarithm, scaled by their training range; all others
with mean and spread of the train split taken out.

Written from the paper.  Ours differs where it leaves a choice or where grids are larger: the norm has a learned scale
and shift per channel, or every step would change a field by one spread; forecasts that are read again carry no
gradient to the steps before; the module keeps 6 modes; the base is the FNO, not a U-Net; `fast` reads windows of 8
frames where grids are planes of 64 points or more, to fit memory; the learning rate falls along a cosine to 1/32 in
each of the two stages, where the published one is halved every 20 of 100 epochs; gradients are clipped at 1.
Letters: B rows, T frames, C channels, w hidden channels, P parameters, *grid spatial axes.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from pdejepa.baselines.baseline import BUDGETS, Baseline, Recipe, StageRecipe, Window, march, mean_frame_error
from pdejepa.baselines.blocks.autoencoder import pad
from pdejepa.baselines.blocks.fourier_layers import SpectralConv
from pdejepa.baselines.blocks.hypernetworks import Coding, FourierNet, FourierShape
from pdejepa.baselines.task import Task
from pdejepa.forecast.interface import Card, State
from pdejepa.systems.problem import Parameter
from pdejepa.training.settings import OptimiserConfig, ScheduleConfig, StageTraining
from pdejepa.training.stage import Batch

N_WARM, N_EPOCHS = 3, 100


@dataclass(frozen=True)
class CapeConfig:
    hidden: int = 64
    kernel: int = 5
    modes: int = 6
    base: FourierShape = field(default_factory=lambda: FourierShape(20, 12))
    coefficient: float = 5.7e-5
    noise: float = 1e-3
    n_frames: int = 0  # of a training window; 0: the whole trajectory


class CapeModule(nn.Module):
    """Frames (B,C,*grid) and the gains (B,3,w) of the parameters -> provisional next frames (B,C,*grid)."""

    def __init__(self, config: CapeConfig, task: Task) -> None:
        super().__init__()
        conv, C, w, k = nn.Conv1d if task.ndim == 1 else nn.Conv2d, task.n_channels, config.hidden, config.kernel
        self.padding, self.margin = task.padding, k // 2
        self.lift = conv(C, w, k)
        self.point = conv(w, w, 1)
        self.depthwise = conv(w, w, k, groups=w)
        self.spectral = SpectralConv(w, w, (config.modes,) * task.ndim)
        self.scales = nn.ModuleList(
            nn.Sequential(nn.Linear(task.n_parameters, w), nn.GELU(), nn.Linear(w, w)) for _ in range(3)
        )
        self.path = conv(w, w, 1)
        self.project = conv(w, C, 1)
        self.norm = nn.GroupNorm(C, C)  # a group per channel: over space

    def gains(self, xi: Tensor) -> Tensor:
        """a_1, a_2, a_3 (B,3,w) of scaled parameters (B,P); all steps of a trajectory share them."""
        return torch.stack([scale(xi) for scale in self.scales], 1)

    def forward(self, u: Tensor, gains: Tensor) -> Tensor:
        h = self.lift(pad(u, self.margin, self.padding))  # (B,w,*grid)
        branches = (self.point(h), self.depthwise(pad(h, self.margin, self.padding)), self.spectral(h))
        s = self.path(h)
        for gain, branch in zip(gains.unbind(1), branches, strict=True):
            s = s + gain.reshape(*s.shape[:2], *[1] * (s.ndim - 2)) * branch
        return u + self.norm(self.project(nn.functional.gelu(s)))


def spans_a_decade(parameter: Parameter) -> bool:
    low, high = parameter.train
    return low > 0 and high >= 10 * low * (1 - 1e-9)


class Cape(Baseline):
    card = Card(
        name="cape",
        title="CAPE",
        paper="Takamoto et al., Learning Neural PDE Solvers with Parameter-Guided Channel Attention, ICML 2023",
        needs=frozenset({"xi"}),
        stages=("warm-up", "fit"),
    )
    is_log: Tensor
    log_middle: Tensor
    log_half: Tensor

    def __init__(self, config: CapeConfig, task: Task) -> None:
        super().__init__(config, task)
        ends = [p.train if spans_a_decade(p) else (1.0, math.e**2) for p in task.problem.parameters]
        low, high = torch.tensor(ends, dtype=torch.float64).log().unbind(1)
        is_log = torch.tensor([spans_a_decade(p) for p in task.problem.parameters])
        self.register_buffer("is_log", is_log, persistent=False)
        self.register_buffer("log_middle", (low + high) / 2, persistent=False)
        self.register_buffer("log_half", (high - low) / 2, persistent=False)
        self.module = CapeModule(config, task)
        self.base = FourierNet(2 * task.n_channels, task.n_channels, config.base, task, Coding())

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        is_large = task.ndim == 2 and math.prod(task.grid) >= 64 * 64
        model = CapeConfig(
            coefficient=5.7e-5 if task.ndim == 1 else 8.3e-5, n_frames=8 if name == "fast" and is_large else 0
        )
        if name == "tiny":
            model = CapeConfig(hidden=8, kernel=3, modes=3, base=FourierShape(8, 4, 2, head=16), n_frames=4)

        def training(epochs: int) -> StageTraining:
            return StageTraining(
                budget=BUDGETS[name](epochs),
                batch=8 if name == "tiny" else 50,
                optimiser=OptimiserConfig(kind="adam", lr=3e-3, weight_decay=0.0),
                schedule=ScheduleConfig(kind="cosine", warmup=0.0, final=1 / 32),
                n_scores=5,
            )

        shares = {"warm-up": N_WARM, "fit": N_EPOCHS - N_WARM}
        return Recipe(model, tuple(StageRecipe(s, training(n), n / N_EPOCHS) for s, n in shares.items()))

    @classmethod
    def laptop(cls, model: CapeConfig, task: Task) -> CapeConfig:
        hidden, width = (192, 180) if task.ndim == 1 else (256, 96)
        return dataclasses.replace(model, hidden=hidden, base=dataclasses.replace(model.base, width=width))

    def trained(self, stage: str) -> dict[str, nn.Module]:
        return {"module": self.module} if stage == "warm-up" else {"module": self.module, "base": self.base}

    def window(self, stage: str, share: float) -> Window:
        return Window(2 if stage == "warm-up" else self.config.n_frames)

    def draws(self, stage: str, batch: Batch, generator: torch.Generator) -> Batch:
        u = batch["u"]
        return {"noise": torch.randn(u.shape, generator=generator, device=u.device)}

    def scaled(self, xi: Tensor) -> Tensor:
        """Parameters (B,P) as the module reads them, float32."""
        logs = (xi.double().clamp(min=1e-12).log() - self.log_middle) / self.log_half
        return torch.where(self.is_log, logs.float(), self.standardised(xi))

    def loss(self, stage: str, batch: Batch) -> dict[str, Tensor]:
        u, gains = batch["u"], self.module.gains(self.scaled(batch["xi"]))
        read = u + self.config.noise * batch["noise"]
        if stage == "warm-up":
            return {"loss": mean_frame_error(self.module(read[:, 0], gains)[:, None], u[:, 1:])}
        n_free = free_frames(batch["share"], u.shape[1] - 1)
        frames, provisional, now = [], [], read[:, 0]
        for t in range(1, u.shape[1]):
            after, early = self.step(now, gains)
            frames.append(after)
            provisional.append(early)
            now = torch.where(n_free >= t, after.detach(), read[:, t])
        error, early_error = (mean_frame_error(torch.stack(v, 1), u[:, 1:]) for v in (frames, provisional))
        return {"loss": error + self.config.coefficient * early_error, "frames": error, "provisional": early_error}

    def step(self, u: Tensor, gains: Tensor) -> tuple[Tensor, Tensor]:
        """The frames (B,C,*grid) after u, and the provisional ones."""
        early = self.module(u, gains)
        return self.base(torch.cat((u, early), 1)), early

    def adapt(
        self, support: Tensor | None = None, xi: Tensor | None = None, generator: torch.Generator | None = None
    ) -> State:
        xi = self.card.given("xi", xi)
        with torch.no_grad():
            return {"gains": self.module.gains(self.scaled(xi))}

    def rollout(
        self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None
    ) -> Tensor:
        return march(lambda history: self.step(history[:, -1], state["gains"])[0], u_hist, 1, n_frames)


def free_frames(share: Tensor, n: int) -> Tensor:
    """t_ar: how many of n forecast frames are read again instead of true ones; n tanh(2 share)/tanh(2)."""
    return n * torch.tanh(2 * share) / math.tanh(2.0) + 1e-4


SOLVER = Cape

"""Poseidon-T (Herde et al., NeurIPS 2024): the transformer ScOT, told the parameters, that jumps by a lead time.

    u(t + k dt) = ScOT( u(t), xi, f; k / (T-1) )           (the network is in `scot`)
    L = mean over channels of  mean|u_hat - u| / mean|u|,      means over rows and space

Parameters enter as constant channels, standardised; a forcing that changes in time enters as its field half-way of the
jump, f (frame gap) / std(u), in place of the numbers that describe it.  Lines are laid out as a serpentine, 16 x 16
for 256 points, and resized to the plane of the network, 64 x 64 or 128 x 128; planes are resized.
Training draws jumps of one to four frames, a rollout makes jumps of one; `fast`, which has no time to spare, trains
jumps of one only.

Ours differs: training starts from random weights; published results are fine-tuned from pretrained ones.  Public code
trains on all pairs of frames, the same frame twice included, and divides the gap by 20; its pairs of frames far apart
are of no use to rollouts of single frames.  Transformer blocks train in bfloat16 on a GPU, what reads and writes fields
does not.  Resizing of periodic planes is trigonometric; convolutions pad with zeros on every system, as published.
Letters: B rows, C channels, *grid spatial axes, P parameters, T frames, k frames of a jump.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from pdejepa.baselines.baseline import BUDGETS, Baseline, Recipe, StageRecipe, Window
from pdejepa.baselines.blocks.lift import lift_to_plane
from pdejepa.baselines.blocks.scot import Scot, ScotConfig
from pdejepa.baselines.task import Task
from pdejepa.forecast.interface import Card, State
from pdejepa.models.condition import forcing_parameters
from pdejepa.training.settings import OptimiserConfig, ScheduleConfig, StageTraining
from pdejepa.training.stage import Batch

EPS = 1e-10


class Poseidon(Baseline):
    card = Card(
        name="poseidon",
        title="Poseidon-T",
        paper="Herde et al., Poseidon: Efficient Foundation Models for PDEs, NeurIPS 2024",
        needs=frozenset({"xi"}),
    )
    told: Tensor
    forcing_factor: Tensor

    def __init__(self, config: ScotConfig, task: Task) -> None:
        super().__init__(config, task)
        problem, names = task.problem, task.problem.parameter_names
        self.has_forcing = problem.structure.forcing == "time"
        hidden = forcing_parameters(problem) if self.has_forcing else []
        numbers = [number for number, name in enumerate(names) if name not in hidden]
        self.register_buffer("told", torch.tensor(numbers, device="cpu"), persistent=False)
        with torch.device("cpu"):  # numbers, wherever the weights are being made
            self.first_time, gap = problem.times[0], problem.frame_gap
        factor = gap / torch.tensor(task.statistics.std, device="cpu").reshape(-1, *[1] * task.ndim)
        self.register_buffer("forcing_factor", factor, persistent=False)  # (C,1..)
        self.frame_gap = gap
        self.lift = lift_to_plane(task.grid, config.plane, "spectral" if task.is_periodic else "linear")
        n_in = task.n_channels + len(numbers) + (task.n_channels if self.has_forcing else 0)
        self.net = Scot(config, n_in, task.n_channels)

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        training = StageTraining(
            budget=BUDGETS[name](100),
            batch=64 if name != "tiny" else 8,
            optimiser=OptimiserConfig(lr=5e-4, weight_decay=1e-6, clip=5.0),
            schedule=ScheduleConfig(kind="cosine", warmup=0.05),
            n_scores=5,
        )
        side = 128 if task.ndim == 2 and max(task.grid) > 64 else 64
        model = ScotConfig(plane=(side, side), longest_jump=1 if name == "fast" else 4)
        if name == "tiny":
            side = 16 if task.ndim == 1 else 32
            model = ScotConfig((side, side), 8, 2, n_stages=2, depth=1, n_skip=1, window=side // 8, bias_hidden=8)
        return Recipe(model, (StageRecipe("fit", training, precision="bf16"),))

    @classmethod
    def laptop(cls, model: ScotConfig, task: Task) -> ScotConfig:
        return dataclasses.replace(model, width=18 if task.ndim == 1 else 36)

    def trained(self, stage: str) -> dict[str, nn.Module]:
        return {"net": self.net}

    # ---- training ----------------------------------------------------------------------------------------------
    def window(self, stage: str, share: float) -> Window:
        return Window(0)  # shorter ones at random places would hardly ever hold the first and the last frame

    def draws(self, stage: str, batch: Batch, generator: torch.Generator) -> Batch:
        """gap (B,) from 1 to the longest, begin (B,) where the jump starts; both uniform."""
        B, last = batch["u"].shape[0], batch["u"].shape[1] - 1
        place = torch.rand((2, B), generator=generator, device=batch["u"].device)
        longest = min(self.config.longest_jump, last)
        gap = 1 + (place[0] * longest).long().clamp(max=longest - 1)
        begin = (place[1] * (last + 1 - gap)).long()
        return {"gap": gap, "begin": torch.minimum(begin, last - gap)}

    def loss(self, stage: str, batch: Batch) -> dict[str, Tensor]:
        rows = torch.arange(len(batch["u"]), device=batch["u"].device)
        u, after = batch["u"][rows, batch["begin"]], batch["u"][rows, batch["begin"] + batch["gap"]]
        u_hat = self.jump(u, self.adapt(xi=batch["xi"]), batch["frame"] + batch["begin"], batch["gap"])
        over = (0, *range(2, u.ndim))
        return {"loss": ((u_hat - after).abs().mean(over) / (after.abs().mean(over) + EPS)).mean()}

    # ---- forecasts ---------------------------------------------------------------------------------------------
    def jump(self, u: Tensor, state: State, frame: Tensor, gap: Tensor) -> Tensor:
        """Frames (B,C,*grid) that come `gap` (B,) frames after u (B,C,*grid), which have the numbers `frame` (B,)."""
        channels, xi = self.lift(u), state["xi"]
        plane = channels.shape[2:]
        constant = state["told"][:, :, None, None].expand(-1, -1, *plane)
        parts = [channels, constant]
        if self.has_forcing:
            time = self.first_time + (frame + 0.5 * gap).double() * self.frame_gap  # (B,)
            forcing = self.task.problem.forcing(time, xi, u.double()) * self.forcing_factor
            parts.append(self.lift(forcing.float()))
        lead = (gap.float() / (self.task.n_frames - 1))[:, None]  # (B,1)
        return self.lift.inverse(self.net(torch.cat(parts, 1), lead))

    def adapt(
        self, support: Tensor | None = None, xi: Tensor | None = None, generator: torch.Generator | None = None
    ) -> State:
        xi = self.card.given("xi", xi)
        return {"xi": xi, "told": self.standardised(xi).index_select(1, self.told)}

    def rollout(self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None) -> Tensor:
        u, frames = u_hist[:, -1], []
        one = torch.ones(len(u), dtype=torch.long, device=u.device)
        for number in range(n_frames):
            u = self.jump(u, state, (u_hist.shape[1] - 1 + number) * one, one)
            frames.append(u)
        return torch.stack(frames, 1) if frames else u_hist[:, :0]


SOLVER = Poseidon

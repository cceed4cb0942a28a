"""FNO, the Fourier neural operator (Li et al., ICLR 2021), as a forecaster of the next frame from two.

    h = lift(u_{t-1}, u_t, x) + a(mean, std)
    h <- GELU( SpectralConv(h) + W h )          four times
    u_{t+1} = std * head(h) + mean

Every window is normalised by its own mean and spread over space and history (reversible instance norm); a linear map
of these two numbers is added to the lifted features.  Trained with the relative L2 error of single steps, of two in a
row on Wave-2D.

Ours differs: the learning rate warms up linearly, not along a cosine; errors are averaged over a batch, not summed,
and biases do not decay; coordinates are numbers of grid points, scaled to [0, 1]; training meets windows whose first
frame is repeated, as it is where a forecast knows one frame; a channel without any spread (u_t of Wave-2D, which
starts at rest) is not divided by it, or no output could ever move it.
On planes `laptop` is sized to half of the counted operations of the others: transforms are not counted, and complex
products as if they were real, which is the other half.
Letters: B rows, H history, C channels, w width, *grid spatial axes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pdejepa.baselines.baseline import BUDGETS, Baseline, Recipe, StageRecipe, Window, march, mean_frame_error
from pdejepa.baselines.blocks.fourier_layers import SpectralConv, unit_coordinates
from pdejepa.baselines.task import Task
from pdejepa.forecast.interface import Card, State
from pdejepa.training.settings import OptimiserConfig, ScheduleConfig, StageTraining
from pdejepa.training.stage import Batch

EPS = 1e-6
N_EPOCHS = 500


@dataclass(frozen=True)
class FnoConfig:
    width: int = 195
    modes: int = 32
    depth: int = 4
    history: int = 2
    rolled: int = 1  # steps of a training sample


class Fno(Baseline):
    card = Card(
        name="fno",
        title="FNO",
        paper="Li et al., Fourier Neural Operator for Parametric Partial Differential Equations, ICLR 2021",
        history=2,
    )
    coordinates: Tensor

    def __init__(self, config: FnoConfig, task: Task) -> None:
        super().__init__(config, task)
        n_channels, width, ndim = task.n_channels, config.width, task.ndim
        conv = nn.Conv1d if ndim == 1 else nn.Conv2d
        self.register_buffer("coordinates", unit_coordinates(task.grid), persistent=False)  # (ndim,*grid)
        n_in = n_channels * config.history + ndim
        self.lift = nn.Sequential(conv(n_in, n_in, 1), nn.GELU(), conv(n_in, width, 1))
        self.moments = nn.Linear(2 * n_channels, width)
        self.spectral = nn.ModuleList(SpectralConv(width, width, (config.modes,) * ndim) for _ in range(config.depth))
        self.local = nn.ModuleList(conv(width, width, 1) for _ in range(config.depth))
        self.head = nn.Sequential(conv(width, width, 1), nn.GELU(), conv(width, n_channels, 1))

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        is_wave, is_tiny = task.problem.name == "wave_2d", name == "tiny"
        rate, warm, clip = (1e-4, 20, 1.0) if is_wave else (1e-3, 40, 1e4)
        training = StageTraining(
            budget=BUDGETS[name](N_EPOCHS),
            batch=8 if is_tiny else 16 if task.problem.name == "vorticity" else 32,
            optimiser=OptimiserConfig(kind="adam", lr=rate, betas=(0.9, 0.9), weight_decay=1e-6, clip=clip),
            schedule=ScheduleConfig(kind="cosine", warmup=warm / N_EPOCHS, start=1e-4, final=1e-8),
            n_scores=5,
        )
        width, modes, depth = (12, 4, 2) if is_tiny else (66, 12, 4) if task.ndim == 2 else (195, 32, 4)
        model = FnoConfig(width, modes, depth, rolled=2 if is_wave else 1)
        return Recipe(model, (StageRecipe("fit", training),))

    @classmethod
    def laptop(cls, model: FnoConfig, task: Task) -> FnoConfig:
        return dataclasses.replace(model, width=230 if task.ndim == 1 else 132)

    def window(self, stage: str, share: float) -> Window:
        return Window(self.config.history + self.config.rolled, lead=self.config.history - 1)

    def loss(self, stage: str, batch: Batch) -> dict[str, Tensor]:
        seen, after = batch["u"].split((self.config.history, self.config.rolled), 1)
        return {"loss": mean_frame_error(march(self.step, seen, self.config.history, self.config.rolled), after)}

    def step(self, u: Tensor) -> Tensor:
        """The frame (B,C,*grid) after the frames u (B,H,C,*grid)."""
        B, space = len(u), tuple(range(3, u.ndim))
        mean, std = u.mean((1, *space), keepdim=True), u.std((1, *space), keepdim=True, unbiased=False)
        std = torch.where(std > EPS, std, 1.0) + EPS
        x = ((u - mean) / std).flatten(1, 2)  # (B,H*C,*grid)
        x = torch.cat((x, self.coordinates.expand(B, *self.coordinates.shape)), 1)
        moments = self.moments(torch.cat((mean.flatten(1), std.flatten(1)), 1))  # (B,w)
        h = self.lift(x) + moments.reshape(B, -1, *[1] * self.task.ndim)  # (B,w,*grid)
        for spectral, local in zip(self.spectral, self.local, strict=True):
            h = nn.functional.gelu(spectral(h) + local(h))
        return self.head(h) * std[:, 0] + mean[:, 0]  # (B,C,*grid)

    def rollout(
        self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None
    ) -> Tensor:
        return march(self.step, u_hist, self.config.history, n_frames)


SOLVER = Fno

"""LE-PDE, latent evolution of PDEs (Wu et al., NeurIPS 2022): a global latent vector that a small network moves.

    z_t = E(u_{t-H+1} .. u_t)      s = S(first frames of another trajectory of the same environment)
    z_{t+1} = z_t + f([z_t + noise, s])          u_hat_t = D(z_t)

    loss = sum_{k=1..4} a_k |D(z_k) - u_k|^2  +  |D(z_0) - u_0|^2  +  sum_{k=1..4} |z_k - E(u_k)|^2 / <E(u_k)^2>

E: convolutions that halve the grid four times, then a linear map to 256 numbers.  S: the same shape, to 64 numbers.
f: three pairs of linear map and ELU, then two linear maps.  D: a linear map, then transposed convolutions.  On a line
|.|^2 of fields is replaced by its root, per row.  First the autoencoder alone; then evolution and context with the
autoencoder frozen; then everything, the autoencoder with a smaller learning rate (except on Advection and Burgers).
Forecasts stay in latent space.

Ours differs: the first two parts are stages of their own at a constant rate, and the cosine begins after them; with
several context trajectories their codes are averaged; the original told the network static fields or parameters instead
of a context trajectory.  Convolutions pad with zeros on every system, as published.
Letters: B rows, T frames, H history, C channels, L latent size, S size of the static code, *grid spatial axes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn

from pdejepa.baselines.baseline import BUDGETS, Baseline, Recipe, StageRecipe, Window, at_least
from pdejepa.baselines.blocks.autoencoder import conv, working_grid
from pdejepa.baselines.task import Task
from pdejepa.core.errors import ConfigError, DataError
from pdejepa.forecast.interface import Card, State
from pdejepa.training.settings import OptimiserConfig, ScheduleConfig, StageTraining
from pdejepa.training.stage import Batch

KERNELS = (4, 4, 4, 3)  # of the four halvings
GROUPS = 2
EPS = 1e-8
CONTEXT_FRAMES = {"wave_b": 15, "gray_scott": 7, "heterns": 20}  # all others: 10
FAST_TUNED = ("advection", "burgers")  # where the autoencoder is tuned at the full learning rate
BATCH = {1: 64, 2: 20}
EPOCHS = {"autoencode": 20, "evolve": 20, "tune": 180}


@dataclass(frozen=True)
class LePdeConfig:
    width: int = 16  # channels after the first convolution; doubled at every halving
    latent: int = 256
    static: int = 64
    hidden: int = 256
    history: int = 1
    n_context: int = 10  # frames of the context trajectory
    largest_grid: int = 256
    noise: float = 1e-5
    prediction_weights: tuple[float, ...] = (1.0, 0.1, 0.1, 0.1)
    latent_weights: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        if len(self.prediction_weights) != len(self.latent_weights):
            raise ConfigError(
                f"prediction_weights and latent_weights need one number per step, got "
                f"{len(self.prediction_weights)} and {len(self.latent_weights)}"
            )


class Encoder(nn.Sequential):
    """(B,C,*grid) -> (B,n_out)."""

    def __init__(self, n_in: int, width: int, n_out: int, grid: tuple[int, ...]) -> None:
        ndim = len(grid)
        layers: list[nn.Module] = [conv(ndim, n_in, width, 3), nn.ELU()]
        for kernel in KERNELS:
            make = nn.Conv1d if ndim == 1 else nn.Conv2d
            layers += [make(width, 2 * width, kernel, 2, 1), nn.GroupNorm(GROUPS, 2 * width), nn.ELU()]
            width *= 2
        n_flat = width * prod(n // 16 for n in grid)
        super().__init__(*layers, nn.Flatten(), nn.Linear(n_flat, n_out), nn.GroupNorm(GROUPS, n_out), nn.ELU())


class Decoder(nn.Module):
    """(B,L) -> (B,C,*grid); widths 8w, 4w, 2w, 2w."""

    def __init__(self, n_in: int, width: int, n_out: int, grid: tuple[int, ...]) -> None:
        super().__init__()
        ndim, top = len(grid), 16 * width
        self.shape = (top, *(n // 16 for n in grid))
        n_flat = prod(self.shape)
        self.start = nn.Sequential(nn.Linear(n_in, n_flat), nn.GroupNorm(GROUPS, n_flat), nn.ELU())
        make = nn.ConvTranspose1d if ndim == 1 else nn.ConvTranspose2d
        layers: list[nn.Module] = []
        before = top
        for after, kernel in zip((8 * width, 4 * width, 2 * width, 2 * width), reversed(KERNELS), strict=True):
            layers += [
                make(before, after, kernel, 2, 1, output_padding=kernel % 2, bias=False),
                nn.GroupNorm(GROUPS, after),
                nn.ELU(),
            ]
            before = after
        self.grow = nn.Sequential(*layers, conv(ndim, before, n_out, 3))

    def forward(self, z: Tensor) -> Tensor:
        return self.grow(self.start(z).unflatten(1, self.shape))


class LePde(Baseline):
    card = Card(
        name="le_pde",
        title="LE-PDE",
        paper="Wu et al., Learning to Accelerate Partial Differential Equations via Latent Global Evolution, 2022",
        needs=frozenset({"support"}),
        adapts="encode",
        stages=("autoencode", "evolve", "tune"),
        has_encoder=True,
    )

    def __init__(self, config: LePdeConfig, task: Task) -> None:
        super().__init__(config, task)
        self.grid, self.lift = working_grid(task, config.largest_grid)
        if any(n % 16 for n in self.grid):
            raise ConfigError(f"LE-PDE halves the grid four times: it needs multiples of 16 points, got {self.grid}.")
        C, width = task.n_channels, config.width
        self.n_context = min(config.n_context, task.n_frames)
        self.encoder = Encoder(config.history * C, width, config.latent, self.grid)
        self.context = Encoder(self.n_context * C, width, config.static, self.grid)
        self.decoder = Decoder(config.latent, width, C, self.grid)
        sizes = (config.latent + config.static, *[config.hidden] * 4, config.latent)
        layers: list[nn.Module] = []
        for number, (n_in, n_out) in enumerate(pairwise(sizes)):
            layers += [nn.Linear(n_in, n_out), *([nn.ELU()] if number < 3 else [])]
        self.evolution = nn.Sequential(*layers)

    @classmethod
    def history_of(cls, config: LePdeConfig) -> int:
        return config.history

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        system = task.problem.name
        is_tiny = name == "tiny"
        model = LePdeConfig(
            history=10 if system == "heterns" else 1,
            n_context=CONTEXT_FRAMES.get(system, 10),
            largest_grid=256 if task.ndim == 1 else 64,
        )
        if is_tiny:
            model = dataclasses.replace(model, width=4, latent=32, static=8, hidden=32, n_context=5)
        ae_factor = 1.0 if system in FAST_TUNED else 1e-2
        batch = 8 if is_tiny else 12 if system == "heterns" else BATCH[task.ndim]

        def stage(word: str) -> StageRecipe:
            factors = {"encoder": ae_factor, "decoder": ae_factor} if word == "tune" else {}
            training = StageTraining(
                budget=BUDGETS[name](EPOCHS[word]),
                batch=batch,
                optimiser=OptimiserConfig(kind="adam", lr=1e-3, weight_decay=0.0, clip=1.0, factors=factors),
                schedule=ScheduleConfig(kind="cosine" if word == "tune" else "constant", warmup=0.0),
                n_scores=5,
            )
            return StageRecipe(word, training, EPOCHS[word])

        return Recipe(model, tuple(stage(word) for word in EPOCHS))

    @classmethod
    def laptop(cls, model: LePdeConfig, task: Task) -> LePdeConfig:
        return dataclasses.replace(model, width=56 if task.ndim == 1 else 72)

    # ---- training ----------------------------------------------------------------------------------------------
    def trained(self, stage: str) -> dict[str, nn.Module]:
        autoencoder: dict[str, nn.Module] = {"encoder": self.encoder, "decoder": self.decoder}
        dynamics: dict[str, nn.Module] = {"context": self.context, "evolution": self.evolution}
        return {"autoencode": autoencoder, "evolve": dynamics, "tune": {**autoencoder, **dynamics}}[stage]

    def window(self, stage: str, share: float) -> Window:
        if stage == "autoencode":
            return Window(self.config.history, lead=self.config.history - 1)
        return Window(self.config.history + len(self.config.latent_weights), 1, lead=self.config.history - 1)

    def draws(self, stage: str, batch: Batch, generator: torch.Generator) -> Batch:
        if stage == "autoencode":
            return {}
        u, shape = batch["u"], (len(self.config.latent_weights), len(batch["u"]), self.config.latent)
        return {"noise": self.config.noise * torch.randn(shape, generator=generator, device=u.device)}

    def loss(self, stage: str, batch: Batch) -> dict[str, Tensor]:
        u = self.lift(batch["u"])
        z = self.latents(u)  # (B,1+K,L): of the first full history, and of the frames after it
        last = u[:, self.config.history - 1 :]  # (B,1+K,C,*grid)
        if stage == "autoencode":
            return {"loss": self._distances(z, last).sum()}
        code = self.context(self.lift(batch["support"])[:, 0, : self.n_context].flatten(1, 2))
        steps = [z[:, 0]]
        for noise in batch["noise"]:
            steps.append(self.step(steps[-1], code, noise))
        z_hat = torch.stack(steps, 1)  # (B,1+K,L)
        distances = self._distances(z_hat, last)
        error, size = (z_hat - z)[:, 1:].square().mean(2), z[:, 1:].square().mean(2)  # (B,K)
        consistency = _weighted(self.config.latent_weights, (error / (size + EPS)).mean(0))
        reconstruction, prediction = distances[0], _weighted(self.config.prediction_weights, distances[1:])
        return {
            "loss": prediction + reconstruction + consistency,
            "prediction": prediction,
            "reconstruction": reconstruction,
            "consistency": consistency,
        }

    def _distances(self, z: Tensor, u: Tensor) -> Tensor:
        """(n,) from decoded z (B,n,L) to u (B,n,C,*grid): mean square error on a plane, its root per row on a line."""
        u_hat = self.decoder(z.flatten(0, 1)).unflatten(0, z.shape[:2])
        square = (u_hat - u).square().flatten(2).mean(2)  # (B,n)
        return ((square + EPS).sqrt() if self.task.ndim == 1 else square).mean(0)

    # ---- forecasts ---------------------------------------------------------------------------------------------
    def latents(self, u: Tensor) -> Tensor:
        """z (B,T-H+1,L) of frames u (B,T,C,*grid) on the working grid."""
        H = self.config.history
        n = u.shape[1] - H + 1
        stacked = torch.stack([u[:, t : t + H].flatten(1, 2) for t in range(n)], 1)  # (B,n,H*C,*grid)
        return self.encoder(stacked.flatten(0, 1)).unflatten(0, (len(u), n))

    def step(self, z: Tensor, code: Tensor, noise: Tensor | None = None) -> Tensor:
        """z_{t+1} (B,L) from z_t (B,L) and the static code (B,S)."""
        seen = z if noise is None else z + noise
        return z + self.evolution(torch.cat((seen, code), 1))

    def adapt(
        self, support: Tensor | None = None, xi: Tensor | None = None, generator: torch.Generator | None = None
    ) -> State:
        support = self.card.given("support", support)
        if support.shape[2] < self.n_context:
            raise DataError(f"LE-PDE reads {self.n_context} frames of the support; got {support.shape[2]}.")
        frames = self.lift(support)[:, :, : self.n_context].flatten(2, 3)  # (B,K,n*C,*grid)
        with torch.no_grad():
            return {"code": self.context(frames.flatten(0, 1)).unflatten(0, frames.shape[:2]).mean(1)}

    def rollout(self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None) -> Tensor:
        seen = at_least(self.config.history, u_hist)[:, -self.config.history :]
        z = self.latents(self.lift(seen))[:, 0]
        frames = []
        for _ in range(n_frames):
            z = self.step(z, state["code"])
            frames.append(self.lift.inverse(self.decoder(z)))
        return torch.stack(frames, 1) if frames else u_hist[:, :0]

    def encode(self, u: Tensor) -> Tensor:
        """(B,T-H+1,1,L)."""
        if u.shape[1] < self.config.history:
            raise DataError(f"LE-PDE encodes {self.config.history} frames or more; got {u.shape[1]}.")
        return self.latents(self.lift(u))[:, :, None]


def _weighted(weights: Sequence[float], values: Tensor) -> Tensor:
    """The sum of values (n,), each times its weight."""
    return torch.stack([weight * value for weight, value in zip(weights, values, strict=True)]).sum()


SOLVER = LePde

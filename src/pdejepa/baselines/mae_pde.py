"""MAE-PDE, masked pretraining for a conditioned forecaster (Zhou & Farimani, 2024), in two stages.

    mask       x_hat = Decoder(Encoder(visible patches of five frames)),   mean square error at masked patches
    forecast   c = W mean_i Encoder(all patches)_i                          the encoder is frozen
               u_{t+1} = u_t + Fno(u_{t-4} .. u_t; c)

    layer of the Fno    h <- GELU( S1(h; g1(c)) + W1 h + b(c) )
                        h <- GELU( S2(h; g2(c)) + W2 h )

S are spectral convolutions whose modes are multiplied by complex gains g, linear in the condition c and shared by the
channels.  Encoder and decoder are pre-norm transformers with learned positions; queries, keys and values have no bias.
Half of the batches in training start from windows whose last frame the network itself has forecast, without gradient
(push-forward, Brandstetter et al., 2022).

Ours differs: the condition is the mean of all tokens (a class token would never be trained by masking); gains start
at one, so that a fresh network is a plain FNO; one frame is forecast at a time, not a whole window; its loss is the
relative L2 error; windows may begin with a repeated first frame, as forecasts from one frame do.  Planes stay on the
grid of the data (published: 64x64 for Vorticity); `fast` cuts them into 8x8 places and takes 32 windows at a time.
Letters: B rows, H = 5 frames, C channels, N places of a frame, n = H N tokens, V values of a token, w width, m modes.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pdejepa.baselines.baseline import (
    BUDGETS,
    Baseline,
    Recipe,
    StageRecipe,
    Window,
    march,
    mean_frame_error,
    with_lead,
)
from pdejepa.baselines.blocks.fourier_layers import SpectralConv, unit_coordinates
from pdejepa.baselines.blocks.masked import MaskedDecoder, MaskedEncoder, Positions
from pdejepa.baselines.blocks.tokens import BlockConfig, Tubelets, choose, init_tokens, pick
from pdejepa.baselines.task import Task
from pdejepa.core.errors import ConfigError
from pdejepa.core.seeds import derive_seed
from pdejepa.forecast.interface import Card, State
from pdejepa.models.patches import PatchGrid
from pdejepa.training.settings import OptimiserConfig, ScheduleConfig, StageTraining
from pdejepa.training.stage import Batch

MASK, FORECAST = "mask", "forecast"


@dataclass(frozen=True)
class MaePdeConfig:
    patch: int = 8
    history: int = 5
    width: int = 192
    depth: int = 4
    heads: int = 6
    decoder_width: int = 64
    decoder_depth: int = 2
    decoder_heads: int = 4
    masked: float = 0.75
    fno_width: int = 48
    fno_depth: int = 4
    modes: int = 24
    condition: int = 64


class ConditionedLayer(nn.Module):
    """Two spectral convolutions told about the window by gains of their modes, and once by a bias."""

    def __init__(self, width: int, modes: tuple[int, ...], condition: int) -> None:
        super().__init__()
        conv = nn.Conv1d if len(modes) == 1 else nn.Conv2d
        self.spectral = nn.ModuleList(SpectralConv(width, width, modes) for _ in range(2))
        self.local = nn.ModuleList(conv(width, width, 1) for _ in range(2))
        self.shape = (1, 2 ** (len(modes) - 1), *modes)  # channels, corners, modes
        self.gains = nn.ModuleList(nn.Linear(condition, 2 * math.prod(self.shape)) for _ in range(2))
        self.bias = nn.Linear(condition, width)

    def start(self) -> None:
        """Gains of one for every condition."""
        for linear in self.gains:
            assert isinstance(linear, nn.Linear)
            nn.init.zeros_(linear.weight)
            with torch.no_grad():
                linear.bias.view(-1, 2).copy_(torch.tensor([1.0, 0.0]))

    def forward(self, h: Tensor, c: Tensor) -> Tensor:
        """h (B,w,*grid), c (B,condition)."""
        first, second = (
            torch.view_as_complex(linear(c).float().reshape(len(c), *self.shape, 2)) for linear in self.gains
        )  # (B,1,corners,m..)
        bias = self.bias(c).reshape(*h.shape[:2], *[1] * (h.ndim - 2))
        h = nn.functional.gelu(self.spectral[0](h, gain=first) + self.local[0](h) + bias)
        return nn.functional.gelu(self.spectral[1](h, gain=second) + self.local[1](h))


class MaePde(Baseline):
    card = Card(
        name="mae_pde",
        title="MAE-PDE",
        paper="Zhou & Farimani, Masked Autoencoders are PDE Learners, TMLR 2024",
        history=5,
        stages=(MASK, FORECAST),
        has_encoder=True,
    )
    TRAINING_ONLY = ("decoder",)
    coordinates: Tensor

    def __init__(self, config: MaePdeConfig, task: Task) -> None:
        super().__init__(config, task)
        patches = PatchGrid(task.grid, config.patch, task.problem.periodic_axes)
        self.cut = Tubelets(patches)
        self.n_tokens = config.history * patches.n_tokens
        self.n_seen = self.n_tokens - int(config.masked * self.n_tokens)
        if not 0 < self.n_seen < self.n_tokens:
            raise ConfigError(f"masked={config.masked} of {self.n_tokens} patches must leave some, not all, visible.")
        n_values = task.n_channels * patches.patch_points
        width, small = config.width, config.decoder_width
        outer = BlockConfig(width, config.heads, 2 * width, qkv_bias="none")
        inner = BlockConfig(small, config.decoder_heads, 4 * small, qkv_bias="none")
        embed = nn.Sequential(nn.LayerNorm(n_values), nn.Linear(n_values, width), nn.LayerNorm(width))
        self.encoder = MaskedEncoder(embed, Positions(None, (self.n_tokens, width)), outer, config.depth)
        self.decoder = MaskedDecoder(
            width, n_values, Positions(None, (self.n_tokens, small)), inner, config.decoder_depth, narrow_bias=True
        )
        self.condition = nn.Linear(width, config.condition)
        init_tokens(self)
        self._build_fno(config, task)

    def _build_fno(self, config: MaePdeConfig, task: Task) -> None:
        conv, width = (nn.Conv1d if task.ndim == 1 else nn.Conv2d), config.fno_width
        self.register_buffer("coordinates", unit_coordinates(task.grid), persistent=False)  # (ndim,*grid)
        n_in = task.n_channels * config.history + task.ndim
        modes = (config.modes,) * task.ndim
        self.lift = nn.Sequential(conv(n_in, width, 1), nn.GELU(), conv(width, width, 1))
        self.layers = nn.ModuleList(ConditionedLayer(width, modes, config.condition) for _ in range(config.fno_depth))
        self.head = nn.Sequential(conv(width, width, 1), nn.GELU(), conv(width, task.n_channels, 1))
        for layer in self.layers:
            layer.start()  # type: ignore[operator]

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        first = OptimiserConfig(lr=1e-3, betas=(0.9, 0.98), weight_decay=1e-4, clip=1.0)
        second = dataclasses.replace(first, lr=8e-4, betas=(0.9, 0.999))
        batch = 128 if task.ndim == 1 else 12
        batch = {"paper": 96 if task.problem.name == "combined" else batch, "fast": max(batch, 32), "tiny": 8}[name]
        schedule = ScheduleConfig(kind="cosine", warmup=0.1)

        def stage(word: str, epochs: int, optimiser: OptimiserConfig) -> StageRecipe:
            training = StageTraining(BUDGETS[name](epochs), batch, optimiser, schedule, n_scores=5)
            return StageRecipe(word, training, precision="bf16" if word == MASK else "fp32")

        return Recipe(_sizes(name, task), (stage(MASK, 20, first), stage(FORECAST, 10, second)))

    @classmethod
    def laptop(cls, model: MaePdeConfig, task: Task) -> MaePdeConfig:
        return dataclasses.replace(model, width=108 if task.ndim == 1 else 132)

    # ---- training ----------------------------------------------------------------------------------------------
    def trained(self, stage: str) -> dict[str, nn.Module]:
        names = {MASK: ("encoder", "decoder"), FORECAST: ("condition", "lift", "layers", "head")}[stage]
        return {name: self.get_submodule(name) for name in names}

    def window(self, stage: str, share: float) -> Window:
        """Five frames to mask, and six or, in half of the batches of forecasts, seven: those are pushed forward."""
        H = self.config.history
        n = 0 if stage == MASK else 1 + derive_seed(0, "mae_pde window", repr(share)) % 2
        return Window(H + n, lead=H - 1 + max(n - 1, 0))

    def draws(self, stage: str, batch: Batch, generator: torch.Generator) -> Batch:
        if stage == FORECAST:
            return {}
        return {"noise": torch.rand((len(batch["u"]), self.n_tokens), generator=generator, device=batch["u"].device)}

    def loss(self, stage: str, batch: Batch) -> dict[str, Tensor]:
        u = batch["u"]
        if stage == FORECAST:
            start = u[:, :-1] if u.shape[1] == self.config.history + 1 else self._pushed(u, batch["frame"])
            return {"loss": mean_frame_error(self.step(start)[:, None], u[:, -1:])}
        x = self.cut.split(u)  # (B,n,V)
        seen, masked = choose(batch["noise"], self.n_seen)
        return {"loss": nn.functional.mse_loss(self.decoder(self.encoder(x, seen), seen, masked), pick(x, masked))}

    def _pushed(self, u: Tensor, frame: Tensor) -> Tensor:
        """Frames 1..5 of u (B,7,..), the last one forecast from frames 0..4; a given one, frame 0 repeated, is not."""
        H = self.config.history
        is_forecast = (frame > -H).reshape(-1, *[1] * (u.ndim - 2))
        with torch.no_grad():
            last = torch.where(is_forecast, self.step(u[:, :H]), u[:, H])
        return torch.cat((u[:, 1:H], last[:, None]), 1)

    def step(self, u: Tensor) -> Tensor:
        """The frame (B,C,*grid) after the frames u (B,H,C,*grid)."""
        with torch.no_grad():
            pooled = self.encoder(self.cut.split(u)).mean(1)  # (B,w)
        c = self.condition(pooled)
        h = self.lift(torch.cat((u.flatten(1, 2), self.coordinates.expand(len(u), *self.coordinates.shape)), 1))
        for layer in self.layers:
            h = layer(h, c)
        return u[:, -1] + self.head(h)

    # ---- forecasts and representations -----------------------------------------------------------------------------
    def rollout(self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None) -> Tensor:
        return march(self.step, u_hist, self.config.history, n_frames)

    def encode(self, u: Tensor) -> Tensor:
        """Features (B,T,N,w) of every frame, from the window of five that ends with it; frame 0 stands for earlier."""
        H = self.config.history
        u = with_lead(u, H - 1)
        features = [self.encoder(self.cut.split(u[:, k : k + H])) for k in range(u.shape[1] - H + 1)]
        return torch.stack([z.unflatten(1, (H, -1))[:, -1] for z in features], 1)


def _sizes(name: str, task: Task) -> MaePdeConfig:
    if name == "tiny":
        sizes = {"width": 16, "depth": 2, "heads": 2, "decoder_width": 8, "decoder_depth": 1, "decoder_heads": 2}
        return MaePdeConfig(**sizes, fno_width=8, fno_depth=2, modes=4, condition=6)
    if task.ndim == 1:
        return MaePdeConfig()
    if task.problem.name == "gray_scott":
        return MaePdeConfig(patch=4, masked=0.9, modes=8)
    patch = max(8, min(task.grid) // 8) if name == "fast" else 8
    return MaePdeConfig(patch=patch, masked=0.9, modes=12)


SOLVER = MaePde

"""DPOT-S, a Fourier network (Hao et al., ICML 2024), trained on one equation.

    z_t = patches(u_t, x, y, t) + positions                    ten frames, four slots for channels
    z = sum_t M_t ( z_t cos(gamma t) ),  t = 0 .. 1            one frame of features out of ten
    z <- z + MLP( GN( F^{-1}( mlp( F GN(z) ) ) + GN(z) ) )     six blocks; `SpectralMlp` in groups of channels
    u_{t+1} = head(z)                                          a transposed convolution and two pointwise layers

A forecast starts from one frame that fills the whole buffer.  Slots without a channel hold ones.  Lines are wound into
rows, and every grid is resized to 128 x 128 and back (see `lift`).  Trained on single steps with the relative L2 error.

The class head of the published network is kept, and idle: it is neither trained nor used.
Ours differs: training starts from random weights; published results are fine-tuned from pretrained ones.  Forecasts
go back to the grid of the data after every step, and the error is taken there; no Fourier modes are cut (16 x 9 of them
are fewer than the 32 that the published code keeps); the rate warms up linearly.
Letters: B rows, T buffered frames, C channels, S slots, h hidden channels of a patch, D width, X x Y patches, G groups.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pdejepa.baselines.baseline import BUDGETS, Baseline, Recipe, StageRecipe, Window, march, mean_frame_error
from pdejepa.baselines.blocks.fourier_layers import SpectralMlp
from pdejepa.baselines.blocks.lift import lift_to_plane
from pdejepa.baselines.task import Task
from pdejepa.core.errors import ConfigError
from pdejepa.forecast.interface import Card, State
from pdejepa.training.settings import OptimiserConfig, ScheduleConfig, StageTraining
from pdejepa.training.stage import Batch


@dataclass(frozen=True)
class DpotConfig:
    size: int = 128  # points per axis
    patch: int = 8
    width: int = 1024
    depth: int = 6
    n_groups: int = 8
    n_buffer: int = 10
    n_slots: int = 4
    head: int = 32
    n_classes: int = 12


class PatchEmbed(nn.Module):
    """(B,S+3,*plane) -> (B,D,X,Y); the last of its maps is left to `TimeAggregator`."""

    def __init__(self, config: DpotConfig) -> None:
        super().__init__()
        n_in = config.n_slots + 3
        n_hidden = n_in * 5
        self.proj = nn.Sequential(
            nn.Conv2d(n_in, n_hidden, config.patch, config.patch), nn.GELU(), nn.Conv2d(n_hidden, config.width, 1)
        )

    def hidden(self, x: Tensor) -> Tensor:
        """(B,S+3,*plane) -> (B,h,X,Y), what the last map takes to D channels."""
        return self.proj[:2](x)

    def last(self) -> tuple[Tensor, Tensor]:
        """Its matrix (D,h) and offset (D,)."""
        weight, bias = self.proj[2].parameters()
        return weight[:, :, 0, 0], bias


class TimeAggregator(nn.Module):
    """sum_t M_t (z_t cos(gamma t)) (B,D,X,Y) of features z_t = W h_t + c, with h (B,T,h,X,Y), W (D,h) and c (D,X,Y).

    All maps are linear, so they are multiplied with each other first: h has a thirtieth of the channels of z.
    """

    time: Tensor

    def __init__(self, n_frames: int, width: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(n_frames, width, width) / (n_frames * width**0.5))  # (T,in,out)
        self.gamma = nn.Parameter(2 ** torch.linspace(-10, 10, width)[None])  # (1,D)
        self.register_buffer("time", torch.linspace(0, 1, n_frames)[:, None], persistent=False)  # (T,1)

    def forward(self, h: Tensor, W: Tensor, c: Tensor) -> Tensor:
        maps = self.w * torch.cos(self.time * self.gamma)[:, :, None]  # (T,D,D'): M_t cos(gamma t)
        kernel = torch.einsum("tij,ih->jth", maps, W).flatten(1)[:, :, None, None]  # (D',T*h,1,1)
        return nn.functional.conv2d(h.flatten(1, 2), kernel) + torch.einsum("ixy,ij->jxy", c, maps.sum(0))


class Block(nn.Module):
    """(B,D,X,Y) -> (B,D,X,Y)."""

    def __init__(self, config: DpotConfig) -> None:
        super().__init__()
        D, G = config.width, config.n_groups
        self.norm1, self.norm2 = nn.GroupNorm(G, D), nn.GroupNorm(G, D)
        self.filter = SpectralMlp(D, G)
        self.mlp = nn.Sequential(nn.Conv2d(D, D, 1), nn.GELU(), nn.Conv2d(D, D, 1))

    def forward(self, z: Tensor) -> Tensor:
        y = self.norm1(z)
        return z + self.mlp(self.norm2(self.filter(y) + y))


class DpotNet(nn.Module):
    """Buffers (B,T,S,size,size) -> next frames (B,S,size,size)."""

    coordinates: Tensor

    def __init__(self, config: DpotConfig) -> None:
        super().__init__()
        D, side = config.width, config.size // config.patch
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, D, side, side))
        self.patch_embed = PatchEmbed(config)
        self.time_agg_layer = TimeAggregator(config.n_buffer, D)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.cls_head = nn.Sequential(
            nn.Linear(D, D), nn.GELU(), nn.Linear(D, D), nn.GELU(), nn.Linear(D, config.n_classes)
        )
        self.out_layer = nn.Sequential(
            nn.ConvTranspose2d(D, config.head, config.patch, config.patch),
            nn.GELU(),
            nn.Conv2d(config.head, config.head, 1),
            nn.GELU(),
            nn.Conv2d(config.head, config.n_slots, 1),
        )
        line, time = torch.linspace(0, 1, config.size), torch.linspace(0, 1, config.n_buffer)
        x, y = torch.meshgrid(line, line, indexing="ij")
        T = config.n_buffer
        parts = (x.expand(T, -1, -1), y.expand(T, -1, -1), time[:, None, None].expand(T, *x.shape))
        self.register_buffer("coordinates", torch.stack(parts, 1), persistent=False)  # (T,3,size,size)

    def forward(self, u: Tensor) -> Tensor:
        x = torch.cat((u, self.coordinates.expand(len(u), *self.coordinates.shape)), 2)  # (B,T,S+3,size,size)
        h = self.patch_embed.hidden(x.flatten(0, 1)).unflatten(0, x.shape[:2])  # (B,T,h,X,Y)
        W, offset = self.patch_embed.last()
        z = self.time_agg_layer(h, W, offset[:, None, None] + self.pos_embed[0])  # (B,D,X,Y)
        for block in self.blocks:
            z = block(z)
        return self.out_layer(z)


class Dpot(Baseline):
    card = Card(
        name="dpot",
        title="DPOT-S",
        paper="Hao et al., DPOT: Auto-Regressive Denoising Operator Transformer for Large-Scale PDE Pre-Training, "
        "ICML 2024",
        looks_at=10,
    )
    IDLE = ("net.cls_head",)

    def __init__(self, config: DpotConfig, task: Task) -> None:
        super().__init__(config, task)
        if task.n_channels > config.n_slots:
            raise ConfigError(f"DPOT-S has {config.n_slots} slots for channels; {task.problem.name} needs more.")
        self.lift = lift_to_plane(task.grid, (config.size, config.size), "linear")
        self.net = DpotNet(config)

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        training = StageTraining(
            budget=BUDGETS[name](200),
            batch=16 if name != "tiny" else 4,
            optimiser=OptimiserConfig(
                kind="adam", lr=1e-3, betas=(0.9, 0.9), weight_decay=1e-6, decay_all=True, clip=1e4
            ),
            schedule=ScheduleConfig(kind="cosine", warmup=40 / 200, start=1e-4, final=1e-8),
            n_scores=5,
        )
        tiny = DpotConfig(size=32, width=16, depth=2, n_groups=4, n_buffer=4, head=8, n_classes=3)
        return Recipe(tiny if name == "tiny" else DpotConfig(), (StageRecipe("fit", training),))

    @classmethod
    def laptop(cls, model: DpotConfig, task: Task) -> DpotConfig:
        width, head = (48, 16) if task.ndim == 1 else (128, 24)
        return dataclasses.replace(model, width=width, head=head)

    def trained(self, stage: str) -> dict[str, nn.Module]:
        net = self.net
        return {
            "pos_embed": nn.ParameterList([net.pos_embed]),
            "patch_embed": net.patch_embed,
            "time_agg_layer": net.time_agg_layer,
            "blocks": net.blocks,
            "out_layer": net.out_layer,
        }

    def window(self, stage: str, share: float) -> Window:
        return Window(0)

    def draws(self, stage: str, batch: Batch, generator: torch.Generator) -> Batch:
        u = batch["u"]
        return {"target": torch.randint(1, u.shape[1], (len(u),), generator=generator, device=u.device)}

    def loss(self, stage: str, batch: Batch) -> dict[str, Tensor]:
        u, rows = batch["u"], torch.arange(len(batch["u"]), device=batch["u"].device)
        ages = torch.arange(-self.config.n_buffer, 0, device=u.device)
        # (B,T); as in a forecast, frame 0 fills what is missing
        frames = (batch["target"][:, None] + ages).clamp(min=0)
        u_hat = self.step(u[rows[:, None], frames])
        return {"loss": mean_frame_error(u_hat[:, None], u[rows, batch["target"]][:, None])}

    def step(self, u: Tensor) -> Tensor:
        """The frames (B,C,*grid) after buffers u (B,T,C,*grid)."""
        plane = self.lift(u)  # (B,T,C,size,size)
        spare = plane.new_ones((*plane.shape[:2], self.config.n_slots - plane.shape[2], *plane.shape[3:]))
        return self.lift.inverse(self.net(torch.cat((plane, spare), 2))[:, : u.shape[2]])

    def rollout(
        self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None
    ) -> Tensor:
        return march(self.step, u_hist, self.config.n_buffer, n_frames)


SOLVER = Dpot

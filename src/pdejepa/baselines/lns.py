"""LNS, the latent neural PDE solver (Li et al., 2025): a map of latent sites that a conditional network moves.

    z_t = E(u_t)     z_{t+1} = f(z_t, c(xi))     u_hat_t = D(z_t)

E: residual blocks that halve the grid three (plane) or four (line) times.  D: full attention over the latent sites,
residual blocks with attention along each axis where an axis has 16 or 32 sites, and upsampling.
f: three blocks of dilated convolutions, told the parameters through c; its output is the next state itself.

    block   y = conv(GELU(GN(dilated(GELU(conv(GN x))) + A c)))        x <- x + y        x <- x + Mlp(x (1 + G(c)))
    c       cosines and sines of standardised xi, rates 1 .. 1e-4, an equal slice per parameter, then a small network

Autoencoder: relative L2 per frame on whole trajectories.  Dynamics: smooth L1 on five rolled steps between latents of
the frozen encoder.  Forecasts encode one frame and stay in latent space.

Ours differs: a line has convolutions and plain attention of its own (only planes were published); on planes attention
along an axis is a softmax of queries and keys from means over the other axis, heads as wide as the map; Burgers is told
all its 21 numbers; rates of cosines begin at 1, not at 1000 as for the times of diffusion models, where parameters that
are close would look unrelated; a line of 256 has 16 sites of 16 channels (published text and table
disagree); a frame that is almost zero counts as a twentieth of the usual size when errors are divided by it; margins
follow the boundary of the system (reflected on Wave-2D).
Letters: B rows, T frames, C channels, D latent channels, N sites, w width, E embedding, P parameters.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from pdejepa.baselines.baseline import AT_REST, BUDGETS, Baseline, Recipe, StageRecipe, Window, mean_frame_error
from pdejepa.baselines.blocks.autoencoder import AxisAttention, Down, FullAttention, ResBlock, Up, conv, per_frame
from pdejepa.baselines.task import Task
from pdejepa.core.errors import ConfigError
from pdejepa.forecast.interface import Card, State
from pdejepa.systems.problem import Padding
from pdejepa.training.settings import OptimiserConfig, ScheduleConfig, StageTraining
from pdejepa.training.stage import Batch

ATTENDED = (16, 32)  # lengths of an axis at which the decoder attends along it
MAX_PERIOD = 1e4
EMBEDDING = {1: 64, 2: 64, 3: 96, 21: 84}  # by number of parameters


@dataclass(frozen=True)
class LnsConfig:
    encoder: tuple[int, ...] = (64, 64, 64, 128, 128)
    decoder: tuple[int, ...] = (128, 128, 64, 64)
    groups: int = 32
    latent: int = 64
    heads: int = 8
    head_width: int = 64
    width: int = 128
    n_blocks: int = 3
    dilation: int = 2
    embedding: int = 64
    unroll: int = 5
    n_reconstructed: int = 0  # frames of a trajectory that the autoencoder learns from at once; 0: all

    def __post_init__(self) -> None:
        if len(self.decoder) != len(self.encoder) - 1:
            raise ConfigError(
                f"the decoder needs one level less than the encoder, got {len(self.decoder)} and {len(self.encoder)}"
            )


class Encoder(nn.Sequential):
    """(B,C,*grid) -> (B,D,*sites)."""

    def __init__(self, ndim: int, n_in: int, config: LnsConfig, padding: Padding) -> None:
        first, last = config.encoder[0], config.encoder[-1]
        layers: list[nn.Module] = [conv(ndim, n_in, first, 1), nn.SiLU(), conv(ndim, first, first, 3, padding)]
        for level, (n_in_, n_out) in enumerate(pairwise(config.encoder)):
            layers.append(ResBlock(ndim, n_in_, n_out, config.groups, padding))
            if level < len(config.encoder) - 2:
                layers.append(Down(ndim, n_out, padding))
        super().__init__(*layers, nn.GroupNorm(config.groups, last), nn.SiLU(), conv(ndim, last, config.latent, 1))


class Decoder(nn.Sequential):
    """(B,D,*sites) -> (B,C,*grid)."""

    def __init__(self, n_out: int, sites: tuple[int, ...], config: LnsConfig, padding: Padding) -> None:
        ndim, before, groups = len(sites), config.decoder[0], config.groups
        layers: list[nn.Module] = [
            conv(ndim, config.latent, before, 1),
            FullAttention(before, config.heads, config.head_width, groups, sites),
            ResBlock(ndim, before, before, groups, padding),
        ]
        for level, after in enumerate(config.decoder):
            layers.append(ResBlock(ndim, before, after, groups, padding))
            if level:
                layers.append(Up(ndim, after, after, padding))
            if sites[0] * 2**level in ATTENDED:
                plain = FullAttention(after, config.heads, config.head_width, groups)
                layers.append(plain if ndim == 1 else AxisAttention(after, config.heads, groups))
            before = after
        super().__init__(*layers, nn.GroupNorm(groups, before), nn.SiLU(), conv(ndim, before, n_out, 3, padding))


class Condition(nn.Module):
    """c (B,E) of standardised parameters (B,P)."""

    rates: Tensor

    def __init__(self, n_parameters: int, width: int) -> None:
        super().__init__()
        pairs = width // n_parameters // 2
        if pairs * 2 * n_parameters != width:
            raise ConfigError(f"an embedding of {width} cannot be cut into {n_parameters} equal, even slices")
        rates = MAX_PERIOD ** (-torch.arange(pairs, dtype=torch.float32) / pairs)
        self.register_buffer("rates", rates, persistent=False)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, xi: Tensor) -> Tensor:
        angles = xi[..., None] * self.rates  # (B,P,pairs)
        return self.mlp(torch.cat((angles.cos(), angles.sin()), -1).flatten(1))


class DynamicsBlock(nn.Module):
    def __init__(self, ndim: int, config: LnsConfig, padding: Padding) -> None:
        super().__init__()
        w, E = config.width, config.embedding
        self.norm1, self.norm2 = nn.GroupNorm(1, w), nn.GroupNorm(1, w)
        self.conv1 = conv(ndim, w, w, 3, padding)
        self.conv2 = conv(ndim, w, w, 3, padding, dilation=config.dilation)
        self.conv3 = conv(ndim, w, w, 3, padding)
        self.shift = nn.Linear(E, w)
        self.gain = nn.Sequential(nn.Linear(E, E // 2), nn.GELU(), nn.Linear(E // 2, w))
        self.mlp = nn.Sequential(conv(ndim, w, 2 * w, 1, bias=False), nn.GELU(), conv(ndim, 2 * w, w, 1, bias=False))
        for last in (self.conv3, self.gain[-1]):
            nn.init.zeros_(last.weight)  # type: ignore[arg-type]
            nn.init.zeros_(last.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shape = (len(x), -1, *[1] * (x.ndim - 2))
        y = self.conv2(nn.functional.gelu(self.conv1(self.norm1(x)))) + self.shift(c).reshape(shape)
        x = x + self.conv3(nn.functional.gelu(self.norm2(y)))
        return x + self.mlp(x * (1 + self.gain(c).reshape(shape)))


class Dynamics(nn.Module):
    """z_{t+1} (B,D,*sites) from z_t and standardised parameters (B,P)."""

    def __init__(self, ndim: int, n_parameters: int, config: LnsConfig, padding: Padding) -> None:
        super().__init__()
        self.condition = Condition(n_parameters, config.embedding)
        self.lift = conv(ndim, config.latent, config.width, 1)
        self.blocks = nn.ModuleList(DynamicsBlock(ndim, config, padding) for _ in range(config.n_blocks))
        self.head = conv(ndim, config.width, config.latent, 1)

    def forward(self, z: Tensor, xi: Tensor) -> Tensor:
        c, x = self.condition(xi), self.lift(z)
        for block in self.blocks:
            x = block(x, c)
        return self.head(x)


class Lns(Baseline):
    card = Card(
        name="lns",
        title="LNS",
        paper="Li et al., Latent Neural PDE Solver: a reduced-order modelling framework, 2025",
        needs=frozenset({"xi"}),
        stages=("autoencode", "dynamics"),
        has_encoder=True,
    )

    def __init__(self, config: LnsConfig, task: Task) -> None:
        super().__init__(config, task)
        factor = 2 ** (len(config.encoder) - 2)
        if any(n % factor for n in task.grid):
            raise ConfigError(f"LNS needs multiples of {factor} points per axis, got {task.grid}.")
        sites = tuple(n // factor for n in task.grid)
        self.encoder = Encoder(task.ndim, task.n_channels, config, task.padding)
        self.decoder = Decoder(task.n_channels, sites, config, task.padding)
        self.dynamics = Dynamics(task.ndim, task.n_parameters, config, task.padding)

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        embedding = EMBEDDING.get(task.n_parameters, 32 * task.n_parameters)
        model = LnsConfig(embedding=embedding)
        if task.ndim == 1:
            levels = {"encoder": (64, 64, 64, 128, 128, 128), "decoder": (128, 128, 128, 64, 64)}
            model = dataclasses.replace(model, **levels, latent=16)  # type: ignore[arg-type]
        if name == "tiny":
            model = LnsConfig(
                (8, 8, 8, 8), (8, 8, 8), 2, 4, 2, 4, 8, 1, 2, 4 * task.n_parameters, unroll=2, n_reconstructed=1
            )
        final = 1e-6
        autoencode = StageTraining(
            budget=BUDGETS[name](100),
            batch=8 if name != "tiny" else 4,
            optimiser=OptimiserConfig(kind="adam", lr=3e-4, betas=(0.5, 0.9), weight_decay=0.0, clip=1.0),
            schedule=ScheduleConfig(kind="cosine", warmup=0.0, final=final / 3e-4),
            n_scores=5,
        )
        dynamics = StageTraining(
            budget=BUDGETS[name](100),
            batch=100 if name != "tiny" else 8,
            optimiser=OptimiserConfig(kind="adam", lr=5e-4, weight_decay=0.0, clip=1.0),
            schedule=ScheduleConfig(kind="cosine", warmup=0.0, final=final / 5e-4),
            n_scores=5,
        )
        return Recipe(model, (StageRecipe("autoencode", autoencode), StageRecipe("dynamics", dynamics)))

    def trained(self, stage: str) -> dict[str, nn.Module]:
        if stage == "autoencode":
            return {"encoder": self.encoder, "decoder": self.decoder}
        return {"dynamics": self.dynamics}

    def window(self, stage: str, share: float) -> Window:
        return Window(self.config.n_reconstructed if stage == "autoencode" else self.config.unroll + 1)

    def loss(self, stage: str, batch: Batch) -> dict[str, Tensor]:
        u = batch["u"]
        if stage == "autoencode":
            return {"loss": mean_frame_error(self._decoded(self._encoded(u)), u, AT_REST)}
        with torch.no_grad():
            z = self._encoded(u)  # (B,1+K,D,*sites)
        z_hat = self.rolled(z[:, 0], self.standardised(batch["xi"]), z.shape[1] - 1)
        return {"loss": nn.functional.smooth_l1_loss(z_hat, z[:, 1:])}

    def _encoded(self, u: Tensor) -> Tensor:
        return per_frame(self.encoder, u, self.task.grid)  # (B,T,D,*sites)

    def _decoded(self, z: Tensor) -> Tensor:
        return per_frame(self.decoder, z, self.task.grid)  # (B,T,C,*grid)

    def rolled(self, z: Tensor, xi: Tensor, n: int) -> Tensor:
        """The next n latents (B,n,D,*sites)."""
        states = [z]
        for _ in range(n):
            states.append(self.dynamics(states[-1], xi))
        return torch.stack(states[1:], 1)

    def adapt(
        self, support: Tensor | None = None, xi: Tensor | None = None, generator: torch.Generator | None = None
    ) -> State:
        xi = self.card.given("xi", xi)
        return {"xi": self.standardised(xi)}

    def rollout(self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None) -> Tensor:
        if n_frames == 0:
            return u_hist[:, :0]
        return self._decoded(self.rolled(self.encoder(u_hist[:, -1]), state["xi"], n_frames))

    def encode(self, u: Tensor) -> Tensor:
        """(B,T,N,D)."""
        return self._encoded(u).flatten(3).transpose(2, 3)


SOLVER = Lns

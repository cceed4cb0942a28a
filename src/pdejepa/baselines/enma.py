"""ENMA (Kassai Koupai et al., 2025): frame after frame, latent tokens are unmasked in rounds, each drawn by a flow.

    z_t = E(u_t, u_{t-1}, ..)                  variational autoencoder, causal in time, N sites of D numbers per frame
    h_{t+1} = temporal(context, bos, z_1 .. z_t)      block-causal transformer over all tokens of the frames so far
    c = spatial([h_t ; z_t with a part masked])       transformer over one frame
    dz/dr = v(z, r, c)  from noise at r = 0 to a token at r = 1            three small residual blocks, token by token

    autoencode   |D(z) - u|^2 / |u|^2 + 5e-4 KL
    dynamics     <|v(z_r, r, c) - (z - eps)|^2> on masked tokens,  z_r = (1-r) eps + r z,  share of masked U(3/4, 1)

The context is a trajectory of the same environment.  A frame is sampled in S rounds: in a random order, the tokens
still masked after round s are floor(N cos(pi s / 2S)), and each flow is integrated in ten midpoint steps.

Ours differs: no code was published, so blocks and widths of the autoencoder (16 at the full grid, doubled at every
halving) are ours, and rounds follow masked autoregressive image models (Li et al., 2024), as the head does; KL is the
mean over latent numbers; of a rollout longer than the training window the last frames are seen; of several context
trajectories the first is used; rates warm up in 1 % of the steps (published: 500 steps), in `fast` in 5 and 10 %;
`fast` takes 16 windows of planes at a time instead of 64, to fit memory without computing anything twice.
On planes `laptop` costs twice as much as it should: its blocks cannot be narrower, since rotary positions need heads of
six numbers, and a frame is sampled in 16 rounds.
Letters: B rows, T frames, N sites, D latent channels, w width, n tokens, F frames of a sequence, *grid spatial axes.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pdejepa.baselines.baseline import BUDGETS, Baseline, Recipe, StageRecipe, Window
from pdejepa.baselines.blocks.autoencoder import CausalDecoder, CausalEncoder, in_parts, working_grid
from pdejepa.baselines.blocks.flow_matching import FlowHead, filled_per_round, integrate
from pdejepa.baselines.blocks.tokens import BlockConfig, TokenBlock, causal_mask, grid_sinusoids, init_tokens
from pdejepa.baselines.task import Task
from pdejepa.core.errors import ConfigError
from pdejepa.forecast.interface import Card, State
from pdejepa.models.rope import Axis, Rotary
from pdejepa.training.settings import OptimiserConfig, ScheduleConfig, StageTraining
from pdejepa.training.stage import Batch

LEAST_MASKED = 0.75
EPS = 1e-8


@dataclass(frozen=True)
class EnmaConfig:
    latent: int = 32
    vae_width: int = 16
    n_halvings: int = 3
    largest_grid: int = 128
    kl: float = 5e-4
    width: int = 512
    depth: int = 6  # of each of the two transformers
    heads: int = 8
    hidden: int = 2048
    head_width: int = 512
    head_depth: int = 3
    n_window: int = 14  # frames of a training sample, and of the context
    n_rounds: int = 6
    n_flow: int = 10
    recompute: bool = False  # whether blocks are computed again for gradients: slower, a fraction of the memory


class Transformer(nn.Module):
    """Blocks with RMS norms, normalised queries and keys, SwiGLU and rotary positions; sinusoids are added first."""

    positions: Tensor

    def __init__(self, config: EnmaConfig, lengths: tuple[int, ...]) -> None:
        super().__init__()
        block = BlockConfig(
            config.width, config.heads, config.hidden, "rms", "swiglu", "rms", qkv_bias="none", out_bias=False
        )
        self.recompute = config.recompute
        self.register_buffer("positions", grid_sinusoids(lengths, config.width), persistent=False)
        self.rotary = Rotary(tuple(Axis(n, is_ring=False) for n in lengths), config.width // config.heads)
        self.blocks = nn.ModuleList(TokenBlock(block) for _ in range(config.depth))
        self.norm = nn.RMSNorm(config.width, eps=1e-6)

    def forward(self, x: Tensor, mask: Tensor | None = None, n_copies: int = 1) -> Tensor:
        """x (B,n,w), the first tokens of the grid of positions, or that grid several times."""
        n = x.shape[1] // n_copies
        x = x + self.positions[:n].repeat(n_copies, 1)
        cos, sin = (part.repeat(1, 1, n_copies, 1) for part in self.rotary.first(n))
        for block in self.blocks:
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(block, x, mask, None, (cos, sin), use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x, mask=mask, rotary=(cos, sin))
        return self.norm(x)


class Dynamics(nn.Module):
    """Everything that works on latent tokens."""

    mask: Tensor

    def __init__(self, config: EnmaConfig, sites: tuple[int, ...]) -> None:
        super().__init__()
        self.config, self.n_tokens = config, math.prod(sites)
        n_sequence = 2 * config.n_window  # context, bos, and all but the last frame
        self.embed = nn.Linear(config.latent, config.width)
        self.bos = nn.Parameter(0.02 * torch.randn(self.n_tokens, config.width))
        self.hidden_token = nn.Parameter(0.02 * torch.randn(config.width))
        self.which_half = nn.Parameter(0.02 * torch.randn(2, config.width))  # history and frame
        self.temporal = Transformer(config, (n_sequence, *sites))
        self.spatial = Transformer(config, sites)
        self.head = FlowHead(config.latent, config.width, config.head_width, config.head_depth)
        frames = torch.arange(n_sequence).repeat_interleave(self.n_tokens)
        self.register_buffer("mask", causal_mask(frames), persistent=False)
        init_tokens(self)
        self.head.reset()

    def histories(self, context: Tensor, z: Tensor) -> Tensor:
        """h (B,T+1,N,w) for the frames after none, one, .. all of z (B,T,N,D), behind context (B,F,N,D)."""
        bos = self.bos.expand(len(z), 1, -1, -1)
        x = torch.cat((self.embed(context), bos, self.embed(z)), 1)  # (B,F+1+T,N,w)
        n = x.shape[1] * self.n_tokens
        h = self.temporal(x.flatten(1, 2), self.mask[:n, :n]).unflatten(1, (-1, self.n_tokens))
        return h[:, context.shape[1] :]

    def conditions(self, h: Tensor, z: Tensor, is_masked: Tensor) -> Tensor:
        """c (n,N,w) of frames z (n,N,D) with some tokens masked, after histories h (n,N,w)."""
        tokens = torch.where(is_masked[..., None], self.hidden_token, self.embed(z))
        x = torch.cat((h + self.which_half[0], tokens + self.which_half[1]), 1)  # (n,2N,w)
        return self.spatial(x, n_copies=2)[:, self.n_tokens :]

    def sample(self, h: Tensor, generator: torch.Generator | None) -> Tensor:
        """A frame (B,N,D) after the history h (B,N,w)."""
        B, N, D, device = len(h), self.n_tokens, self.config.latent, h.device
        order = torch.rand((B, N), generator=generator, device=device).argsort(1)
        z, is_masked, done = h.new_zeros((B, N, D)), torch.ones((B, N), dtype=torch.bool, device=device), 0
        for count in filled_per_round(N, self.config.n_rounds):
            idx = order[:, done : done + count]  # (B,count)
            c = self.conditions(h, z, is_masked)
            c = c.gather(1, idx[..., None].expand(-1, -1, c.shape[-1]))
            noise = torch.randn((B, count, D), generator=generator, device=device)
            z = z.scatter(1, idx[..., None].expand(-1, -1, D), integrate(self.head, noise, c, self.config.n_flow))
            is_masked = is_masked.scatter(1, idx, False)
            done += count
        return z


class Enma(Baseline):
    card = Card(
        name="enma",
        title="ENMA",
        paper="Kassai Koupai et al., ENMA: Tokenwise Autoregression for Generative Neural PDE Operators, 2025",
        needs=frozenset({"support"}),
        adapts="encode",
        stages=("autoencode", "dynamics"),
        is_stochastic=True,
        has_encoder=True,
    )

    def __init__(self, config: EnmaConfig, task: Task) -> None:
        super().__init__(config, task)
        grid, self.lift = working_grid(task, config.largest_grid)
        factor = 2**config.n_halvings
        if any(n % factor for n in grid):
            raise ConfigError(f"ENMA with {config.n_halvings} halvings needs multiples of {factor}, got {grid}.")
        self.grid, self.sites = grid, tuple(n // factor for n in grid)
        shape = (config.vae_width, config.n_halvings, task.padding)
        self.encoder = CausalEncoder(task.ndim, task.n_channels, 2 * config.latent, *shape)
        self.decoder = CausalDecoder(task.ndim, config.latent, task.n_channels, *shape)
        self.dynamics = Dynamics(config, self.sites)

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        model, batch = EnmaConfig(), 32
        if task.ndim == 2:
            # Two stacks of 5120 tokens per row: the published batch only fits with recomputation, a small one without.
            plane = {"n_halvings": 2, "largest_grid": 64, "n_window": 10, "n_rounds": 16, "recompute": name == "paper"}
            model, batch = dataclasses.replace(model, **plane), 64 if name == "paper" else 16  # type: ignore[arg-type]
        if name == "tiny":
            model, batch = EnmaConfig(4, 4, 2, 16, 5e-4, 24, 1, 2, 32, 16, 1, 4, 2, 2), 8
        epochs = (500, 1000) if task.problem.name == "vorticity" else (200, 300)
        warmup = (0.05, 0.1) if name == "fast" else (0.01, 0.01)  # of a short training, to have as many steps
        autoencode = StageTraining(
            budget=BUDGETS[name](epochs[0]),
            batch=32 if name != "tiny" else 8,
            optimiser=OptimiserConfig(lr=1e-3, weight_decay=1e-3, clip=1.0),
            schedule=ScheduleConfig(kind="cosine", warmup=warmup[0], final=1e-2),
            n_scores=5,
        )
        dynamics = StageTraining(
            budget=BUDGETS[name](epochs[1]),
            batch=batch,
            optimiser=OptimiserConfig(lr=1e-3, betas=(0.9, 0.95), weight_decay=1e-4, clip=1.0),
            schedule=ScheduleConfig(kind="cosine", warmup=warmup[1], final=1e-2),
            n_scores=3,
        )
        first = StageRecipe("autoencode", autoencode, epochs[0])
        return Recipe(model, (first, StageRecipe("dynamics", dynamics, epochs[1], precision="bf16")))

    @classmethod
    def laptop(cls, model: EnmaConfig, task: Task) -> EnmaConfig:
        width, depth = (48, 2) if task.ndim == 1 else (48, 1)
        return dataclasses.replace(model, width=width, hidden=4 * width, head_width=width, depth=depth)

    # ---- training ----------------------------------------------------------------------------------------------
    def trained(self, stage: str) -> dict[str, nn.Module]:
        if stage == "autoencode":
            return {"encoder": self.encoder, "decoder": self.decoder}
        return {"dynamics": self.dynamics}

    def window(self, stage: str, share: float) -> Window:
        return Window(self.config.n_window, n_support=0 if stage == "autoencode" else 1)

    def draws(self, stage: str, batch: Batch, generator: torch.Generator) -> Batch:
        B, T, D, N = *batch["u"].shape[:2], self.config.latent, self.dynamics.n_tokens
        device = batch["u"].device
        noise = {"noise": torch.randn((B, T, N, D), generator=generator, device=device)}
        if stage == "autoencode":
            return noise
        names = {"time": (B, T, N), "order": (B, T, N), "share_masked": (B, T, 1)}
        return noise | {k: torch.rand(shape, generator=generator, device=device) for k, shape in names.items()}

    def loss(self, stage: str, batch: Batch) -> dict[str, Tensor]:
        u = self.lift(batch["u"])
        if stage == "autoencode":
            mean, log_var = self.posterior(u)
            u_hat = self.fields(mean + (0.5 * log_var).exp() * batch["noise"])
            error, norm = ((x.square().flatten(1).sum(1)) for x in (u_hat - u, u))
            kl = 0.5 * (mean.square() + log_var.exp() - 1 - log_var).mean()
            relative = (error / (norm + EPS)).mean()
            return {"loss": relative + self.config.kl * kl, "error": relative, "kl": kl}
        with torch.no_grad():
            z = self.posterior(u)[0]
            context = self.posterior(self.lift(batch["support"][:, 0, : self.config.n_window]))[0]
        return {"loss": self._flow_loss(z, context, batch)}

    def _flow_loss(self, z: Tensor, context: Tensor, batch: Batch) -> Tensor:
        h = self.dynamics.histories(context, z[:, :-1])  # (B,T,N,w)
        rank = batch["order"].argsort(-1).argsort(-1)
        is_masked = rank < masked_tokens(batch["share_masked"], z.shape[2])  # (B,T,N)
        c = self.dynamics.conditions(*(x.flatten(0, 1) for x in (h, z, is_masked))).unflatten(0, z.shape[:2])
        eps, r = batch["noise"], batch["time"]
        z_r = (1 - r[..., None]) * eps + r[..., None] * z
        with torch.autocast(z.device.type, enabled=False):  # the error of a velocity is small beside it
            error = (self.dynamics.head(z_r, r, c.float()) - (z - eps)).square().mean(-1)  # (B,T,N)
        return (error * is_masked).sum() / is_masked.sum()

    # ---- latents -----------------------------------------------------------------------------------------------
    def posterior(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance (B,T,N,D) of frames (B,T,C,*grid) on the working grid, in float32 always."""
        with torch.autocast(u.device.type, enabled=False):
            x = in_parts(self.encoder, u.transpose(1, 2), (u.shape[1], *self.grid))  # (B,2D,T,*sites)
            x = x.flatten(3).permute(0, 2, 3, 1)  # (B,T,N,2D)
        mean, log_var = x.chunk(2, -1)
        return mean, log_var.clamp(-20.0, 10.0)

    def fields(self, z: Tensor) -> Tensor:
        x = z.permute(0, 3, 1, 2).unflatten(3, self.sites)  # (B,D,T,*sites)
        return in_parts(self.decoder, x, (z.shape[1], *self.grid)).transpose(1, 2)  # (B,T,C,*grid)

    # ---- forecasts ---------------------------------------------------------------------------------------------
    @torch.no_grad()
    def adapt(
        self, support: Tensor | None = None, xi: Tensor | None = None, generator: torch.Generator | None = None
    ) -> State:
        support = self.card.given("support", support)
        return {"context": self.encode(support[:, 0, : self.config.n_window])}

    def rollout(self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None) -> Tensor:
        z = self.encode(u_hist)  # (B,H,N,D)
        for _ in range(n_frames):
            h = self.dynamics.histories(state["context"], z[:, -(self.config.n_window - 1) :])[:, -1]
            z = torch.cat((z, self.dynamics.sample(h, generator)[:, None]), 1)
        return self.lift.inverse(self.fields(z))[:, u_hist.shape[1] :]

    def encode(self, u: Tensor) -> Tensor:
        """(B,T,N,D)."""
        return self.posterior(self.lift(u))[0]


def masked_tokens(share: Tensor, n_tokens: int) -> Tensor:
    """How many tokens are masked: ceil(N (3/4 + share/4)), share in [0,1)."""
    return ((LEAST_MASKED + (1 - LEAST_MASKED) * share) * n_tokens).ceil()


SOLVER = Enma

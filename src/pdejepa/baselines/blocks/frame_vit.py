"""A transformer that sees a row of frames and says the next one after each of them; two solvers are built on it.

    x_t  = W patches(u_t) + position(t, place)                  the tokens of frame t
    x   <- x + Attention(Norm(x));  x <- x + Ffn(Norm(x))       every frame looks at what stands before it and itself
    u_{t+1} = patches^{-1}( W Norm(x_t) )

Norms are root-mean-square norms, also of queries and keys; Ffn is a SwiGLU; positions are sinusoids, an equal part of
the width for time and each axis.  What stands before the first frame (frames of a context, a token of the environment)
is a prefix that does not look at what follows, so that a forecast reads it once and keeps its keys and values.
Letters: B rows, T frames, N tokens of a frame, m tokens of the prefix, w width, C channels, p patch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pdejepa.baselines.baseline import BUDGETS
from pdejepa.baselines.blocks.tokens import (
    BlockConfig,
    Cache,
    Modulation,
    TokenBlock,
    causal_mask,
    grid_sinusoids,
    init_tokens,
    sinusoids,
)
from pdejepa.baselines.task import Task
from pdejepa.models.patches import PatchGrid
from pdejepa.training.settings import OptimiserConfig, ScheduleConfig, StageTraining

N_EPOCHS, N_WARM, STEPS_PER_EPOCH = 1000, 500, 12_000 / 128  # epochs, steps of warm-up, published steps per epoch
MAX_SIDE = 8  # tokens per axis of a plane in `fast`


@dataclass(frozen=True)
class FrameVitConfig:
    patch: int = 8
    depth: int = 6
    width: int = 512
    heads: int = 8
    hidden: int = 1024


class FrameVit(nn.Module):
    """`n_condition` above 0: blocks are modulated by a vector of that length (adaptive norms that start at zero)."""

    places: Tensor

    def __init__(self, config: FrameVitConfig, task: Task, n_condition: int = 0) -> None:
        super().__init__()
        self.patches = PatchGrid(task.grid, config.patch, task.problem.periodic_axes)
        width, n_values = config.width, task.n_channels * self.patches.patch_points
        with torch.device("cpu"):  # tables have values even where a network is only counted
            places = grid_sinusoids((1, *self.patches.tokens), width)  # (N,w), all at time 0
        self.time_width = width // (2 * (task.ndim + 1)) * 2
        places[:, : self.time_width] = 0.0
        self.register_buffer("places", places, persistent=False)
        block = BlockConfig(
            width, config.heads, config.hidden, "rms", "swiglu", qk_norm="rms", qkv_bias="none", out_bias=False
        )
        self.embed = nn.Linear(n_values, width)
        self.blocks = nn.ModuleList(TokenBlock(block) for _ in range(config.depth))
        n_modulated = config.depth if n_condition else 0
        self.modulations = nn.ModuleList(Modulation(6, (n_condition,), (width,)) for _ in range(n_modulated))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.head = nn.Linear(width, n_values)
        init_tokens(self)

    def tokens(self, u: Tensor, first: int = 0, every: int = 1) -> Tensor:
        """Tokens (B,T*N,w) of frames (B,T,C,*grid) with the numbers first, first + every, ..."""
        numbers = first + every * torch.arange(u.shape[1], device=u.device)
        time = sinusoids(numbers, self.time_width)  # (T,w_t)
        time = nn.functional.pad(time, (0, self.places.shape[1] - self.time_width))
        x = self.embed(self.patches.split(u)) + self.places + time[:, None]  # (B,T,N,w)
        return x.flatten(1, 2)

    def forward(self, u: Tensor, prefix: Tensor | None = None, condition: Tensor | None = None) -> Tensor:
        """The frame after each of the frames u, both (B,T,C,*grid), behind a prefix (B,m,w)."""
        m = 0 if prefix is None else prefix.shape[1]
        x = self.tokens(u) if prefix is None else torch.cat((prefix, self.tokens(u)), 1)
        return self.frames(self.run(x, m, condition)[:, m:])

    def rollout(
        self, u_hist: Tensor, n_frames: int, prefix: Tensor | None = None, condition: Tensor | None = None
    ) -> Tensor:
        """The next frames (B,n_frames,C,*grid) after u_hist (B,H,C,*grid); earlier keys and values are kept."""
        cache, n_known, frames = Cache(), u_hist.shape[1], []
        if prefix is not None:
            self.run(prefix, prefix.shape[1], condition, cache)
        u = u_hist[:, :1]
        for k in range(n_known + n_frames - 1):
            after = self.frames(self._blocks(self.tokens(u, k), None, condition, cache))  # (B,1,C,*grid)
            u = u_hist[:, k + 1 : k + 2] if k + 1 < n_known else after
            if k + 1 >= n_known:
                frames.append(after)
        return torch.cat(frames, 1) if frames else u_hist[:, :0]

    def run(self, x: Tensor, m: int, condition: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """All tokens x (B,n,w) through all blocks; the first m are a prefix: frames of its own, or less than one."""
        number = torch.arange(-m, x.shape[1] - m, device=x.device) // self.patches.n_tokens
        return self._blocks(x, causal_mask(number), condition, cache)

    def _blocks(self, x: Tensor, mask: Tensor | None, condition: Tensor | None, cache: Cache | None = None) -> Tensor:
        for number, block in enumerate(self.blocks):
            modulation = None if condition is None else self.modulations[number](condition[:, None])
            x = block(x, mask, modulation, None, cache, number)
        return x

    def frames(self, x: Tensor) -> Tensor:
        """The frames (B,T,C,*grid) that tokens (B,T*N,w) tell when they leave the blocks."""
        return self.patches.join(self.head(self.norm(x)).unflatten(1, (-1, self.patches.n_tokens)))


def sizes(name: str, task: Task) -> FrameVitConfig:
    """The published sizes; `fast` cuts planes into at most 8x8 tokens: with 16x16, attention would take the budget."""
    if name == "tiny":
        return FrameVitConfig(patch=8, depth=2, width=24, heads=2, hidden=32)
    if name == "fast" and task.ndim == 2:
        return FrameVitConfig(patch=max(8, min(task.grid) // MAX_SIDE))
    return FrameVitConfig()


def training(name: str, task: Task) -> StageTraining:
    """The published schedule: AdamW, cosine from 1e-3 to 1e-5, 500 steps of warm-up at batch 128; `fast`: 5 %."""
    is_large = task.ndim == 2 and min(task.grid) > 32
    batch = {"paper": 64 if is_large else 128, "fast": 32 if is_large else 128, "tiny": 4}[name]
    return StageTraining(
        budget=BUDGETS[name](N_EPOCHS),
        batch=batch,
        optimiser=OptimiserConfig(lr=1e-3, betas=(0.9, 0.95), weight_decay=1e-4, clip=1.0),
        schedule=ScheduleConfig(
            kind="cosine", warmup=N_WARM / (N_EPOCHS * STEPS_PER_EPOCH) if name == "paper" else 0.05, final=0.01
        ),
        n_scores=5,
    )

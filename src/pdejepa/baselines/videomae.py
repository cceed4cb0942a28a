"""VideoMAE, masked autoencoding of clips (Tong et al., NeurIPS 2022), for representations; it does not forecast.

    x       = patches of 16 frames, two frames deep
    seen    a tenth of the places, the same at all times (tubes)
    x_hat   = Decoder(Encoder(x, seen)),       loss = mean | x_hat - (x - mean(x)) / std(x) |^2   at masked places

Mean and spread are those of one token and channel.  Positions are sinusoids of the token's number.
Features come from unmasked clips: the first one, and where trajectories are longer further ones that end with them;
a pair of frames takes its features from the earliest clip that holds it.  They depend strongly on the place of a pair
in its clip: `clips` tells which clip and place a pair comes from.

Ours differs: frames are cut into 8x8 places whatever the grid (patches of 16x16 on 128x128, as published), lines into
16; clips are shorter where a trajectory has fewer frames than 16, and an odd last frame is left out.  Published for
this use are 10 M weights, tubelets of two and 100 epochs; 12 blocks 256 wide are 9.6 M.  No augmentation.  `fast` has
thirteen times the published learning rate for its batch, because few steps must go far.
Letters: B rows, T frames, n tokens of a clip, N places, V values of a token, C channels, w width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pdejepa.baselines.baseline import BUDGETS, Baseline, Recipe, StageRecipe, Window
from pdejepa.baselines.blocks.masked import MaskedDecoder, MaskedEncoder, Positions
from pdejepa.baselines.blocks.tokens import BlockConfig, Tubelets, choose, init_tokens, pick, sinusoids, tubes
from pdejepa.baselines.task import Task
from pdejepa.core.errors import ConfigError
from pdejepa.forecast.interface import Card, State
from pdejepa.models.patches import PatchGrid
from pdejepa.training.settings import OptimiserConfig, ScheduleConfig, StageTraining
from pdejepa.training.stage import Batch

EPS = 1e-6
N_EPOCHS, N_WARM = 100, 10


@dataclass(frozen=True)
class VideoMaeConfig:
    patch: int = 16
    tubelet: int = 2
    n_frames: int = 16
    width: int = 256
    depth: int = 12
    heads: int = 4
    decoder_width: int = 128
    decoder_depth: int = 4
    decoder_heads: int = 2
    masked: float = 0.9


class VideoMae(Baseline):
    card = Card(
        name="videomae",
        title="VideoMAE",
        paper="Tong et al., VideoMAE: Masked Autoencoders are Data-Efficient Learners, NeurIPS 2022",
        history=16,
        is_forecaster=False,
        has_encoder=True,
    )

    def __init__(self, config: VideoMaeConfig, task: Task) -> None:
        super().__init__(config, task)
        patches = PatchGrid(task.grid, config.patch, task.problem.periodic_axes)
        self.cut = Tubelets(patches, config.tubelet)
        self.n_frames = min(config.n_frames, task.n_frames) // config.tubelet * config.tubelet
        self.n_times, self.n_sites = self.n_frames // config.tubelet, patches.n_tokens
        self.n_seen = self.n_sites - int(config.masked * self.n_sites)  # places
        if not 0 < self.n_seen < self.n_sites:
            raise ConfigError(f"masked={config.masked} of {self.n_sites} places must leave some, not all, visible.")
        n, n_values = self.n_times * self.n_sites, config.tubelet * task.n_channels * patches.patch_points
        width, small = config.width, config.decoder_width
        outer = BlockConfig(width, config.heads, 4 * width, qkv_bias="query_value", eps=1e-12)
        inner = BlockConfig(small, config.decoder_heads, 4 * small, qkv_bias="query_value", eps=1e-12)
        with torch.device("cpu"):  # tables have values even where a network is only counted
            wide, narrow = (sinusoids(torch.arange(n), size) for size in (width, small))
        self.encoder = MaskedEncoder(nn.Linear(n_values, width), Positions(wide, (n, width)), outer, config.depth)
        self.decoder = MaskedDecoder(
            width, n_values, Positions(narrow, (n, small)), inner, config.decoder_depth, narrow_bias=False
        )
        init_tokens(self)

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        patch = max(1, min(task.grid) // (8 if task.ndim == 2 else 16))
        model = VideoMaeConfig(patch)
        if name == "tiny":
            model = VideoMaeConfig(
                patch, n_frames=4, width=16, depth=2, heads=2, decoder_width=12, decoder_depth=1, decoder_heads=2
            )
        batch = {"paper": 256, "fast": 64, "tiny": 8}[name]
        lr = 1.5e-4 * batch / 256 if name == "paper" else 5e-4  # fast: few steps must go far
        training = StageTraining(
            budget=BUDGETS[name](N_EPOCHS),
            batch=batch,
            optimiser=OptimiserConfig(lr=lr, betas=(0.9, 0.95), weight_decay=0.05, clip=0.0),
            # The floor of `paper` is 1e-5 batch / 256.
            schedule=ScheduleConfig(kind="cosine", warmup=N_WARM / N_EPOCHS, final=1 / 15),
            n_scores=5,
        )
        return Recipe(model, (StageRecipe("fit", training, precision="bf16"),))

    # ---- training ----------------------------------------------------------------------------------------------
    def window(self, stage: str, share: float) -> Window:
        return Window(self.n_frames)

    def draws(self, stage: str, batch: Batch, generator: torch.Generator) -> Batch:
        u = batch["u"]
        return {"noise": torch.rand((len(u), self.n_sites), generator=generator, device=u.device)}

    def loss(self, stage: str, batch: Batch) -> dict[str, Tensor]:
        x = self.cut.split(batch["u"])  # (B,n,V)
        seen, masked = (tubes(s, self.n_times, self.n_sites) for s in choose(batch["noise"], self.n_seen))
        x_hat = self.decoder(self.encoder(x, seen), seen, masked)
        return {"loss": nn.functional.mse_loss(x_hat, self.targets(pick(x, masked)))}

    def targets(self, x: Tensor) -> Tensor:
        """Tokens (B,n,V) with mean 0 and spread 1 in every channel."""
        t, C = self.cut.depth, self.task.n_channels
        parts = x.unflatten(-1, (t, C, -1))  # (B,n,t,C,p^k)
        mean, var = parts.mean((2, 4), keepdim=True), parts.var((2, 4), keepdim=True)
        return ((parts - mean) / (var.sqrt() + EPS)).flatten(2)

    # ---- representations -----------------------------------------------------------------------------------------
    def clips(self, n_frames: int) -> list[tuple[int, int]]:
        """(first frame of the clip, place in the clip) of every pair of a trajectory of that length."""
        if n_frames < self.n_frames:
            raise ConfigError(f"VideoMAE was trained on clips of {self.n_frames} frames; got only {n_frames}.")
        t, n = self.cut.depth, self.n_frames
        end = n_frames // t * t
        starts = list(range(0, end - n + 1, n))
        if starts[-1] + n < end:
            starts.append(end - n)
        holding = [(next(start for start in starts if frame < start + n), frame) for frame in range(0, end, t)]
        return [(start, (frame - start) // t) for start, frame in holding]

    def encode(self, u: Tensor) -> Tensor:
        """Features (B,T/2,N,w) of every pair of frames of u (B,T,C,*grid)."""
        places = self.clips(u.shape[1])
        features = {}
        for start in sorted({start for start, _ in places}):
            z = self.encoder(self.cut.split(u[:, start : start + self.n_frames]))  # (B,n,w)
            features[start] = z.unflatten(1, (self.n_times, self.n_sites))
        return torch.stack([features[start][:, place] for start, place in places], 1)

    def rollout(self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None) -> Tensor:
        raise ConfigError("VideoMAE makes representations only; it does not forecast.")


SOLVER = VideoMae

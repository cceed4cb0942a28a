"""UniSolver, a transformer told about the equation (Zhou et al., 2024), as a forecaster of the next frame.

    x   = W patches(u_t, distances)                                       one token per patch
    x  <- x + gate * Attention(modulated Norm(x));  x <- x + gate * Ffn(modulated Norm(x))
    u_{t+1} = u_t + patches^{-1}( W modulated Norm(x) )

Shift, scale and gate of every block start at zero.  A first part of their channels follows from the domain-wise
condition, an embedding of xi shared by all tokens, the rest from the point-wise condition of each token: the distances
of its patch to a reference grid, and the patch of the forcing field f (frame gap) / std(u) where the equation has one,
half a frame ahead.  `distances` are Euclidean, from every point to every point of the reference grid, on [0, 1]^d.

Ours differs: fields stay on the grid of the data (published: 128 points on a line, 64x64 for Vorticity), cut into
patches of the published number of points; `fast` enlarges the patches of finer planes, so that a frame keeps its
16x16 tokens and a short budget its steps.  The point-wise branch reads the mean distances of a patch, not those of all
its points.  Lines are embedded between two norms as planes are.  Parameters are standardised and embedded with a SiLU
everywhere.  Nothing is published on the loss: relative L2 error of single steps.  For HeterNS the comparison gives no
sizes; `paper` takes those of the original work, ten frames in and no residual, and meets windows that begin with a
repeated first frame, `fast` the common ones with one frame, as everything else that starts from one frame.
Letters: B rows, H history, C channels, N tokens, p patch, R reference points, w width, c condition width.
"""

from __future__ import annotations

import dataclasses
import itertools
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
from pdejepa.baselines.blocks.tokens import BlockConfig, Modulation, TokenBlock, init_tokens, modulate
from pdejepa.baselines.task import Task
from pdejepa.core.errors import ConfigError
from pdejepa.forecast.interface import Card, State
from pdejepa.models.condition import Conditioner
from pdejepa.models.field_config import FieldConfig
from pdejepa.models.patches import PatchGrid
from pdejepa.training.settings import OptimiserConfig, ScheduleConfig, StageTraining
from pdejepa.training.stage import Batch

STEPS_PER_EPOCH = 10  # of a trajectory of HeterNS: published is one per frame that is forecast


@dataclass(frozen=True)
class UniSolverConfig:
    """reference: points of the reference grid per axis     domain_share: channels that the parameters modulate"""

    patch: int = 16
    reference: int = 16
    depth: int = 10
    width: int = 256
    heads: int = 8
    hidden: int = 1008
    domain_share: float = 0.5
    history: int = 1
    is_residual: bool = True

    def __post_init__(self) -> None:
        if self.width % 4 or not 0 < self.domain_share < 1:
            raise ConfigError(
                f"width must be a multiple of 4 and domain_share between 0 and 1; got {self.width} and "
                f"{self.domain_share}."
            )


class UniSolver(Baseline):
    card = Card(
        name="unisolver",
        title="UniSolver",
        paper="Zhou et al., Unisolver: PDE-Conditional Transformers Are Universal PDE Solvers, 2024",
        needs=frozenset({"xi"}),
        has_encoder=True,
    )
    distances: Tensor
    centres: Tensor

    def __init__(self, config: UniSolverConfig, task: Task) -> None:
        super().__init__(config, task)
        self.patches = PatchGrid(task.grid, config.patch, task.problem.periodic_axes)
        with torch.device("cpu"):  # tables have values even where a network is only counted
            self.conditioner = Conditioner(task.problem, task.statistics, self.patches, FieldConfig())
            distances = reference_distances(task, config.reference)  # (R,*grid)
        n_points, width, c = self.patches.patch_points, config.width, config.width // 4
        centres = self.patches.split(distances).unflatten(-1, (-1, n_points)).mean(-1)  # (N,R)
        self.register_buffer("distances", distances, persistent=False)
        self.register_buffer("centres", centres, persistent=False)

        n_in = (task.n_channels * config.history + len(distances)) * n_points
        n_forcing = task.n_channels * n_points if self.has_forcing else 0
        widths = (round(config.domain_share * width), width - round(config.domain_share * width))
        block = BlockConfig(width, config.heads, config.hidden, qkv_bias="none")
        self.embed = nn.Sequential(nn.LayerNorm(n_in), nn.Linear(n_in, width), nn.LayerNorm(width))
        self.domain = nn.Sequential(nn.Linear(task.n_parameters, c), nn.SiLU(), nn.Linear(c, c))
        self.point = nn.Linear(len(distances) + n_forcing, c)
        self.blocks = nn.ModuleList(TokenBlock(block) for _ in range(config.depth))
        self.modulations = nn.ModuleList(Modulation(6, (c, c), widths) for _ in range(config.depth))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.last = Modulation(2, (c, c), widths)
        self.head = nn.Linear(width, task.n_channels * n_points)
        init_tokens(self)
        nn.init.zeros_(self.head.weight)

    @property
    def has_forcing(self) -> bool:
        return self.task.problem.structure.forcing != "none"

    @classmethod
    def history_of(cls, config: UniSolverConfig) -> int:
        return config.history

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        is_heterns = task.problem.name == "heterns" and name == "paper"
        training = StageTraining(
            budget=BUDGETS[name](301 * STEPS_PER_EPOCH if is_heterns else 100),
            batch=8 if name == "tiny" else 120 if is_heterns else 64,
            optimiser=OptimiserConfig(lr=1e-3 if is_heterns else 3e-4, weight_decay=1e-4, clip=1.0),
            schedule=ScheduleConfig(kind="cosine", warmup=0.0 if is_heterns else 0.05),
            n_scores=5,
        )
        return Recipe(_sizes(name, task), (StageRecipe("fit", training, precision="bf16"),))

    @classmethod
    def laptop(cls, model: UniSolverConfig, task: Task) -> UniSolverConfig:
        if task.ndim == 1:
            return dataclasses.replace(model, depth=5)
        return dataclasses.replace(model, depth=6, width=96, hidden=384)

    # ---- training ----------------------------------------------------------------------------------------------
    def window(self, stage: str, share: float) -> Window:
        return Window(self.config.history + 1, lead=self.config.history - 1)

    def loss(self, stage: str, batch: Batch) -> dict[str, Tensor]:
        history = self.config.history
        state = self.adapt(xi=batch["xi"])
        u_hat = self.step(batch["u"][:, :history], state, batch["frame"] + history - 1)
        return {"loss": mean_frame_error(u_hat[:, None], batch["u"][:, history:])}

    def step(self, u: Tensor, state: State, frame: Tensor) -> Tensor:
        """The frame (B,C,*grid) after the frames u (B,H,C,*grid), the last of which has the number `frame` (B,)."""
        domain, point = state["domain"], self.point(self._places(state["xi"], frame))  # (B,1,c), (B,N,c)
        x = self._tokens(u, domain, point)
        with torch.autocast(u.device.type, enabled=False):  # bfloat16 has two digits: too few for what is added to u
            shift, scale = self.last(domain.to(u.dtype), point.to(u.dtype))
            out = self.patches.join(self.head(modulate(self.norm(x.to(u.dtype)), shift, scale)))  # (B,C,*grid)
        return u[:, -1] + out if self.config.is_residual else out

    def _tokens(self, u: Tensor, domain: Tensor, point: Tensor) -> Tensor:
        """Tokens (B,N,w) of the frames u (B,H,C,*grid) after the last block."""
        known = torch.cat((u.flatten(1, 2), self.distances.expand(len(u), *self.distances.shape)), 1)
        x = self.embed(self.patches.split(known))
        for block, modulation in zip(self.blocks, self.modulations, strict=True):
            x = block(x, modulation=modulation(domain, point))
        return x

    def _places(self, xi: Tensor, frame: Tensor) -> Tensor:
        """What is known of every patch: distances, and the forcing half a frame after `frame` (B,) -> (B,N,.)."""
        centres = self.centres.expand(len(xi), -1, -1)
        forcing = self.conditioner.drive(xi).forcing if self.has_forcing else None
        return centres if forcing is None else torch.cat((centres, forcing(frame.double() + 0.5)), -1)

    # ---- forecasts ---------------------------------------------------------------------------------------------
    def adapt(
        self, support: Tensor | None = None, xi: Tensor | None = None, generator: torch.Generator | None = None
    ) -> State:
        xi = self.card.given("xi", xi)
        with torch.autocast(xi.device.type, enabled=False):  # nor may parameters be rounded
            return {"xi": xi, "domain": self.domain(self.standardised(xi))[:, None]}  # (B,P), (B,1,c)

    def rollout(self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None) -> Tensor:
        numbers = itertools.count(u_hist.shape[1] - 1)  # of the last known frame

        def step(u: Tensor) -> Tensor:
            return self.step(u, state, torch.full((len(u),), next(numbers), device=u.device))

        return march(step, u_hist, self.config.history, n_frames)

    def encode(self, u: Tensor) -> Tensor:
        """Tokens (B,T,N,w) after the last block of every frame (and those before it), under the mean xi of train."""
        B, T, H = *u.shape[:2], self.config.history
        u = with_lead(u, H - 1)
        windows = torch.stack([u[:, t : t + H] for t in range(T)], 1).flatten(0, 1)  # (B*T,H,C,*grid)
        state = self.adapt(xi=self.xi_mean.expand(B * T, -1))
        point = self.point(self._places(state["xi"], torch.arange(T, device=u.device).repeat(B)))
        return self._tokens(windows, state["domain"], point).unflatten(0, (B, T))


def _sizes(name: str, task: Task) -> UniSolverConfig:
    if name == "tiny":
        return UniSolverConfig(patch=8, reference=2, depth=2, width=32, heads=2, hidden=48)
    if task.ndim == 1:
        return UniSolverConfig()
    if task.problem.name == "gray_scott":
        return UniSolverConfig(patch=2, reference=8, domain_share=0.25)
    plane = UniSolverConfig(patch=4, reference=4, domain_share=0.25)
    if name == "fast":
        return dataclasses.replace(plane, patch=4 * max(1, min(task.grid) // 64))
    if task.problem.name == "heterns":
        return dataclasses.replace(plane, depth=8, hidden=256, history=10, is_residual=False)
    return plane


def reference_distances(task: Task, n: int) -> Tensor:
    """Distances (R,*grid) from every point to n points per axis, equally spaced; both axes scaled to [0, 1]."""
    axes = [(axis - axis.min()) / (axis.max() - axis.min()) for axis in task.problem.coordinates.values()]
    points = torch.stack(torch.meshgrid(*axes, indexing="ij"))  # (d,*grid)
    ticks = torch.meshgrid(*[torch.linspace(0, 1, n, dtype=torch.float64)] * task.ndim, indexing="ij")
    places = torch.stack(ticks).flatten(1).T.reshape(-1, task.ndim, *[1] * task.ndim)  # (R,d,1..)
    return (points - places).square().sum(1).sqrt().float()


SOLVER = UniSolver

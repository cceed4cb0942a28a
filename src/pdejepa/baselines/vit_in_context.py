"""ViT-in-context: a next-frame transformer that reads another trajectory of the same environment first.

    u_{t+1} = FrameVit( context trajectory ; u_0 .. u_t )

A baseline of Serrano et al., Zebra (2024), with the sizes of Kassai Koupai et al., ENMA (2025), who trained it again:
patches of 8, six blocks 512 wide (see `frame_vit`).  The context is simply put in front; nothing is fitted to a new
environment.

Ours differs, where nothing is published: tokens of the context carry a learned mark; context and target are one row of
frames, each of which sees what stands before it and is trained, from true frames, by the relative L2 error of the next
one.  A context that looks at itself in both directions and is not trained itself was read later by small networks;
probably because what its tokens have to say is then learned from the first frames of the target alone, since later ones
can tell the equation from the frames before them.
`fast` takes 32 rows at a time instead of 128, cuts planes into at most 8x8 tokens and reads ten to nineteen frames of
the context: all where there are fewer than twenty, else every so-many-th, whose next one is the next one read.
Letters: B rows, K context trajectories, T frames, C channels, w width.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from pdejepa.baselines.baseline import Baseline, Recipe, StageRecipe, Window, mean_frame_error
from pdejepa.baselines.blocks.frame_vit import FrameVit, FrameVitConfig, sizes, training
from pdejepa.baselines.task import Task
from pdejepa.forecast.interface import Card, State
from pdejepa.training.stage import Batch

N_FAST = 10  # frames of the context that `fast` reads at least
BATCH_FAST = 32  # its rows of a step: contexts begin to be read after a number of steps, however many rows these have


@dataclass(frozen=True)
class VitInContextConfig:
    """every: of the context trajectory, each so-many-th frame is read"""

    trunk: FrameVitConfig = field(default_factory=FrameVitConfig)
    every: int = 1


class Mark(nn.Module):
    """A learned vector that tells tokens of the context from those of the target."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(0.02 * torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.vector


class VitInContext(Baseline):
    card = Card(
        name="vit_in_context",
        title="ViT-in-context",
        paper="Serrano et al., Zebra: In-Context Generative Pretraining for Solving Parametric PDEs, 2024",
        needs=frozenset({"support"}),
        adapts="encode",
    )

    def __init__(self, config: VitInContextConfig, task: Task) -> None:
        super().__init__(config, task)
        self.mark = Mark(config.trunk.width)
        self.trunk = FrameVit(config.trunk, task)

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        every = {"paper": 1, "fast": max(1, task.n_frames // N_FAST), "tiny": 5}[name]
        settings = training(name, task)
        if name == "fast":
            settings = dataclasses.replace(settings, batch=BATCH_FAST)
        return Recipe(VitInContextConfig(sizes(name, task), every), (StageRecipe("fit", settings, precision="bf16"),))

    @classmethod
    def laptop(cls, model: VitInContextConfig, task: Task) -> VitInContextConfig:
        width = 96 if task.ndim == 1 else 320
        return dataclasses.replace(model, trunk=dataclasses.replace(model.trunk, width=width, hidden=2 * width))

    def window(self, stage: str, share: float) -> Window:
        return Window(0, n_support=1)

    def loss(self, stage: str, batch: Batch) -> dict[str, Tensor]:
        """The error of the next frame, for every frame that is read, context or target."""
        u, support, every = batch["u"], batch["support"], self.config.every
        context = self.context(support)
        m = context.shape[1]
        x = self.trunk.run(torch.cat((context, self.trunk.tokens(u[:, :-1])), 1), m)  # (B,m+(T-1)*N,w)
        told = self.trunk.frames(x[:, :m]).unflatten(1, (support.shape[1], -1))  # (B,K,T/every,C,*grid)
        u_hat = torch.cat((told[:, :, :-1].flatten(1, 2), self.trunk.frames(x[:, m:])), 1)
        after = torch.cat((support[:, :, every::every].flatten(1, 2), u[:, 1:]), 1)
        return {"loss": mean_frame_error(u_hat, after)}

    def context(self, support: Tensor) -> Tensor:
        """Tokens (B,m,w) of the trajectories (B,K,T,C,*grid)."""
        every = self.config.every
        tokens = [self.trunk.tokens(u[:, ::every], every=every) for u in support.unbind(1)]  # K times (B,T/every*N,w)
        return self.mark(torch.cat(tokens, 1))

    def adapt(
        self, support: Tensor | None = None, xi: Tensor | None = None, generator: torch.Generator | None = None
    ) -> State:
        support = self.card.given("support", support)
        return {"context": self.context(support)}

    def rollout(self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None) -> Tensor:
        return self.trunk.rollout(u_hist, n_frames, state["context"])


SOLVER = VitInContext

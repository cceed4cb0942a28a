"""[CLS] ViT: a next-frame transformer with one learned token for every environment.

    train   u_{t+1} = FrameVit( c_e ; u_0 .. u_t ),     c_e one token per environment of the train split
    test    c* = argmin_c | FrameVit(c ; v_0 .. v_{T-2}) - v_1 .. v_{T-1} |,    v a trajectory of the new environment

A baseline of Serrano et al., Zebra (2024), with the sizes of Kassai Koupai et al., ENMA (2025), who trained it again
(see `frame_vit`): a new token is fitted by 100 gradient steps, with all weights frozen.

Ours differs, where nothing is published: the token is attended to, as the name says (`injection: adaln` lets it
modulate the norms of all blocks instead, after Peebles & Xie, 2023); a new token starts at the mean of the learned
ones and is fitted by Adam with step 1e-2; the loss is the relative L2 error of all frames from true frames.
Letters: B rows, K support trajectories, T frames, E environments, C channels, w width.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from pdejepa.baselines.baseline import Baseline, Recipe, StageRecipe, Window, mean_frame_error
from pdejepa.baselines.blocks.fit_code import descend
from pdejepa.baselines.blocks.frame_vit import FrameVit, FrameVitConfig, sizes, training
from pdejepa.baselines.task import Task
from pdejepa.core.errors import ConfigError
from pdejepa.forecast.interface import Card, State
from pdejepa.training.stage import Batch


@dataclass(frozen=True)
class ClsVitConfig:
    trunk: FrameVitConfig = field(default_factory=FrameVitConfig)
    injection: Literal["attended", "adaln"] = "attended"
    adapt_steps: int = 100
    adapt_lr: float = 1e-2

    def __post_init__(self) -> None:
        if self.injection not in ("attended", "adaln"):
            raise ConfigError(f"injection must be attended or adaln, got {self.injection!r}.")


class ClsVit(Baseline):
    card = Card(
        name="cls_vit",
        title="[CLS] ViT",
        paper="Serrano et al., Zebra: In-Context Generative Pretraining for Solving Parametric PDEs, 2024",
        needs=frozenset({"environment"}),
        adapts="gradient",
    )

    def __init__(self, config: ClsVitConfig, task: Task) -> None:
        super().__init__(config, task)
        width = config.trunk.width
        self.codes = nn.Embedding(task.n_environments, width)
        nn.init.normal_(self.codes.weight, std=0.02)
        self.trunk = FrameVit(config.trunk, task, n_condition=width if config.injection == "adaln" else 0)

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        model = ClsVitConfig(sizes(name, task))
        if name == "tiny":
            model = dataclasses.replace(model, adapt_steps=2)
        return Recipe(model, (StageRecipe("fit", training(name, task), precision="bf16"),))

    @classmethod
    def laptop(cls, model: ClsVitConfig, task: Task) -> ClsVitConfig:
        width = 192 if task.ndim == 1 else 512
        return dataclasses.replace(model, trunk=dataclasses.replace(model.trunk, width=width, hidden=2 * width))

    def window(self, stage: str, share: float) -> Window:
        return Window(0)

    def loss(self, stage: str, batch: Batch) -> dict[str, Tensor]:
        return {"loss": self.error(batch["u"], self.codes(batch["environment"]))}

    def error(self, u: Tensor, code: Tensor) -> Tensor:
        """Relative error of all next frames of u (B,T,C,*grid) with the tokens (B,w)."""
        return mean_frame_error(self.trunk(u[:, :-1], **self._told(code)), u[:, 1:])

    def _told(self, code: Tensor) -> dict[str, Tensor]:
        return {"prefix": code[:, None]} if self.config.injection == "attended" else {"condition": code}

    def adapt(
        self, support: Tensor | None = None, xi: Tensor | None = None, generator: torch.Generator | None = None
    ) -> State:
        """Tokens (B,w) fitted to the support; every row has its own, and its own loss."""
        support = self.card.given("support", support)
        B, K = support.shape[:2]
        frames = support.flatten(0, 1)  # (B*K,T,C,*grid)

        def loss(code: Tensor, u: Tensor) -> Tensor:
            return B * self.error(u, code.repeat_interleave(K, 0, output_size=B * K))

        start = self.codes.weight.mean(0).expand(B, -1)
        return {"code": descend(start, loss, lambda _: frames, self.config.adapt_steps, self.config.adapt_lr)}

    def rollout(self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None) -> Tensor:
        return self.trunk.rollout(u_hist, n_frames, **self._told(state["code"]))


SOLVER = ClsVit

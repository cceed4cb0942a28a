"""What the training loop needs to know of a stage, and what a stage is told about the run around it.

    for step in 0 .. n_steps-1:                       (see `loop`)
        batch = stage.batch(step, n_steps)            this rank's share of the global batch of that step
        loss = stage(batch)["loss"]                   on a GPU recorded once and replayed (see `cuda_graph`)
        gradients of stage.trained(), clipped         averaged over the ranks
        optimiser step
        stage.after_update(step, n_steps)             moving averages
        now and then: stage.score(), checkpoint of stage.saved()

Exact resume rests on two promises of every stage: `batch` depends on nothing but the seed, the step and what is frozen,
`forward` on nothing but the batch and the weights.  All random numbers of a step are drawn by `batch` from the seed
and the step (see `pdejepa.core.seeds`), none from a generator that remembers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor, nn

from pdejepa.core.progress import Shown
from pdejepa.training.settings import StageTraining

if TYPE_CHECKING:
    from pdejepa.training.timing import Limit

Say = Callable[[str], object]
Keep = Literal["files", "memory", "trial"]
"""What becomes of the weights: `files`: resumable on disk; `memory`: kept in RAM; `trial`: discarded.

Trials are scored once, at their end, and their seconds begin after the warm-up, unless a limit binds them.
"""
Batch = dict[str, Tensor]


def silent(_: str) -> None:
    """For callers that want no news."""


@dataclass(frozen=True)
class Context:
    """Where and for whom a stage runs."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    seed: int = 0
    rank: int = 0
    world: int = 1  # number of ranks; above 1 the process group of `distributed.start_group` is used
    precision: Literal["fp32", "bf16"] = "fp32"  # bf16: automatic mixed precision, weights stay float32
    record: bool = True  # on one GPU, replay recorded steps instead of sending every operation anew
    upstream: dict[str, str] = field(default_factory=dict)  # stage or data -> hash of what it holds now
    keep: Keep = "files"
    say: Say = silent
    shown: Shown = "lines"  # of its progress
    limit: Limit | None = None  # in memory: when the stage ends, instead of its budget in seconds


class Stage(nn.Module, ABC):
    """One stage of training.  Subclasses call `super().__init__(settings, n_samples)` and build their modules.

    Every module of `trained()` and `saved()` must be a registered submodule.  The loop switches gradients on for
    the parameters of `trained()` and off for all others of the stage; every trained parameter must take part in
    the loss of every step.  The settings are called `settings` because `training` is taken by nn.Module.
    """

    name: ClassVar[str]
    scores_start: ClassVar[bool] = False  # whether the weights it starts from may be selected too

    def __init__(self, settings: StageTraining, n_samples: int) -> None:
        super().__init__()
        self.settings = settings
        self.n_samples = n_samples  # samples per epoch

    @property
    def fetches(self) -> bool:
        """Whether batches are copied from host memory, so that the next one is fetched while a step is computed."""
        return False

    @abstractmethod
    def trained(self) -> dict[str, nn.Module]:
        """The modules that the optimiser moves, by the name under which they are saved."""

    def saved(self) -> dict[str, nn.Module]:
        """The modules of the checkpoint: the trained ones, and moving averages where there are any."""
        return self.trained()

    def frozen(self) -> dict[str, nn.Module]:
        """Upstream modules that the stage relies on and must leave as they are; checked at the end."""
        return {}

    @abstractmethod
    def batch(self, step: int, n_steps: int) -> Batch:
        """What step 0 .. n_steps-1 is computed from, as tensors on the device; called without gradients.

        In memory a budget of seconds changes `n_steps` from step to step, so that step / n_steps is the share of them.
        Under several ranks: this rank's slice of the global batch (`distributed.rank_slice`).
        """

    @abstractmethod
    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """`loss` and other scalars of a batch, as 0-dim tensors, each a mean; never waits for the device.

        Two batches with equal names and shapes must take the same path through the code.
        """

    def after_update(self, step: int, n_steps: int) -> None:
        """What follows the optimiser step, a moving average for example.  No gradients are recorded."""
        return

    @abstractmethod
    def score(self) -> dict[str, float]:
        """Scores on valid; the lowest `score` selects.  Called on all ranks, without gradients."""

    def describe(self, scores: dict[str, float], share: float) -> str:
        """What the scores mean when that share (0..1) of the stage is done, in words; empty: the number says enough."""
        return ""

    @abstractmethod
    def trajectories(self, step: int) -> list[int]:
        """The trajectories in the global batch of that step, for messages."""

"""How one stage is trained: for how long, with which optimiser and schedule, and how often it is judged and saved.

All of them are frozen dataclasses, so that a configuration file, an option or an override can fill them in (see
`pdejepa.core.config`), and every rule between their fields is checked before anything is built.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from pdejepa.core.errors import ConfigError

OptimiserKind = Literal["adamw", "adam", "muon", "adan"]
MuonShare = Literal["matrices", "hidden", "kernels"]
ScheduleKind = Literal["wsd", "cosine", "constant"]
Selection = Literal["best", "last"]

FREE_TRAINING = ("log_every", "save_seconds", "save_every", "keep")  # may differ between two tries of one training
MEASURED = ("seconds", "flops")  # budgets that become steps on the machine that trains


@dataclass(frozen=True)
class Budget:
    """How long a stage lasts: exactly one of the four is positive.

    Seconds and floating-point operations become steps once, by timing or counting a few steps when the stage starts; a
    resumed stage keeps that number.  A stage in memory is not resumed, and ends by the clock (see `timing`).
    """

    steps: int = 0
    epochs: float = 0.0
    seconds: float = 0.0
    flops: float = 0.0

    def __post_init__(self) -> None:
        given = dataclasses.asdict(self)
        problems = [f"budget.{name} must be 0 or more, got {value}" for name, value in given.items() if not value >= 0]
        named = [name for name, value in given.items() if value > 0]
        if len(named) != 1:
            got = " and ".join(named) or "none"
            problems.append(
                f"a budget needs exactly one of steps, epochs, seconds and flops above 0, got {got}; set the others "
                "to 0, e.g. budget={steps: 500, epochs: 0, seconds: 0, flops: 0}"
            )
        _refuse(problems)


@dataclass(frozen=True)
class OptimiserConfig:
    """AdamW, Adam with the decay inside the gradient, Muon for the matrices and AdamW for everything else, or Adan.

    factors: part -> factor of its learning rate, for the parts that a stage trains by name.
    muon_on: Muon takes all matrices, only hidden ones (not embeddings, mask tokens and output heads), or matrices and
    kernels of convolutions, flattened to one row per output channel.
    Adan finds its own step size: `lr` is a factor of it, best left at 1, and `betas` are those of its paper.
    """

    kind: OptimiserKind = "adamw"
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.04
    decay_all: bool = False  # True: biases and one-dimensional tensors decay too
    clip: float = 1.0  # largest global norm of the gradient; 0: no clipping
    muon_lr: float = 1e-3
    muon_on: MuonShare = "matrices"
    factors: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = []
        if self.kind not in ("adamw", "adam", "muon", "adan"):
            problems.append(f"optimiser.kind must be adamw, adam, muon or adan, got {self.kind!r}")
        if self.muon_on not in get_args(MuonShare):
            problems.append(f"optimiser.muon_on must be matrices, hidden or kernels, got {self.muon_on!r}")
        if self.kind == "adan" and self.factors:
            problems.append("optimiser.factors must be empty with adan, which has one step size for all parts")
        problems += [f"optimiser.factors.{n} must be above 0, got {f}" for n, f in self.factors.items() if not f > 0]
        for name in ("lr", "muon_lr"):
            if not 0 < getattr(self, name) < math.inf:
                problems.append(f"optimiser.{name} must be above 0, got {getattr(self, name)}")
        for name in ("weight_decay", "clip"):
            if not 0 <= getattr(self, name) < math.inf:
                problems.append(f"optimiser.{name} must be 0 or more, got {getattr(self, name)}")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            problems.append(f"optimiser.betas must be two numbers from 0 to below 1, got {self.betas}")
        _refuse(problems)


@dataclass(frozen=True)
class ScheduleConfig:
    """The learning rate over a stage, as factors of `lr` (see `schedule` for the formulas)."""

    kind: ScheduleKind = "cosine"
    warmup: float = 0.05  # share of the steps
    decay: float = 0.7  # wsd only: share of the steps at the end
    start: float = 0.0
    final: float = 0.0

    def __post_init__(self) -> None:
        problems = []
        if self.kind not in ("wsd", "cosine", "constant"):
            problems.append(f"schedule.kind must be wsd, cosine or constant, got {self.kind!r}")
        for name in ("warmup", "decay", "start", "final"):
            if not 0 <= getattr(self, name) <= 1:
                problems.append(f"schedule.{name} must be from 0 to 1, got {getattr(self, name)}")
        if self.kind == "wsd" and self.warmup + self.decay > 1 + 1e-9:
            problems.append(f"schedule.warmup {self.warmup} and schedule.decay {self.decay} must not exceed 1 together")
        _refuse(problems)


@dataclass(frozen=True)
class StageTraining:
    """Everything the loop needs to know of one stage."""

    budget: Budget
    batch: int  # samples per step over all ranks
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    log_every: int = 20  # steps between two lines of metrics.jsonl
    n_scores: int = 10  # scores on valid, spread evenly, the last one at the end; fewer if seconds are short (`timing`)
    save_seconds: float = 60.0  # time between two checkpoints, unless save_every says otherwise
    save_every: int = 0  # steps between two checkpoints; 0: by time
    keep: int = 2  # checkpoints kept
    select: Selection = "best"
    rounds: bool = False  # in bf16: judged and finished with the rounded weights that its products saw (see `rounding`)
    average: float = 0.0  # share of the steps over which weights are averaged to be judged and kept; see `average`

    def __post_init__(self) -> None:
        problems = []
        for name in ("batch", "log_every", "keep"):
            if getattr(self, name) < 1:
                problems.append(f"{name} must be 1 or more, got {getattr(self, name)}")
        for name in ("n_scores", "save_every"):
            if getattr(self, name) < 0:
                problems.append(f"{name} must be 0 or more, got {getattr(self, name)}")
        if not self.save_seconds > 0:
            problems.append(f"save_seconds must be above 0, got {self.save_seconds}")
        if not 0 <= self.average <= 1:
            problems.append(f"average must be a share of the steps from 0 to 1, got {self.average}")
        if self.select not in ("best", "last"):
            problems.append(f"select must be best or last, got {self.select!r}")
        if self.select == "best" and self.n_scores == 0:
            problems.append("select: best needs n_scores of 1 or more; use select: last to train without scores")
        _refuse(problems)


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ConfigError("; ".join(problems), problems)

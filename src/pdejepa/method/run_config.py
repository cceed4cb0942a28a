"""The whole configuration of a training, stage by stage.  Recipes return one; a file or the command line may
change any field of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pdejepa.core.config import load_config
from pdejepa.core.errors import ConfigError, did_you_mean
from pdejepa.core.run_folder import METHOD_STAGES, STAGES
from pdejepa.models.masking import MaskConfig
from pdejepa.models.surrogate import ModelConfig
from pdejepa.systems import Switch
from pdejepa.training.settings import StageTraining

TAKEN_OVER = ("pretrain", "align")  # stages that fine-tuning does not repeat


@dataclass(frozen=True)
class EmaConfig:
    """Momentum of the moving-average teacher at the share f of all steps.

    constant   end
    quadratic  1 - ((1-start) - (1-end)) (1-f)^2 - (1-end): fast at first, slow at the end
    budget     1 - memory / n_steps: a fixed number of time constants, however short the training
    """

    kind: Literal["constant", "quadratic", "budget"] = "constant"
    start: float = 0.9935
    end: float = 0.99925
    memory: float = 20.0

    def __post_init__(self) -> None:
        if not (0 <= self.start <= 1 and 0 <= self.end <= 1 and self.memory > 0):
            raise ConfigError(
                f"momenta must be from 0 to 1 and memory positive, got {self.start}, {self.end} and {self.memory}"
            )

    def momentum(self, step: int, n_steps: int) -> float:
        if self.kind == "constant":
            return self.end
        if self.kind == "budget":
            return max(0.0, 1.0 - self.memory / n_steps)
        left = 1.0 - step / n_steps
        return 1.0 - (self.end - self.start) * left**2 - (1.0 - self.end)


@dataclass(frozen=True)
class PretrainConfig:
    """Masked latent prediction.

    context_weight: weight of the loss on visible tokens
    one_frame_every: every so many steps train on one-frame clips, `one_frame_clips` of them (0: as many as `batch`)
    """

    training: StageTraining
    mask: MaskConfig = field(default_factory=MaskConfig)
    ema: EmaConfig = field(default_factory=EmaConfig)
    context_weight: float = 0.0
    one_frame_every: int = 0
    one_frame_clips: int = 0

    def __post_init__(self) -> None:
        if min(self.context_weight, self.one_frame_every, self.one_frame_clips) < 0:
            raise ConfigError(
                "context_weight, one_frame_every and one_frame_clips must be 0 or more, "
                f"got {self.context_weight:g}, {self.one_frame_every} and {self.one_frame_clips}"
            )


@dataclass(frozen=True)
class AlignConfig:
    """L_dyn + geo_weight L_geo + anchor_weight L_anchor.  window: frames per sample and step (0: all)."""

    training: StageTraining
    geo_weight: float = 0.1
    anchor_weight: float = 0.01
    lags: tuple[int, ...] = (1, 2, 4)
    lag_weights: tuple[float, ...] = (1.0, 0.5, 0.25)
    window: int = 0

    def __post_init__(self) -> None:
        if len(self.lags) != len(self.lag_weights) or min(self.lags, default=1) < 1:
            raise ConfigError(
                f"lags must be positive whole numbers with one weight each, got {self.lags} and {self.lag_weights}"
            )
        if self.window and self.window < 3:
            raise ConfigError(f"window must be 0 (all frames) or at least 3, got {self.window}")


@dataclass(frozen=True)
class DynamicsConfig:
    """One-step loss of the latent ODE, optionally over `unroll` steps.

    transitions: transitions per trajectory that make up one epoch
    denominators: one for the whole batch, or one for each frame index (measured on train)
    tangent_weight: also match the field with the latent velocity d/dt E(u(t)) (Jacobian-vector product with the rhs)
    response_weight: also match every D_j with the Jacobian-vector product with d rhs / d r_j
    tangent_batch: states per step for these two
    """

    training: StageTraining
    unroll: int = 1
    transitions: int = 4
    denominators: Literal["pooled", "per_frame"] = "pooled"
    tangent_weight: float = 0.0
    response_weight: float = 0.0
    tangent_batch: int = 32

    def __post_init__(self) -> None:
        if min(self.unroll, self.transitions, self.tangent_batch) < 1:
            raise ConfigError(
                "unroll, transitions and tangent_batch must be 1 or more, "
                f"got {self.unroll}, {self.transitions} and {self.tangent_batch}"
            )
        if min(self.tangent_weight, self.response_weight) < 0:
            raise ConfigError("tangent_weight and response_weight must be 0 or more")


@dataclass(frozen=True)
class DecodeConfig:
    """The decoder on frozen rollouts (or on true q, in `reconstruct`).

    frames: per trajectory and step, 0: all
    share: of train that is rolled out before the first step, which takes seconds of short budgets
    """

    training: StageTraining
    frames: int = 0
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.frames < 0:
            raise ConfigError(f"frames must be 0 (all) or more, got {self.frames}")
        if not 0 < self.share <= 1:
            raise ConfigError(f"share must be more than 0 and at most 1, got {self.share}")


@dataclass(frozen=True)
class PolishConfig:
    """Vector field and decoder together, through rollouts of `first` frames that grow to `last` (0: all).

    anchor_weight: of the relative error of the rolled-out latents, beside that of the fields
    recompute: compute each frame again in the backward pass, which saves memory and costs a third more time
    """

    training: StageTraining
    first: int = 2
    last: int = 0
    recompute: bool = False
    anchor_weight: float = 0.0

    def __post_init__(self) -> None:
        if self.first < 0 or self.first == 1 or self.last < 0:
            raise ConfigError(f"first and last must be 0 (all), or 2 or more, got {self.first} and {self.last}")
        if not self.anchor_weight >= 0:
            raise ConfigError(f"anchor_weight must be 0 or more, got {self.anchor_weight}")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides the result of a training, and a few things that do not (device, compile, record)."""

    system: str
    pretrain: PretrainConfig
    align: AlignConfig
    dynamics: DynamicsConfig
    decode: DecodeConfig
    polish: PolishConfig
    reconstruct: DecodeConfig
    recipe: str = "custom"
    variant: Literal["physics", "geo", "vanilla", "direct"] = "physics"
    stages: tuple[str, ...] = METHOD_STAGES
    seed: int = 0
    history: int = 1
    size: Literal["tiny", "small", "laptop", "paper"] = "paper"
    counts: dict[str, int] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)  # of a total in seconds, where budgets are in steps
    mix: float = 0.0  # share of the training trajectories that `broad_train` gives
    switches: dict[str, Switch] = field(default_factory=dict)
    amplitude: Literal["as_is", "unit"] = "as_is"  # unit: trajectories rescaled to rms 1; see `models.amplitude`
    data: str = ""
    tuned_from: str = ""  # the model whose weights the training goes on from; see `method.tuning`
    device: str = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "fp32"  # auto: bf16 where the device multiplies it fast
    compile: bool = True  # on a GPU, in bf16: compiled by PyTorch 2.11, float32 had wrong gradients with 65 tokens
    record: bool = True  # replay whole steps on one GPU; see `training.cuda_graph`
    latents: Literal["float32", "bfloat16", "on_the_fly"] = "float32"
    memory: Literal["auto", "device", "host"] = "auto"  # where fields and latents of train stay; see `load_data`
    model: ModelConfig = field(default_factory=ModelConfig)

    def __post_init__(self) -> None:
        problems = [] if self.stages else [f"stages must name at least one of {', '.join(STAGES)}; got none"]
        for name in self.stages:
            if name not in STAGES:
                hint = did_you_mean(name, STAGES) or "."
                problems.append(f"unknown stage {name!r}{hint} The stages: {', '.join(STAGES)}")
        if tuple(sorted(set(self.stages), key=lambda n: STAGES.index(n) if n in STAGES else 99)) != self.stages:
            problems.append(f"stages must be named once and in order, got {', '.join(self.stages)}")
        taken = [name for name in self.stages if self.tuned_from and name in TAKEN_OVER]
        if taken:
            problems.append(f"{' and '.join(taken)} cannot be trained: fine-tuning takes them from {self.tuned_from}")
        if not 0 <= self.mix < 1:
            problems.append(f"mix must be from 0 to below 1, got {self.mix}")
        if not 0 <= self.seed < 2**63:
            problems.append(f"seed must be from 0 to 2^63-1, got {self.seed}")
        if problems:
            raise ConfigError("; ".join(problems), problems)


def map_training(config: RunConfig, change: Callable[[str, StageTraining], StageTraining]) -> RunConfig:
    """The same configuration with `change(stage, training)` for the training of every stage, asked for or not."""
    stages = {name: getattr(config, name) for name in STAGES}
    changed = {
        name: dataclasses.replace(stage, training=change(name, stage.training)) for name, stage in stages.items()
    }
    return dataclasses.replace(config, **changed)


# Fields that former versions stored, with the value that changes nothing.
FORMER: dict[str, dict[str, Any]] = {
    "pretrain": {"context_ramp": [0.0, 0.0], "mask_types": "both"},
    "dynamics": {"uneven": 0.0},
    "polish": {"uneven": 0.0},
}


def load_stored(stored: Mapping[str, Any]) -> RunConfig:
    """The configuration in a file of this or a former version; what came since has its default."""
    return load_config(RunConfig, defaults=without_former(stored))


def without_former(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings without the fields of FORMER; those with another value changed the training, and stay."""
    kept = dict(stored)
    for name, former in FORMER.items():
        if isinstance(stage := kept.get(name), Mapping):
            kept[name] = {key: value for key, value in stage.items() if key not in former or value != former[key]}
    return kept

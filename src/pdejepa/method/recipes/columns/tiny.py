"""The recipe tiny: a first look, and what a system may set in it."""

from __future__ import annotations

from dataclasses import dataclass

from pdejepa.method.recipes.columns.stage_training import stage
from pdejepa.method.run_config import (
    AlignConfig,
    DecodeConfig,
    DynamicsConfig,
    EmaConfig,
    PolishConfig,
    PretrainConfig,
    RunConfig,
)
from pdejepa.models.causal_predictor import CausalPredictorConfig
from pdejepa.models.decoder import DecoderConfig
from pdejepa.models.encoder import EncoderConfig
from pdejepa.models.field_config import FieldConfig
from pdejepa.models.jepa_predictor import JepaPredictorConfig
from pdejepa.models.masking import MaskConfig
from pdejepa.models.projector import ProjectorConfig
from pdejepa.models.surrogate import ModelConfig
from pdejepa.training.settings import Budget, ScheduleConfig


@dataclass(frozen=True)
class TinyColumn:
    """What a system may set in the tiny recipe.  steps: of the stages pretrain, align, dynamics, decode, polish.

    switches: of the system; two-dimensional ones are simulated on coarser grids.
    """

    patch: int = 16
    scales: tuple[int, ...] = (2, 2, 2, 2)
    widths: tuple[int, ...] = (64, 48, 32, 32, 16)
    steps: tuple[int, int, int, int, int] = (100, 30, 800, 300, 60)
    size: str = "small"
    counts: tuple[int, int] = (240, 20)
    switches: tuple[tuple[str, int], ...] = ()
    history: int = 1


# Two-dimensional systems: 32 x 32 points in 16 patches.
FLAT = TinyColumn(
    patch=8,
    scales=(2, 2, 2),
    widths=(64, 48, 32, 16),
    steps=(100, 30, 600, 300, 60),
    size="tiny",
    counts=(160, 20),
)


# Seconds of a step beside those of dynamics, measured on Combined and Gray-Scott.
TINY_COSTS = {"pretrain": 2.5, "align": 1.8, "dynamics": 1.0, "decode": 1.0, "polish": 8.0}


def tiny(system: str, column: TinyColumn) -> RunConfig:
    """Small networks, few trajectories, budgets in steps: the same result on every machine of one kind."""
    pretrain, align, dynamics, decode, polish = (Budget(steps=steps) for steps in column.steps)
    falling = ScheduleConfig(kind="wsd", warmup=0.05, decay=0.5, final=0.05)
    decoding = DecodeConfig(training=stage(decode, 8, 4e-3, n_scores=3), frames=4)
    return RunConfig(
        system=system,
        recipe="tiny",
        size=column.size,  # type: ignore[arg-type]
        counts={"train": column.counts[0], "valid": column.counts[1]},
        shares={name: TINY_COSTS[name] * steps for name, steps in zip(TINY_COSTS, column.steps, strict=True)},
        switches=dict(column.switches),
        history=column.history,
        model=_tiny_model(column),
        pretrain=PretrainConfig(
            training=stage(pretrain, 8, 2e-3, "muon", 4e-3, schedule=falling, n_scores=3, select="last"),
            mask=MaskConfig(cut="random"),
            ema=EmaConfig("budget", memory=12.0),
            context_weight=0.5,
            one_frame_every=2,
            one_frame_clips=64,
        ),
        align=AlignConfig(training=stage(align, 8, 2e-3, "muon", 2e-3, n_scores=2)),
        dynamics=DynamicsConfig(training=stage(dynamics, 16, 2e-3, "muon", 4e-3, n_scores=3)),
        decode=decoding,
        polish=PolishConfig(training=stage(polish, 8, 1e-3, "muon", 1e-3, n_scores=2)),
        reconstruct=decoding,
    )


def _tiny_model(column: TinyColumn) -> ModelConfig:
    return ModelConfig(
        encoder=EncoderConfig(patch=column.patch, width=64, depth=3, heads=4, positions="ring"),
        jepa_predictor=JepaPredictorConfig(width=64, depth=2, heads=4),
        projector=ProjectorConfig(hidden=128),
        causal_predictor=CausalPredictorConfig(width=64, depth=2, heads=4),
        field=FieldConfig(width=64, depth=3, heads=4, positions="ring", n_substeps=1),
        decoder=DecoderConfig(widths=column.widths, scales=column.scales),
    )

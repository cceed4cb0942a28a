"""The recipes laptop and long: CPU cores, and what a system may set in them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdejepa.core.run_folder import METHOD_STAGES
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
class LaptopColumn:
    """What a system may set in the laptop recipe.  steps: of the stages pretrain, align, dynamics, decode, polish.

    width: of latents and field     unroll: frames of a sample of dynamics; its batch is 64 frames whatever it is
    lr_5 and anchor: the rate of polishing, and what holds its latents to those of the encoder
    mix: the share of the n_train trajectories that begin with states of the law `broad`
    switches: of the system; large ones may be simulated and stored on coarser grids
    """

    patch: int = 8
    width: int = 128
    depth: int = 4
    widths: tuple[int, ...] = (96, 64, 48, 32)
    scales: tuple[int, ...] = (2, 2, 2)
    style: str = "residual"
    steps: tuple[int, int, int, int, int] = (60, 4, 4000, 4000, 4400)
    unroll: int = 2
    encoder_depth: int = 3
    n_train: int = 0  # 0: as many as the size laptop has
    n_long: int = 6000  # the same of the recipe long
    mix: float = 0.0
    rolled: float = 1 / 3
    integrator: str = "euler"
    batch_5: int = 8
    lr_5: float = 3e-4
    anchor: float = 0.1
    switches: tuple[tuple[str, int], ...] = ()
    history: int = 1
    amplitude: str = "as_is"


THIRD = 0.3334  # of train: two benchmark trajectories for each one with a state of the law `broad`
LONG = (60, 4, 3000, 3500, 1400)  # steps of lines whose trajectories have 25 frames, not 14

# Of a total in seconds: more than half for whole rollouts, which are what is judged.
LAPTOP_SHARES = {"pretrain": 0.04, "align": 0.01, "dynamics": 0.3, "decode": 0.1, "polish": 0.55}

# Squares of 32 x 32 points in 64 patches, and of 64 x 64 points in 256, simulated on grids a GPU would not need.
PLANE = LaptopColumn(patch=4, widths=(96, 64, 48), scales=(2, 2))
LARGE_PLANE = replace(PLANE, steps=(60, 4, 1500, 1500, 900), batch_5=4, n_long=2000)


def laptop(system: str, column: LaptopColumn) -> RunConfig:
    """Two Euler steps per frame, two frames per sample of dynamics, a short pretraining, then whole rollouts.

    Most operations go into the forecasts that are judged.  Budgets are in steps, so that the weights do not depend on
    the clock; products are in bfloat16 where the processor has them.
    """
    pretrain, align, dynamics, decode, polish = (Budget(steps=steps) for steps in column.steps)
    early = ScheduleConfig(kind="wsd", warmup=0.05, decay=0.5, final=0.05)
    falling = ScheduleConfig(kind="wsd", warmup=0.05, decay=0.6, final=0.02)
    decoder = stage(decode, 32, 2e-3, "muon", 2e-3, falling, 2, rounds=True, average=0.04)
    decoding = DecodeConfig(training=decoder, frames=1, share=column.rolled)
    rollouts = ScheduleConfig(kind="wsd", warmup=0.05, decay=0.9, final=0.02)
    field = stage(dynamics, 64 // column.unroll, 2e-3, "muon", 2e-3, falling, 2, rounds=True, average=0.08)
    return RunConfig(
        system=system,
        recipe="laptop",
        size="laptop",
        counts={"train": column.n_train} if column.n_train else {},
        mix=column.mix,
        shares=LAPTOP_SHARES,
        switches=dict(column.switches),
        precision="auto",
        history=column.history,
        amplitude=column.amplitude,  # type: ignore[arg-type]
        stages=(*METHOD_STAGES, "polish"),
        model=_laptop_model(column),
        pretrain=PretrainConfig(
            training=stage(pretrain, 8, 2e-3, "muon", 4e-3, schedule=early, n_scores=1, select="last"),
            mask=MaskConfig(cut="random"),
            ema=EmaConfig("budget", memory=12.0),
            context_weight=0.5,
            one_frame_every=2,
            one_frame_clips=64,
        ),
        align=AlignConfig(training=stage(align, 8, 2e-3, "muon", 2e-3, n_scores=1)),
        dynamics=DynamicsConfig(training=field, unroll=column.unroll),
        decode=decoding,
        polish=PolishConfig(
            training=stage(
                polish, column.batch_5, column.lr_5, "muon", column.lr_5, rollouts, 3, rounds=True, average=0.03
            ),
            first=0,
            anchor_weight=column.anchor,
        ),
        reconstruct=decoding,
    )


def long(system: str, column: LaptopColumn) -> RunConfig:
    """The recipe laptop with a third of broad states among twice the data, for longer: rollouts still gain by then."""
    pretrain, align, dynamics, decode, polish = column.steps
    steps = (pretrain, align, 2 * dynamics, decode, 3 * polish)
    longer = replace(column, steps=steps, n_train=column.n_long, mix=THIRD)
    return replace(laptop(system, longer), recipe="long")


def _laptop_model(column: LaptopColumn) -> ModelConfig:
    width = column.width
    return ModelConfig(
        encoder=EncoderConfig(patch=column.patch, width=width, depth=column.encoder_depth, heads=4, positions="ring"),
        jepa_predictor=JepaPredictorConfig(width=128, depth=2, heads=4),
        projector=ProjectorConfig(hidden=256),
        causal_predictor=CausalPredictorConfig(width=128, depth=2, heads=4),
        field=FieldConfig(
            width=width,
            depth=column.depth,
            heads=4,
            positions="ring",
            integrator=column.integrator,  # type: ignore[arg-type]
            n_substeps=2,
            startup_depth=1,
        ),
        decoder=DecoderConfig(
            widths=column.widths,
            scales=column.scales,
            style=column.style,  # type: ignore[arg-type]
        ),
    )

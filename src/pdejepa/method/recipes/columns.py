"""What the recipes of all systems share.  A system's file names only the numbers in which it differs.

paper   the published sizes, losses and schedules
fast    ours: the same stages and equations, sized and tuned for minutes on one GPU
laptop  ours: half an hour on two CPU cores for small systems, three hours at most for large ones
long    ours: laptop with broad states, twice the data and up to three times the steps, for an hour or two
tiny    for tests and a first look: all stages in a minute or two on two CPU cores
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdejepa.core.run_folder import METHOD_STAGES
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
from pdejepa.training.settings import Budget, OptimiserConfig, ScheduleConfig, StageTraining


@dataclass(frozen=True)
class PaperColumn:
    """One column of the published table of hyperparameters, where it differs from the defaults.

    epochs_1: constant and falling learning rate of stage 1     widths, lr_4 .. warmup_4: the decoder and its training
    """

    patch: int = 4
    n_levels: int = 1
    epochs_1: tuple[int, int] = (20, 50)
    mask_scales: tuple[float, float] = (0.15, 0.70)
    depth_1: int = 12
    depth_3: int = 24
    positions_3: str = "rope"
    mlp_ratio_3: float = 4.0
    head_hidden: int = 0
    head_bias: str = "all"
    time_unit: str = "frame"
    epochs_3: int = 50
    batch_3: int = 64
    lr_3: float = 1e-4
    weight_decay_3: float = 0.05
    widths: tuple[int, ...] = (192, 128, 96)
    style: str = "residual"
    scales: tuple[int, ...] = (2, 2)
    n_blocks: int = 1
    epochs_4: int = 200
    batch_4: int = 16
    lr_4: float = 1e-4
    final_4: float = 1e-6
    weight_decay_4: float = 0.04
    warmup_4: int = 10
    history: int = 1
    latents: str = "float32"


def paper(system: str, column: PaperColumn) -> RunConfig:
    """The published configuration of a system."""
    return RunConfig(
        system=system,
        recipe="paper",
        size="paper",
        precision="bf16",
        history=column.history,
        latents=column.latents,  # type: ignore[arg-type]
        model=_paper_model(column),
        pretrain=_paper_pretrain(column),
        align=AlignConfig(
            training=StageTraining(
                budget=Budget(epochs=50),
                batch=16,
                optimiser=OptimiserConfig(lr=5e-5),
                schedule=ScheduleConfig(warmup=5 / 50, start=1e-6 / 5e-5, final=1e-6 / 5e-5),
                n_scores=50,
            )
        ),
        dynamics=DynamicsConfig(
            training=StageTraining(
                budget=Budget(epochs=column.epochs_3),
                batch=column.batch_3,
                optimiser=OptimiserConfig(
                    lr=column.lr_3, betas=(0.9, 0.95), weight_decay=column.weight_decay_3, decay_all=True
                ),
                schedule=ScheduleConfig(warmup=0.05, start=1e-6 / column.lr_3, final=1e-6 / column.lr_3),
                n_scores=10,
                rounds=True,
            )
        ),
        decode=DecodeConfig(training=_paper_decoding(column)),
        polish=PolishConfig(training=_training(Budget(epochs=5), 16, 1e-5, rounds=True), recompute=True),
        reconstruct=DecodeConfig(training=_paper_decoding(column)),
    )


def _paper_model(column: PaperColumn) -> ModelConfig:
    return ModelConfig(
        encoder=EncoderConfig(patch=column.patch, depth=column.depth_1, n_levels=column.n_levels),
        jepa_predictor=JepaPredictorConfig(depth=column.depth_1),
        field=FieldConfig(
            depth=column.depth_3,
            mlp_ratio=column.mlp_ratio_3,
            positions=column.positions_3,  # type: ignore[arg-type]
            head_hidden=column.head_hidden,
            head_bias=column.head_bias,  # type: ignore[arg-type]
            time_unit=column.time_unit,  # type: ignore[arg-type]
        ),
        decoder=DecoderConfig(
            widths=column.widths,
            n_blocks=column.n_blocks,
            style=column.style,  # type: ignore[arg-type]
            scales=column.scales,
        ),
    )


def _paper_pretrain(column: PaperColumn) -> PretrainConfig:
    """Two epochs of warm-up, a constant rate, then a linear fall over the second phase."""
    constant, falling = column.epochs_1
    epochs, lr = constant + falling, 3.5e-4
    schedule = ScheduleConfig(kind="wsd", warmup=2 / epochs, decay=falling / epochs, start=1e-4 / lr, final=1e-6 / lr)
    training = StageTraining(
        budget=Budget(epochs=epochs),
        batch=32,
        optimiser=OptimiserConfig(lr=lr, clip=0.0),
        schedule=schedule,
        n_scores=20,
        select="last",
    )
    return PretrainConfig(training=training, mask=MaskConfig(scales=column.mask_scales), ema=EmaConfig())


def _paper_decoding(column: PaperColumn) -> StageTraining:
    return StageTraining(
        budget=Budget(epochs=column.epochs_4),
        batch=column.batch_4,
        optimiser=OptimiserConfig(lr=column.lr_4, weight_decay=column.weight_decay_4),
        schedule=ScheduleConfig(
            warmup=column.warmup_4 / column.epochs_4, start=1e-6 / column.lr_4, final=column.final_4 / column.lr_4
        ),
        n_scores=20,
        rounds=True,
    )


def _training(
    budget: Budget,
    batch: int,
    lr: float,
    kind: str = "adamw",
    muon_lr: float = 1e-3,
    schedule: ScheduleConfig | None = None,
    n_scores: int = 5,
    select: str = "best",
    rounds: bool = False,
    average: float = 0.0,
) -> StageTraining:
    return StageTraining(
        budget=budget,
        batch=batch,
        optimiser=OptimiserConfig(kind=kind, lr=lr, muon_lr=muon_lr),  # type: ignore[arg-type]
        schedule=schedule or ScheduleConfig(warmup=0.05, final=0.01),
        n_scores=n_scores,
        select=select,  # type: ignore[arg-type]
        rounds=rounds,
        average=average,
    )


@dataclass(frozen=True)
class FastColumn:
    """What a system may set in the fast recipe.  seconds: of the stages pretrain, align, dynamics, decode, polish."""

    patch: int = 4
    scales: tuple[int, ...] = (2, 2)
    widths: tuple[int, ...] = (96, 64, 48)
    seconds: tuple[float, float, float, float, float] = (90.0, 20.0, 220.0, 30.0, 200.0)
    mask_scales: tuple[float, float] = (0.15, 0.70)
    batch_1: int = 64
    batch_2: int = 32
    batch_3: int = 256
    batch_4: int = 64
    one_frame_clips: int = 448
    window: int = 0
    decode_frames: int = 0
    batch_5: int = 32
    recompute: bool = False
    history: int = 1
    latents: str = "float32"
    amplitude: str = "as_is"
    n_train: int = 0  # 0: as many as the paper has
    style: str = "residual"
    is_recut: bool = False


# Systems with 256 tokens per frame: in smaller batches, on windows and samples of frames, cut as the recipe laptop.
LARGE = FastColumn(
    seconds=(30.0, 6.0, 150.0, 60.0, 330.0),
    batch_1=16,
    batch_2=8,
    batch_3=64,
    batch_4=16,
    one_frame_clips=128,
    window=6,
    decode_frames=6,
    batch_5=8,
    latents="bfloat16",
    n_train=4000,
    is_recut=True,
)


def fast(system: str, column: FastColumn) -> RunConfig:
    """Muon on all matrices, ring positions, context loss, one-frame clips, two RK4 steps per frame, then polishing.

    Both types of mask keep the same number of tokens: half as many shapes to compile and record.
    Large systems are cut like the recipe laptop: see `_recut`.
    """
    config = _fast(system, column)
    return _recut(config) if column.is_recut else config


def _recut(config: RunConfig) -> RunConfig:
    """Euler steps, two frames per sample of dynamics, averaged weights, and whole rollouts for more than half of it."""

    def averaged(training: StageTraining, share: float) -> StageTraining:
        return replace(training, average=share)

    field = replace(config.model.field, integrator="euler")
    dynamics, decode, polish = config.dynamics, config.decode, config.polish
    return replace(
        config,
        model=replace(config.model, field=field),
        pretrain=replace(config.pretrain, ema=replace(config.pretrain.ema, kind="budget", memory=4.0)),
        dynamics=replace(dynamics, training=averaged(dynamics.training, 0.08), unroll=2),
        decode=replace(decode, training=averaged(decode.training, 0.04), share=0.25),
        polish=replace(polish, training=averaged(polish.training, 0.03), first=0, anchor_weight=0.1),
    )


def _fast(system: str, column: FastColumn) -> RunConfig:
    pretrain, align, dynamics, decode, polish = (Budget(seconds=seconds) for seconds in column.seconds)
    falling = ScheduleConfig(kind="wsd", warmup=0.05, decay=0.7, final=0.01)
    decoder = _training(decode, column.batch_4, 1e-3, rounds=True)
    decoding = DecodeConfig(training=decoder, frames=column.decode_frames)
    return RunConfig(
        system=system,
        recipe="fast",
        size="paper",
        counts={"train": column.n_train} if column.n_train else {},
        precision="bf16",
        history=column.history,
        latents=column.latents,  # type: ignore[arg-type]
        amplitude=column.amplitude,  # type: ignore[arg-type]
        stages=(*METHOD_STAGES, "polish"),
        model=_fast_model(column),
        pretrain=PretrainConfig(
            training=_training(pretrain, column.batch_1, 1e-3, "muon", schedule=falling, n_scores=4, select="last"),
            mask=MaskConfig(scales=column.mask_scales, n_context=(0.1875, 0.1875), n_target=(0.625, 0.625)),
            ema=EmaConfig("quadratic", start=0.9935, end=0.9995),
            context_weight=0.5,
            one_frame_every=3,
            one_frame_clips=column.one_frame_clips,
        ),
        align=AlignConfig(training=_training(align, column.batch_2, 1e-3, "muon", n_scores=3), window=column.window),
        dynamics=DynamicsConfig(training=_training(dynamics, column.batch_3, 1e-3, "muon", n_scores=6, rounds=True)),
        decode=decoding,
        polish=PolishConfig(
            training=_training(polish, column.batch_5, 2e-4, "muon", muon_lr=2e-4, rounds=True),
            first=8,
            recompute=column.recompute,
        ),
        reconstruct=decoding,
    )


def _fast_model(column: FastColumn) -> ModelConfig:
    """At most 2.5 million parameters in a forecast, 5 MB in float16; shallow, because depth costs time on a GPU."""
    return ModelConfig(
        encoder=EncoderConfig(patch=column.patch, width=128, depth=4, heads=4, positions="ring"),
        jepa_predictor=JepaPredictorConfig(width=256, depth=4, heads=8),
        projector=ProjectorConfig(hidden=256),
        causal_predictor=CausalPredictorConfig(width=256, depth=4, heads=8),
        field=FieldConfig(width=144, depth=4, heads=3, positions="ring", n_substeps=2, startup_depth=1),
        decoder=DecoderConfig(
            widths=column.widths,
            scales=column.scales,
            style=column.style,  # type: ignore[arg-type]
        ),
    )


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
    decoder = _training(decode, 32, 2e-3, "muon", 2e-3, falling, 2, rounds=True, average=0.04)
    decoding = DecodeConfig(training=decoder, frames=1, share=column.rolled)
    rollouts = ScheduleConfig(kind="wsd", warmup=0.05, decay=0.9, final=0.02)
    field = _training(dynamics, 64 // column.unroll, 2e-3, "muon", 2e-3, falling, 2, rounds=True, average=0.08)
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
            training=_training(pretrain, 8, 2e-3, "muon", 4e-3, schedule=early, n_scores=1, select="last"),
            mask=MaskConfig(cut="random"),
            ema=EmaConfig("budget", memory=12.0),
            context_weight=0.5,
            one_frame_every=2,
            one_frame_clips=64,
        ),
        align=AlignConfig(training=_training(align, 8, 2e-3, "muon", 2e-3, n_scores=1)),
        dynamics=DynamicsConfig(training=field, unroll=column.unroll),
        decode=decoding,
        polish=PolishConfig(
            training=_training(
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
    decoding = DecodeConfig(training=_training(decode, 8, 4e-3, n_scores=3), frames=4)
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
            training=_training(pretrain, 8, 2e-3, "muon", 4e-3, schedule=falling, n_scores=3, select="last"),
            mask=MaskConfig(cut="random"),
            ema=EmaConfig("budget", memory=12.0),
            context_weight=0.5,
            one_frame_every=2,
            one_frame_clips=64,
        ),
        align=AlignConfig(training=_training(align, 8, 2e-3, "muon", 2e-3, n_scores=2)),
        dynamics=DynamicsConfig(training=_training(dynamics, 16, 2e-3, "muon", 4e-3, n_scores=3)),
        decode=decoding,
        polish=PolishConfig(training=_training(polish, 8, 1e-3, "muon", 1e-3, n_scores=2)),
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

"""The recipe fast: minutes on one GPU, and what a system may set in it."""

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
from pdejepa.training.settings import Budget, ScheduleConfig, StageTraining


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
    decoder = stage(decode, column.batch_4, 1e-3, rounds=True)
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
            training=stage(pretrain, column.batch_1, 1e-3, "muon", schedule=falling, n_scores=4, select="last"),
            mask=MaskConfig(scales=column.mask_scales, n_context=(0.1875, 0.1875), n_target=(0.625, 0.625)),
            ema=EmaConfig("quadratic", start=0.9935, end=0.9995),
            context_weight=0.5,
            one_frame_every=3,
            one_frame_clips=column.one_frame_clips,
        ),
        align=AlignConfig(training=stage(align, column.batch_2, 1e-3, "muon", n_scores=3), window=column.window),
        dynamics=DynamicsConfig(training=stage(dynamics, column.batch_3, 1e-3, "muon", n_scores=6, rounds=True)),
        decode=decoding,
        polish=PolishConfig(
            training=stage(polish, column.batch_5, 2e-4, "muon", muon_lr=2e-4, rounds=True),
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

"""The published recipe, and what a system may set in it."""

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
from pdejepa.models.decoder import DecoderConfig
from pdejepa.models.encoder import EncoderConfig
from pdejepa.models.field_config import FieldConfig
from pdejepa.models.jepa_predictor import JepaPredictorConfig
from pdejepa.models.masking import MaskConfig
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
        polish=PolishConfig(training=stage(Budget(epochs=5), 16, 1e-5, rounds=True), recompute=True),
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

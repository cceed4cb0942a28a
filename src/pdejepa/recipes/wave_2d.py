"""Recipes of Wave-2D; it has two channels of very different size and walls."""

from __future__ import annotations

from pdejepa.recipes import common
from pdejepa.recipes.common import FastColumn, PaperColumn, TinyColumn
from pdejepa.stages.config import TrainConfig

PAPER = PaperColumn(
    n_levels=4,
    mask_scales=(0.12, 0.60),
    mlp_ratio_3=3.85938,
    head_hidden=384,
    widths=(192, 128, 96, 64),
    scales=(1, 2, 2),
    batch_4=32,
    latents="bfloat16",
)
FAST = FastColumn(
    seconds=(900.0, 150.0, 1500.0, 300.0, 600.0),
    batch_1=16,
    batch_2=8,
    batch_3=128,
    batch_4=16,
    one_frame_clips=128,
    mask_scales=(0.12, 0.60),
    window=6,
    decode_frames=6,
    latents="bfloat16",
)
TINY = TinyColumn(
    scales=(2, 2, 2, 2),
    widths=(64, 48, 32, 16, 16),
    size="tiny",
    counts=(40, 10),
)


def paper() -> TrainConfig:
    return common.paper("wave_2d", PAPER)


def fast() -> TrainConfig:
    return common.fast("wave_2d", FAST)


def tiny() -> TrainConfig:
    return common.tiny("wave_2d", TINY)

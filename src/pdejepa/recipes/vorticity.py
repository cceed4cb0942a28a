"""Recipes of Vorticity; it has 256 tokens per frame; latent time is physical time, as published."""

from __future__ import annotations

from pdejepa.recipes import common
from pdejepa.recipes.common import FastColumn, PaperColumn, TinyColumn
from pdejepa.stages.config import TrainConfig

PAPER = PaperColumn(
    patch=8,
    n_levels=4,
    positions_3="sincos",
    time_unit="physical",
    widths=(384, 256, 192, 128),
    scales=(2, 2, 2),
    latents="bfloat16",
)
FAST = FastColumn(
    patch=8,
    scales=(2, 2, 2),
    widths=(192, 128, 96, 64),
    seconds=(900.0, 150.0, 1500.0, 300.0, 600.0),
    batch_1=16,
    batch_2=8,
    batch_3=128,
    batch_4=16,
    one_frame_clips=128,
    window=6,
    decode_frames=6,
    latents="bfloat16",
)
TINY = TinyColumn(
    patch=32,
    scales=(2, 2, 2, 2, 2),
    widths=(64, 48, 32, 16, 16, 8),
    size="tiny",
    counts=(20, 10),
)


def paper() -> TrainConfig:
    return common.paper("vorticity", PAPER)


def fast() -> TrainConfig:
    return common.fast("vorticity", FAST)


def tiny() -> TrainConfig:
    return common.tiny("vorticity", TINY)

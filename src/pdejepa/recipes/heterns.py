"""Recipes of HeterNS; it has a constant forcing field and 256 tokens per frame."""

from __future__ import annotations

from pdejepa.recipes import common
from pdejepa.recipes.common import FastColumn, PaperColumn, TinyColumn
from pdejepa.stages.config import TrainConfig

PAPER = PaperColumn(
    n_levels=4,
    epochs_3=100,
    widths=(424, 288, 112),
    n_blocks=2,
    epochs_4=1000,
    batch_4=32,
    lr_4=3e-4,
    final_4=0.0,
    weight_decay_4=0.01,
    warmup_4=50,
    latents="bfloat16",
)
FAST = FastColumn(
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
    scales=(2, 2, 2, 2),
    widths=(64, 48, 32, 16, 16),
    size="tiny",
    counts=(30, 15),
)


def paper() -> TrainConfig:
    return common.paper("heterns", PAPER)


def fast() -> TrainConfig:
    return common.fast("heterns", FAST)


def tiny() -> TrainConfig:
    return common.tiny("heterns", TINY)

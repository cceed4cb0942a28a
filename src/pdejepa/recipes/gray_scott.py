"""Recipes of Gray-Scott; it has two species and 64 tokens per frame."""

from __future__ import annotations

from pdejepa.recipes import common
from pdejepa.recipes.common import FastColumn, PaperColumn, TinyColumn
from pdejepa.stages.config import TrainConfig

PAPER = PaperColumn(
    n_levels=4,
    depth_1=24,
    depth_3=8,
    positions_3="sincos",
    head_hidden=85,
    head_bias="shared",
    widths=(192, 128, 64),
)
FAST = FastColumn(batch_3=608)
TINY = TinyColumn(
    patch=8, scales=(2, 2, 2), widths=(64, 48, 32, 16), steps=(100, 30, 600, 300, 60), counts=(160, 20)
)


def paper() -> TrainConfig:
    return common.paper("gray_scott", PAPER)


def fast() -> TrainConfig:
    return common.fast("gray_scott", FAST)


def tiny() -> TrainConfig:
    return common.tiny("gray_scott", TINY)

"""Recipes of Gray-Scott; it has two species and 64 tokens per frame."""

from __future__ import annotations

from dataclasses import replace

from pdejepa.recipes import common
from pdejepa.recipes.common import FLAT, FastColumn, PaperColumn
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
FAST = FastColumn()
TINY = replace(FLAT, size="small")


def paper() -> TrainConfig:
    return common.paper("gray_scott", PAPER)


def fast() -> TrainConfig:
    return common.fast("gray_scott", FAST)


def tiny() -> TrainConfig:
    return common.tiny("gray_scott", TINY)

"""Recipes of Gray-Scott; it has two species and 64 tokens per frame."""

from __future__ import annotations

from dataclasses import replace

from pdejepa.method.recipes import columns
from pdejepa.method.recipes.columns import FLAT, FastColumn, PaperColumn
from pdejepa.method.run_config import RunConfig

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


def paper() -> RunConfig:
    return columns.paper("gray_scott", PAPER)


def fast() -> RunConfig:
    return columns.fast("gray_scott", FAST)


def tiny() -> RunConfig:
    return columns.tiny("gray_scott", TINY)

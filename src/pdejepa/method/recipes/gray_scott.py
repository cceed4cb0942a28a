"""Recipes of Gray-Scott; it has two species and 64 tokens per frame."""

from __future__ import annotations

from dataclasses import replace

from pdejepa.method.recipes.columns import FLAT, PLANE, THIRD, FastColumn, PaperColumn

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
LAPTOP = replace(PLANE, steps=(40, 4, 2400, 2500, 1000), n_train=3000, mix=THIRD)
TINY = replace(FLAT, size="small")

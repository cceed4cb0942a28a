"""Recipes of Heat; it is driven by a known forcing in time."""

from __future__ import annotations

from pdejepa.method.recipes.columns import LONG, FastColumn, LaptopColumn, PaperColumn, TinyColumn

PAPER = PaperColumn(batch_3=16, lr_3=5e-5, weight_decay_3=0.04)
FAST = FastColumn()
LAPTOP = LaptopColumn(steps=LONG)
TINY = TinyColumn()

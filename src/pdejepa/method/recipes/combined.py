"""Recipes of Combined; it has three terms and no parameter-free part."""

from __future__ import annotations

from pdejepa.method.recipes.columns import FastColumn, LaptopColumn, PaperColumn, TinyColumn

PAPER = PaperColumn(
    epochs_1=(15, 20),
    batch_3=16,
    lr_3=5e-5,
    weight_decay_3=0.04,
    widths=(204, 148, 103, 54),
    style="plain",
    epochs_4=2000,
    batch_4=96,
    lr_4=2e-4,
    final_4=1e-5,
    weight_decay_4=1e-4,
    warmup_4=50,
)
FAST = FastColumn(amplitude="unit")
LAPTOP = LaptopColumn(amplitude="unit")
TINY = TinyColumn()

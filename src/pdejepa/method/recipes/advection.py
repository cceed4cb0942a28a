"""Recipes of Advection; it depends on one number, the speed."""

from __future__ import annotations

from pdejepa.method.recipes.columns import FastColumn, LaptopColumn, PaperColumn, TinyColumn

PAPER = PaperColumn(
    epochs_1=(15, 30),
    mask_scales=(0.12, 0.60),
    batch_3=16,
    lr_3=5e-5,
    weight_decay_3=0.04,
    widths=(128, 96, 64, 32),
    style="plain",
    epochs_4=2000,
    batch_4=64,
    warmup_4=50,
)
FAST = FastColumn(mask_scales=(0.12, 0.60), amplitude="unit")
LAPTOP = LaptopColumn(amplitude="unit")
TINY = TinyColumn()

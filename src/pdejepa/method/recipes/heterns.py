"""Recipes of HeterNS; it has a constant forcing field and 256 tokens per frame."""

from __future__ import annotations

from dataclasses import replace

from pdejepa.method.recipes.columns import FLAT, LARGE, LARGE_PLANE, PaperColumn

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
FAST = LARGE
LAPTOP = replace(LARGE_PLANE, switches=(("solver_grid", 128),))
TINY = replace(FLAT, steps=(100, 30, 1500, 300, 60), counts=(150, 15), switches=(("n_points", 32), ("solver_grid", 64)))

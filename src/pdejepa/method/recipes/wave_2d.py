"""Recipes of Wave-2D; it has two channels of very different size and walls."""

from __future__ import annotations

from dataclasses import replace

from pdejepa.method.recipes.columns import FLAT, LARGE, LARGE_PLANE, PaperColumn

PAPER = PaperColumn(
    n_levels=4,
    mask_scales=(0.12, 0.60),
    mlp_ratio_3=3.85938,
    head_hidden=384,
    widths=(192, 128, 96, 64),
    scales=(1, 2, 2),
    batch_4=32,
    latents="bfloat16",
)
FAST = replace(LARGE, mask_scales=(0.12, 0.60))
LAPTOP = LARGE_PLANE
TINY = replace(FLAT, steps=(100, 30, 1000, 300, 60), counts=(240, 20), switches=(("n_points", 32),))

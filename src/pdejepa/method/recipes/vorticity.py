"""Recipes of Vorticity; it has 256 tokens per frame; latent time is physical time, as published."""

from __future__ import annotations

from dataclasses import replace

from pdejepa.method.recipes.columns import FLAT, LARGE, LARGE_PLANE, PaperColumn

PAPER = PaperColumn(
    patch=8,
    n_levels=4,
    positions_3="sincos",
    time_unit="physical",
    widths=(384, 256, 192, 128),
    scales=(2, 2, 2),
    latents="bfloat16",
)
FAST = replace(LARGE, patch=8, scales=(2, 2, 2), widths=(32, 32), style="patches")
LAPTOP = replace(LARGE_PLANE, switches=(("n_points", 64), ("solver_grid", 256)))
TINY = replace(FLAT, switches=(("n_points", 32), ("solver_grid", 64)))

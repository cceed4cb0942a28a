"""Recipes of Wave-2D; it has two channels of very different size and walls."""

from __future__ import annotations

from dataclasses import replace

from pdejepa.method.recipes.columns import FLAT, LARGE, PLANE, THIRD, PaperColumn

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
# Rollouts cost next to nothing where waves are solved exactly, so nearly all of the time goes into polishing.
LAPTOP = replace(
    PLANE,
    patch=8,
    width=256,
    scales=(2, 2, 2),
    widths=(96, 64, 48, 32),
    style="linear",
    integrator="exact",
    steps=(30, 4, 200, 100, 24000),
    unroll=8,
    encoder_depth=2,
    n_train=6000,
    mix=THIRD,
    lr_5=2e-3,
    anchor=0.0,
)
TINY = replace(FLAT, steps=(100, 30, 1000, 300, 60), counts=(240, 20), switches=(("n_points", 32),))

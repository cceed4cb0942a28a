"""Recipes of Wave-B; it is of second order: `history` says whether one or two frames are observed."""

from __future__ import annotations

from pdejepa.method.recipes.columns import LONG, FastColumn, LaptopColumn, PaperColumn, TinyColumn

PAPER = PaperColumn(
    mlp_ratio_3=3.90104,
    head_hidden=384,
    widths=(248, 168, 112),
    n_blocks=2,
    batch_4=32,
    lr_4=2e-4,
    weight_decay_4=1e-4,
    history=2,
)
FAST = FastColumn(history=2)
LAPTOP = LaptopColumn(steps=LONG, history=2)
TINY = TinyColumn(history=2, steps=(100, 30, 3000, 300, 60))

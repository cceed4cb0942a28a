"""Recipes of Combined; it has three terms and no parameter-free part."""

from __future__ import annotations

from pdejepa.recipes import common
from pdejepa.recipes.common import FastColumn, PaperColumn, TinyColumn
from pdejepa.stages.config import TrainConfig

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
TINY = TinyColumn()


def paper() -> TrainConfig:
    return common.paper("combined", PAPER)


def fast() -> TrainConfig:
    return common.fast("combined", FAST)


def tiny() -> TrainConfig:
    return common.tiny("combined", TINY)

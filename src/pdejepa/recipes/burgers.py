"""Recipes of Burgers; it is driven by a known forcing in time."""

from __future__ import annotations

from pdejepa.recipes import common
from pdejepa.recipes.common import FastColumn, PaperColumn, TinyColumn
from pdejepa.stages.config import TrainConfig

PAPER = PaperColumn(batch_3=16, lr_3=5e-5, weight_decay_3=0.04)
FAST = FastColumn()
TINY = TinyColumn()


def paper() -> TrainConfig:
    return common.paper("burgers", PAPER)


def fast() -> TrainConfig:
    return common.fast("burgers", FAST)


def tiny() -> TrainConfig:
    return common.tiny("burgers", TINY)

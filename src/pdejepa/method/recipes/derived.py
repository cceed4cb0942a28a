"""Recipes of systems that have none of their own: patches and widths follow from the grid and its dimension.

A frame becomes about 16 tokens in `tiny`, 32 (lines) or 64 (planes) in `laptop` and `long`, and 64 in `fast`; large
planes become 256, but in `tiny`.  There is no recipe `paper`: nothing is published.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from pdejepa.core.errors import ConfigError, DataError
from pdejepa.method.recipes import columns
from pdejepa.method.recipes.columns import LARGE, FastColumn, LaptopColumn, TinyColumn
from pdejepa.method.run_config import RunConfig
from pdejepa.systems.problem import Problem

if TYPE_CHECKING:
    from pdejepa.data.source import Trajectories

# Points of a frame from which on it becomes 256 tokens.
LARGE_PLANE = {"fast": 128 * 128, "laptop": 64 * 64, "long": 64 * 64}
MANY_TOKENS = 512
FEW = 40  # trajectories
TINY_WIDTHS, FAST_WIDTHS = (64, 48, 32, 32, 16, 16), (96, 64, 48, 32, 32, 16)


def get(problem: Problem, recipe: str) -> RunConfig:
    """The configuration of `tiny`, `laptop`, `long` or `fast` for a problem; without broad states, which it lacks."""
    history = 2 if problem.structure.time_order == 2 else 1
    is_line = problem.ndim == 1
    if recipe == "paper":
        raise ConfigError(
            f"There is no recipe paper for {problem.name}: nothing is published. Use fast, laptop, long or tiny."
        )
    if recipe == "tiny":
        patch = patch_of(problem, 16)
        counts = (240, 20) if is_line else (160, 20)
        scales, widths = _decoder(patch, TINY_WIDTHS)
        column = TinyColumn(patch=patch, scales=scales, widths=widths, counts=counts, history=history)
        return columns.tiny(problem.name, column)
    is_large = math.prod(problem.grid) >= LARGE_PLANE[recipe] and not is_line
    if recipe in ("laptop", "long"):
        patch = patch_of(problem, 32 if is_line else 256 if is_large else 64)
        laptop = columns.LARGE_PLANE if is_large else LaptopColumn() if is_line else columns.PLANE
        scales, widths = _decoder(patch, FAST_WIDTHS)
        laptop = replace(laptop, patch=patch, scales=scales, widths=widths, history=history)
        make = columns.laptop if recipe == "laptop" else columns.long
        return replace(make(problem.name, laptop), mix=0.0)
    patch = patch_of(problem, 256 if is_large else 64)
    base = LARGE if is_large else FastColumn()
    scales, widths = _decoder(patch, FAST_WIDTHS)
    return columns.fast(problem.name, replace(base, patch=patch, scales=scales, widths=widths, history=history))


def for_data(source: Trajectories, recipe: str) -> RunConfig:
    """The same for given trajectories: never more of them than there are."""
    missing = [split for split in ("train", "valid") if split not in source.splits]
    if missing:
        raise DataError(
            f"{source.name} has no split {' and no split '.join(missing)}, which training needs. Its splits: "
            f"{', '.join(source.splits)}."
        )
    config = get(source.problem, recipe)
    n = {split: source.n(split) for split in ("train", "valid")}
    counts = {split: min(config.counts.get(split, n[split]), n[split]) for split in n}
    return replace(config, counts=counts, switches={})


def sizes_in_words(config: RunConfig, problem: Problem, n_train: int) -> str:
    """What a recipe for given data came to, in a sentence or two."""
    patch, encoder = config.model.encoder.patch, config.model.encoder
    grid = " x ".join(map(str, problem.grid))
    text = (
        f"{problem.name}: {n_train:,} trajectories of {len(problem.times)} frames on {grid} points; patches of "
        f"{patch}, {_tokens(problem, patch)} tokens a frame of width {encoder.width}"
    )
    steps = [(name, getattr(config, name).training.budget.steps) for name in config.stages]
    told = ", ".join(f"{name} {n:,}" for name, n in steps if n)
    text += f"; steps: {told}." if told else "."
    if patch == 1 or _tokens(problem, patch) > MANY_TOKENS:
        text += f" {grid} points cannot be cut into larger patches (powers of two), so steps are slow."
    if n_train < FEW:
        text += f" With fewer than {FEW} trajectories expect large errors on others than these."
    return text


def patch_of(problem: Problem, n_tokens: int) -> int:
    """The largest power of two that divides every axis and leaves at least so many tokens; 1 if none does."""
    patch = 1
    while all(n % (2 * patch) == 0 for n in problem.grid) and _tokens(problem, 2 * patch) >= n_tokens:
        patch *= 2
    return patch


def _tokens(problem: Problem, patch: int) -> int:
    return math.prod(n // patch for n in problem.grid)


def _decoder(patch: int, widths: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Upsampling factors and widths: one doubling per factor two of the patch."""
    n = max(1, int(math.log2(patch)))
    return (2,) * n if patch > 1 else (1,), (*widths, *widths[-1:] * n)[: n + 1]

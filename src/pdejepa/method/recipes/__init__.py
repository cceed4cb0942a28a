"""Recipes: functions that return the full configuration of a training.

recipes.get("combined", "fast")     one module of numbers per built-in system; `derived` for all others
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pdejepa import systems
from pdejepa.core.errors import ConfigError, did_you_mean
from pdejepa.method.recipes import columns, derived
from pdejepa.method.run_config import RunConfig
from pdejepa.systems import NAMES

if TYPE_CHECKING:
    from pdejepa.data.source import Trajectories

MAKE: dict[str, Callable[[str, Any], RunConfig]] = {
    "paper": columns.paper,
    "fast": columns.fast,
    "laptop": columns.laptop,
    "long": columns.long,
    "tiny": columns.tiny,
}
NUMBERS = {"long": "LAPTOP"}  # whose numbers a recipe without its own takes
RECIPES = tuple(MAKE)


def get(system: str, recipe: str) -> RunConfig:
    """The configuration of a recipe for a system; ConfigError with the nearest spelling for unknown names."""
    _check(recipe)
    if system not in NAMES:
        return derived.get(systems.get(system).problem, recipe)
    numbers = importlib.import_module(f"pdejepa.method.recipes.{system}")
    return MAKE[recipe](system, getattr(numbers, NUMBERS.get(recipe, recipe.upper())))


def for_data(source: Trajectories, recipe: str) -> RunConfig:
    """The configuration of a recipe for given trajectories: a system's own, or what follows from grid and numbers."""
    _check(recipe)
    return get(source.system.name, recipe) if source.system is not None else derived.for_data(source, recipe)


def _check(recipe: str) -> None:
    if recipe not in RECIPES:
        hint = did_you_mean(recipe, RECIPES) or "."
        raise ConfigError(f"unknown recipe {recipe!r}{hint} Recipes: {', '.join(RECIPES)}.")

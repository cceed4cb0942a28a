"""Recipes: functions that return the full configuration of a training.

recipes.get("combined", "fast")          one module per system, one function per recipe
"""

from __future__ import annotations

import importlib

from pdejepa.core.errors import ConfigError, did_you_mean
from pdejepa.method.config import RunConfig
from pdejepa.systems import NAMES

RECIPES = ("paper", "fast", "tiny")


def get(system: str, recipe: str) -> RunConfig:
    """The configuration of a recipe for a system; ConfigError with the nearest spelling for unknown names."""
    if system not in NAMES:
        raise ConfigError(f"unknown system {system!r}{did_you_mean(system, NAMES) or '.'} Systems: {', '.join(NAMES)}.")
    if recipe not in RECIPES:
        hint = did_you_mean(recipe, RECIPES) or "."
        raise ConfigError(f"unknown recipe {recipe!r}{hint} Recipes: {', '.join(RECIPES)}.")
    config: RunConfig = getattr(importlib.import_module(f"pdejepa.method.recipes.{system}"), recipe)()
    return config

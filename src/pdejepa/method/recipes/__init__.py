"""Recipes: functions that return the full configuration of a training.

recipes.get("combined", "fast")     one module per built-in system, one function per recipe; `derived` for all others
"""

from __future__ import annotations

import importlib

from pdejepa import systems
from pdejepa.core.errors import ConfigError, did_you_mean
from pdejepa.method.recipes import derived
from pdejepa.method.run_config import RunConfig
from pdejepa.systems import NAMES

RECIPES = ("paper", "fast", "tiny")


def get(system: str, recipe: str) -> RunConfig:
    """The configuration of a recipe for a system; ConfigError with the nearest spelling for unknown names."""
    if recipe not in RECIPES:
        hint = did_you_mean(recipe, RECIPES) or "."
        raise ConfigError(f"unknown recipe {recipe!r}{hint} Recipes: {', '.join(RECIPES)}.")
    if system not in NAMES:
        return derived.get(systems.get(system).problem, recipe)
    config: RunConfig = getattr(importlib.import_module(f"pdejepa.method.recipes.{system}"), recipe)()
    return config

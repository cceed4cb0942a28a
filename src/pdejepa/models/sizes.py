"""What the sizes of all networks must be, checked where a configuration is made.

Letters: width and depth of a transformer, heads per attention, mlp_ratio = hidden width of a block's MLP / width.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pdejepa.core.errors import ConfigError


def size_faults(config: Any, *names: str) -> list[str]:
    values = {name: getattr(config, name) for name in names}
    return [f"{name} must be 1 or more, got {value}." for name, value in values.items() if value < 1]


def transformer_faults(config: Any) -> list[str]:
    """Faults of width, depth, heads and mlp_ratio; rotary positions turn pairs of features of one head."""
    problems = size_faults(config, "width", "depth", "heads")
    if not problems and config.width % config.heads:
        problems.append(f"heads must divide width = {config.width}, got {config.heads}.")
    elif not problems and config.width // config.heads % 2:
        problems.append(f"width / heads must be even, got {config.width} / {config.heads}.")
    if not (math.isfinite(config.mlp_ratio) and config.width * config.mlp_ratio >= 1):
        problems.append(f"mlp_ratio must be positive and give a hidden width of 1 or more, got {config.mlp_ratio}.")
    return problems


def choice_faults(config: Any) -> list[str]:
    """Faults of all Literal fields, for configurations that were not read from a file."""
    problems = []
    for name, hint in get_type_hints(type(config)).items():
        if get_origin(hint) is Literal and getattr(config, name) not in get_args(hint):
            options = ", ".join(map(repr, get_args(hint)))
            problems.append(f"{name} must be one of {options}; got {getattr(config, name)!r}.")
    return problems


def refuse(problems: list[str]) -> None:
    if problems:
        raise ConfigError(" ".join(problems), problems)

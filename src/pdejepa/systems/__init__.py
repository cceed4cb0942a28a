"""The parametric PDE systems.  A new one is one file in this folder and one name in `NAMES`."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from pdejepa.core.errors import ConfigError, did_you_mean
from pdejepa.systems.base import Generated, System, switches_error
from pdejepa.systems.structure import SIZES

NAMES = (
    "advection",
    "burgers",
    "heat",
    "wave_b",
    "combined",
    "vorticity",
    "heterns",
    "wave_2d",
    "gray_scott",
)

__all__ = ["NAMES", "SIZES", "Generated", "System", "get"]


def get(name: str, **switches: Any) -> System:
    """The system of that name; keyword arguments set its switches, e.g. get("combined", flux="alpha u^2")."""
    key = str(name).replace("-", "_").lower()
    if key not in NAMES:
        hint = did_you_mean(key, NAMES) or "."
        raise ConfigError(f"There is no system {name!r}{hint} Systems: {', '.join(NAMES)}.")
    system: type[System] = importlib.import_module(f"pdejepa.systems.{key}").SYSTEM
    known = [field.name for field in dataclasses.fields(system)]
    for switch in switches:
        if switch not in known:
            raise switches_error(system, switch, known)
    return system(**switches)

"""Which systems there are, and how one is built by its name with its switches."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

from pdejepa.core.errors import ConfigError, did_you_mean
from pdejepa.systems.base import System, switches_error
from pdejepa.systems.problem import Switch

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


def build_system(name: str, size: str, switches: Mapping[str, Switch]) -> System:
    """The system as simulated for a data size; switches given by name win over what the size implies."""
    plain = get(name)
    get(name, **switches)  # refuses unknown switches and values
    chosen = {key: _as_type_of(getattr(plain, key), value, f"{plain.name}: {key}") for key, value in switches.items()}
    return dataclasses.replace(get(name, **chosen).at_size(size), **chosen)


def switch_values(system: System) -> dict[str, Switch]:
    """All switches of a system with their values."""
    return {f.name: getattr(system, f.name) for f in sorted(dataclasses.fields(system), key=lambda f: f.name)}


def _as_type_of(default: Switch, value: Switch, what: str) -> Switch:
    """`value` in the type of the default; a whole number may stand for a float, nothing else changes type."""
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(default):
        raise ConfigError(f"{what} must be of type {type(default).__name__}, got {value!r}.")
    return value

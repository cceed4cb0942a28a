"""The parametric PDE systems.  A new one is one file in this folder and one name in `NAMES` of `registry`."""

from __future__ import annotations

from pdejepa.systems.base import Generated, System
from pdejepa.systems.problem import Switch
from pdejepa.systems.registry import NAMES, build_system, from_path, get, is_known, names, register, switch_values
from pdejepa.systems.structure import SIZES

__all__ = [
    "NAMES",
    "SIZES",
    "Generated",
    "Switch",
    "System",
    "build_system",
    "from_path",
    "get",
    "is_known",
    "names",
    "register",
    "switch_values",
]

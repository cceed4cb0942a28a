"""pdejepa: verified data and learned surrogates for parametric partial differential equations.

Importing the package is cheap on purpose: PyTorch is loaded only when a system is asked for, so that
`pdejepa --help` answers at once.
"""

from __future__ import annotations

import importlib
from types import ModuleType

# Written here, and read from here by the build, so that a source tree on PYTHONPATH knows its version
# without having been installed.
__version__ = "0.1.0"

__all__ = ["__version__", "systems"]

_LAZY = frozenset({"systems"})


def __getattr__(name: str) -> ModuleType:
    """Load `pdejepa.systems` on first use."""
    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | _LAZY)

"""pdejepa: verified data and learned surrogates for parametric partial differential equations.

    pdejepa.systems.get("heat")      a parametric PDE: sampling, solving, generating
    pdejepa.load("RUN")              a trained model that forecasts

Importing the package is cheap on purpose: PyTorch is loaded only when a system or a model is asked for, so that
`pdejepa --help` answers at once.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


# Written here, and read from here by the build, so that a source tree on PYTHONPATH knows its version
# without having been installed.
__version__ = "0.1.0"

__all__ = ["__version__", "load", "systems"]

_LAZY = frozenset({"systems"})


def load(path: str | os.PathLike[str], device: str | torch.device = "auto") -> Any:
    """Any trained solver: in a run folder or a model folder, or a model that comes with the package, by its name.

    A `pdejepa.forecast.forecaster.Forecaster`, or a `pdejepa.baselines.inference.PublishedSolver`; both are a
    `pdejepa.forecast.interface.Solver`.

    device: auto (a GPU if there is one), cpu, cuda or cuda:N, or a device of PyTorch.
    """
    from pdejepa.forecast.locate import find_model, format_of

    if format_of(find_model(path)) == "pdejepa-solver":
        from pdejepa.baselines.solver_folder import load_solver

        return load_solver(path, device)
    from pdejepa.forecast.forecaster import load as load_forecaster

    return load_forecaster(path, device)


def __getattr__(name: str) -> ModuleType:
    """Load `pdejepa.systems` on first use."""
    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | _LAZY)

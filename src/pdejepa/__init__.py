"""pdejepa: verified data and learned surrogates for parametric partial differential equations.

    pdejepa.systems.get("heat")      a parametric PDE: sampling, solving, generating
    pdejepa.load("RUN")              a trained model that forecasts
    pdejepa.from_arrays(u, {...})    your own trajectories, to train on

Importing the package is cheap on purpose: PyTorch is loaded only when a system or a model is asked for, so that
`pdejepa --help` answers at once.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from pdejepa.data.importing.from_arrays import from_arrays


# Written here, and read from here by the build, so that a source tree on PYTHONPATH knows its version
# without having been installed.
__version__ = "0.1.0"

__all__ = ["__version__", "from_arrays", "load", "systems"]

_LAZY = frozenset({"systems"})
_LAZY_FUNCTIONS = {"from_arrays": "pdejepa.data.importing.from_arrays"}


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


def __getattr__(name: str) -> Any:
    """Load `pdejepa.systems` and `pdejepa.from_arrays` on first use."""
    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _LAZY_FUNCTIONS:
        return getattr(importlib.import_module(_LAZY_FUNCTIONS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_LAZY_FUNCTIONS})

"""Published and classical solvers for parametric PDEs, behind one interface.

A new one is one file here and one name in `NAMES`, or in `CLASSICAL` if it is fitted at once.

One from elsewhere is registered by a call, `register(MySolver)`, or by an installed package:

    [project.entry-points."pdejepa.solvers"]
    my_solver = "my_package.my_file:MySolver"
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pdejepa.baselines.baseline import Baseline, Recipe
from pdejepa.core.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    import torch

NAMES = (
    "fno",
    "cape",
    "coda",
    "geps",
    "dpot",
    "le_pde",
    "lns",
    "zebra",
    "enma",
    "unisolver",
    "vit_in_context",
    "cls_vit",
    "mae_pde",
    "videomae",
    "mpp",
    "poseidon",
)

# Fitted at once, see `closed_form`; several may share a file.
CLASSICAL = {
    "opinf": "opinf:OperatorInference",
    "opinf_stable": "opinf:StableOperatorInference",
    "opinf_fine": "opinf:FineOperatorInference",
    "opinf_stable_fine": "opinf:FineStableOperatorInference",
    "pca_ridge": "pca_regression:PcaRidge",
    "pca_gp": "pca_regression:PcaProcess",
    "weak_sindy": "weak_sindy:WeakSindy",
    "weak_sindy_fine": "weak_sindy:FineWeakSindy",
    "coarse_solver": "coarse_solver:CoarseSolver",
}

# With their sizes, as papers and public files call them.
ALIASES = {"poseidon_t": "poseidon", "dpot_s": "dpot", "avit_b": "mpp", "mpp_avit_b": "mpp"}

GROUP = "pdejepa.solvers"  # of entry points

_registered: dict[str, type[Baseline]] = {}

__all__ = ["CLASSICAL", "NAMES", "Baseline", "Recipe", "check_name", "get", "known_as", "load", "names", "register"]


def known_as(name: str) -> str:
    """The name by which a solver is known here, if it is: `poseidon` for `Poseidon-T`."""
    key = name.replace("-", "_").lower()
    return ALIASES.get(key, key)


def check_name(name: str, names: Sequence[str] = (*NAMES, *CLASSICAL)) -> None:
    """Refuse what is not the name of a solver."""
    if name not in names:
        raise ConfigError(f"There is no solver {name!r}{did_you_mean(name, names) or '.'} Solvers: {', '.join(names)}.")


def names() -> tuple[str, ...]:
    """The names of all solvers that are known here, ours first."""
    installed = [entry.name for entry in importlib.metadata.entry_points(group=GROUP)]
    return tuple(dict.fromkeys((*NAMES, *CLASSICAL, *_registered, *installed)))


def get(name: str) -> type[Baseline]:
    """The class of the solver of that name."""
    key = known_as(name)
    if key in CLASSICAL:
        file, kind = CLASSICAL[key].split(":")
        classical: type[Baseline] = getattr(importlib.import_module(f"pdejepa.baselines.{file}"), kind)
        return classical
    if key not in NAMES:
        for entry in importlib.metadata.entry_points(group=GROUP, name=key):
            register(entry.load())
    if key in _registered:
        return _registered[key]
    check_name(key, names())
    solver: type[Baseline] = importlib.import_module(f"pdejepa.baselines.{key}").SOLVER
    return solver


def register(solver: type[Baseline]) -> type[Baseline]:
    """Make a solver known by the name on its card; the same name again replaces the class, ours are not replaced."""
    if not (isinstance(solver, type) and issubclass(solver, Baseline)):
        raise ConfigError(f"register expects a class that derives from Baseline; got {solver!r}.")
    if solver.card.name in (*NAMES, *CLASSICAL):
        raise ConfigError(f"There is a solver {solver.card.name!r} already. Choose another name for its card.")
    _registered[solver.card.name] = solver
    return solver


def load(folder: str | os.PathLike[str], device: str | torch.device = "auto") -> Baseline:
    """A trained solver: the folder that `saved.save` wrote, or that of a run of `pdejepa compare`."""
    from pdejepa.baselines.solver_folder import load as load_saved

    return load_saved(folder, device)

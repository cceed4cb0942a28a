"""A trained solver on disk: weights as safetensors, and a JSON file from which its network is built again.

    save(solver, "fno", recipe="fast")
    solver = load("fno", "cuda")
    forecast(solver, u0, xi, n_frames)           physical units in and out, see `inference`
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from pdejepa import baselines
from pdejepa.baselines.baseline import Baseline, check_label
from pdejepa.baselines.inference import PublishedSolver
from pdejepa.baselines.solver_settings import without_former
from pdejepa.baselines.task import Task
from pdejepa.core.config import load_config, to_dict
from pdejepa.core.device import pick_device, single_precision
from pdejepa.core.errors import CheckpointError, ConfigError
from pdejepa.core.files import read_json, sha256_file, write_json
from pdejepa.core.weights import check_match, gather, read_weights, restore, write_weights
from pdejepa.forecast.header import problem_of
from pdejepa.models.amplitude import Amplitude
from pdejepa.models.condition import Statistics

CONFIG, WEIGHTS, INSIDE = "config.json", "weights.safetensors", "model"
FORMAT: Literal["pdejepa-solver"] = "pdejepa-solver"


@dataclass(frozen=True)
class Saved:
    """The content of config.json: the solver, its sizes, and what it was told about its task."""

    format: Literal["pdejepa-solver"]
    solver: str
    recipe: Literal["paper", "fast", "laptop", "tiny"]
    system: str
    switches: dict[str, Any]
    model: dict[str, Any]
    statistics: dict[str, Any]
    xi_mean: tuple[float, ...]
    xi_std: tuple[float, ...]
    n_environments: int
    has_support: bool
    weights_sha256: str
    amplitude: Amplitude = "as_is"  # of former versions always
    problem: dict[str, Any] = field(default_factory=dict)  # empty in files of former versions

    def build(self, device: str = "cpu") -> Baseline:
        """The network with any weights; on `meta`, with none."""
        task = Task(
            problem=problem_of(self.system, self.switches, self.problem),
            statistics=Statistics.from_dict(self.statistics),
            xi_mean=self.xi_mean,
            xi_std=self.xi_std,
            n_environments=self.n_environments,
            n_train=1,  # decides epochs, which a trained network does not need
            has_support=self.has_support,
            amplitude=self.amplitude,
        )
        kind = baselines.get(self.solver)
        sizes = load_config(type(kind.recipe(self.recipe, task).model), defaults=without_former(self.model))
        # Initial weights are drawn and thrown away.
        with torch.random.fork_rng(devices=[]), torch.device(device), single_precision():
            return kind(sizes, task)


def save(solver: Baseline, folder: str | os.PathLike[str], recipe: str) -> None:
    """Write a solver that was made by a recipe."""
    check_label(solver, recipe)
    root, task = Path(folder), solver.task
    write_weights(root / WEIGHTS, gather({"solver": solver}))
    plain = {
        "format": FORMAT,
        "solver": solver.card.name,
        "recipe": recipe,
        "system": task.problem.name,
        "switches": task.problem.switches,
        "model": to_dict(solver.config),
        "statistics": task.statistics.to_dict(),
        **{key: getattr(task, key) for key in ("xi_mean", "xi_std", "n_environments", "has_support", "amplitude")},
        "weights_sha256": sha256_file(root / WEIGHTS),
        "problem": to_dict(task.problem),
    }
    write_json(root / CONFIG, plain)


def load_solver(folder: str | os.PathLike[str], device: str | torch.device = "auto") -> PublishedSolver:
    """The solver in a folder that `save` wrote, behind the calls that all trained solvers answer."""
    return PublishedSolver(load(folder, device), _read(_root(folder) / CONFIG).recipe)


def _root(folder: str | os.PathLike[str]) -> Path:
    given = Path(folder)
    return given / INSIDE if (given / INSIDE).is_dir() else given


@torch.inference_mode(False)  # or solvers that adapt by gradients could not
def load(folder: str | os.PathLike[str], device: str | torch.device = "auto") -> Baseline:
    """The solver in a folder that `save` wrote, or in the folder of a run of `pdejepa compare`; ready to forecast."""
    root = _root(folder)
    saved, weights = _read(root / CONFIG), root / WEIGHTS
    tensors = read_weights(weights)
    if sha256_file(weights) != saved.weights_sha256:
        raise CheckpointError(f"{weights} is damaged or of another solver: its hash is not the one in {CONFIG}.")
    try:
        # First without memory: a description that does not fit its file must not be able to fill the machine.
        check_match(tensors, gather({"solver": saved.build("meta")}), str(weights))
        solver = saved.build()
    except (ConfigError, ArithmeticError, RuntimeError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{root / CONFIG} describes no solver that can be built: {reason}") from error
    restore({"solver": solver}, tensors, str(weights))
    return solver.to(pick_device(device)).eval().requires_grad_(False)


def _read(path: Path) -> Saved:
    try:
        plain = read_json(path)
    except ValueError as error:
        raise CheckpointError(f"{path} cannot be read ({error}). Give the folder of a saved solver.") from None
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise CheckpointError(f'{path} describes no solver: "format" must be "{FORMAT}". Models: pdejepa.load(...).')
    try:
        return load_config(Saved, defaults=plain)
    except ConfigError as error:
        raise CheckpointError(f"{path} describes no solver: {'; '.join(error.problems[:3])}") from error

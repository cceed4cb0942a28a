"""What the training of a solver was begun with: a folder is continued with that, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pdejepa.baselines.baseline import Baseline, Recipe
from pdejepa.baselines.pool import Pool
from pdejepa.core.config import differences, to_dict
from pdejepa.core.errors import CheckpointError, ConfigError
from pdejepa.core.files import read_json, write_json
from pdejepa.core.run_folder import SOLVER_NAME
from pdejepa.training.settings import FREE_TRAINING

# Former versions could also start from weights that others had published.  Files of theirs that did not are still read.
RANDOM_START = "random weights"
FORMER_SIZES = {"n_official": 0}  # of MPP


def asked_for(solver: Baseline, recipe: Recipe, pool: Pool, budget: str, seed: int) -> dict[str, Any]:
    """All that decides about the weights, as plain data; budget: of all stages together, empty if each has its own."""
    free = (*FREE_TRAINING, *(("budget",) if budget else ()))  # a total takes the place of every stage's own
    stages = {part.name: to_dict(part) for part in recipe.stages}
    for stage in stages.values():
        stage["training"] = {key: value for key, value in stage["training"].items() if key not in free}
    return {
        "solver": solver.card.name,
        "data": pool.data.hash[:12],
        "seed": seed,
        "budget": budget or "that of the recipe",
        "model": to_dict(solver.config),
        "stages": stages,
    }


def remember(folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """What is asked for, written into a new folder; ConfigError if the folder was begun with something else."""
    path = folder / SOLVER_NAME
    if not path.exists() and not any((folder / stage).exists() for stage in asked["stages"]):
        write_json(path, {"asked": asked})
        return asked
    try:
        before = _completed(read_json(path)["asked"])
    except (AttributeError, ValueError, KeyError, TypeError):
        raise CheckpointError(
            f"{path} does not tell what the training in this folder was begun with. Use another folder, or remove it."
        ) from None
    changed = sorted(differences(before, asked), key=lambda change: change.split(" ")[0].count("."))  # details last
    if changed:
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise ConfigError(
            f"{folder} was begun with something else: {'; '.join(changed[:5])}{more}. "
            "Use the same settings, or another folder, or remove this one."
        )
    return asked


def _completed(asked: dict[str, Any]) -> dict[str, Any]:
    """What an earlier version was asked for, with what it did not know of at its defaults."""
    for stage in asked["stages"].values():
        if "budget" in stage["training"]:
            stage["training"]["budget"] = {"flops": 0.0, **stage["training"]["budget"]}
    kept = {key: value for key, value in asked.items() if (key, value) != ("start", RANDOM_START)}
    return {**kept, "model": without_former(asked["model"])}


def without_former(model: dict[str, Any]) -> dict[str, Any]:
    """The sizes of a network as files hold them, without settings of former versions that do nothing."""
    return {key: value for key, value in model.items() if (key, value) not in FORMER_SIZES.items()}

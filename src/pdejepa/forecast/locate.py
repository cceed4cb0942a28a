"""Where a model is: a run folder, a model folder, or the name of a model that comes with the package.

RUN/model/config.json                          pdejepa.load("RUN")
MODEL/config.json                              pdejepa.load("MODEL")
pdejepa/checkpoints/<name>/config.json         pdejepa.load("<name>")
"""

from __future__ import annotations

import importlib.resources
import json
import os
from collections.abc import Iterable
from pathlib import Path

from pdejepa.core.errors import CheckpointError, did_you_mean
from pdejepa.core.run_folder import SOLVER_NAME, STAGES
from pdejepa.forecast.header import CONFIG_NAME, MAX_CONFIG_BYTES

WEIGHTS_NAME = "weights.safetensors"
MODEL_FOLDER = "model"
MAX_LISTED = 12


def find_model(path: str | os.PathLike[str]) -> Path:
    """The folder that holds config.json and weights; folders are looked for before shipped names."""
    if not isinstance(path, str | os.PathLike):
        raise CheckpointError(f"A model is given by its name or folder, as text or a path; got {type(path).__name__}.")
    given = Path(path)
    if os.path.isdir(given):  # unlike given.is_dir(), False for what no file system takes as a name
        return _model_in(given)
    if os.path.exists(given):
        raise CheckpointError(f"{given} is a file; give the folder of the model or of the run that it lies in.")
    shipped = shipped_models()
    if os.fspath(path) in shipped:
        return shipped[os.fspath(path)]
    looks_like_path = not isinstance(path, str) or os.sep in path or path.startswith((".", "~"))
    raise CheckpointError(_no_folder(given) if looks_like_path else _nothing_there(given, shipped))


def format_of(model: Path) -> str:
    """What the config.json of a model folder says it is; empty if it says nothing."""
    try:
        with (model / CONFIG_NAME).open("rb") as stream:
            return str(dict(json.loads(stream.read(MAX_CONFIG_BYTES + 1))).get("format", ""))
    except (OSError, ValueError, TypeError, RecursionError):
        return ""


def shipped_models() -> dict[str, Path]:
    """Name -> folder of the models that come with the package."""
    root = Path(str(importlib.resources.files("pdejepa"))) / "checkpoints"
    return {folder.name: folder for folder in _folders(root) if (folder / CONFIG_NAME).is_file()}


def run_folder(model: Path) -> Path:
    """The run that a model folder belongs to; a model that stands alone is its own."""
    return model.parent if _is_run(model.parent) else model


def _model_in(folder: Path) -> Path:
    model = folder / MODEL_FOLDER
    if (model / CONFIG_NAME).is_file():
        return model
    if (folder / SOLVER_NAME).is_file():
        raise CheckpointError(
            f"{folder} is the training of a published solver. Save it with pdejepa.baselines.solver_folder.save, "
            "and load what that wrote."
        )
    if _is_run(folder):
        raise CheckpointError(_unfinished(folder))
    if (folder / CONFIG_NAME).is_file() or (folder / WEIGHTS_NAME).is_file():
        return folder
    inside = [found.name for found in _folders(folder) if _holds_model(found)]
    listed = f" Models in it: {_listed(inside)}." if inside else ""
    raise CheckpointError(f"{folder} holds no model: there is no {CONFIG_NAME} and no {MODEL_FOLDER}/ in it.{listed}")


def _is_run(folder: Path) -> bool:
    return (folder / "data.json").is_file() or any((folder / stage).is_dir() for stage in STAGES)


def _unfinished(run: Path) -> str:
    done = [stage for stage in STAGES if (run / stage / "done.json").is_file()]
    begun = [stage for stage in STAGES if (run / stage).is_dir() and stage not in done]
    told = f"finished: {', '.join(done) or 'no stage yet'}" + (f"; begun: {', '.join(begun)}" if begun else "")
    return (
        f"{run} is a run without a model yet ({told}). "
        f"Give the command that started it once more, pdejepa train ... --out {run}: it continues where it stopped."
    )


def _holds_model(folder: Path) -> bool:
    return _is_run(folder) or any((folder / name).is_file() for name in (CONFIG_NAME, f"{MODEL_FOLDER}/{CONFIG_NAME}"))


def _nothing_there(given: Path, shipped: Iterable[str]) -> str:
    """What exists instead: models beside the path that was asked for, and shipped ones."""
    beside = [folder.name for folder in _folders(given.parent) if _holds_model(folder)]
    hint = did_you_mean(given.name, (*beside, *shipped)) or "."
    lists = (("Models that come with pdejepa", list(shipped)), (f"Models and runs in {given.parent}", beside))
    told = " ".join(f"{label}: {_listed(names)}." for label, names in lists if names)
    return f"There is no model {str(given)[:200]!r}{hint} {told or 'Train one with: pdejepa train'}"


def _no_folder(given: Path) -> str:
    """What exists beside the path that was asked for."""
    beside = [folder.name for folder in _folders(given.parent) if _holds_model(folder)]
    hint = did_you_mean(given.name, beside) or "."
    told = f"Models and runs in {given.parent}: {_listed(beside)}." if beside else _advice(given)
    return f"There is no folder {str(given)[:200]!r}{hint} {told}"


def _advice(given: Path) -> str:
    if str(given).startswith("~"):
        return "A leading ~ is not replaced here; write the whole path."
    return "Give the folder of a run or of a model, or the name of a model that comes with pdejepa."


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


def _folders(root: Path) -> list[Path]:
    try:
        return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []

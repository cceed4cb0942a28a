"""A model for shipping: a folder of its own, by default with half-precision weights.

    pack_model(pdejepa.load("RUN"), "FOLDER")        FOLDER/ weights.safetensors README.md config.json

Weights are rounded to float16 on the disk only: a loaded model computes in float32.  Errors were measured with the
weights before rounding, so they are left out until `pdejepa evaluate FOLDER` measures them again; weights that
rounding does not change keep theirs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from pdejepa.core.errors import CheckpointError, UsageError
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.forecast.header import CONFIG_NAME, read
from pdejepa.forecast.locate import WEIGHTS_NAME, run_folder
from pdejepa.forecast.model_folder import CARD_NAME, DTYPES
from pdejepa.method.model_card import kept_training
from pdejepa.method.run_settings import read_json
from pdejepa.method.save_model import save_model
from pdejepa.models.surrogate import Surrogate

OF_A_RUN = ("model", "model-four-stages")  # folders that a training writes


@dataclass(frozen=True)
class Packed:
    """What was written: bytes of all files and of the weights, and what became of the records of the source."""

    folder: Path
    n_bytes: int
    weights_bytes: int
    has_errors: bool
    lost_errors: bool
    has_training: bool


def pack_model(
    model: Forecaster,
    folder: str | os.PathLike[str],
    dtype: Literal["float32", "float16"] = "float16",
) -> Packed:
    """Write the model to `folder`, which must be new, empty, or hold a model that stands alone."""
    root = Path(folder).resolve()
    _check_target(root, model.folder)
    details = {**model.details, **_missing(model)}
    had_errors = bool(details["errors"])
    if not _keeps(model.surrogate, DTYPES[dtype]):
        details["errors"] = {}
    save_model(model.surrogate, root, details, dtype)
    sizes = {name: (root / name).stat().st_size for name in (WEIGHTS_NAME, CARD_NAME, CONFIG_NAME)}
    return Packed(
        folder=Path(folder),
        n_bytes=sum(sizes.values()),
        weights_bytes=sizes[WEIGHTS_NAME],
        has_errors=bool(details["errors"]),
        lost_errors=had_errors and not details["errors"],
        has_training=bool(details["training"]),
    )


def _check_target(root: Path, source: Path | None) -> None:
    """Refuse whatever would destroy something."""
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is a file; give a new folder for the packed model.")
    if not root.is_dir() or not any(root.iterdir()):
        return
    if source is not None and root == source.resolve():
        raise UsageError(f"{root} is the model itself; give another folder, or its weights would be lost.")
    if root.name in OF_A_RUN and run_folder(root) != root:
        raise UsageError(f"{root} belongs to a run; give a folder outside of it for the packed model.")
    try:
        read(root)
    except CheckpointError:
        raise UsageError(
            f"{root} is not empty and holds no model, so nothing in it is overwritten. Give a new folder."
        ) from None


def _keeps(surrogate: Surrogate, dtype: torch.dtype) -> bool:
    """Whether that precision holds all weights exactly."""
    return all(torch.equal(value.to(dtype).to(value.dtype), value) for value in surrogate.state_dict().values())


def _missing(model: Forecaster) -> dict[str, Any]:
    """How the model was trained, from the run it lies in, if its config.json does not tell; {} if that is not known.

    The run must have the very stages that the model was made of.
    """
    details, folder = model.details, model.folder
    told = {"training": details.get("training", {}), "steps": details.get("steps", {})}
    if told["training"] or folder is None or run_folder(folder) == folder or not details["lineage"]:
        return told
    run = run_folder(folder)
    try:
        done = {name: read_json(run / name / "done.json") for name in details["lineage"]}
        training = read_json(run / CONFIG_NAME)["train"]
    except (CheckpointError, KeyError):
        return told
    if any(done[name].get("weights_sha256") != digest for name, digest in details["lineage"].items()):
        return told
    steps = {name: report["steps"] for name, report in done.items()}
    return {"training": kept_training(training, done), "steps": steps}

"""A model for shipping: a folder of its own, by default with half-precision weights.

    export_model(pdejepa.load("RUN"), "FOLDER")        FOLDER/ weights.safetensors README.md config.json

Weights are rounded to float16 on the disk only: a loaded model computes in float32.  Errors were measured with the
weights before rounding, so they are left out until `pdejepa evaluate FOLDER` measures them again; weights that
rounding does not change keep theirs.

    export_model(..., as_trained=True)                 for trainings in bfloat16 without `rounds`

Products in bfloat16 see weights rounded to eight bits: what learned is the network with rounded weights, and rollouts
add up what others make different.  `as_trained` rounds the layers of the vector field and the decoder like that, which
trainings with `rounds` do by themselves.  (Latents are encoded in float32, in training too.)
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from pdejepa.core.errors import CheckpointError, UsageError
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.forecast.header import CONFIG_NAME, read
from pdejepa.forecast.locate import WEIGHTS_NAME, run_folder
from pdejepa.forecast.model_folder import CARD_NAME, DTYPES
from pdejepa.method.model_card import kept_training
from pdejepa.method.run_settings import read_json
from pdejepa.method.save_model import save_model
from pdejepa.models.surrogate import Surrogate
from pdejepa.training.rounding import round_all

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)  # what field and decoder compute in bfloat16
OF_A_RUN = ("model", "model-four-stages")  # folders that a training writes


@dataclass(frozen=True)
class Exported:
    """What was written: bytes of all files and of the weights, and what became of the records of the source."""

    folder: Path
    n_bytes: int
    weights_bytes: int
    has_errors: bool
    lost_errors: bool
    has_training: bool


def export_model(
    model: Forecaster,
    folder: str | os.PathLike[str],
    dtype: Literal["float32", "float16"] = "float16",
    as_trained: bool = False,
) -> Exported:
    """Write the model to `folder`, which must be new, empty, or hold a model that stands alone."""
    root = Path(folder).resolve()
    _check_target(root, model.folder)
    details = {**model.details, **_missing(model)}
    surrogate, had_errors = model.surrogate, bool(details["errors"])
    if as_trained:
        surrogate = rounded_as_trained(surrogate, details)
        details["as_trained"] = True
    if not _keeps(surrogate, DTYPES[dtype], model.surrogate):
        details["errors"] = {}
    save_model(surrogate, root, details, dtype)
    sizes = {name: (root / name).stat().st_size for name in (WEIGHTS_NAME, CARD_NAME, CONFIG_NAME)}
    return Exported(
        folder=Path(folder),
        n_bytes=sum(sizes.values()),
        weights_bytes=sizes[WEIGHTS_NAME],
        has_errors=bool(details["errors"]),
        lost_errors=had_errors and not details["errors"],
        has_training=bool(details["training"]),
    )


def rounded_as_trained(surrogate: Surrogate, details: dict[str, Any]) -> Surrogate:
    """A copy with the weights that products in bfloat16 saw; UsageError if the training did not end with such."""
    training, last = details["training"], "polish" if details["polish"] else "decode"
    if last not in training:
        raise UsageError("--as-trained needs to know how the model was trained, which it does not tell.")
    if training["precision"] != "bf16" or training[last]["training"].get("rounds"):
        raise UsageError("--as-trained is for trainings in bfloat16 that keep unrounded weights; this one does not.")
    copied = copy.deepcopy(surrogate)
    parts = [part for part in (copied.field, copied.startup, copied.decoder) if part is not None]
    layers = [layer for part in parts for layer in part.modules() if isinstance(layer, LAYERS)]
    round_all(p for layer in layers for p in layer.parameters())
    return copied


def _check_target(root: Path, source: Path | None) -> None:
    """Refuse whatever would destroy something."""
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is a file; give a new folder for the exported model.")
    if not root.is_dir() or not any(root.iterdir()):
        return
    if source is not None and root == source.resolve():
        raise UsageError(f"{root} is the model itself; give another folder, or its weights would be lost.")
    if root.name in OF_A_RUN and run_folder(root) != root:
        raise UsageError(f"{root} belongs to a run; give a folder outside of it for the exported model.")
    try:
        read(root)
    except CheckpointError:
        raise UsageError(
            f"{root} is not empty and holds no model, so nothing in it is overwritten. Give a new folder."
        ) from None


def _keeps(surrogate: Surrogate, dtype: torch.dtype, source: Surrogate) -> bool:
    """Whether the weights in that precision are the numbers of the source."""
    before = source.state_dict()
    return all(torch.equal(v.to(dtype).to(v.dtype), before[name]) for name, v in surrogate.state_dict().items())


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

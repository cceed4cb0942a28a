"""What is fitted on the latents of the train split before the latent ODE is learned.

    vanilla           mean and spread of every channel of z, which takes the place of the projector
    second order      s_v, the root mean square change of q in one frame: the unit of the velocity v

Both depend on nothing but the data and the stages before, and are kept in the run folder, so that a continued run
uses the very numbers that its weights were trained with.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

from pdejepa.core.device import tf32
from pdejepa.core.files import write_json
from pdejepa.method.latents import Kept, Latents, latents_of
from pdejepa.method.run_settings import read_json
from pdejepa.models.condition import Statistics
from pdejepa.models.surrogate import Surrogate
from pdejepa.training.batches import in_pieces
from pdejepa.training.training_data import TrainingData

FILE = "latents.json"


def needs_fitting(model: Surrogate) -> bool:
    return model.variant == "vanilla" or model.is_second_order


def fit_latents(
    model: Surrogate,
    data: TrainingData,
    folder: Path,
    lineage: dict[str, str],
    is_writer: bool,
    dtype: torch.dtype | None,
    kept: Kept,
) -> None:
    """Complete the statistics of the model, from the run folder if they were fitted on the same stages before.

    dtype, kept: of the latents that later stages share, see `latents_of`.
    """
    path = folder / FILE
    known: dict[str, Any] = read_json(path) if path.exists() else {}
    if known.get("lineage") == lineage:
        model.set_statistics(Statistics.from_dict(known["statistics"]))
        return
    with torch.no_grad(), tf32(data.fields["train"].device):
        fitted = _standardised(model, data) if model.variant == "vanilla" else model.statistics
        model.set_statistics(fitted)
        if model.is_second_order:
            q = latents_of("q", model, data, dtype, kept)["train"]
            model.set_statistics(dataclasses.replace(fitted, velocity_scale=_velocity_scale(q)))
    if is_writer:
        write_json(path, {"lineage": lineage, "statistics": model.statistics.to_dict()})


def _standardised(model: Surrogate, data: TrainingData) -> Statistics:
    fields, n = data.fields["train"], 0
    total = squares = torch.zeros((), dtype=torch.float64, device=fields.device)
    for part in in_pieces(len(fields), 64):
        z = model.encoder.frames(fields[part]).double().flatten(0, 2)  # (tokens,D)
        total, squares, n = total + z.sum(0), squares + z.square().sum(0), n + len(z)
    mean = total / n
    std = (squares / n - mean**2).clamp(min=1e-12).sqrt()
    return dataclasses.replace(model.statistics, latent_mean=tuple(mean.tolist()), latent_std=tuple(std.tolist()))


def _velocity_scale(q: Latents) -> float:
    total, n = torch.zeros((), dtype=torch.float64, device=q.fields.device), 0
    for part in in_pieces(len(q.fields), 64):
        change = q.take(torch.arange(part.start, part.stop, device=q.fields.device)).diff(dim=1)
        total, n = total + change.double().square().sum(), n + change.numel()
    return float((total / n).sqrt())

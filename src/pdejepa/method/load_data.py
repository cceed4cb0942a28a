"""The data of a training: trajectories generated in memory, or read from a data set; both give the same values."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from pdejepa import systems
from pdejepa.core.errors import DataError
from pdejepa.core.files import MANIFEST_NAME, sha256_file
from pdejepa.core.progress import progress
from pdejepa.data.well.reader import Dataset
from pdejepa.method.config import RunConfig
from pdejepa.models.amplitude import check_scaling
from pdejepa.systems import System, build_system
from pdejepa.training.training_data import TrainingData, content_hash, normalised

SPLITS = ("train", "valid")


def load_data(config: RunConfig, device: torch.device, show: bool = True) -> TrainingData:
    """Read `config.data`, or generate in memory if it is empty."""
    if config.amplitude == "unit":
        check_scaling(systems.get(config.system).problem)
    make = _read if config.data else _generate
    system, fields, xi, digest = make(config, device, show)
    coordinate = config.model.field.coordinate
    return normalised(system.problem, fields, xi, digest, coordinate, config.amplitude, system)


Loaded = tuple[System, dict[str, Tensor], dict[str, Tensor], str]


def _generate(config: RunConfig, device: torch.device, show: bool) -> Loaded:
    system = build_system(config.system, config.size, dict(config.switches))
    counts = {split: config.counts.get(split, system.split(split).size(config.size)) for split in SPLITS}
    fields, xi = {}, {}
    label = f"generate {system.name}"
    with progress(sum(counts.values()), label, shown="lines" if show else "nothing") as bar:
        for split, n in counts.items():
            made = system.generate(split, n, device, report=bar.advance)
            fields[split], xi[split] = made.fields, made.xi
    return system, fields, xi, content_hash(system, counts, fields, xi)


def _read(config: RunConfig, device: torch.device, show: bool) -> Loaded:
    """Fields and parameters of a data set; its manifest is what the hash stands for."""
    with Dataset.open(config.data) as dataset:
        if dataset.system_name != config.system:
            raise DataError(f"{config.data} holds {dataset.system_name}; the training is for {config.system}.")
        system = dataset.build_system()
        fields, xi = {}, {}
        for split in SPLITS:
            n = config.counts.get(split, dataset.n(split))
            if n > dataset.n(split):
                raise DataError(f"{config.data} has {dataset.n(split)} trajectories in {split}; {n} were asked for.")
            fields[split] = torch.from_numpy(dataset.fields(split, range(n))).to(device)
            xi[split] = torch.from_numpy(dataset.xi(split)[:n]).to(device)
    if fields["train"].shape[1] != len(system.times):
        raise DataError(
            f"{config.data} holds {fields['train'].shape[1]} frames per trajectory; training takes the "
            f"{len(system.times)} frames of the model. Generate it without --raw-frames."
        )
    manifest = Path(config.data) / MANIFEST_NAME
    if not manifest.exists():
        raise DataError(f"{config.data} has no {MANIFEST_NAME}: it is not finished. Run `pdejepa generate` again.")
    return system, fields, xi, sha256_file(manifest)

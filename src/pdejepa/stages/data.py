"""The data of a training, resident on the device: normalised fields, parameters, statistics, and a hash of it all.

Trajectories are generated in memory, or read from a data set; both give the same values.
Letters: n trajectories, T frames, C channels, P parameters.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from pdejepa import systems
from pdejepa.core.errors import DataError
from pdejepa.core.files import MANIFEST_NAME, sha256_file
from pdejepa.core.progress import progress
from pdejepa.data.reader import Dataset
from pdejepa.models.amplitude import at_unit_amplitude, check_scaling
from pdejepa.models.condition import Statistics, fit_statistics, parameter_ranges
from pdejepa.stages.config import TrainConfig
from pdejepa.systems import System, build_system

SPLITS = ("train", "valid")


@dataclass
class TrainingData:
    """Fields (n,T,C,*grid) float32, normalised with the statistics of train, and xi (n,P) float64, per split.

    At unit amplitude both are those of the divided fields.
    """

    system: System
    fields: dict[str, Tensor]
    xi: dict[str, Tensor]
    statistics: Statistics
    hash: str

    @property
    def n_frames(self) -> int:
        return self.fields["train"].shape[1]

    def n(self, split: str) -> int:
        return len(self.fields[split])


def load_data(config: TrainConfig, device: torch.device, show: bool = True) -> TrainingData:
    """Read `config.data`, or generate in memory if it is empty."""
    if config.amplitude == "unit":
        check_scaling(systems.get(config.system))
    make = _read if config.data else _generate
    return normalised(*make(config, device, show), config.model.field.coordinate, config.amplitude)


def normalised(
    system: System,
    fields: dict[str, Tensor],
    xi: dict[str, Tensor],
    digest: str,
    coordinate: Literal["linear", "log"] = "linear",
    amplitude: Literal["as_is", "unit"] = "as_is",
) -> TrainingData:
    """Physical fields and parameters of several splits, normalised in place with the statistics of train."""
    for split, values in fields.items():
        _check(values, split)
    ranges = parameter_ranges(system, xi["train"])
    if amplitude == "unit":
        xi = _to_unit(system, fields, xi)
    statistics = fit_statistics(system, fields["train"], xi["train"], coordinate)
    if amplitude == "unit":
        statistics = replace(statistics, ranges=ranges, unit_ranges=statistics.ranges)
    mean, std = statistics.moments(system.ndim, fields["train"].device)
    for values in fields.values():
        values.sub_(mean).div_(std)
    return TrainingData(system, fields, xi, statistics, digest)


def _to_unit(system: System, fields: dict[str, Tensor], xi: dict[str, Tensor]) -> dict[str, Tensor]:
    """Divide fields in place by their size; their new parameters."""
    found = {}
    for split, values in fields.items():
        size, found[split] = at_unit_amplitude(system, values, xi[split])
        values.div_(size)
    return found


def _check(fields: Tensor, split: str) -> None:
    bad = torch.cat([~torch.isfinite(part).flatten(1).all(1) for part in fields.split(256)])
    if bool(bad.any()):
        rows = bad.nonzero().flatten()[:5].tolist()
        raise DataError(
            f"{int(bad.sum())} trajectories of {split} contain values that are not finite, e.g. {rows}. "
            "Check the data with: pdejepa audit DIR"
        )


Loaded = tuple[System, dict[str, Tensor], dict[str, Tensor], str]


def _generate(config: TrainConfig, device: torch.device, show: bool) -> Loaded:
    system = build_system(config.system, config.size, dict(config.switches))
    counts = {split: config.counts.get(split, system.split(split).size(config.size)) for split in SPLITS}
    fields, xi = {}, {}
    label = f"generate {system.name}"
    with progress(sum(counts.values()), label, shown="lines" if show else "nothing") as bar:
        for split, n in counts.items():
            made = system.generate(split, n, device, report=bar.advance)
            fields[split], xi[split] = made.fields, made.xi
    return system, fields, xi, content_hash(system, counts, fields, xi)


def content_hash(system: System, counts: dict[str, int], fields: dict[str, Tensor], xi: dict[str, Tensor]) -> str:
    """A hash of the settings, all parameters, and at most 64 trajectories of every split."""
    settings = {"system": system.name, "counts": counts, **asdict(system)}
    result = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for split in counts:
        result.update(xi[split].cpu().contiguous().numpy().tobytes())
        every = max(1, len(fields[split]) // 64)
        result.update(fields[split][::every].cpu().contiguous().numpy().tobytes())
    return result.hexdigest()


def _read(config: TrainConfig, device: torch.device, show: bool) -> Loaded:
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

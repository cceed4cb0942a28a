"""The data of a training from the source that its configuration names: a system, or a data set; with equal values."""

from __future__ import annotations

import torch

from pdejepa.core.errors import DataError
from pdejepa.core.progress import Shown, progress
from pdejepa.data.source import Block, Generated, Stored, Trajectories
from pdejepa.data.well.reader import Dataset
from pdejepa.method.run_config import RunConfig
from pdejepa.models.amplitude import check_scaling
from pdejepa.systems import build_system
from pdejepa.training.training_data import TrainingData, normalised

SPLITS = ("train", "valid")


def load_data(config: RunConfig, device: torch.device, show: bool = True) -> TrainingData:
    """Read `config.data`, or generate in memory if it is empty."""
    if not config.data:
        system = build_system(config.system, config.size, config.switches)
        return from_source(config, Generated(system, config.size), device, show)
    with Dataset.open(config.data) as dataset:
        if dataset.system_name != config.system:
            raise DataError(f"{config.data} holds {dataset.system_name}; the training is for {config.system}.")
        return from_source(config, Stored(dataset), device, show)


def from_source(config: RunConfig, source: Trajectories, device: torch.device, show: bool = True) -> TrainingData:
    """The trajectories of train and valid that the configuration asks for, normalised."""
    problem = source.problem
    if config.amplitude == "unit":
        check_scaling(problem)
    counts = {split: config.counts.get(split, source.n(split)) for split in SPLITS}
    n_broad = int(config.mix * counts["train"])
    if n_broad:
        counts = {**counts, "train": counts["train"] - n_broad, "broad_train": n_broad}
    made = {}
    shown: Shown = "lines" if show and isinstance(source, Generated) else "nothing"
    with progress(sum(counts.values()), f"generate {problem.name}", shown=shown) as bar:
        for split, n in counts.items():
            if not isinstance(source, Generated):  # which know no end
                source.check(split, n)
            made[split] = source.block(split, 0, n, device, bar.advance)
    n_frames = made["train"].fields.shape[1]
    if n_frames != len(problem.times):
        raise DataError(
            f"{source.name} holds {n_frames} frames per trajectory; training takes the {len(problem.times)} frames "
            "of the model. Generate it without --raw-frames."
        )
    digest = source.digest(made)
    if n_broad:
        made["train"] = interleaved(made["train"], made.pop("broad_train"))
    fields, xi = ({split: getattr(block, name) for split, block in made.items()} for name in ("fields", "xi"))
    return normalised(problem, fields, xi, digest, config.model.field.coordinate, config.amplitude, source.system)


def interleaved(most: Block, others: Block) -> Block:
    """Both in one, the others spread evenly: row i is the next of them wherever their share of i + 1 rows has grown."""
    n, n_others = len(most.xi) + len(others.xi), len(others.xi)
    rows = torch.arange(n)
    is_other = (rows + 1) * n_others // n > rows * n_others // n
    order = torch.empty(n, dtype=torch.int64)
    order[~is_other], order[is_other] = torch.arange(n - n_others), torch.arange(n - n_others, n)
    shift = int(most.environment.max()) + 1
    environment = torch.cat((most.environment, others.environment + shift))[order]
    fields, xi = (torch.cat(pair)[order.to(pair[0].device)] for pair in zip(most[:2], others[:2], strict=True))
    return Block(fields, xi, environment)

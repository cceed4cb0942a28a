"""The data of a training from the source that its configuration names: a system, or a data set; with equal values.

They stay on the device.  Where fields and latents of train would take more than half of a GPU's free memory, or with
`memory=host`, those stay in host memory, and batches are copied (see `training.on_host`).
"""

from __future__ import annotations

import math

import torch

from pdejepa.core.errors import DataError
from pdejepa.core.progress import Shown, progress
from pdejepa.data.source import Block, Generated, Report, Stored, Trajectories
from pdejepa.data.well.reader import Dataset
from pdejepa.method.run_config import RunConfig
from pdejepa.method.tuning import known_statistics
from pdejepa.models.amplitude import check_scaling
from pdejepa.systems import build_system
from pdejepa.systems.problem import Problem
from pdejepa.training.training_data import TrainingData, normalised

SPLITS = ("train", "valid")
CPU = torch.device("cpu")
MOST = 0.5  # of the free memory of a GPU that fields and latents may take
AT_ONCE = 256  # trajectories that are made or read together where they do not stay on the device
BYTES = {"float32": 4, "bfloat16": 2, "on_the_fly": 0}  # of a number in latents


def load_data(config: RunConfig, device: torch.device, show: bool = True) -> TrainingData:
    """Read `config.data`, or generate in memory if it is empty."""
    if not config.data:
        system = build_system(config.system, config.size, config.switches)
        return from_source(config, Generated(system, config.size), device, show)
    with Dataset.open(config.data) as dataset:
        source = Stored(dataset)
        if source.problem.name != config.system:
            raise DataError(f"{config.data} holds {source.problem.name}; the training is for {config.system}.")
        return from_source(config, source, device, show)


def from_source(config: RunConfig, source: Trajectories, device: torch.device, show: bool = True) -> TrainingData:
    """The trajectories of train and valid that the configuration asks for, normalised."""
    problem = source.problem
    known = known_statistics(config, problem)
    if config.amplitude == "unit":
        check_scaling(problem)
    counts = {split: config.counts.get(split, source.n(split)) for split in SPLITS}
    n_broad = int(config.mix * counts["train"])
    if n_broad:
        counts = {**counts, "train": counts["train"] - n_broad, "broad_train": n_broad}
    is_on_host = stays_on_host(config, problem, sum(counts.values()), device)
    made = {}
    shown: Shown = "lines" if show and isinstance(source, Generated) else "nothing"
    with progress(sum(counts.values()), f"generate {problem.name}", shown=shown) as bar:
        for split, n in counts.items():
            if not isinstance(source, Generated):  # which know no end
                source.check(split, n)
            made[split] = _block(source, split, n, device, is_on_host, bar.advance)
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
    coordinate, amplitude = config.model.field.coordinate, config.amplitude
    data = normalised(problem, fields, xi, digest, coordinate, amplitude, source.system, known)
    return data.fed_from_host(device) if is_on_host else data


def stays_on_host(config: RunConfig, problem: Problem, n: int, device: torch.device) -> bool:
    """Whether the fields of n trajectories stay in host memory."""
    if config.memory != "auto" or device.type != "cuda":
        return config.memory == "host"
    encoder, n_points = config.model.encoder, math.prod(problem.grid)
    n_tokens = n_points // encoder.patch**problem.ndim
    frame = 4 * len(problem.fields) * n_points + BYTES[config.latents] * n_tokens * encoder.width
    return n * len(problem.times) * frame > MOST * torch.cuda.mem_get_info(device)[0]


def _block(source: Trajectories, split: str, n: int, device: torch.device, is_on_host: bool, report: Report) -> Block:
    """The first n trajectories, on the device or block by block from there to host memory."""
    if not is_on_host:
        return source.block(split, 0, n, device, report)
    parts = []
    for block in source.blocks(split, n, AT_ONCE, device):
        parts.append(Block(*(values.to(CPU) for values in block)))
        report(len(block.xi))
    return Block(*map(torch.cat, zip(*parts, strict=True)))


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

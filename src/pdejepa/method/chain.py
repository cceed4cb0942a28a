"""A whole training: data, then one stage after the other, each on the frozen results of those before it.

    pretrain -> align -> dynamics -> decode (-> polish)          reconstruct: a side branch after align

A finished stage is loaded, an unfinished one continued; the same command does the right thing.  Fine-tuning begins
after align, with the weights of a trained model (see `tuning`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from pdejepa.core.device import device_name, machine_name, multiplies_bfloat16, pick_device, rank_and_world
from pdejepa.core.errors import CheckpointError, UsageError
from pdejepa.core.files import write_json
from pdejepa.core.run_folder import STAGES
from pdejepa.core.seeds import derive_seed
from pdejepa.method.align import Align
from pdejepa.method.decode import Decode, Reconstruct
from pdejepa.method.dynamics import Dynamics
from pdejepa.method.fitting import fit_latents, needs_fitting
from pdejepa.method.latents import Kept, storage
from pdejepa.method.load_data import load_data
from pdejepa.method.method_stage import MethodStage
from pdejepa.method.polish import Polish
from pdejepa.method.preparing import preparing_less
from pdejepa.method.pretrain import Pretrain
from pdejepa.method.run_config import TAKEN_OVER, RunConfig, map_training
from pdejepa.method.run_settings import NEEDS, check_settings, read_json, remember, restart_from
from pdejepa.method.tuning import take_weights
from pdejepa.models.blocks import compile_blocks
from pdejepa.models.surrogate import Surrogate
from pdejepa.training.distributed import agree, end_group, start_group
from pdejepa.training.loop import run_stage
from pdejepa.training.settings import Budget
from pdejepa.training.stage import Context, Keep, Say, silent
from pdejepa.training.timing import Limit
from pdejepa.training.training_data import TrainingData

BUILD: dict[str, type[MethodStage]] = {
    stage.name: stage for stage in (Pretrain, Align, Dynamics, Decode, Polish, Reconstruct)
}


@dataclass
class Trained:
    """What a training leaves: the model as the last stage left it, and what each stage reported."""

    model: Surrogate
    config: RunConfig
    data_hash: str
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    device: str = "cpu"
    machine: str = ""

    @property
    def lineage(self) -> dict[str, str]:
        return {name: report["weights_sha256"] for name, report in self.reports.items()}

    def add(self, name: str, report: dict[str, Any]) -> None:
        """What a stage reported."""
        self.reports[name], self.seconds[name] = report, report["seconds"]

    def lineage_of(self, names: Sequence[str]) -> dict[str, str]:
        """The hashes of those of the named stages that this training has."""
        return {name: digest for name, digest in self.lineage.items() if name in names}


def train_stages(
    config: RunConfig,
    out: str | Path,
    say: Say = print,
    after_stage: Callable[[str, Trained], None] | None = None,
    restart: str = "",
    data: TrainingData | None = None,
    keep: Keep = "files",
    limit: Limit | None = None,
) -> Trained:
    """Run (or continue, or load) the stages of `config` in the folder `out`.

    after_stage: called on the first rank when a stage is finished.
    restart: forget this stage and those that stand on it first.
    data: what to train on, on the right device, if it is in memory already.
    keep: where the weights are kept (see `stage.Keep`); without files a training is a part of another, and quiet.
    limit: in memory, when all stages together end; the budgets in seconds tell their shares.
    """
    device, (rank, world) = pick_device(config.device), rank_and_world()
    start_group(device)
    try:
        config, say = settled(config, device), say if rank == 0 else silent
        context = Context(device, config.seed, rank, world, record=config.record, keep=keep, say=say)
        run = _Run(config, Path(out), context)
        trained = run.begin(data, restart)
        for number, name in enumerate(run.chain()):
            stage, own = run.build(name, run.next_limit(limit, run.chain()[number:]), limit)
            trained.add(name, run_stage(stage, run.out / name, own))
            if after_stage is not None and rank == 0:
                after_stage(name, trained)
            agree([0])  # nobody runs ahead of what the first rank writes
        return trained
    finally:
        end_group()


def settled(config: RunConfig, device: torch.device) -> RunConfig:
    """The configuration with the precision that `auto` means on this device."""
    if config.precision != "auto":
        return config
    return dataclasses.replace(config, precision="bf16" if multiplies_bfloat16(device) else "fp32")


class _Run:
    """One training in one folder; see `train_stages`."""

    data: TrainingData
    trained: Trained

    def __init__(self, config: RunConfig, out: Path, context: Context) -> None:
        self.config, self.out, self.context = config, out, context
        self.kept: Kept = {}
        self.source: dict[str, str] = {}  # the hash of the model that fine-tuning begins with

    def begin(self, data: TrainingData | None, restart: str) -> Trained:
        """Check what is there, load the data, build the model, and write down what is trained on what."""
        device, is_first = self.context.device, self.context.rank == 0
        if restart and is_first:
            restart_from(self.out, restart, self.context.say)
        agree([0])
        self._check_missing()
        check_settings(self.out, self.config, self.context.say)
        begun = time.monotonic()
        self.data = data or load_data(self.config, device, show=is_first)
        model = self._build_model()
        self._remember()
        where, machine = device_name(device), machine_name(device)
        self.trained = Trained(model, self.config, self.data.hash, device=where, machine=machine)
        self.trained.seconds["data"] = time.monotonic() - begun
        return self.trained

    def chain(self) -> list[str]:
        """The stages asked for and those they stand on, in order."""
        wanted = set(self.config.stages)
        needed = wanted.union(*(NEEDS[name] for name in wanted))
        if self.config.tuned_from:  # any stage may come first; those that were begun here come before it
            needed = {name for name in needed if name in wanted or (self.out / name).is_dir()}
        if self.config.variant == "vanilla":
            needed.discard("align")
        return [name for name in STAGES if name in needed]

    def _check_missing(self) -> None:
        """Refuse to start on stages that are neither finished nor asked for."""
        others = [name for name in self.chain() if name not in self.config.stages]
        missing = [name for name in others if not (self.out / name / "done.json").exists()]
        if missing:
            raise CheckpointError(
                f"{self.config.stages[-1]} needs {' and '.join(missing)}, not finished in {self.out}. "
                f"Add {','.join(missing)} to --stages."
            )

    def next_limit(self, limit: Limit | None, left: Sequence[str]) -> Limit | None:
        """When the first of the stages that are left ends: it has its share of the seconds that are left."""
        if limit is None:
            return None
        seconds = [getattr(self.config, name).training.budget.seconds for name in left]
        return limit.of_stage(seconds[0] / sum(seconds))

    def build(
        self, name: str, limit: Limit | None = None, whole: Limit | None = None
    ) -> tuple[MethodStage, Context]:
        """A stage on the model as the stages before left it, and what it is told about the run.

        limit, whole: when it ends, and when the training does.
        """
        config, data, trained, device = self.config, self.data, self.trained, self.context.device
        if limit is not None and whole is not None:
            config = preparing_less(config, name, trained.model, data, limit, whole)
        if needs_fitting(trained.model) and name not in TAKEN_OVER and not config.tuned_from:
            lineage, is_writer = trained.lineage_of(("pretrain", "align")), self.context.rank == 0
            fit_latents(trained.model, data, self.out, lineage, is_writer, storage(config.latents), self.kept)
        context = dataclasses.replace(
            self.context,
            precision=config.precision,  # type: ignore[arg-type]  # settled: see `settled`
            upstream={"data": data.hash, **self.source, **trained.lineage_of(NEEDS[name])},
            shown="lines" if self.context.keep == "files" else "bar",
            limit=limit,
        )
        with _seeded(config.seed, name):
            stage = BUILD[name](config, data, trained.model, context)
        stage.kept = self.kept
        if device.type == "cuda" and config.compile and config.precision == "bf16":
            compile_blocks(stage)
        return stage, context

    def _build_model(self) -> Surrogate:
        config, data = self.config, self.data
        with _seeded(config.seed, "model"):
            model = Surrogate(data.problem, config.model, config.variant, data.statistics, config.history)
        if config.tuned_from:
            self.source = {"tuned_from": take_weights(model, config.tuned_from)}
        return model.to(self.context.device)

    def _remember(self) -> None:
        """Write down what is trained on what; a training that is refused before leaves nothing behind."""
        path, data = self.out / "data.json", self.data
        if path.exists() and read_json(path).get("hash") != data.hash:
            raise CheckpointError(
                f"{self.out} was trained on other data (hash {str(read_json(path).get('hash'))[:8]}..., now "
                f"{data.hash[:8]}...). Use the old data, or another --out. Data made in memory differ in their last "
                "digits between CPU and GPU."
            )
        if self.context.rank == 0:
            remember(self.out, self.config)
            folder = {"folder": str(Path(self.config.data).resolve())} if self.config.data else {}
            write_json(path, {"hash": data.hash, "statistics": data.statistics.to_dict(), **folder})


@contextlib.contextmanager
def _seeded(seed: int, what: str) -> Iterator[None]:
    """Initial weights that depend on the seed and on what is built, not on what was built before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, what, "weights"))
        yield


def with_seconds(config: RunConfig, seconds: float) -> RunConfig:
    """The same training within a total budget, shared among the stages as their own budgets in seconds are.

    If no stage has a budget in seconds, the recipe's shares are the measure, or operations, or steps.  If only some
    have one, the others count as average stages.  With fewer seconds than its own, a training also prepares less:
    stage 4 rolls out a smaller share of train.
    """
    if not 0 < seconds < math.inf:
        raise UsageError(f"--seconds must be positive, got {seconds:g}.")
    names = [name for name in config.stages if not (name == "align" and config.variant == "vanilla")]
    budgets = {name: getattr(config, name).training.budget for name in names}
    parts = {name: budget.seconds for name, budget in budgets.items()}
    is_timed = any(parts.values())
    if not is_timed:
        parts = {name: config.shares.get(name, budget.flops) for name, budget in budgets.items()}
    if not any(parts.values()):
        parts = {name: float(budget.steps) for name, budget in budgets.items()}
    known = [part for part in parts.values() if part > 0]
    usual = sum(known) / len(known) if known else 1.0
    total = sum(part or usual for part in parts.values())
    budgets |= {name: Budget(seconds=seconds * (part or usual) / total) for name, part in parts.items()}
    config = map_training(config, lambda name, own: dataclasses.replace(own, budget=budgets.get(name, own.budget)))
    share = min(1.0, seconds / total) * config.decode.share if is_timed else config.decode.share
    return dataclasses.replace(config, decode=dataclasses.replace(config.decode, share=share))

"""What a training would cost on this machine, told before it starts: real steps are timed on random fields.

    seconds = data + sum over stages of (steps x seconds of a step + preparing + scores)

A stage whose budget is in seconds has as many steps as fit.  Steps of large batches are timed on a part of the batch.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pdejepa.core.text import duration
from pdejepa.data.source import Generated, Trajectories
from pdejepa.method.chain import BUILD, settled
from pdejepa.method.run_config import RunConfig, map_training
from pdejepa.models.surrogate import Surrogate
from pdejepa.systems import System, build_system
from pdejepa.training.settings import Budget, StageTraining
from pdejepa.training.stage import Context
from pdejepa.training.step import Learner
from pdejepa.training.training_data import TrainingData, normalised

CPU = torch.device("cpu")
SMALL = 2  # samples of a step that is timed where the recipe is for other machines; its batch counts as so many
N_ROWS = 32  # trajectories that it is timed on
ENOUGH_S = 1.0  # a stage is timed so long, or for one step
SCORE_STEPS = 0.04  # share of a stage's steps that its scores and checkpoints take, about
LONG_S = 6 * 3600.0
FEW = 100  # steps of a stage from which on it begins to learn something


@dataclass
class Estimate:
    """Seconds of data and of a step of every stage, and its steps."""

    data: float = 0.0
    step: dict[str, float] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    preparing: dict[str, float] = field(default_factory=dict)

    @property
    def stages(self) -> dict[str, float]:
        """Seconds of every stage."""
        return {
            name: self.preparing.get(name, 0.0) + (1 + SCORE_STEPS) * self.steps[name] * seconds
            for name, seconds in self.step.items()
        }

    @property
    def seconds(self) -> float:
        return self.data + sum(self.stages.values())

    @property
    def sentence(self) -> str:
        parts = ", ".join(f"{name} {duration(value)}" for name, value in {"data": self.data, **self.stages}.items())
        return f"About {duration(self.seconds)} on this machine ({parts})."


def estimate(
    config: RunConfig, source: Trajectories | None = None, clock: Callable[[], float] = time.perf_counter
) -> Estimate:
    """Time a few steps of every stage on the CPU.  source: of the training, if not what a system generates."""
    config = settled(config, CPU)
    if source is None:
        source = Generated(build_system(config.system, config.size, config.switches), config.size)
    n = {split: config.counts.get(split, source.n(split)) for split in ("train", "valid")}
    is_made = isinstance(source, Generated) and not config.data
    found = Estimate(data=_data_seconds(source.system, sum(n.values()), clock) if is_made and source.system else 0.0)
    small = _small(config)
    data = _random_data(source, small)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Surrogate(source.problem, small.model, small.variant, data.statistics, small.history)
        for name in config.stages:
            seconds = _step_seconds(small, data, model, name, clock)
            settings: StageTraining = getattr(config, name).training
            found.step[name] = seconds * settings.batch / getattr(small, name).training.batch
            found.steps[name] = _n_steps(settings, found.step[name], n["train"])
    found.preparing = _preparing(config, model, data, n, clock)
    return found


def refusal(config: RunConfig, found: Estimate) -> str:
    """Why a training is not started on a CPU without being asked twice; empty if it may be."""
    starved = {name: steps for name, steps in found.steps.items() if steps < FEW and name in ("pretrain", "dynamics")}
    is_timed = any(getattr(config, name).training.budget.seconds for name in config.stages)
    if is_timed and starved:
        told = " and ".join(f"{steps} step{'s' * (steps != 1)} of {name}" for name, steps in starved.items())
        cost = f"its seconds would buy {told}, too few to learn anything"
    elif found.seconds > LONG_S:
        cost = f"it would take about {duration(found.seconds)}"
    else:
        return ""
    return (
        f"The recipe {config.recipe} is made for a data-centre GPU; on this CPU {cost}. "
        "Use --recipe laptop, or --yes to train it all the same."
    )


def _small(config: RunConfig) -> RunConfig:
    """The same training with steps of few samples."""

    def change(_: str, own: StageTraining) -> StageTraining:
        batch = own.batch if own.budget.steps else min(own.batch, SMALL)
        return dataclasses.replace(own, batch=batch, budget=Budget(steps=1000))

    small = map_training(config, change)
    before, now = config.pretrain, small.pretrain
    clips = before.one_frame_clips * now.training.batch // before.training.batch
    return dataclasses.replace(small, pretrain=dataclasses.replace(now, one_frame_clips=clips))


def _data_seconds(system: System, n: int, clock: Callable[[], float]) -> float:
    """Seconds that n trajectories take to make, from a few of them."""
    few = min(n, 2 * system.chunk_size(CPU))
    begun = clock()
    system.generate("train", few)
    return (clock() - begun) * n / few


def _random_data(source: Trajectories, config: RunConfig) -> TrainingData:
    """Smooth-less but finite fields of the right shape, with real parameters."""
    problem, system = source.problem, source.system
    shape = (N_ROWS, len(problem.times), len(problem.fields), *problem.grid)
    draws = torch.Generator().manual_seed(0)
    fields = {split: torch.randn(shape, generator=draws) for split in ("train", "valid")}
    xi: dict[str, Tensor] = {}
    for split in fields:
        if system is not None:
            xi[split] = system.sample(split, range(N_ROWS))[1]
        else:
            rows = source.block(split, 0, min(N_ROWS, source.n(split))).xi
            xi[split] = rows[torch.arange(N_ROWS) % len(rows)]
    coordinate = config.model.field.coordinate
    return normalised(problem, fields, xi, "", coordinate, "as_is", system)


def _step_seconds(
    config: RunConfig, data: TrainingData, model: Surrogate, name: str, clock: Callable[[], float]
) -> float:
    """Of one step of a stage, the first one not counted: it makes latents."""
    stage = BUILD[name](config, data, model, Context(CPU))
    context = Context(device=CPU, precision=config.precision, shown="nothing")  # type: ignore[arg-type]
    learner = Learner(stage, context, lambda batch: None)
    try:
        with learner.rehearsal() as take:
            take(0)
            begun, done = clock(), 0
            while not done or (clock() - begun < ENOUGH_S and done < 20):
                take(done)
                done += 1
            return (clock() - begun) / done
    finally:
        learner.close()


def _n_steps(settings: StageTraining, seconds: float, n_train: int) -> int:
    """Steps of a stage, by its budget."""
    budget = settings.budget
    if budget.steps:
        return budget.steps
    if budget.epochs:
        return max(1, round(budget.epochs * n_train / settings.batch))
    if budget.seconds:
        return max(1, int(budget.seconds / seconds))
    return 1


@torch.no_grad()
def _preparing(
    config: RunConfig, model: Surrogate, data: TrainingData, n: dict[str, int], clock: Callable[[], float]
) -> dict[str, float]:
    """Encoding all of train once, and rolling out what the decoder learns from."""
    u, xi = data.fields["train"][:2], data.xi["train"][:2]
    begun = clock()
    q = model.encode(u)
    encoding = (clock() - begun) / 2
    begun = clock()
    model.rollout(q[:, : config.history], model.drive(xi), q.shape[1] - config.history)
    rolling = (clock() - begun) / 2
    return {
        "dynamics": encoding * (n["train"] + n["valid"]),
        "decode": rolling * (config.decode.share * n["train"] + n["valid"]),
    }

"""What the guards look at: the stages of the method on four kinds of systems, and the stages of all solvers."""

from __future__ import annotations

from functools import cache

import torch

from pdejepa import baselines, systems
from pdejepa.baselines.fit import FitStage, build
from pdejepa.baselines.pool import Pool, build_pool
from pdejepa.method.chain import BUILD
from pdejepa.method.load_data import load_data
from pdejepa.method.method_stage import MethodStage
from pdejepa.models.surrogate import Surrogate
from pdejepa.training.resume import choose_trained
from pdejepa.training.stage import Context
from pdejepa.training.training_data import TrainingData
from tests.unit.method.small_run import CPU, small_config

STAGES = tuple(BUILD)
SYSTEMS = ("advection", "wave_b", "burgers", "gray_scott")  # plain; second order; forced in time; on a plane
OPTIONS = (  # losses and fields that the recipes leave out
    ("dynamics", "burgers", "dynamics.tangent_weight=0.1", "dynamics.response_weight=0.1", "dynamics.unroll=3"),
    ("dynamics", "advection", "variant=geo", "dynamics.denominators=per_frame"),
    ("dynamics", "advection", "variant=direct"),
    ("polish", "advection", "polish.recompute=true"),
)
AnyStage = MethodStage | FitStage
METHOD = (*((name, system) for system in SYSTEMS for name in STAGES), *OPTIONS)
SOLVERS = [(name, stage) for name in baselines.NAMES for stage in baselines.get(name).card.stages]
RECORDED = [(name, stage) for name, stage in SOLVERS if stage not in baselines.get(name).card.unrecorded]


@cache
def data(system: str) -> TrainingData:
    return load_data(small_config(system), CPU, show=False)


def method_stage(name: str, system: str, *words: str) -> MethodStage:
    """A stage of the method on a fresh small model; `words` are overrides of the tiny recipe."""
    config, own = small_config(system, *words), data(system)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Surrogate(own.problem, config.model, config.variant, own.statistics, config.history)
        stage = BUILD[name](config, own, model, Context(CPU))
    choose_trained(stage)
    return stage


@cache
def pool() -> Pool:
    return build_pool(systems.get("combined", n_points=64), {"train": 20, "valid": 2}, CPU)


def solver_stage(name: str, stage: str) -> FitStage:
    """A stage of a fresh solver of the tiny recipe on a line."""
    kind = baselines.get(name)
    recipe = kind.recipe("tiny", pool().task)
    (part,) = [part for part in recipe.stages if part.name == stage]
    made = FitStage(build(kind, recipe, pool()), part, pool(), Context(CPU), 0)
    choose_trained(made)
    return made

"""Which trainings answer which question, and how each of them differs from the base.

The base is a whole training of the variant physics.  Every other run changes one thing, takes over the stages before
it, and trains the rest with as many steps as the base took.

    physics      the base                       pretrain  align  dynamics  decode  (reconstruct)
    geo          variant=geo                        =       =      trained   trained
    vanilla      variant=vanilla                    =       -      trained   trained
    euler ..     model.field.integrator             =       =      trained   trained
    no-anchor    align.anchor_weight=0              =     trained  trained   trained
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pdejepa.core.config import load_config
from pdejepa.core.errors import ConfigError, UsageError, did_you_mean
from pdejepa.core.run_folder import METHOD_STAGES
from pdejepa.method.run_config import RunConfig, map_training
from pdejepa.models.integrate import METHODS
from pdejepa.training.settings import Budget, StageTraining

WHAT = ("variants", "geometry", "integrators", "anchor", "reconstruct")
BASE = "physics"
NO_ANCHOR = "no-anchor"
VARIANTS = ("vanilla", "geo", BASE)  # each adds one part to the one before
# What each question needs to know of the runs it compares.
PARTS: dict[str, tuple[str, ...]] = {
    "variants": ("errors",),
    "geometry": ("geometry",),
    "integrators": ("errors", "rollouts"),
    "anchor": ("errors", "geometry"),
    "reconstruct": ("errors", "reconstruct"),
}


@dataclass(frozen=True)
class Run:
    """One training: what it changes, the first stage that it trains itself, and what is measured of it."""

    name: str
    begins: str = METHOD_STAGES[0]
    changes: Mapping[str, Any] = field(default_factory=dict)
    parts: frozenset[str] = frozenset()

    @property
    def chain(self) -> tuple[str, ...]:
        """Its stages; without a projector there is nothing to align."""
        is_plain = self.changes.get("variant") == "vanilla"
        return tuple(stage for stage in METHOD_STAGES if not (stage == "align" and is_plain))

    @property
    def shared(self) -> tuple[str, ...]:
        """The stages that it takes over from the base."""
        return tuple(stage for stage in self.chain if METHOD_STAGES.index(stage) < METHOD_STAGES.index(self.begins))

    @property
    def trained(self) -> tuple[str, ...]:
        return tuple(stage for stage in self.chain if stage not in self.shared)


def parse_what(text: str | None) -> tuple[str, ...]:
    """`variants,geometry` -> those questions, in the order of WHAT; all of them for None or `all`."""
    if text in (None, "all"):
        return WHAT
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in WHAT:
            hint = did_you_mean(name, WHAT) or "."
            raise UsageError(f"--what: unknown {name[:60]!r}{hint} It takes some of: {', '.join(WHAT)}.")
    if not names:
        raise UsageError(f"--what names nothing; it takes some of: {', '.join(WHAT)}.")
    return tuple(name for name in WHAT if name in names)


def runs_for(what: Sequence[str], config: RunConfig) -> list[Run]:
    """The runs that the questions need, the base first; a run that several need appears once."""
    if "anchor" in what and not config.align.anchor_weight > 0:
        raise ConfigError("anchor compares with and without: align.anchor_weight of the base must be above 0.")
    found: dict[str, Run] = {BASE: Run(BASE)}
    for question in what:
        for run in (Run(BASE), *_others(question, config)):
            known = found.get(run.name, run)
            parts = known.parts | (set(PARTS[question]) - ({"reconstruct"} if run.name != BASE else set()))
            found[run.name] = dataclasses.replace(known, parts=frozenset(parts))
    return list(found.values())


def _others(question: str, config: RunConfig) -> list[Run]:
    """The runs beside the base."""
    if question == "variants":
        return [Run(name, "dynamics", {"variant": name}) for name in reversed(VARIANTS) if name != BASE]
    if question == "integrators":
        others = [method for method in METHODS if method != config.model.field.integrator]
        return [Run(method, "dynamics", {"model.field.integrator": method}) for method in others]
    if question == "anchor":
        return [Run(NO_ANCHOR, "align", {"align.anchor_weight": 0.0})]
    return []


def integrator_runs(own: str) -> dict[str, str]:
    """Method -> name of its run; `own` is the method of the base."""
    return {method: BASE if method == own else method for method in METHODS}


def run_config(base: RunConfig, run: Run, steps: Mapping[str, int]) -> RunConfig:
    """The configuration of a run: that of the base, the changes, and the base's steps for what it trains itself."""
    config = load_config(RunConfig, defaults=base, options=dict(run.changes))
    own = {stage: steps[stage] for stage in run.trained}
    return dataclasses.replace(with_steps(config, own), stages=run.chain)


def with_steps(config: RunConfig, steps: Mapping[str, int]) -> RunConfig:
    """The same with budgets in steps for the stages named."""

    def change(name: str, training: StageTraining) -> StageTraining:
        return dataclasses.replace(training, budget=Budget(steps=steps[name])) if name in steps else training

    return map_training(config, change)

"""How many steps a stage takes and how often it is scored, decided once; and on what it was started.

Both numbers are written to plan.json, so that a stage that was interrupted ends as it would have ended without.  A
stage in memory is not resumed; if its budget is in seconds, its plan is written at its end (see `timing`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pdejepa.core.errors import CheckpointError, ConfigError
from pdejepa.core.files import write_json
from pdejepa.training.settings import Budget

PLAN = "plan.json"


@dataclass(frozen=True)
class Plan:
    """plan.json."""

    steps: int
    batch: int
    seed: int
    upstream: dict[str, str]
    exactness: str  # "bit": a resumed run repeats every bit; "loss": it repeats the loss to rounding
    budget: dict[str, float]
    scores: int  # how many
    step_flops: float = 0.0  # operations of a step as `flops` counts them; 0: not counted

    def write(self, folder: Path) -> None:
        write_json(folder / PLAN, asdict(self))


def read_plan(folder: Path) -> Plan | None:
    """The plan of a stage that was started before, or None."""
    path = folder / PLAN
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
        plan = Plan(**{name: data[name] for name in Plan.__dataclass_fields__ if name in data})
        if type(plan.steps) is not int or plan.steps < 1 or not isinstance(plan.upstream, dict):
            raise ValueError("no number of steps")
        if type(plan.scores) is not int or plan.scores < 0:
            raise ValueError("no number of scores")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is damaged ({error}). Pass --restart {folder.name} to begin it anew."
        ) from error
    return plan


def check_plan(stage: str, plan: Plan, batch: int, seed: int, upstream: Mapping[str, str]) -> None:
    """Refuse to go on with something else than what was started."""
    check_upstream(stage, plan.upstream, upstream)
    for word, before, now in (("batch", plan.batch, batch), ("seed", plan.seed, seed)):
        if before != now:
            raise CheckpointError(
                f"{stage} was started with {word} {before}, now it is {now}. "
                f"Pass --restart {stage}, or restore the old {word}."
            )


def check_upstream(stage: str, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """A stage rests on the results of others; if one of them changed, it cannot go on as if nothing happened."""
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            raise CheckpointError(
                f"{stage} was started on {name} {_short(before.get(name))}, but {name} now holds "
                f"{_short(now.get(name))}. Pass --restart {stage}, or restore the old {name}."
            )


def _short(digest: str | None) -> str:
    return f"{digest[:8]}..." if digest else "nothing"


def planned_steps(budget: Budget, n_samples: int, batch: int, step_flops: Callable[[], float]) -> int:
    """Steps of a budget in steps, epochs or operations (rather one too few); 0 for seconds, which must be measured."""
    if budget.epochs > 0:
        return max(1, round(budget.epochs * max(1, n_samples // batch)))
    if budget.flops > 0:
        per_step = step_flops()
        if per_step <= 0:
            raise ConfigError(
                "A budget in flops needs steps with operations that PyTorch counts; got none (no matrix product, "
                "convolution or attention). Give a budget in steps or seconds."
            )
        return max(1, int(budget.flops / per_step * (1 + 1e-9)))
    return budget.steps

"""Which learning rate a competitor trains with: three short trials, done once, decide.

    runs/combined-fno-fast-paper-180s-s0.trials       [{factor, score}, ...]; score None: it diverged with that rate
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from pdejepa.baselines.fit import TotalBudget
from pdejepa.compare.plan import Turn, records_before
from pdejepa.core.device import device_name, free_memory
from pdejepa.core.errors import NumericalError

FACTORS = (1 / 3, 1.0, 3.0)
TRIAL_SECONDS = 20.0
TRIAL_SHARE = 1 / 9  # of a short budget: then the trials together take a third of it


def trials_of(turn: Turn) -> list[dict[str, Any]]:
    """The trials of a competitor: those done before, or new ones."""
    return _kept(trials_file(turn)) or _trials_before(turn) or _trials(turn)


def trials_file(turn: Turn) -> Path:
    return turn.folder.with_name(f"{turn.folder.name}.trials")


def _kept(path: Path) -> list[dict[str, Any]]:
    """Trials that were done before; [] if there are none, or the file is damaged."""
    try:
        return _checked(json.loads(path.read_text()))
    except (OSError, ValueError):
        return []


def _checked(trials: Any) -> list[dict[str, Any]]:
    """Trials as they should be, or []."""
    try:
        numbers = [one["factor"] for one in trials] + [one["score"] or 0.0 for one in trials]
    except (TypeError, KeyError):
        return []
    return trials if all(isinstance(number, int | float) for number in numbers) else []


def trial_seconds(budget: float) -> float:
    return min(TRIAL_SECONDS, TRIAL_SHARE * budget)


def _trials_before(turn: Turn) -> list[dict[str, Any]]:
    """Those of a record with another budget and trials of the same length, which would only be repeated; or []."""
    plan = turn.plan
    same = (trial_seconds(plan.seconds), device_name(plan.device), turn.pool.data.hash)
    for record in records_before(plan, f"{plan.system}-{turn.solver}-{plan.recipe}-{plan.size}-*s-s{turn.seed}.json"):
        if (trial_seconds(record["budget_seconds"]), record["device"], record.get("data_hash")) == same:
            return _checked(record.get("trials"))
    return []


def _trials(turn: Turn) -> list[dict[str, Any]]:
    budget = TotalBudget("seconds", trial_seconds(turn.plan.seconds))
    return [{"factor": factor, "score": trial(turn, factor, budget)} for factor in FACTORS]


def trial(turn: Turn, factor: float, budget: TotalBudget) -> float | None:
    """The score of a short training that leaves nothing behind; None if its values did not stay finite."""
    place = turn.folder.with_name(f"{turn.folder.name}-trial-{factor:.2g}")
    shutil.rmtree(place, ignore_errors=True)
    clear(turn.plan.device)
    entry = turn.entry()
    try:
        report = entry.fit(turn.pool, budget, place, factor, keep="trial")
    except NumericalError:  # a learning rate that is too large; other failures have nothing to do with it
        return None
    finally:
        shutil.rmtree(place, ignore_errors=True)
    score: float | None = list(report.values())[-1]["score"]
    return score


def clear(device: torch.device) -> None:
    """Free what nobody holds any more, and count memory anew."""
    free_memory()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)

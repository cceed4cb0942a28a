"""Which learning rate a competitor trains with: three short trials, done once, decide.

Where the budget counts trials and is short, all of a trial's seconds would go into set-up: then nobody gets trials, and
everybody trains with the rate of the recipe.

    runs/combined-fno-fast-paper-180s-s0.trials       {data_hash, device, trials: [{factor, score}, ...]}

A score of None: it diverged with that rate.  Where the budget counts trials, each tells its seconds.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import torch

from pdejepa.core.device import device_name, forget_memory, free_memory
from pdejepa.core.errors import NumericalError
from pdejepa.core.files import read_json, write_json
from pdejepa.evaluate.record import to_plain
from pdejepa.studies.compare.turns import Comparison, Turn, records_before
from pdejepa.training import timing
from pdejepa.training.budget import TotalBudget
from pdejepa.training.timing import Limit

FACTORS = (1 / 3, 1.0, 3.0)
TRIAL_SECONDS = 20.0
TRIAL_SHARE = 1 / 9  # of other budgets: then the trials together take a third of them
LEAST_SECONDS = 15.0  # of a trial that counts set-up


def has_trials(plan: Comparison) -> bool:
    """Whether trials are long enough to tell rates apart."""
    budget = trial_budget(plan.budget)
    return not plan.counts_all or budget.unit != "seconds" or budget.amount >= LEAST_SECONDS


def trials_of(turn: Turn) -> list[dict[str, Any]]:
    """The trials of a competitor: those done before, and new ones of the rates that are left."""
    found, budget = _kept(turn) or _trials_before(turn), trial_budget(turn.plan.budget)
    for factor in FACTORS[len(found) :]:
        begun = timing.clock()
        score = trial(turn, factor, budget)
        seconds = {"seconds": round(timing.clock() - begun, 3)} if turn.plan.counts_all else {}
        found = [*found, {"factor": factor, "score": score, **seconds}]
        keep_trials(turn, found)  # a comparison that is stopped here continues with the next rate
    return found


def trials_file(turn: Turn) -> Path:
    return turn.folder.with_name(f"{turn.folder.name}.trials")


def keep_trials(turn: Turn, trials: list[dict[str, Any]]) -> None:
    write_json(trials_file(turn), {**_place(turn), "trials": trials})


def _place(turn: Turn) -> dict[str, str]:
    """Where trials hold: on other data or another device they would end otherwise."""
    return {"data_hash": turn.pool.data.hash, "device": device_name(turn.plan.device)}


def _kept(turn: Turn) -> list[dict[str, Any]]:
    """Trials that were done before; [] if there are none, of other data or another device, or the file is damaged."""
    try:
        found = read_json(trials_file(turn))
    except (OSError, ValueError):
        return []
    if not isinstance(found, dict) or any(found.get(key) != value for key, value in _place(turn).items()):
        return []
    return _checked(found.get("trials"))


def _checked(trials: Any) -> list[dict[str, Any]]:
    """Trials as they should be, one for each of the first factors, or []."""
    try:
        factors, scores = ([one[key] for one in trials] for key in ("factor", "score"))
        is_good = len(factors) <= len(FACTORS) and all(map(math.isclose, factors, FACTORS))
        is_good = is_good and all(0 <= one.get("seconds", 0.0) < math.inf for one in trials)
        is_good = is_good and all(score is None or 0 <= score < math.inf for score in scores)
    except (TypeError, KeyError, AttributeError):
        return []
    return trials if is_good else []


def trial_budget(budget: TotalBudget) -> TotalBudget:
    """A ninth of the training, and no more than 20 seconds of a time; of what can be counted, a whole number."""
    amount = TRIAL_SHARE * budget.amount
    if budget.unit == "seconds":
        return TotalBudget(budget.unit, min(TRIAL_SECONDS, amount))
    return TotalBudget(budget.unit, math.ceil(amount) if budget.unit == "steps" else amount)


def _trials_before(turn: Turn) -> list[dict[str, Any]]:
    """Those of a record with another budget and trials of the same length, which would only be repeated; or []."""
    plan = turn.plan
    same = (trial_budget(plan.budget), device_name(plan.device), turn.pool.data.hash)
    for record in records_before(plan, f"{plan.system}-{turn.solver}-{plan.recipe}-{plan.size}-*-s{turn.seed}.json"):
        if (trial_budget(record.budget), record.device, record.data_hash) == same:
            return _checked([to_plain(one) for one in record.trials])
    return []


def trial(turn: Turn, factor: float, budget: TotalBudget) -> float | None:
    """The score of a short training that leaves nothing behind; None if its values did not stay finite."""
    place = turn.folder.with_name(f"{turn.folder.name}-trial-{factor:.2g}")
    shutil.rmtree(place, ignore_errors=True)
    clear(turn.plan.device)
    limit = Limit(timing.clock() + budget.amount, turn.plan.budget.amount) if turn.plan.counts_all else None
    entry = turn.entry()
    try:
        report = entry.fit(turn.pool, budget, place, factor, keep="trial", limit=limit)
    except NumericalError:  # a learning rate that is too large; other failures have nothing to do with it
        return None
    finally:
        shutil.rmtree(place, ignore_errors=True)
    score: float | None = list(report.values())[-1]["score"]
    return score


def clear(device: torch.device) -> None:
    """Free what nobody holds any more, and count memory anew."""
    free_memory()
    forget_memory(device)

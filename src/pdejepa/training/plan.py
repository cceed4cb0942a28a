"""How many steps a stage takes and how often it is scored, decided once; and on what it was started.

A budget of seconds becomes a number of steps by timing a few of them when the stage starts.  Where scores would take
more than a quarter of the seconds, there are fewer of them.  Both numbers are written to plan.json and never change
again, so that a stage that was interrupted ends as it would have ended without; but for trainings that nobody can
resume, which keep to their seconds instead (see `pace`).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pdejepa.core.errors import CheckpointError, ConfigError
from pdejepa.core.files import write_json
from pdejepa.training.distributed import ask_rank_zero
from pdejepa.training.settings import Budget, StageTraining

PLAN = "plan.json"
N_WARM, N_TIMED = 4, 12  # steps of the probe, each time some of every kind; the first ones also compile
WARM_SHARE, PROBE_SHARE = 0.5, 0.2  # of the budget: when to stop warming up, and timing, early
ENOUGH_SHARE = 0.01  # of the budget: until then quick steps are timed again and again, since a few are mostly noise
SCORES_SHARE = 0.25  # of what the probe leaves: for all scores together
PROBE_STEPS = 1000  # what the probe tells the stage as number of steps, which nobody knows yet

clock = time.monotonic


@dataclass(frozen=True)
class Plan:
    """plan.json."""

    steps: int
    batch: int
    seed: int
    upstream: dict[str, str]
    exactness: str  # "bit": a resumed run repeats every bit; "loss": it repeats the loss to rounding
    budget: dict[str, float]
    scores: int | None = None  # how many; None in plans of earlier versions: as many as the settings say

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
        if plan.scores is not None and (type(plan.scores) is not int or plan.scores < 0):
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


@dataclass(frozen=True)
class Work:
    """What the probe times."""

    step: Callable[[int, int], object]  # the number-th of n
    log: Callable[[], object]
    score: Callable[[], object]
    save: Callable[[], object]
    wait: Callable[[], object]  # until the device has done what it was asked to do


class Measured(NamedTuple):
    """How many steps and scores fit into a budget of seconds; when it ends, by `clock`; seconds of a score."""

    steps: int
    scores: int
    ends: float
    score_s: float


def measure_steps(settings: StageTraining, work: Work, is_trial: bool = False) -> Measured:
    """How many steps, and how many scores, fit into the seconds of the budget that the probe leaves; rank 0 decides.

    The first steps of a trial do not count: it shall learn something, and compiling would use up short budgets.
    """
    begun, seconds = clock(), settings.budget.seconds
    _repeat(work.step, N_WARM, math.inf if is_trial else begun + WARM_SHARE * seconds)
    work.wait()
    warm = clock()
    begun = warm if is_trial else begun
    step_s = _timed(work, lambda: _rounds(work.step, warm + ENOUGH_SHARE * seconds, warm + PROBE_SHARE * seconds))
    log_s = _timed(work, lambda: _repeat(lambda *_: work.log(), N_TIMED, clock() + PROBE_SHARE * seconds))
    step_s += log_s / settings.log_every
    score_s = _timed(work, work.score) if settings.n_scores else 0.0
    save_s = _timed(work, work.save)
    left = seconds - (clock() - begun)
    if settings.save_every:
        step_s, n_saves = step_s + save_s / settings.save_every, 1.0
    else:
        n_saves = 1.0 + left / settings.save_seconds
    score_s += 2 * save_s  # a better score saves a checkpoint and the weights once more; count every score as better
    n_scores = ask_rank_zero(lambda: _n_scores(settings.n_scores, SCORES_SHARE * left / score_s))
    overhead = n_saves * save_s + n_scores * score_s
    n_steps = ask_rank_zero(lambda: max(1, int((left - overhead) / step_s)))
    return Measured(n_steps, n_scores, begun + seconds, score_s)


def _n_scores(wanted: int, affordable: float) -> int:
    """As many as wanted, or as can be paid for; one at least, unless none is wanted."""
    return min(wanted, max(1, int(affordable)))


def _repeat(action: Callable[[int, int], object], n: int, until: float) -> int:
    """Call `action` at least once, then up to n times while rank 0 has time left; return how often."""
    for number in range(n):
        action(number, n)
        if ask_rank_zero(lambda: int(clock() >= until)):
            return number + 1
    return n


def _rounds(action: Callable[[int, int], object], enough: float, until: float) -> int:
    """Rounds of N_TIMED actions, at least one, until the clock says `enough`; return how many actions."""
    done = _repeat(action, N_TIMED, until)
    while not ask_rank_zero(lambda: int(clock() >= enough)):
        done += _repeat(action, N_TIMED, until)
    return done


def _timed(work: Work, action: Callable[[], object]) -> float:
    """Seconds of an action, divided by the number it returns if it returns one."""
    work.wait()
    start = clock()
    result = action()
    work.wait()
    return max(clock() - start, 1e-9) / (result if isinstance(result, int) else 1)

"""Budgets in seconds: steps are timed before the first one; where nothing is resumed, the clock decides.

    files            n = (seconds left - scores - checkpoints) / (seconds of a step), once; plan.json keeps it
    memory, trial    n = done / (share of the seconds that has passed), anew after every step

So in memory the schedule follows the clock: a machine that becomes slower costs steps, not seconds.

A `Limit` binds a whole training instead: it ends in time whatever it does, and a stage that took too long leaves less
to those that follow.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from pdejepa.training.distributed import ask_rank_zero
from pdejepa.training.settings import StageTraining
from pdejepa.training.stage import Keep

PROBE_STEPS = 1000  # the number of steps that a stage is told as long as nobody knows it
# Steps that stand for all of them: spread evenly, in an order in which the first few are spread as well.  Every other
# and every third step have their share, since some stages do something else in those.
TYPICAL = tuple(41 + 83 * (5 * number % 12) for number in range(12))
N_WARM = 5  # of them, which a GPU compiles and records; they meet all lengths of rollouts that grow four times
WARM_SHARE, TIMED_SHARE = 0.5, 0.2  # of the budget: the most that warming up, and timing steps, may take
ENOUGH_SHARE = 0.01  # of the budget: until then quick steps are timed again, since a few are mostly noise
SCORES_SHARE = 0.25  # of the seconds that are left: the most for all scores together
LONGEST_STEP = 0.02  # of the seconds of a budget that a limit keeps
NEAR = 0.95  # of the seconds: from then on the clock is read when the device has finished its step

clock = time.monotonic


@dataclass(frozen=True)
class Limit:
    """When a training ends, by `clock`: building, preparing, warming up, scores and steps of all its stages together.

    seconds: of the whole budget, trials included; a stage is refused if one of its steps takes more than 2 % of them.
    """

    ends: float
    seconds: float

    def of_stage(self, share: float) -> Limit:
        """The limit of the next stage, which may take that share of the seconds that are left."""
        return Limit(clock() + share * self.left, self.seconds)

    @property
    def left(self) -> float:
        """Seconds."""
        return max(self.ends - clock(), 0.0)


@dataclass(frozen=True)
class Work:
    """What is timed."""

    step: Callable[[int], object]  # takes one of PROBE_STEPS
    score: Callable[[], object]
    save: Callable[[], object]
    wait: Callable[[], object]  # until the device has done what it was asked to do
    n_warm: int = N_WARM


class Deadline:
    """The end of a stage that lives in memory, in one process, and the number of steps until then."""

    def __init__(self, ends: float, score_s: float, wait: Callable[[], object]) -> None:
        self._begun, self._ends, self._score_s, self._wait = clock(), ends, score_s, wait
        self._scored_s = 0.0  # seconds of all scores so far, which are no part of the pace

    def scored(self, seconds: float) -> None:
        """A score took so long; the next ones will take as long."""
        self._scored_s += seconds
        self._score_s = seconds

    def n_steps(self, done: int, n_scores: int) -> int:
        """Steps in all, if `done` are taken and `n_scores` to come; just `done` if less than half a step is left."""
        whole = self._ends - self._begun - self._scored_s - n_scores * self._score_s
        if self._passed() > NEAR * whole:
            self._wait()
        passed = max(self._passed(), 1e-9)
        return max(done, round(done * max(whole, 0.0) / passed))

    def _passed(self) -> float:
        return clock() - self._begun - self._scored_s


@dataclass(frozen=True)
class Measured:
    """How many steps and scores fit into a budget of seconds; with a deadline the number of steps is a first guess."""

    steps: int
    scores: int
    deadline: Deadline | None = None
    step_s: float = 0.0  # of a step with its part of the checkpoints


def measure(settings: StageTraining, work: Work, keep: Keep, ends: float = math.inf) -> Measured:
    """Warm up, and see what fits into the seconds that are left; rank 0 decides.

    Warming up is not part of the seconds of a trial: compiling would use up short ones, and it shall learn something.
    ends: by the clock, where a limit decides instead of the seconds of the stage.
    """
    begun = clock()
    is_bound = ends < math.inf
    seconds = max(ends - begun, 0.0) if is_bound else settings.budget.seconds
    is_free = keep == "trial" and not is_bound
    _warm_up(work, math.inf if is_free else begun + WARM_SHARE * seconds)
    score_s = _timed(work, work.score) if settings.n_scores else 0.0
    ends = (clock() if is_free else begun) + seconds
    if keep != "files":
        return Measured(PROBE_STEPS, _n_scores(settings, ends, score_s), Deadline(ends, score_s, work.wait))
    step_s = _timed(work, lambda: _typical_steps(work, seconds))
    save_s = _timed(work, work.save)
    score_s += 2 * save_s  # a better score saves a checkpoint and the weights once more; count every score as better
    n_scores = _n_scores(settings, ends, score_s)
    left = ends - clock() - save_s - n_scores * score_s
    per_step = save_s / settings.save_every if settings.save_every else step_s * save_s / settings.save_seconds
    step_s = max(step_s + per_step, 1e-9)
    return Measured(ask_rank_zero(lambda: max(1, int(left / step_s))), n_scores, step_s=step_s)


def _warm_up(work: Work, until: float) -> None:
    """The first step makes latents, and the first ones on a GPU compile and are recorded."""
    for step in TYPICAL[: work.n_warm]:
        work.step(step)
        if _is_over(until):
            break
    work.wait()


def _typical_steps(work: Work, seconds: float) -> int:
    """Rounds of typical steps until the clock can tell, or no time is left; how many steps."""
    enough, until = clock() + ENOUGH_SHARE * seconds, clock() + TIMED_SHARE * seconds
    for done in count(1):
        work.step(TYPICAL[(done - 1) % len(TYPICAL)])
        if _is_over(enough if done % len(TYPICAL) == 0 else until):
            break
    return done


def _n_scores(settings: StageTraining, ends: float, score_s: float) -> int:
    """As many as wanted, or as can be paid for; one at least, unless none is wanted."""
    affordable = SCORES_SHARE * (ends - clock()) / max(score_s, 1e-9)
    return ask_rank_zero(lambda: min(settings.n_scores, max(1, int(affordable))))


def _is_over(until: float) -> bool:
    """Whether that time has come, for rank 0."""
    return bool(ask_rank_zero(lambda: int(clock() >= until)))


def _timed(work: Work, action: Callable[[], object]) -> float:
    """Seconds of an action, divided by the number it returns if it returns one."""
    work.wait()
    start = clock()
    result = action()
    work.wait()
    return (clock() - start) / (result if isinstance(result, int) else 1)

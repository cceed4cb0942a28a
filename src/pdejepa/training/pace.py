"""Keeping a promise of seconds: the steps of a stage are counted anew while it trains.

The first seconds of a training are a poor guide to the rest: a step that takes the processor longer than the GPU varies
by a fifth or more with what else the machine does.  So at some points the pace since the last one tells how many steps
the seconds that are left will hold.  With a step at share s of the stage costing c(s),

    steps in all  N:    seconds left  =  seconds per unit of cost  x  N int_{done/N}^1 c(s) ds

Only where nothing is kept to resume from: elsewhere the number of steps is settled once, see `plan`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

from pdejepa.training import plan as planning
from pdejepa.training.plan import Measured

CHECKS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 1.0)  # shares, of steps or of time, to count anew at
N_PIECES = 600  # of [0, 1], over which costs are added up; lengths of rollouts change at thirds and quarters
N_HALVINGS = 60
MOST = 1e12  # steps


class Pace:
    """The pace of one stage, which begins now; all times are of the clock of `plan`."""

    def __init__(self, measured: Measured, cost: Callable[[float], float]) -> None:
        pieces = [cost((number + 0.5) / N_PIECES) / N_PIECES for number in range(N_PIECES)]
        self._costs = [0.0, *accumulate(pieces)]  # int_0^s c, at s = 0, 1/n, .. 1
        self._begun, self._ends, self._score_s = planning.clock(), measured.ends, measured.score_s
        self._checks, self._done, self._since = list(CHECKS), 0, self._begun

    def scored(self, seconds: float) -> None:
        """A score took so long; it is no part of the pace, and the next ones will take as long."""
        self._since += seconds
        self._score_s = seconds

    def is_due(self, done: int, n_steps: int) -> bool:
        """Whether to count anew: so much of the steps, or of the time, has gone."""
        return bool(self._checks) and self._gone(planning.clock(), done, n_steps) >= self._checks[0]

    def _gone(self, now: float, done: int, n_steps: int) -> float:
        """By steps alone a pace that was far too high would be noticed too late, and by time alone one too low."""
        whole = self._ends - self._begun
        return max(done / n_steps, (now - self._begun) / whole if whole > 0.0 else 1.0)

    def recount(self, now: float, done: int, n_steps: int, n_scores: int) -> int:
        """The number of steps in all, after `done` of `n_steps` as it was last told; `n_scores` are to come.

        `done`: the seconds are over.
        """
        unit = (now - self._since) / self._between(self._done, done, n_steps)  # seconds per unit of cost
        left = self._ends - now - n_scores * self._score_s
        n_steps = self._steps(done, left / unit) if unit > 0.0 else n_steps  # or too quick for the clock
        self._done, self._since = done, now
        self._checks = [share for share in self._checks if share > self._gone(now, done, n_steps)]
        return n_steps

    def _steps(self, done: int, cost: float) -> int:
        """Steps in all, if those that are left may cost so much."""
        low, high = float(done), 2.0 * done
        while self._between(done, high, high) < cost and high < MOST:
            high *= 2
        for _ in range(N_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._between(done, middle, middle) < cost else (low, middle)
        return round(low)

    def _between(self, first: float, last: float, n_steps: float) -> float:
        """Cost of the steps first .. last of n_steps."""
        return n_steps * (self._until(last / n_steps) - self._until(first / n_steps))

    def _until(self, share: float) -> float:
        """int_0^share c."""
        place = min(max(share, 0.0), 1.0) * N_PIECES
        number = min(int(place), N_PIECES - 1)
        return self._costs[number] + (place - number) * (self._costs[number + 1] - self._costs[number])

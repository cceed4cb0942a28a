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

from pdejepa.stages import plan as planning
from pdejepa.stages.plan import Measured

CHECKS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98)  # shares of the steps at which the rest is counted anew
N_PIECES = 600  # of [0, 1], over which costs are added up; lengths of rollouts change at thirds and quarters
N_HALVINGS = 60


class Pace:
    """The pace of one stage, which begins now; all times are of the clock of `plan`."""

    def __init__(self, measured: Measured, cost: Callable[[float], float]) -> None:
        pieces = [cost((number + 0.5) / N_PIECES) / N_PIECES for number in range(N_PIECES)]
        self._costs = [0.0, *accumulate(pieces)]  # int_0^s c, at s = 0, 1/n, .. 1
        self._ends, self._score_s = measured.ends, measured.score_s
        self._checks, self._done, self._since = list(CHECKS), 0, planning.clock()

    def scored(self, seconds: float) -> None:
        """A score took so long; it is no part of the pace, and the next ones will take as long."""
        self._since += seconds
        self._score_s = seconds

    def is_due(self, done: int, n_steps: int) -> bool:
        return bool(self._checks) and self._checks[0] * n_steps <= done < n_steps

    def recount(self, now: float, done: int, n_steps: int, n_scores: int) -> int:
        """The number of steps in all, after `done` of `n_steps` as it was last told; `n_scores` are to come."""
        unit = (now - self._since) / self._between(self._done, done, n_steps)  # seconds per unit of cost
        self._checks = [share for share in self._checks if share * n_steps > done]
        self._done, self._since = done, now
        left = self._ends - now - n_scores * self._score_s
        if unit <= 0.0:  # too quick for the clock
            return n_steps
        low, high = float(done), 2.0 * n_steps + 1.0
        while self._between(done, high, high) * unit < left and high < 1e12:
            high *= 2
        for _ in range(N_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._between(done, middle, middle) * unit < left else (low, middle)
        return max(done + 1, round(low))

    def _between(self, first: float, last: float, n_steps: float) -> float:
        """Cost of the steps first .. last of n_steps."""
        return n_steps * (self._until(last / n_steps) - self._until(first / n_steps))

    def _until(self, share: float) -> float:
        """int_0^share c."""
        place = min(max(share, 0.0), 1.0) * N_PIECES
        number = min(int(place), N_PIECES - 1)
        return self._costs[number] + (place - number) * (self._costs[number + 1] - self._costs[number])

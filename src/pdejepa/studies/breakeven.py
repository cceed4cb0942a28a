"""When a surrogate pays: after how many forecasts data, training and forecasts cost less than the solver alone.

    N* = (data + training) / (solver - forecast)        seconds; solver and forecast per trajectory

The solver is error-equivalent: our own one on coarser grids, with larger steps and in single precision
(`systems.coarser`), the cheapest setting whose error is at most the forecast's.  Both are measured here, in turn, on
one device and batch, each after a warm-up.  Data and training seconds are what the model says they took, on the machine
that it names; seconds of two machines make no N*, and are told side by side.
Letters: B rows, T frames, C channels, *grid spatial axes.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pdejepa.core.device import machine_name
from pdejepa.core.errors import ConfigError, DataError
from pdejepa.evaluate import metrics
from pdejepa.evaluate.protocol import UNSTABLE
from pdejepa.forecast.interface import Solver
from pdejepa.systems.base import System
from pdejepa.systems.coarser import Setting, first_state, settings

N_ROUNDS, N_FINALISTS = 5, 3  # measurements in turn, and settings that may turn out to be the fastest
PATIENCE = 60.0  # seconds of measurements in turn; then there are no more rounds
Run = Callable[[slice], Tensor]  # some of the rows -> frames (B,T,C,*grid)


@dataclass(frozen=True)
class Breakeven:
    """n_star: forecasts after which the surrogate is cheaper; None: `reason` says why there is no such number.

    Errors are relative L2 of the frames after the given ones, mean over n test trajectories; seconds are per
    trajectory in a batch.  data_seconds, training_seconds: None where the model does not tell them.
    """

    model: str
    system: str
    n_star: float | None
    reason: str
    error: float
    forecast_seconds: float
    solver_seconds: float
    solver_error: float
    solver_setting: str
    full_solver_seconds: float  # of the solver as it makes the data
    data_seconds: float | None
    training_seconds: float | None
    trained_on: str
    measured_on: str
    batch: int
    n: int


class Question:
    """What both are asked: n test trajectories from their first frame on."""

    def __init__(self, model: Any, n: int, batch: int) -> None:
        if not 1 <= batch <= n:
            raise ConfigError(f"expected a batch from 1 to the number of trajectories, {n}; got {batch}.")
        self.model, self.system, self.device, self.batch = model, known_system(model), model.device, batch
        surrogate = getattr(model, "surrogate", None)
        self.first = int(surrogate.history if surrogate is not None else model.card.history)
        u0, xi = self.system.sample("test", range(n), device=self.device)
        solved = self.system.solve(u0, xi)
        lost = set(solved.failures())
        good = [row for row in range(n) if row not in lost]
        if len(good) < batch:
            n_bad = n - len(good)
            raise DataError(f"{self.system.name}: the solver failed on {n_bad} of {n} trajectories; ask for more.")
        self.truth = solved.as_subclass(Tensor)[good]  # (B,T,C,*grid)
        self.xi, self.state = xi[good], first_state(self.system, u0[good], xi[good])

    def forecast(self, rows: slice) -> Tensor:
        n = self.truth.shape[1] - self.first
        found: Tensor = self.model.forecast(self.truth[rows, : self.first].float(), self.xi[rows], n_frames=n).fields
        return found

    def solver(self, setting: Setting) -> Run:
        start = setting.start(self.state)
        return lambda rows: setting.run(start[rows], self.xi[rows])

    def error(self, run: Run) -> float:
        """Mean relative L2; a row that is lost counts as 100 %."""
        frames = torch.cat([run(rows) for rows in self.parts()])
        errors = metrics.rel_l2(frames.to(self.truth.device), self.truth, self.first)
        return float(torch.where(errors.isfinite(), errors, UNSTABLE).mean())

    def still(self) -> float:
        """The error of repeating the last frame that is given."""
        return float(metrics.rel_l2(metrics.repeat_first(self.truth, self.first), self.truth, self.first).mean())

    def parts(self) -> Iterator[slice]:
        for begin in range(0, len(self.truth), self.batch):
            yield slice(begin, begin + self.batch)

    def seconds(self, run: Run, turn: int = 0) -> float:
        """Per trajectory, of the second call in a row; every turn takes other rows, because some are harder."""
        begin = turn % (len(self.truth) // self.batch) * self.batch
        rows = slice(begin, begin + self.batch)
        run(rows)
        self._wait()
        begun = time.perf_counter()
        run(rows)
        self._wait()
        return (time.perf_counter() - begun) / self.batch

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def known_system(model: Solver) -> System:
    """The system of a model, with its solver; refused by name where there is none."""
    try:
        found: System = model.system  # type: ignore[attr-defined]
    except ConfigError as error:
        raise ConfigError(f"breakeven needs the solver of the model's system. {error}") from None
    return found


def breakeven(model: Any, name: str, n: int = 16, batch: int = 16, say: Callable[[str], object] = print) -> Breakeven:
    """Measure both, and compare what they cost."""
    question = Question(model, n, batch)
    error = question.error(question.forecast)
    say(f"{name}: a forecast is {error:.3%} off; looking for a solver as accurate")
    candidates = equivalents(question, error, say)
    reference = settings(question.system)[0]
    forecast, full, *others = in_turn(
        question, [question.forecast, *(question.solver(one) for one in (reference, *candidates))]
    )
    setting, solver = min(zip((reference, *candidates), (full, *others), strict=True), key=lambda pair: pair[1])
    data, training = spent(model)
    trained_on, here = trained_machine(model), machine_name(question.device)
    known = dict(zip(("data_seconds", "training_seconds"), (data, training), strict=True))
    n_star, reason = verdict(
        error=error,
        still=question.still(),
        forecast=forecast,
        solver=solver,
        label=setting.label,
        spent=None if data is None or training is None else data + training,
        trained_on=trained_on,
        here=here,
    )
    return Breakeven(
        model=name,
        system=question.system.name,
        n_star=n_star,
        reason=reason,
        error=error,
        forecast_seconds=forecast,
        solver_seconds=solver,
        solver_error=question.error(question.solver(setting)),
        solver_setting=setting.label,
        full_solver_seconds=full,
        trained_on=trained_on,
        measured_on=here,
        batch=batch,
        n=len(question.truth),
        **known,
    )


def equivalents(question: Question, error: float, say: Callable[[str], object]) -> list[Setting]:
    """The fastest settings that are at least as accurate, from the coarsest grid on which there is one, and the next.

    On each grid steps grow until the error does too much: smaller steps are never faster.
    """
    found: list[tuple[float, Setting]] = []
    n_grids = 0
    some = sorted(settings(question.system)[1:], key=lambda one: (one.n, one.dtype == torch.float64, one.step))
    for (n, dtype), group in itertools.groupby(some, key=lambda one: (one.n, one.dtype)):
        best, before = None, len(found)
        for setting in group:
            run = question.solver(setting)
            own = question.error(run)
            if own > error:
                break
            best = question.seconds(run)
            found.append((best, setting))
        say(f"  {n} points, {str(dtype).removeprefix('torch.')}: {_told(best, own, error)}")
        n_grids += len(found) > before
        if n_grids == 4:  # two grids in two precisions
            break
    return [setting for _, setting in sorted(found, key=lambda pair: pair[0])[:N_FINALISTS]]


def _told(seconds: float | None, own: float, error: float) -> str:
    return f"{own:.3%} off at best" if seconds is None else f"as accurate in {1e3 * seconds:.3g} ms"


def in_turn(question: Question, runs: list[Run]) -> list[float]:
    """Median seconds per trajectory, measured round by round, so that other work slows all of them alike."""
    used: list[list[float]] = [[] for _ in runs]
    begun = time.perf_counter()
    for turn in range(N_ROUNDS):
        for seconds, run in zip(used, runs, strict=True):
            seconds.append(question.seconds(run, turn))
        if time.perf_counter() - begun > PATIENCE:
            break
    return [statistics.median(seconds) for seconds in used]


def spent(model: Any) -> tuple[float | None, float | None]:
    """Seconds of data and of training, as the model tells them."""
    told = getattr(model, "details", {}).get("seconds", {})
    if "data" not in told or "total" not in told:
        return None, None
    return float(told["data"]), float(told["total"]) - float(told["data"])


def trained_machine(model: Any) -> str:
    """Where a model says that it was trained; empty if it does not, or only that it was some CPU."""
    details = getattr(model, "details", {})
    device = str(details.get("device", ""))
    return str(details.get("machine", "")) or ("" if device == "cpu" else device)


def verdict(
    *,
    error: float,
    still: float,
    forecast: float,
    solver: float,
    label: str,
    spent: float | None,
    trained_on: str,
    here: str,
) -> tuple[float | None, str]:
    """N* and a sentence; None where the solver wins, or the costs cannot be added up."""
    if error >= min(1.0, still):
        return None, f"never: the forecast is {error:.3g} off, no better than repeating the first frame ({still:.3g})"
    if solver <= forecast:
        times = forecast / solver
        ratio = f"{times:.0f}" if times >= 10 else f"{times:.2g}"
        return None, f"never: the solver with {label} is as accurate and {ratio} times as fast as a forecast"
    saved = f"a forecast saves {1e3 * (solver - forecast):.3g} ms"
    if spent is None:
        return None, f"unknown: {saved}, but the model does not tell what its data and its training cost"
    if trained_on != here:
        where = trained_on or "a machine that the model does not name"
        return None, f"unknown: {saved} on {here}, but {spent:.0f} s of data and training were spent on {where}"
    n_star = spent / (solver - forecast)
    return n_star, f"after {n_star:,.0f} forecasts: {saved}, and data and training cost {spent:.0f} s"

"""One forecast inside the training range and one outside of it, judged and timed.

Outside is a trajectory of an out-of-distribution split that truly leaves the training range.  A system without such a
split gets the initial state of `test` with one parameter pushed PUSH of its range beyond the end; one whose parameters
cannot be pushed (Wave-B has only four boundary pairs, all of them trained) gets PUSH more frames instead.

Timed are the forecast from the observed frame to all new frames in physical units, and the solver, as it makes the
data, from the initial state to the same frames: the median of N_CALLS calls after a first one that does not count,
because it pays for caches and lazy set-up.  A solver that takes longer than SLOW seconds is called only once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from pdejepa.evaluate.cases import Case, ForecastErrors, Truth, find_case, forecast_errors
from pdejepa.forecast.forecaster import Forecast, Forecaster
from pdejepa.forecast.support import FORCING, Support, judge
from pdejepa.systems import System

PUSH = 0.2
SLOW = 2.0
N_CALLS = 3


@dataclass(frozen=True)
class Scene:
    """A trajectory to forecast; `how` says in words where it comes from."""

    case: Case
    how: str
    n_frames: int | None = None  # new frames, None for as many as the training data have


@dataclass(frozen=True)
class Shown:
    """A scene, its forecast and its truth."""

    scene: Scene
    result: Forecast
    truth: Truth
    errors: ForecastErrors
    forecast_seconds: float
    solver_seconds: float
    is_solved_once: bool  # whether the solver's time is that of its first call


def inside_scene(forecaster: Forecaster, index: int) -> Scene:
    """Trajectory `index` of the split `test`, which no training has seen."""
    case = find_case(f"test:{index}", forecaster.system, {}, forecaster.device)
    return Scene(case, f"test {index}: {forecaster.system.split('test').meaning}")


def outside_scene(forecaster: Forecaster, index: int) -> Scene:
    """A trajectory beyond the training range: of a split the one of that number, or the next that truly is outside."""
    system, device = forecaster.system, forecaster.device
    for split in system.splits:
        for number in range(index, index + split.n_environments) if split.is_ood else ():
            case = find_case(f"{split.name}:{number}", system, {}, device)
            if not support_of(forecaster, case).is_inside:  # values between trained ones are unseen, yet inside
                return Scene(case, f"{split.name} {number}: {split.meaning}")
    pushed = push(system, forecaster.surrogate.statistics.ranges)
    case = find_case(f"test:{index}", system, pushed, device)
    if pushed:
        name = next(iter(pushed))
        return Scene(case, f"test {index} with {name} pushed {PUSH:.0%} of its training range beyond the end")
    n_new = math.ceil((1 + PUSH) * forecaster.n_frames) - forecaster.surrogate.history
    how = f"test {index}, {PUSH:.0%} more frames than in training, since no parameter can leave its range"
    return Scene(case, how, n_new)


def support_of(forecaster: Forecaster, case: Case) -> Support:
    """What the training data cover of the case's parameters."""
    n = forecaster.n_frames
    problem, ranges = forecaster.problem, forecaster.surrogate.statistics.ranges
    return judge(problem.named(case.xi), ranges, n, n, declared=problem.parameters)


def push(system: System, ranges: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """The first parameter that can go beyond its training range, and a value there; nothing if there is none."""
    for parameter in system.parameters:
        low, high = ranges[parameter.name]
        if parameter.choices or parameter.name.startswith(FORCING) or not high > low:
            continue
        step = PUSH * (high - low)
        for value in (high + step, low - step, low / (1 + PUSH)):  # the last one for ranges that begin near zero
            if parameter.limits[0] <= value <= parameter.limits[1] and not low <= value <= high:
                return {parameter.name: value}
    return {}


def show(forecaster: Forecaster, scene: Scene) -> Shown:
    """Forecast and solve a scene, several times for the clock."""
    case = scene.case
    observed = case.observed(forecaster.surrogate.history)
    results = [forecaster.forecast(observed, case.xi, n_frames=scene.n_frames) for _ in range(1 + N_CALLS)]
    result = results[0]
    truth = case.truth(result.times)
    is_solved_once = truth.seconds > SLOW
    seconds = [truth.seconds] if is_solved_once else [case.truth(result.times).seconds for _ in range(N_CALLS)]
    return Shown(
        scene=scene,
        result=result,
        truth=truth,
        errors=forecast_errors(result, truth),
        forecast_seconds=median(one.seconds for one in results[1:]),
        solver_seconds=median(seconds),
        is_solved_once=is_solved_once,
    )

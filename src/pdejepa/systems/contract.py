"""What every system promises, as checks that anybody can run on a system of their own: `pdejepa check-system NAME`.

    for result in check(system):
        result.name, result.fault            an empty fault: the promise is kept

Letters: B rows, T frames, C channels, *grid spatial axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pdejepa.core.config import load_config, to_dict
from pdejepa.core.errors import PdejepaError
from pdejepa.solve.outcome import Outcome
from pdejepa.systems.base import System, relative_l2
from pdejepa.systems.problem import Problem

N_ROWS, N_TIMES = 4, 3
ROUNDING = 1e-9  # between a row alone and in company, float64
STEP = 1e-4  # of time, for the slope of a solution
SOLVED = (Outcome.OK, Outcome.UNDER_RESOLVED)
FAILURES = (PdejepaError, ArithmeticError, RuntimeError, ValueError, TypeError, AttributeError, LookupError)


@dataclass(frozen=True)
class Result:
    """One promise, and how it is broken; empty if it is kept."""

    name: str
    fault: str


def check(system: System) -> Iterator[Result]:
    """All promises, one after the other; a failure inside a check is its fault."""
    for name, promise in PROMISES.items():
        try:
            fault = promise(system)
        except FAILURES as error:
            fault = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        yield Result(name, fault)


# ---- declarations ------------------------------------------------------------------------------------------------
def declared(system: System) -> str:
    problem, splits = system.problem, [split.name for split in system.splits]
    if len(problem.axes) != len(system.axes):
        return f"{len(problem.axes)} boundaries for {len(system.axes)} axes"
    for parameter in system.parameters:
        low, high = parameter.train
        if not (parameter.limits[0] <= low < high <= parameter.limits[1]):
            return f"the training range of {parameter.name} is empty or outside its limits {parameter.limits}"
    missing = [name for name in ("train", "valid", "test") if name not in splits]
    if missing:
        return f"there is no split {missing[0]}; its splits: {', '.join(splits)}"
    unknown = {n for t in system.structure.terms for n in (*t.coefficient.powers, *t.coefficient.equals)}
    unknown -= set(system.parameter_names)
    return f"a term needs {sorted(unknown)[0]!r}, which is none of its parameters" if unknown else ""


def stored(system: System) -> str:
    again = load_config(Problem, defaults=to_dict(system.problem))
    return "" if again == system.problem else "its problem is another one after it was written and read"


# ---- random laws -------------------------------------------------------------------------------------------------
def alone(system: System) -> str:
    for split in (*system.splits, *(split for split in system.extra_splits if split.is_broad)):
        together, one = system.sample(split.name, [3, 5, 7]), system.sample(split.name, 5)
        if not all(torch.equal(many[1:2], single) for many, single in zip(together, one, strict=True)):
            return f"{split.name}: trajectory 5 is another one alone than in company; draw from `draws` only"
    return ""


def varied(system: System) -> str:
    u0, xi = system.sample("train", range(N_ROWS))
    if not bool(torch.isfinite(u0).all()):
        return "initial states hold values that are not finite"
    if u0.shape[:2] != (N_ROWS, system.n_state) or xi.shape != (N_ROWS, len(system.parameters)):
        return f"initial states are {tuple(u0.shape)} and parameters {tuple(xi.shape)}"
    system.check_xi(xi)
    again = system.sample("train", range(N_ROWS), attempt=1)[0]
    return "a second attempt draws the same initial states" if torch.equal(u0, again) else ""


def outside(system: System) -> str:
    for split in system.splits:
        xi = system.sample(split.name, range(min(8, split.n)))[1]
        ranges = [(v >= p.train[0]) & (v <= p.train[1]) for p, v in zip(system.parameters, xi.T, strict=True)]
        inside = torch.stack(ranges)
        if split.name in ("train", "valid", "test") and not bool(inside.all()):
            return f"{split.name}: parameters outside the training ranges"
    return ""


# ---- solving -----------------------------------------------------------------------------------------------------
def _early(system: System) -> Tensor:
    return system.times[system.times > 0][:N_TIMES]


def independent(system: System) -> str:
    u0, xi = system.sample("train", range(N_ROWS), dtype=torch.float64)
    together = system.solve(u0, xi, times=_early(system)).as_subclass(Tensor)
    one = system.solve(u0[1:2], xi[1:2], times=_early(system)).as_subclass(Tensor)
    gap = float(relative_l2(together[1:2], one).max())
    return f"a row differs by {gap:.2g} from itself alone: rows influence one another" if gap > ROUNDING else ""


def solved(system: System) -> str:
    made = system.generate("train", N_ROWS)
    shape = (N_ROWS, len(system.times), len(system.fields), *system.grid)
    if tuple(made.fields.shape) != shape:
        return f"generated fields are {tuple(made.fields.shape)}, expected {shape}"
    bad = [Outcome(int(code)).name for code in made.status if Outcome(int(code)) not in SOLVED]
    if bad:
        return f"{len(bad)} of {N_ROWS} training trajectories end as {bad[0]}"
    return "" if bool(torch.isfinite(made.fields).all()) else "generated fields hold values that are not finite"


def sloped(system: System) -> str:
    """(u(t + h) - u(t)) / h of a solution against the right-hand side, where what is stored is the solver's state."""
    u0, xi = system.sample("train", range(N_ROWS), dtype=torch.float64)
    is_state = system.n_rhs == system.n_state and system.structure.time_order == 1
    if not is_state or tuple(u0.shape[2:]) != system.grid:
        return ""
    times = system.times
    t, h = float(times[0]) + float(times[1] - times[0]) / 2, STEP * float(times[1] - times[0])
    moments = [t - h, t, t + h] if t - h > 0 else [t, t + h, t + 2 * h]
    before, now, after = system.solve(u0, xi, times=moments).as_subclass(Tensor).unbind(1)
    slope, rate = (after - before) / (moments[2] - moments[0]), system.rhs(now, moments[1], xi)
    gap = float(relative_l2(slope, rate).median())
    return "" if gap < system.slope_bound else f"solutions move otherwise than `rhs` says, by {100 * gap:.2g}% of it"


def refined(system: System) -> str:
    u0, xi = system.sample("train", range(N_ROWS))
    found = system.solve(u0, xi)
    ok = found.status == Outcome.OK.value
    if not bool(ok.any()):
        return "no trajectory of train is solved, so nothing can be refined"
    fields, fine = found.as_subclass(Tensor), system.solve_reference(u0, xi)
    gap = float(relative_l2(fields[ok], fine.to(fields)[ok]).max())
    return (
        ""
        if gap <= system.reference.bound
        else (
            f"{system.reference.refined}: solutions differ by {gap:.2g}, more than the bound {system.reference.bound:g}"
        )
    )


def conserved(system: System) -> str:
    made = system.generate("train", N_ROWS)
    broken = [c for c in system.invariants(made.fields.double(), made.xi, made.times) if not c.passed]
    return "" if not broken else f"{broken[0].name}: {broken[0].value:.2g}, allowed {broken[0].bound:g}"


# ---- the right-hand side -----------------------------------------------------------------------------------------
def shaped(system: System) -> str:
    u = torch.randn(2, system.n_rhs, *system.grid, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    shape = (2, len(system.structure.terms), *u.shape[1:])
    if tuple(system.operators(u).shape) != shape:
        return f"operators are {tuple(system.operators(u).shape)}, expected {shape}: one per term"
    if system.shared(u).shape != u.shape:
        return f"shared is {tuple(system.shared(u).shape)}, expected {tuple(u.shape)}"
    has_shared = bool((system.shared(u) != 0).any())
    return "" if has_shared <= system.structure.has_shared else "`shared` is not zero, but has_shared is False"


PROMISES: dict[str, Callable[[System], str]] = {
    "parameters, axes, splits and terms are declared": declared,
    "its problem survives being written and read": stored,
    "a trajectory is the same alone and in company": alone,
    "draws are finite, in range and new in every attempt": varied,
    "training splits stay inside the training ranges": outside,
    "operators and shared part have their shapes": shaped,
    "rows are solved independently": independent,
    "solutions move as the right-hand side says": sloped,
    "training trajectories are solved to their end": solved,
    "a refined solution agrees": refined,
    "invariants hold": conserved,
}

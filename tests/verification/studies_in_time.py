"""Order in time of the five stepped systems: the step is refined, the grid stays, SciPy solves the same ODE."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pdejepa import systems
from pdejepa.solve.integrators import Etdrk4
from pdejepa.systems import gray_scott, heterns, vorticity
from pdejepa.systems.base import SteppedSystem
from tests.verification import mutants, semidiscrete
from tests.verification.orders import Mutant, Order, Study, relative_error


def stepped(name: str, **switches: object) -> SteppedSystem:
    system = systems.get(name, **switches)
    assert isinstance(system, SteppedSystem)
    return system


def solve_with_step(system: SteppedSystem, u0: Tensor, xi: Tensor, t_end: float, h: float) -> np.ndarray:
    """The state at t_end in steps of exactly h, (C,*grid); an h beyond the stable step would be halved unseen."""
    n_steps = round(t_end / h)
    stable = float(system.stepper(xi, u0).stable_dt(system.stepper(xi, u0).start(u0), t_end))
    if h > stable:
        raise ValueError(f"{system.name}: h = {h:g} is beyond the stable step {stable:g}, so it would not be used")
    solved = replace(system, dt=t_end / n_steps * (1 + 1e-12)).solve(u0, xi, times=[t_end])
    return np.asarray(solved.as_subclass(Tensor)[0, 0].numpy())


class Problem(NamedTuple):
    """A system with its step, a start u0 (1,C,*grid), parameters, an end time, and the same equation in NumPy."""

    system: SteppedSystem
    u0: Tensor
    xi: Tensor
    t_end: float
    rhs: semidiscrete.Rhs


def in_time(what: str, problem: Callable[[], Problem], steps: tuple[int, ...], mutant: Mutant) -> Study:
    """The study of one problem with these numbers of steps up to its end."""

    @cache
    def truth() -> np.ndarray:
        given = problem()
        start = given.u0[0].numpy() if given.u0.shape[1] > 1 else given.u0[0, 0].numpy()
        return semidiscrete.integrate(given.rhs, start, given.t_end).reshape(given.u0.shape[1:])

    def error(h: float) -> float:
        given = problem()
        return relative_error(solve_with_step(given.system, given.u0, given.xi, given.t_end, h), truth())

    hs = tuple(problem().t_end / n for n in steps)
    return Study(problem().system.name, what, "h", hs, error, Order(4), mutant)


# ---- problems --------------------------------------------------------------------------------------------------
def burgers_problem(diffusivity: float = 0.05) -> Problem:
    """A positive wave (no sonic point, where the flux has a kink in its second derivative) under a travelling force."""
    system = stepped("burgers", n_points=32)
    k, x = 2 * math.pi / 16, system.axes["x"]
    u0 = 1.0 + 0.4 * torch.sin(k * x) + 0.2 * torch.cos(2 * k * x)
    sine = {"amplitude": 0.3, "frequency": 0.4, "mode": 2.0, "phase": 0.7}
    xi = system.xi({"diffusivity": diffusivity, **{f"forcing_{name}_1": value for name, value in sine.items()}})

    def force(t: float) -> np.ndarray:
        return np.asarray(0.3 * np.sinc(2 / 32) * np.sin(2 * k * x.numpy() + 0.4 * t + 0.7))

    return Problem(system, u0[None, None], xi, 1.0, semidiscrete.burgers(0.5, diffusivity, force))


def combined_problem(beta: float = 0.02, gamma: float = 0.1) -> Problem:
    system = stepped("combined", n_points=48)
    k, x = 2 * math.pi / 16, system.axes["x"]
    u0 = 0.5 * torch.sin(k * x) + 0.3 * torch.cos(2 * k * x) + 0.2 * torch.sin(3 * k * x)  # other modes: finer steps
    xi = system.xi(advection=1.0, diffusivity=beta, dispersion=gamma)
    return Problem(system, u0[None, None], xi, 2.0, semidiscrete.combined(48, 16.0, 1.0, beta, gamma))


def vorticity_problem() -> Problem:
    system = stepped("vorticity", n_points=32, solver_grid=32)
    u0 = system.sample("train", 0, dtype=torch.float64)[0] / 4
    return Problem(system, u0, system.xi(viscosity=0.02), 0.5, semidiscrete.vorticity(32, 2 * math.pi, 0.02))


def heterns_problem() -> Problem:
    system = stepped("heterns", n_points=32, solver_grid=32)
    u0 = 5 * system.sample("train", 0, dtype=torch.float64)[0]
    x = np.arange(32) / 32
    angle = 2 * np.pi * (x[:, None] + x[None, :])
    force = 0.1 * (np.sin(angle) + np.cos(angle))
    xi = system.xi(viscosity=2e-3, forcing_frequency=2.0)
    return Problem(system, u0, xi, 1.0, semidiscrete.heterns(32, 1.0, 2e-3, force))


def gray_scott_problem() -> Problem:
    system = stepped("gray_scott", n_points=16)
    u0 = system.sample("train", 0)[0]
    return Problem(system, u0, system.xi(feed=0.03, kill=0.06), 10.0, semidiscrete.gray_scott(2.0, 0.03, 0.06))


_ETD_STAGE = Mutant(
    "second stage reuses the first slope", mutants.swap(Etdrk4, "step", mutants.etd_step_reusing_first_slope)
)
_ETD_Q = Mutant("stage coefficient Q = h/2", mutants.swap(Etdrk4, "for_symbol", mutants.etd_symbol_with_wrong_q))

STUDIES = (
    in_time("time, ETDRK4", burgers_problem, (24, 32, 48, 64, 96), _ETD_STAGE),
    in_time("time, ETDRK4, strong diffusion", lambda: burgers_problem(1.0), (32, 48, 64, 96, 128), _ETD_Q),
    in_time("time, ETDRK4", combined_problem, (16, 24, 32, 48, 64), _ETD_STAGE),
    in_time("time, ETDRK4, strong dispersion", lambda: combined_problem(0.0, 1.0), (48, 64, 96, 128, 192), _ETD_Q),
    in_time(
        "time, RK4",
        vorticity_problem,
        (8, 12, 16, 24, 32),
        Mutant(
            "third stage reuses the first slope", mutants.swap(vorticity, "rk4_step", mutants.rk4_reusing_first_slope)
        ),
    ),
    in_time(
        "time, Lawson RK4",
        heterns_problem,
        (32, 48, 64, 96, 128),
        Mutant(
            "third stage without its half factor",
            mutants.swap(heterns, "_stage_three", mutants.lawson_stage_three_without_half_factor),
        ),
    ),
    in_time(
        "time, RK4",
        gray_scott_problem,
        (48, 64, 96, 128, 192),
        Mutant(
            "third stage reuses the first slope", mutants.swap(gray_scott, "rk4_step", mutants.rk4_reusing_first_slope)
        ),
    ),
)

"""SciPy on the same semi-discrete equations, written anew in NumPy: the stepped systems at their own default steps.

The order tests refine the step; here the step is the one that data sets are made with, on a smaller grid and from the
systems' own random states, shocks included.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from pdejepa import systems
from tests.verification import semidiscrete
from tests.verification.orders import relative_error

pytestmark = [pytest.mark.verification]


def last_frame(system: systems.System, u0: Tensor, xi: Tensor, t_end: float) -> np.ndarray:
    solved = system.solve(u0, xi, times=[t_end])
    assert {outcome.label for outcome in solved.outcome} <= {"ok", "under-resolved"}
    return np.asarray(solved.as_subclass(Tensor)[:, 0].numpy())


@pytest.mark.parametrize("row", range(4))
def test_burgers_equals_scipy(row: int) -> None:
    """Rows of the train split: diffusivities from 1e-3 to 5, waves that steepen, a random force."""
    system = systems.get("burgers", n_points=64)
    u0, xi = system.sample("train", row)
    amplitude, omega, mode, phase = xi[0, 1:].reshape(4, 5).numpy()
    x = np.arange(64)[:, None] / 4

    def force(t: float) -> np.ndarray:
        waves = np.sinc(mode / 64) * amplitude * np.sin(2 * np.pi * mode * x / 16 + omega * t + phase)
        return np.asarray(waves.sum(1))

    rhs = semidiscrete.burgers(0.25, float(xi[0, 0]), force)
    assert np.abs(rhs(0.4, u0[0, 0].numpy()) - system.rhs(u0, 0.4, xi)[0, 0].numpy()).max() < 1e-12
    truth = semidiscrete.integrate(rhs, u0[0, 0].numpy(), 2.0, rtol=1e-9)
    assert relative_error(last_frame(system, u0, xi, 2.0)[0, 0], truth) < 2e-4


@pytest.mark.parametrize("row", range(4))
def test_combined_equals_scipy(row: int) -> None:
    system = systems.get("combined", n_points=64)
    u0, xi = system.sample("train", row)
    truth = semidiscrete.integrate(semidiscrete.combined(64, 16.0, *xi[0].tolist()), u0[0, 0].numpy(), 2.0, rtol=1e-10)
    assert relative_error(last_frame(system, u0, xi, 2.0)[0, 0], truth) < 1e-6


@pytest.mark.parametrize("viscosity", [0.0, 1e-3, 1e-2])
def test_vorticity_equals_scipy(viscosity: float) -> None:
    system = systems.get("vorticity", n_points=32, solver_grid=32)
    u0, _ = system.sample("train", 2, dtype=torch.float64)
    truth = semidiscrete.integrate(
        semidiscrete.vorticity(32, 2 * math.pi, viscosity), u0[0, 0].numpy(), 0.5, rtol=1e-10
    )
    solved = last_frame(system, u0, system.xi(viscosity=viscosity), 0.5)
    assert relative_error(solved[0, 0], truth) < 1e-6


@pytest.mark.parametrize(("viscosity", "m"), [(1e-5, 1.0), (1e-3, 2.0), (1e-4, 3.0), (9e-3, 2.5)])
def test_heterns_equals_scipy(viscosity: float, m: float) -> None:
    """Odd and half-integer m too: the jump of the forcing at the seam is part of the semi-discrete problem."""
    n = 32
    system = systems.get("heterns", n_points=n, solver_grid=n)
    u0, _ = system.sample("train", 4, dtype=torch.float64)
    x = np.arange(n) / n
    angle = m * np.pi * (x[:, None] + x[None, :])
    rhs = semidiscrete.heterns(n, 1.0, viscosity, 0.1 * (np.sin(angle) + np.cos(angle)))
    truth = semidiscrete.integrate(rhs, u0[0, 0].numpy(), 4.0, rtol=1e-10)
    solved = last_frame(system, u0, system.xi(viscosity=viscosity, forcing_frequency=m), 4.0)
    assert relative_error(solved[0, 0], truth) < 1e-8


@pytest.mark.parametrize(("split", "row"), [("train", 0), ("train", 7), ("ood", 3)])
def test_gray_scott_equals_scipy(split: str, row: int) -> None:
    system = systems.get("gray_scott")
    u0, xi = system.sample(split, row)
    rhs = semidiscrete.gray_scott(2.0, *xi[0].tolist())
    assert np.abs(rhs(0.0, u0[0].numpy()) - system.rhs(u0, 0.0, xi)[0].numpy()).max() < 1e-13
    truth = semidiscrete.integrate(rhs, u0[0].numpy(), 100.0, rtol=1e-9)
    assert relative_error(last_frame(system, u0, xi, 100.0)[0], truth) < 1e-5


def test_the_oracle_would_notice() -> None:
    """One part in a thousand of one parameter is far above every tolerance here."""
    system = systems.get("combined", n_points=64)
    u0, xi = system.sample("train", 0)
    rhs = semidiscrete.combined(64, 16.0, *(xi[0] * 1.001).tolist())
    truth = semidiscrete.integrate(rhs, u0[0, 0].numpy(), 2.0, rtol=1e-10)
    assert relative_error(last_frame(system, u0, xi, 2.0)[0, 0], truth) > 1e-5

"""The four systems that are solved in closed form, against formulas and solvers of another kind."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev as series
from scipy.linalg import expm
from torch import Tensor

from pdejepa import systems
from pdejepa.operators import chebyshev
from tests.verification.geometry import quadrature
from tests.verification.orders import relative_error
from tests.verification.studies_exact import heat_mode_error, plate_error
from tests.verification.studies_in_space import frame

pytestmark = pytest.mark.verification


# ---- Advection -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("speed", [0.37, 4.0, -2.5, 97.0])
def test_advection_returns_after_one_period(speed: float) -> None:
    system = systems.get("advection")
    u0, _ = system.sample("train", range(4))
    period = abs(system.length / speed)
    assert relative_error(system.solve(u0, speed=speed, times=[period])[:, 0], u0) < 1e-12


@pytest.mark.parametrize("speed", [0.0, 0.5 / 3, 1.234, -3.3])
def test_advection_is_the_shifted_cosines(speed: float) -> None:
    """0.5/3 moves by a third of a cell per unit time; 0 does not move at all."""
    system = systems.get("advection")
    x, times = system.axes["x"].numpy(), [1.0, 10.3, 99.0]

    def profile(y: np.ndarray) -> np.ndarray:
        return np.asarray(0.4 * np.cos(2 * np.pi * 5 * y / 128 + 1) - 0.2 * np.cos(2 * np.pi * y / 128))

    solved = system.solve(torch.from_numpy(profile(x))[None, None], speed=speed, times=times)
    for i, t in enumerate(times):
        assert np.abs(solved[0, i, 0].numpy() - profile(x - speed * t)).max() < 1e-12


def test_advection_in_two_legs_equals_one() -> None:
    system = systems.get("advection")
    u0, xi = system.sample("train", range(3))
    halfway = system.solve(u0, xi, times=[20.0]).as_subclass(Tensor)[:, 0]
    assert relative_error(system.solve(halfway, xi, times=[50.0], t0=20.0), system.solve(u0, xi, times=[50.0])) < 1e-12


# ---- Heat ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("diffusivity", [0.0, 1e-12, 1e-3, 0.3, 5.0, 100.0])
@pytest.mark.parametrize("omega", [0.0, 1e-10, 1e-4, 0.4, 60.0])
def test_heat_equals_duhamels_integral(diffusivity: float, omega: float) -> None:
    """Also in the limits where decay rate and frequency vanish and the response becomes t itself."""
    assert heat_mode_error(diffusivity, omega, 32) < 1e-12


def test_heat_in_two_legs_equals_one() -> None:
    """A later start must meet the forcing at its later phase."""
    system = systems.get("heat")
    u0, xi = system.sample("train", range(6))
    halfway = system.solve(u0, xi, times=[1.3]).as_subclass(Tensor)[:, 0]
    assert relative_error(system.solve(halfway, xi, times=[4.0], t0=1.3), system.solve(u0, xi, times=[4.0])) < 1e-12


def test_heat_without_diffusion_integrates_a_standing_force() -> None:
    system = systems.get("heat")
    x = system.axes["x"]
    force = {"forcing_amplitude_1": 0.5, "forcing_mode_1": 2.0, "forcing_phase_1": 0.4}
    solved = system.solve(torch.zeros(1, 1, 256, dtype=torch.float64), times=[3.0], diffusivity=0.0, **force)
    assert torch.allclose(solved[0, 0, 0], 3.0 * 0.5 * torch.sin(2 * math.pi * 2 * x / 16 + 0.4), atol=1e-13)


# ---- Wave-B ----------------------------------------------------------------------------------------------------
@cache
def chebyshev_wave(n: int, code: str, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """exp(dt A) on interior (u, u_t), and the map from interior to all values, through Chebyshev coefficients."""
    nodes = -np.cos(np.pi * np.arange(n) / (n - 1))
    to_series = np.linalg.inv(series.chebvander(nodes, n - 1))
    slopes = [series.chebder(unit) for unit in np.eye(n)]
    first = np.stack([series.chebval(nodes, slope) for slope in slopes], 1) @ to_series / 8
    rows = np.stack([first[end] if kind == "N" else np.eye(n)[end] for end, kind in zip((0, -1), code, strict=True)])
    whole = np.zeros((n, n - 2))
    whole[1:-1] = np.eye(n - 2)
    whole[[0, -1]] = -np.linalg.solve(rows[:, [0, -1]], rows[:, 1:-1])
    second = 4.0 * (first @ first @ whole)[1:-1]
    zero, one = np.zeros_like(second), np.eye(n - 2)
    return expm(dt * np.block([[zero, one], [second, zero]])), whole


@pytest.mark.parametrize("code", ["DD", "DN", "ND", "NN"])
def test_wave_b_equals_the_matrix_exponential(code: str) -> None:
    n, dt = 96, 4.0
    system = systems.get("wave_b", n_points=n)
    x = system.axes["x"].numpy()
    u0 = np.exp(-((x - 0.7) ** 2))
    u, u_t = u0, -4.0 * (x - 0.7) * u0  # left-moving: u_t = c u_x
    ends = {f"bc_{side}": float(kind == "N") for side, kind in zip(("left", "right"), code, strict=True)}
    solved = system.solve(torch.from_numpy(u0)[None, None], times=[dt * i for i in range(1, 7)], **ends)
    flow, whole = chebyshev_wave(n, code, dt)
    state = np.concatenate((u[1:-1], u_t[1:-1]))
    for i in range(6):
        state = flow @ state
        assert np.abs(solved[0, i, 0].numpy() - whole @ state[: n - 2]).max() < 1e-7


@pytest.mark.parametrize("code", ["DD", "DN", "ND", "NN"])
def test_wave_b_keeps_its_energy(code: str) -> None:
    """u_t solves the same equation from the start c u0', which is left-moving too; hence one propagator gives both."""
    system = systems.get("wave_b")
    x = system.axes["x"]
    u0 = torch.exp(-((x - 1.0) ** 2))
    both = torch.stack((u0, -4 * (x - 1.0) * u0))[:, None]
    ends = {f"bc_{side}": float(kind == "N") for side, kind in zip(("left", "right"), code, strict=True)}
    u, u_t = system.solve(both, times=system.times, **ends).as_subclass(Tensor)[:, :, 0]  # (T,N) each
    slope = u @ chebyshev.differentiation(256, 8.0).T
    energy = ((u_t**2 + 4 * slope**2) / 2) @ quadrature(256, 8.0)
    assert float((energy / energy[0] - 1).abs().max()) < 1e-9


def test_wave_b_pulse_returns_after_every_lap() -> None:
    """After a full turn (32/c = 16 time units) the pulse is back, with sign (-1)^(number of Dirichlet ends)."""
    system = systems.get("wave_b")
    u0 = torch.exp(-((system.axes["x"] - 0.3) ** 2))[None, None]
    for left, right in ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)):
        solved = system.solve(u0, times=[16.0, 32.0], bc_left=left, bc_right=right)
        sign = 1.0 if left == right else -1.0
        assert float((solved[0, 0] - sign * u0[0]).abs().max()) < 1e-12
        assert float((solved[0, 1] - u0[0]).abs().max()) < 1e-12


# ---- Wave-2D ---------------------------------------------------------------------------------------------------
def modes(n: int, bc: str) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and vectors of the 1-D stencil; at a mirror the ghost values equal their images."""
    stencil, matrix = np.array([-1 / 12, 4 / 3, -5 / 2, 4 / 3, -1 / 12]), np.zeros((n, n))
    for column in range(n):
        unit = np.eye(n)[column]
        wide = np.pad(unit, 2, mode="symmetric" if bc == "neumann" else "constant")
        matrix[:, column] = np.convolve(wide, stencil, mode="valid") * (n - 1) ** 2
    values, vectors = np.linalg.eigh(matrix)
    return values, vectors


@pytest.mark.parametrize("bc", ["dirichlet", "neumann"])
@pytest.mark.parametrize("regime", ["undamped", "underdamped", "critical", "overdamped"])
def test_wave_2d_eigenmodes(bc: str, regime: str) -> None:
    n, celerity, t = 20, 150.0, 4e-3
    system = systems.get("wave_2d", n_points=n, bc=bc)
    values, vectors = modes(n, bc)
    i, j = n - 2, n - 4  # slow modes: eigenvalues ascend from the most negative
    frequency = celerity * math.sqrt(-(values[i] + values[j]))
    damping = {"undamped": 0.0, "underdamped": 0.3, "critical": 2.0, "overdamped": 5.0}[regime] * frequency
    shape = np.outer(vectors[:, i], vectors[:, j])
    u0, v0 = 1.3, -0.4 * frequency
    solved = frame(system, np.stack((u0 * shape, v0 * shape)), t, celerity=celerity, damping=damping)
    roots = np.roots([1.0, damping, frequency**2]) if regime != "critical" else None
    if roots is None:
        exact = (u0 + (v0 + frequency * u0) * t) * math.exp(-frequency * t)
    else:
        weights = np.linalg.solve(np.array([[1, 1], roots]), np.array([u0, v0]))
        exact = float((weights * np.exp(roots * t)).sum().real)
    tolerance = 1e-6 if regime == "critical" else 1e-10  # a double root moves as the square root of rounding
    assert float(np.abs(solved[0] - exact * shape).max()) < tolerance


@pytest.mark.parametrize("damping", [0.0, 1e-9, 30.0, 1e4])
def test_wave_2d_mirrors_leave_the_mean_to_damping_alone(damping: float) -> None:
    """The constant mode has no restoring force: u = u0 + v0 (1 - e^{-kt}) / k."""
    system = systems.get("wave_2d", n_points=16, bc="neumann")
    start, t = np.stack((np.full((16, 16), 0.7), np.full((16, 16), 3.0))), 5e-3
    solved = frame(system, start, t, celerity=300.0, damping=damping)
    drift = 3.0 * (-math.expm1(-damping * t) / damping if damping else t)
    assert np.abs(solved[0] - 0.7 - drift).max() < 1e-10
    assert np.abs(solved[1] - 3.0 * math.exp(-damping * t)).max() < 1e-9


@pytest.mark.parametrize("damping", [0.0, 25.0, 1000.0])
def test_wave_2d_equals_an_ode_solver(damping: float) -> None:
    assert plate_error(5e-3, damping) < 1e-9


@pytest.mark.parametrize("bc", ["dirichlet", "neumann"])
def test_wave_2d_energy_falls_by_the_damping_only(bc: str) -> None:
    system = systems.get("wave_2d", bc=bc, n_points=32)
    u0, _ = system.sample("train", range(2))
    times = torch.linspace(0.0, 5e-3, 801, dtype=torch.float64)
    for damping in (0.0, 40.0):
        xi = system.xi(celerity=300.0, damping=damping)
        fields = system.solve(u0, xi, times=times).as_subclass(Tensor)
        energy = system.energy(fields, xi.expand(2, -1))  # (B,T)
        power = damping * fields[:, :, 1].pow(2).sum((-2, -1))
        spent = torch.cat((torch.zeros(2, 1), torch.cumulative_trapezoid(power, times, dim=1)), 1)
        assert float(((energy + spent) / energy[:, :1] - 1).abs().max()) < (1e-11 if damping == 0 else 1e-3)

"""The closed forms: no step and no grid error, so every "refinement" must show rounding and nothing else.

Refined is what could hide an error: the number of points (Advection, Heat) or the time (Wave-B, Wave-2D).
"""

from __future__ import annotations

import math

import numpy as np

from pdejepa import systems
from pdejepa.operators import spectral
from pdejepa.systems import heat, wave_2d, wave_b
from tests.verification import mutants, semidiscrete
from tests.verification.orders import Exact, Mutant, Study, relative_error
from tests.verification.studies_in_space import frame, spacings


def advection_error(dx: float) -> float:
    """Three cosines at x - speed t, 0.3 of a cell away from a whole number of cells at the coarsest grid."""
    n, speed, t = round(128 / dx), 1.7, 61.3
    x = np.arange(n) * dx

    def cosines(y: np.ndarray) -> np.ndarray:
        return np.asarray(
            sum(a * np.cos(2 * np.pi * k * y / 128 + p) for a, k, p in ((0.5, 1, 0.1), (-0.3, 3, 2.0), (0.4, 5, 4.0)))
        )

    solved = frame(systems.get("advection", n_points=n), cosines(x)[None], t, speed=speed)
    return relative_error(solved[0], cosines(x - speed * t))


def duhamel(decay: float, omega: float, t: float) -> complex:
    """The integral of e^{-decay (t-s)} e^{i omega s} over [0,t], by Gauss quadrature on pieces of one decay time."""
    points, weights = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(0.0, t, 2 + math.ceil(t * (decay + abs(omega))))
    half = np.diff(edges)[:, None] / 2
    s = edges[:-1, None] + half * (1 + points)
    return complex((np.exp(-decay * (t - s) + 1j * omega * s) * half * weights).sum())


def heat_mode_error(diffusivity: float, omega: float, n: int, t: float = 3.7) -> float:
    """Two forced modes and two free ones."""
    system, k = systems.get("heat", n_points=n), 2 * math.pi / 16
    x = np.arange(n) * 16 / n
    start = 0.4 * np.sin(k * x + 1.0) + 0.3 * np.cos(2 * k * x)
    sines = {"forcing_amplitude_1": 0.5, "forcing_frequency_1": omega, "forcing_mode_1": 1.0, "forcing_phase_1": 0.3}
    sines |= {
        "forcing_amplitude_2": -0.2,
        "forcing_frequency_2": -omega / 2,
        "forcing_mode_2": 3.0,
        "forcing_phase_2": 5.0,
    }
    solved = frame(system, start[None], t, diffusivity=diffusivity, **sines)
    fade = [math.exp(-diffusivity * (k * mode) ** 2 * t) for mode in (1, 2)]
    exact = 0.4 * fade[0] * np.sin(k * x + 1.0) + 0.3 * fade[1] * np.cos(2 * k * x)
    for amplitude, frequency, mode, phase in ((0.5, omega, 1, 0.3), (-0.2, -omega / 2, 3, 5.0)):
        response = duhamel(diffusivity * (k * mode) ** 2, frequency, t)
        exact = exact + amplitude * np.imag(response * np.exp(1j * (k * mode * x + phase)))
    return relative_error(solved[0], exact)


def pulse_error(t: float) -> float:
    """A narrow pulse between a Neumann and a Dirichlet end: the sum over its images on the whole line."""
    system = systems.get("wave_b")
    x, start = system.axes["x"].numpy(), 1.3
    solved = frame(system, np.exp(-((x - start) ** 2))[None], t, bc_left=1.0, bc_right=0.0)
    exact = np.zeros_like(x)
    for lap in range(9):  # a lap of 32 brings the factor +1 (left) times -1 (right)
        left_going, right_going = x + 2 * t - 32 * lap, 2 * t - x - 16 - 32 * lap
        exact += (-1.0) ** lap * (np.exp(-((left_going - start) ** 2)) + np.exp(-((right_going - start) ** 2)))
    return float(np.abs(solved[0] - exact).max())


def plate_error(t: float, damping: float = 400.0) -> float:
    """Slow modes overdamped, fast ones not; SciPy on a Laplacian assembled by other means."""
    n, celerity = 12, 20.0
    stencil = np.array([-1 / 12, 4 / 3, -5 / 2, 4 / 3, -1 / 12])
    matrix = np.stack([np.convolve(row, stencil, mode="same") for row in np.eye(n)]) * (n - 1) ** 2
    rng = np.random.default_rng(0)
    start = np.stack((rng.normal(size=(n, n)), 100 * rng.normal(size=(n, n))))

    def rhs(_t: float, state: np.ndarray) -> np.ndarray:
        u, v = state
        return np.stack((v, celerity**2 * (matrix @ u + u @ matrix) - damping * v))

    solved = frame(systems.get("wave_2d", n_points=n), start, t, celerity=celerity, damping=damping)
    truth = semidiscrete.integrate(rhs, start, t, rtol=1e-12)
    return max(relative_error(solved[channel], truth[channel]) for channel in (0, 1))


STUDIES = (
    Study(
        "advection",
        "space and time, Fourier shift",
        "dx",
        spacings(128.0, 16, 32, 64, 128, 256),
        advection_error,
        Exact(1e-12),
        Mutant("shift by whole points", mutants.swap(spectral, "shift", mutants.shift_by_whole_points)),
    ),
    Study(
        "heat",
        "space and time, forced modes",
        "dx",
        spacings(16.0, 8, 16, 64, 256),
        lambda dx: heat_mode_error(0.3, 0.4, round(16 / dx)),
        Exact(1e-12),
        Mutant("no transient of the forced modes", mutants.swap(heat, "_response", mutants.steady_response)),
    ),
    Study(
        "wave_b",
        "time, reflections",
        "t",
        (0.5, 5.0, 18.0, 100.0),
        pulse_error,
        Exact(1e-11),
        Mutant("no sign after a full lap", mutants.swap(wave_b, "_leg", mutants.leg_that_never_flips)),
    ),
    Study(
        "wave_2d",
        "time, eigenbasis",
        "t",
        (1e-4, 1e-3, 5e-3, 2e-2),
        plate_error,
        Exact(1e-8),
        Mutant("no cosh/sinh branch", mutants.swap(wave_2d, "damped_waves", mutants.waves_without_sinh)),
    ),
)

"""An outside package, exponax (JAX, Fourier, exponential time differencing), on the periodic systems in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pdejepa import systems
from tests.verification.orders import relative_error

pytestmark = [pytest.mark.verification, pytest.mark.oracle]

exponax = pytest.importorskip("exponax", reason="exponax is not installed; pip install 'pdejepa[oracles]'")
jax: Any = pytest.importorskip("jax")


def march(stepper: Any, u0: np.ndarray, n_steps: int) -> np.ndarray:
    """n steps of an exponax stepper from a state (C,*grid)."""
    state = jax.numpy.asarray(u0)
    assert state.dtype == np.float64
    return np.asarray(jax.lax.fori_loop(0, n_steps, lambda _i, u: stepper(u), state))


@pytest.fixture(autouse=True)
def double_precision() -> Any:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def ours(system: systems.System, u0: np.ndarray, t_end: float, **named: float) -> np.ndarray:
    solved = system.solve(torch.from_numpy(u0)[None], times=[t_end], **named)
    return np.asarray(solved.as_subclass(Tensor)[0, 0].numpy())


@pytest.mark.parametrize(("row", "is_dispersive"), [(0, False), (2, True)])
def test_combined_equals_exponax(row: int, is_dispersive: bool) -> None:
    """exponax 0.2 keeps the real part of its step coefficients, exact for a real linear operator only.

    With dispersion its error is therefore first order in the step (measured: 7.5e-5 and 3.8e-5 for 1e-3 and 5e-4), and
    one extrapolation removes it.
    """
    system = systems.get("combined", n_points=96)
    u0, xi = system.sample("train", row)
    alpha, beta, gamma = xi[0].tolist()
    beta, gamma = max(beta, 0.05), gamma if is_dispersive else 0.0  # resolved on 96 points

    def theirs(n_steps: int) -> np.ndarray:
        coefficients = {"convection_scale": alpha, "diffusivity": beta, "dispersivity": gamma, "hyper_diffusivity": 0.0}
        stepper = exponax.stepper.KortewegDeVries(
            1, 16.0, 96, 2.0 / n_steps, single_channel=True, conservative=True, order=4, **coefficients
        )
        return march(stepper, u0[0].numpy(), n_steps)

    solved = ours(system, u0[0].numpy(), 2.0, advection=alpha, diffusivity=beta, dispersion=gamma)
    if is_dispersive:
        assert relative_error(solved, 2 * theirs(4000) - theirs(2000)) < 2e-7
    else:
        assert relative_error(solved, theirs(1000)) < 1e-8


@pytest.mark.slow
def test_heterns_without_forcing_equals_exponax() -> None:
    """m with a constant forcing of 0.1 only lifts the mean, which transports nothing."""
    n, system = 48, systems.get("heterns", n_points=48, solver_grid=48)
    u0 = 10 * system.sample("train", 0, dtype=torch.float64)[0]
    smooth = torch.fft.rfft2(u0)
    k = torch.fft.fftfreq(n, 1 / n).abs()
    smooth = smooth * ((k[:, None] < 6) & (torch.arange(n // 2 + 1) < 6))
    start = torch.fft.irfft2(smooth, s=(n, n))[0].numpy()
    # their stream function has the other sign
    stepper = exponax.stepper.NavierStokesVorticity(
        2, 1.0, n, 1e-3, diffusivity=2e-3, vorticity_convection_scale=-1.0, order=4
    )
    theirs = march(stepper, start, 1000)
    solved = ours(system, start, 1.0, viscosity=2e-3, forcing_frequency=0.0) - 0.1
    assert relative_error(solved, theirs) < 1e-7


@pytest.mark.slow
def test_vorticity_approaches_exponax() -> None:
    """A second-order scheme against a spectral one: the gap falls fourfold with each doubling."""
    gaps = []
    for n in (32, 64, 128):
        x, y = (axis * 2 * np.pi / n for axis in np.ogrid[:n, :n])
        start = (np.sin(x) * np.cos(2 * y) + 0.5 * np.cos(x + y))[None]
        if n == 32:
            stepper = exponax.stepper.NavierStokesVorticity(
                2, 2 * math.pi, n, 5e-3, diffusivity=0.02, vorticity_convection_scale=-1.0, order=4
            )
            theirs = march(stepper, start, 200)
        system = systems.get("vorticity", n_points=n, solver_grid=n, dt=0.02)
        solved = ours(system, start, 1.0, viscosity=0.02)[:, :: n // 32, :: n // 32]
        gaps.append(relative_error(solved, theirs))
    assert gaps[-1] < 1e-3
    assert gaps[0] / gaps[1] == pytest.approx(4.0, abs=0.4)
    assert gaps[1] / gaps[2] == pytest.approx(4.0, abs=0.4)


@pytest.mark.slow
def test_burgers_approaches_exponax() -> None:
    """Cell means against point values: compared through the means of the band-limited interpolant."""
    n = 128
    x = np.arange(n) * 16 / n
    points = 0.6 + 0.5 * np.sin(2 * np.pi * x / 16) + 0.3 * np.cos(4 * np.pi * x / 16)
    factor = np.sinc(np.arange(n // 2 + 1) / n)
    stepper = exponax.stepper.Burgers(1, 16.0, n, 1e-3, diffusivity=0.2, order=4)
    theirs = march(stepper, points[None], 2000)
    start, end = (np.fft.irfft(np.fft.rfft(u) * factor, n=n) for u in (points[None], theirs))
    system = systems.get("burgers", n_points=n)
    assert relative_error(ours(system, start, 2.0, diffusivity=0.2), end) < 2e-5


@pytest.mark.slow
def test_gray_scott_approaches_exponax() -> None:
    """Nine-point Laplacian against Fourier on 96 points: the gap falls as the square of the spacing."""

    def start(n: int) -> np.ndarray:
        x, y = (axis * 2 * np.pi / n for axis in np.ogrid[:n, :n])
        return np.stack((0.6 + 0.2 * np.sin(x) * np.cos(y), 0.3 + 0.1 * np.cos(x + y) + 0.05 * np.sin(y)))

    rates = {"diffusivity_1": 0.204, "diffusivity_2": 0.102, "feed_rate": 0.03, "kill_rate": 0.06}
    stepper = exponax.stepper.reaction.GrayScott(2, 64.0, 96, 0.1, order=4, **rates)
    theirs, gaps = march(stepper, start(96), 100), []
    for n in (32, 48, 96):
        system = systems.get("gray_scott", n_points=n, dx=64 / n, dt=0.25)
        solved = ours(system, start(n), 10.0, feed=0.03, kill=0.06)
        gaps.append(relative_error(solved, theirs[:, :: 96 // n, :: 96 // n]))
    assert gaps[0] / gaps[1] == pytest.approx(2.25, abs=0.15)
    assert gaps[0] / gaps[2] == pytest.approx(9.0, abs=0.7)

"""Per-trajectory SciPy solvers of Burgers and Combined: what one would write without a batched solver.

Both discretise space as our systems do and hand the semi-discrete problem to `solve_ivp`, one trajectory at a time, in
NumPy.  Several integrators and tolerances are offered; the benchmark takes the fastest that is accurate enough.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
from scipy.integrate import solve_ivp

Solve = Callable[[np.ndarray, np.ndarray, np.ndarray, str, float, float], np.ndarray]
Slope = Callable[[float, np.ndarray], np.ndarray]


def limited(slope: Slope, seconds: float) -> Slope:
    """The same function until the time is up; a method that is far slower than the best need not finish."""
    deadline = time.perf_counter() + seconds

    def call(t: float, u: np.ndarray) -> np.ndarray:
        if time.perf_counter() > deadline:
            raise TimeoutError
        return slope(t, u)

    return call


def combined(u0: np.ndarray, xi: np.ndarray, times: np.ndarray, method: str, rtol: float, limit: float) -> np.ndarray:
    """Pseudo-spectral method of lines on [0,16), 2/3 dealiasing; frames (T,N).

    `IF-...` methods integrate the Fourier modes behind an integrating factor, restarted at every frame; the others
    integrate the grid values, stiff or not.
    """
    n = len(u0)
    kept = math.ceil(n / 3)
    k = 2 * math.pi / 16 * np.arange(kept)
    alpha, beta, gamma = xi
    linear = -beta * k**2 + 1j * gamma * k**3

    def transport(v: np.ndarray) -> np.ndarray:
        return -0.5j * alpha * k * np.fft.rfft(np.fft.irfft(v, n) ** 2)[:kept]

    def grid_slope(t: float, u: np.ndarray) -> np.ndarray:
        v = np.fft.rfft(u)[:kept]
        return np.fft.irfft(linear * v + transport(v), n)

    if not method.startswith("IF-"):
        return solve_ivp(limited(grid_slope, limit), (times[0], times[-1]), u0, method, times, rtol=rtol, atol=rtol).y.T

    def factor_slope(t: float, w: np.ndarray) -> np.ndarray:
        return np.exp(-linear * t) * transport(np.exp(linear * t) * w)

    v = np.fft.rfft(u0)[:kept]
    frames, slope = [u0], limited(factor_slope, limit)
    for gap in np.diff(times):
        w = solve_ivp(slope, (0.0, gap), v.astype(complex), method[3:], rtol=rtol, atol=rtol * n / 10).y[:, -1]
        v = np.exp(linear * gap) * w
        frames.append(np.fft.irfft(v, n))
    return np.stack(frames)


def burgers(u0: np.ndarray, xi: np.ndarray, times: np.ndarray, method: str, rtol: float, limit: float) -> np.ndarray:
    """WENO5-Godunov and fourth-order diffusion on cell means of [0,16), with the random forcing; frames (T,N)."""
    n, dx = len(u0), 16.0 / len(u0)
    beta = xi[0]
    amplitude, omega, mode, phase = xi[1:].reshape(4, -1)
    amplitude = amplitude * np.sinc(mode / n)
    angle = 2 * math.pi / 16 * mode[:, None] * (np.arange(n) * dx) + phase[:, None]

    def slope(t: float, u: np.ndarray) -> np.ndarray:
        force = (amplitude[:, None] * np.sin(angle + (omega * t)[:, None])).sum(0)
        near, far = np.roll(u, 1) + np.roll(u, -1), np.roll(u, 2) + np.roll(u, -2)
        return _weno_tendency(u, dx) + beta / dx**2 * (-far / 12 + 4 / 3 * near - 2.5 * u) + force

    options = {"jac_sparsity": _band(n)} if method in ("BDF", "Radau") else {}
    return solve_ivp(
        limited(slope, limit), (times[0], times[-1]), u0, method, times, rtol=rtol, atol=rtol, **options
    ).y.T


def _weno_tendency(u: np.ndarray, dx: float) -> np.ndarray:
    cells = [np.roll(u, -j) for j in range(-2, 4)]
    left, right = _reconstruct(*cells[:5]), _reconstruct(*cells[:0:-1])
    flux = 0.5 * np.maximum(np.maximum(left, 0) ** 2, np.minimum(right, 0) ** 2)
    return (np.roll(flux, 1) - flux) / dx


def _reconstruct(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray, e: np.ndarray) -> np.ndarray:
    parts = ((2 * a - 7 * b + 11 * c) / 6, (-b + 5 * c + 2 * d) / 6, (2 * c + 5 * d - e) / 6)
    bends = (
        13 / 12 * (a - 2 * b + c) ** 2 + (a - 4 * b + 3 * c) ** 2 / 4,
        13 / 12 * (b - 2 * c + d) ** 2 + (b - d) ** 2 / 4,
        13 / 12 * (c - 2 * d + e) ** 2 + (3 * c - 4 * d + e) ** 2 / 4,
    )
    weights = [g / (1e-6 + s) ** 2 for g, s in zip((0.1, 0.6, 0.3), bends, strict=True)]
    return sum(w * p for w, p in zip(weights, parts, strict=True)) / sum(weights)


def _band(n: int) -> np.ndarray:
    """Which cells a tendency depends on: three to each side, periodic."""
    distance = np.abs(np.arange(n)[:, None] - np.arange(n)[None, :])
    return (np.minimum(distance, n - distance) <= 3).astype(float)


PEERS: dict[str, tuple[Solve, tuple[str, ...]]] = {
    "combined": (combined, ("BDF", "LSODA", "IF-DOP853", "IF-RK45")),
    "burgers": (burgers, ("BDF", "LSODA", "RK45", "DOP853")),
}
TOLERANCES = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)

"""The stepped systems' semi-discrete equations once more, in plain NumPy and by other formulas.

Nothing here comes from the package: where the package multiplies out, this file keeps the textbook form, and the
other way round.  `integrate` hands a right-hand side to SciPy at a tolerance far below any error that is measured.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.integrate import solve_ivp
from scipy.ndimage import convolve

Array = np.ndarray
Rhs = Callable[[float, Array], Array]


def integrate(rhs: Rhs, u0: Array, t_end: float, *, rtol: float = 1e-12) -> Array:
    """u(t_end) of u' = rhs(t, u), u(0) = u0, for an array of any shape."""

    def flat_rhs(t: float, flat: Array) -> Array:
        return rhs(t, flat.reshape(u0.shape)).ravel()

    out = solve_ivp(flat_rhs, (0.0, t_end), u0.ravel(), "DOP853", rtol=rtol, atol=rtol / 10)
    assert out.success, out.message
    return np.asarray(out.y[:, -1].reshape(u0.shape))


# ---- Burgers: textbook WENO5 on cell averages ------------------------------------------------------------------
def weno_edge(a: Array, b: Array, c: Array, d: Array, e: Array) -> Array:
    """Value at the right face of the middle one of five cells (Jiang & Shu 1996, equations 2.12-2.17)."""
    candidates = ((2 * a - 7 * b + 11 * c) / 6, (-b + 5 * c + 2 * d) / 6, (2 * c + 5 * d - e) / 6)
    smoothness = (
        13 / 12 * (a - 2 * b + c) ** 2 + 1 / 4 * (a - 4 * b + 3 * c) ** 2,
        13 / 12 * (b - 2 * c + d) ** 2 + 1 / 4 * (b - d) ** 2,
        13 / 12 * (c - 2 * d + e) ** 2 + 1 / 4 * (3 * c - 4 * d + e) ** 2,
    )
    weights = [ideal / (1e-6 + s) ** 2 for ideal, s in zip((0.1, 0.6, 0.3), smoothness, strict=True)]
    return np.asarray(sum(w * q for w, q in zip(weights, candidates, strict=True)) / sum(weights))


def riemann_flux(left: Array, right: Array) -> Array:
    """u^2/2 at a face by the cases of the Riemann problem: shock by its speed, rarefaction by where it is fanned."""
    shock = np.where(left + right > 0, left**2, right**2)
    fan = np.where(left > 0, left**2, np.where(right < 0, right**2, 0.0))
    return np.where(left > right, shock, fan) / 2


def burgers(dx: float, diffusivity: float, force: Callable[[float], Array] | None = None) -> Rhs:
    def rhs(t: float, u: Array) -> Array:
        a, b, c, d, e, f = (np.roll(u, -j) for j in range(-2, 4))
        flux = riemann_flux(weno_edge(a, b, c, d, e), weno_edge(f, e, d, c, b))  # at i + 1/2
        second = (-a + 16 * b - 30 * c + 16 * d - e) / (12 * dx**2)
        return np.asarray(-(flux - np.roll(flux, 1)) / dx + diffusivity * second + (force(t) if force else 0.0))

    return rhs


# ---- Combined: complex Fourier modes ---------------------------------------------------------------------------
def combined(n: int, length: float, alpha: float, beta: float, gamma: float) -> Rhs:
    """Transport in conservative form, dealiased, plus the exact linear symbols; the Nyquist mode is dropped."""
    whole = np.fft.fftfreq(n, 1 / n)
    k, keep = 2 * np.pi / length * whole, np.abs(whole) < n / 3

    def rhs(t: float, u: Array) -> Array:
        hat = np.fft.fft(u) * keep
        square = np.fft.fft(np.fft.ifft(hat).real ** 2)
        return np.asarray(
            np.fft.ifft(keep * (-0.5j * alpha * k * square + (-beta * k**2 + 1j * gamma * k**3) * hat)).real
        )

    return rhs


# ---- the two flows ---------------------------------------------------------------------------------------------
def poisson(omega: Array, length: float) -> Array:
    """psi with -Lap psi = omega and zero mean."""
    k = 2 * np.pi / length * np.fft.fftfreq(len(omega), 1 / len(omega))
    k2 = k[:, None] ** 2 + k[None, :] ** 2
    k2[0, 0] = np.inf
    return np.asarray(np.fft.ifft2(np.fft.fft2(omega) / k2).real)


def arakawa_forms(psi: Array, omega: Array, dx: float) -> tuple[Array, Array, Array]:
    """psi_x omega_y - psi_y omega_x in Arakawa's three forms, each from centred differences."""

    def d(field: Array, axis: int) -> Array:
        return (np.roll(field, -1, axis) - np.roll(field, 1, axis)) / (2 * dx)

    advective = d(psi, 0) * d(omega, 1) - d(psi, 1) * d(omega, 0)
    flux_psi = d(psi * d(omega, 1), 0) - d(psi * d(omega, 0), 1)
    flux_omega = d(omega * d(psi, 0), 1) - d(omega * d(psi, 1), 0)
    return advective, flux_psi, flux_omega


def vorticity(n: int, length: float, viscosity: float) -> Rhs:
    dx = length / n
    cross = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]]) / dx**2

    def rhs(t: float, omega: Array) -> Array:
        forms = arakawa_forms(poisson(omega, length), omega, dx)
        return np.asarray(sum(forms) / 3 + viscosity * convolve(omega, cross, mode="wrap"))

    return rhs


def heterns(n: int, length: float, viscosity: float, force: Array | float = 0.0) -> Rhs:
    """The advective form -(u omega_x + v omega_y) of dealiased fields, dealiased; all modes diffuse and are forced."""
    whole = np.fft.fftfreq(n, 1 / n)
    kx, ky = 2 * np.pi / length * whole[:, None], 2 * np.pi / length * whole[None, :]
    k2 = kx**2 + ky**2
    inverse = np.divide(1.0, k2, out=np.zeros_like(k2), where=k2 > 0)
    keep = (np.abs(whole) < n / 3)[:, None] & (np.abs(whole) < n / 3)[None, :]

    def rhs(t: float, omega: Array) -> Array:
        hat = np.fft.fft2(omega)
        kept = hat * keep
        modes = (1j * ky * inverse * kept, -1j * kx * inverse * kept, 1j * kx * kept, 1j * ky * kept)
        u, v, omega_x, omega_y = (np.fft.ifft2(mode).real for mode in modes)
        transport = -np.fft.fft2(u * omega_x + v * omega_y) * keep
        return np.asarray(np.fft.ifft2(transport - viscosity * k2 * hat).real + force)

    return rhs


# ---- Gray-Scott ------------------------------------------------------------------------------------------------
KERNEL = np.array([[0.25, 0.5, 0.25], [0.5, -3.0, 0.5], [0.25, 0.5, 0.25]])


def gray_scott(dx: float, feed: float, kill: float, diffusion: tuple[float, float] = (0.204, 0.102)) -> Rhs:
    def rhs(t: float, state: Array) -> Array:
        a, b = state
        spread = [
            d * convolve(species, KERNEL, mode="wrap") / dx**2 for d, species in zip(diffusion, state, strict=True)
        ]
        return np.stack((spread[0] - a * b**2 + feed * (1 - a), spread[1] + a * b**2 - (feed + kill) * b))

    return rhs


def gray_scott_spectral(n: int, dx: float, feed: float, kill: float) -> Rhs:
    """The same reaction with the exact Laplacian of the band-limited interpolant: the limit of vanishing dx."""
    k = 2 * np.pi * np.fft.fftfreq(n, dx)
    k2 = k[:, None] ** 2 + k[None, :] ** 2

    def rhs(t: float, state: Array) -> Array:
        a, b = state
        spread = [
            -d * np.fft.ifft2(k2 * np.fft.fft2(species)).real for d, species in zip((0.204, 0.102), state, strict=True)
        ]
        return np.stack((spread[0] - a * b**2 + feed * (1 - a), spread[1] + a * b**2 - (feed + kill) * b))

    return rhs

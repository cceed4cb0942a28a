"""Fourier operators on periodic grids x_i = i L / N, in one and two dimensions.

All functions act on the last `ndim` axes; leading axes are batch.  In 2-D the first spatial axis is x and the
second y, so `u[..., i, j] = u(x_i, y_j)`.
Letters: N points per axis, K = N/2 + 1 kept real-FFT modes, L domain length.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def wavenumbers(n: int, length: float, *, real: bool, like: Tensor) -> Tensor:
    """2 pi k / L in FFT order; `real` gives the non-negative half that rfft keeps."""
    frequencies = torch.fft.rfftfreq(n, 1.0 / n) if real else torch.fft.fftfreq(n, 1.0 / n)
    return (2 * math.pi / length) * frequencies.to(device=like.device, dtype=_real_dtype(like))


def _real_dtype(like: Tensor) -> torch.dtype:
    return torch.empty((), dtype=like.dtype).real.dtype if like.is_complex() else like.dtype


def derivative(u: Tensor, order: int, length: float) -> Tensor:
    """d^order u / dx^order along the last axis.  Odd orders drop the Nyquist mode, which has no sign."""
    n = u.shape[-1]
    k = wavenumbers(n, length, real=True, like=u)
    symbol = (1j * k) ** order
    if order % 2 == 1 and n % 2 == 0:
        symbol[-1] = 0
    return torch.fft.irfft(symbol * torch.fft.rfft(u), n=n)


def shift(u: Tensor, distance: Tensor, length: float) -> Tensor:
    """u(x - distance) for each row: u (B,...,N), distance broadcasting against u's leading axes."""
    n = u.shape[-1]
    k = wavenumbers(n, length, real=True, like=u)
    phase = torch.polar(torch.ones_like(k * distance[..., None]), -k * distance[..., None])  # (...,K)
    if n % 2 == 0:
        phase[..., -1] = phase[..., -1].real.clone()  # the Nyquist cosine moves as a standing wave
    return torch.fft.irfft(torch.fft.rfft(u) * phase, n=n)


def resample(u: Tensor, n: int, ndim: int) -> Tensor:
    """Band-limited interpolation (or truncation) of periodic fields to n points on each of the last ndim axes."""
    for axis in range(-ndim, 0):
        u = _resample_axis(u, n, axis)
    return u


def _resample_axis(u: Tensor, n: int, axis: int) -> Tensor:
    old = u.shape[axis]
    if old == n:
        return u
    modes = torch.fft.rfft(u, dim=axis)
    keep = min(old, n) // 2  # the shared Nyquist mode is dropped: it is ambiguous on the coarser grid
    modes = modes.narrow(axis, 0, keep if min(old, n) % 2 == 0 else keep + 1)
    return torch.fft.irfft(modes, n=n, dim=axis) * (n / old)


def mesh(n: int, length: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """(kx, ky) of rfft2 on an n x n grid, shapes (N,1) and (1,K)."""
    kx = wavenumbers(n, length, real=False, like=like)[:, None]
    ky = wavenumbers(n, length, real=True, like=like)[None, :]
    return kx, ky


def laplacian2(u: Tensor, length: float) -> Tensor:
    kx, ky = mesh(u.shape[-1], length, u)
    return torch.fft.irfft2(-(kx**2 + ky**2) * torch.fft.rfft2(u), s=u.shape[-2:])


def inverse_laplacian_symbol(n: int, length: float, like: Tensor) -> Tensor:
    """1 / (kx^2 + ky^2) with 0 for the mean: psi_hat = symbol * omega_hat solves -Lap psi = omega."""
    kx, ky = mesh(n, length, like)
    k2 = kx**2 + ky**2
    k2[0, 0] = 1.0
    symbol = 1.0 / k2
    symbol[0, 0] = 0.0
    return symbol


def advection2(omega: Tensor, length: float) -> Tensor:
    """-(u . grad) omega of the flow with vorticity omega: u = psi_y, v = -psi_x, -Lap psi = omega."""
    n = omega.shape[-1]
    kx, ky = mesh(n, length, omega)
    ikx, iky = 1j * _drop_nyquist(kx, n), 1j * _drop_nyquist(ky, n)
    hat = torch.fft.rfft2(omega)
    psi = inverse_laplacian_symbol(n, length, omega) * hat
    u, v, omega_x, omega_y = (
        torch.fft.irfft2(modes, s=(n, n)) for modes in (iky * psi, -ikx * psi, ikx * hat, iky * hat)
    )
    return -(u * omega_x + v * omega_y)


def _drop_nyquist(k: Tensor, n: int) -> Tensor:
    """Zero the Nyquist mode of an odd derivative, which has no sign."""
    k = k.clone()
    flat = k.view(-1)
    if n % 2 == 0:
        flat[n // 2] = 0.0
    return k


def dealias_mask(n: int, ndim: int, device: torch.device) -> Tensor:
    """True on modes with |k| < N/3 on every axis: products of two such fields alias only onto dropped modes."""
    real = torch.fft.rfftfreq(n, 1.0 / n, device=device) < n / 3
    if ndim == 1:
        return real
    return (torch.fft.fftfreq(n, 1.0 / n, device=device).abs() < n / 3)[:, None] & real[None, :]


def tail_share(modes: Tensor, ndim: int, n: int) -> Tensor:
    """Share of the energy in the top third of the dealiased modes (largest |k| of the axes), (B,).

    A resolved solution has next to nothing there; energy that piles up at the grid scale shows up first here.
    """
    real = torch.fft.rfftfreq(n, 1.0 / n, device=modes.device)
    radius = (
        real if ndim == 1 else torch.maximum(torch.fft.fftfreq(n, 1.0 / n, device=modes.device).abs()[:, None], real)
    )
    weight = torch.where(real == 0, 1.0, 2.0)  # rfft keeps one of each conjugate pair
    power = (modes.real**2 + modes.imag**2) * weight * (radius > 0)
    axes = tuple(range(-ndim, 0))
    top = (power * (radius > n / 3 * 2 / 3)).sum(axes)
    share = top / power.sum(axes).clamp(min=torch.finfo(power.dtype).tiny)
    return share.reshape(len(modes), -1).amax(1)

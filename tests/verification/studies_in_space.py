"""Order in space, where a discretisation has one: the grid is refined, the step is small enough not to matter.

References: exact solutions (characteristics, Cole-Hopf, a solution manufactured through the forcing, Taylor-Green,
linear limits) and, for general flows and reactions, a Fourier-spectral NumPy solution that is converged to 1e-9.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from pdejepa import systems
from pdejepa.operators import arakawa, chebyshev, differences, spectral, weno
from pdejepa.systems import gray_scott, wave_2d
from tests.verification import mutants, semidiscrete
from tests.verification.orders import Mutant, Order, Spectral, Study, relative_error

LENGTH = 16.0
K = 2 * math.pi / LENGTH


def frame(system: systems.System, u0: np.ndarray, t_end: float, **named: float) -> np.ndarray:
    """The solution (C,*grid) at t_end of one initial state (C,*grid)."""
    solved = system.solve(torch.from_numpy(u0)[None], times=[t_end], **named).as_subclass(Tensor)
    return np.asarray(solved[0, 0].numpy())


def cell_means(function: Callable[[np.ndarray], np.ndarray], n: int) -> np.ndarray:
    """Means over n cells centred at i L/n, by ten-point Gauss quadrature, (1,n)."""
    points, weights = np.polynomial.legendre.leggauss(10)
    x = np.arange(n)[:, None] * LENGTH / n + points * LENGTH / n / 2  # (n,10)
    return np.asarray(function(x) @ weights / 2)[None]


# ---- Burgers ---------------------------------------------------------------------------------------------------
def start_wave(x: np.ndarray) -> np.ndarray:
    return np.asarray(1.0 + 0.5 * np.sin(K * x))


def along_characteristics(x: np.ndarray, t: float) -> np.ndarray:
    """u = u0(x - u t) by Newton's method; smooth until t = 1 / max(-u0') = 5.1."""
    u = start_wave(x)
    for _ in range(30):
        u = u - (u - start_wave(x - u * t)) / (1 + 0.5 * t * K * np.cos(K * (x - u * t)))
    return np.asarray(u)


def inviscid_error(dx: float) -> float:
    n = round(LENGTH / dx)
    solved = frame(systems.get("burgers", n_points=n, dt=1 / 64), cell_means(start_wave, n), 1.0, diffusivity=0.0)
    return float(np.abs(solved - cell_means(lambda x: along_characteristics(x, 1.0), n)).mean())


def cole_hopf(x: np.ndarray, t: float, diffusivity: float) -> np.ndarray:
    """u = c - 2 beta phi_x / phi with phi = 1 + e^{-beta k^2 t} cos k(x - ct) / 2 (heat, moving)."""
    c = 0.3
    y, fade = K * (x - c * t), 0.5 * math.exp(-diffusivity * K**2 * t)
    return np.asarray(c + 2 * diffusivity * K * fade * np.sin(y) / (1 + fade * np.cos(y)))


def cole_hopf_error(dx: float) -> float:
    n, beta = round(LENGTH / dx), 2.0
    start, end = (cell_means(lambda x, t=t: cole_hopf(x, t, beta), n) for t in (0.0, 1.0))
    return relative_error(frame(systems.get("burgers", n_points=n, dt=1 / 64), start, 1.0, diffusivity=beta), end)


def manufactured_error(dx: float) -> float:
    """u = c + A sin y, y = kx + wt + p, needs three sines: A(w + ck) cos y + A^2 k/2 sin 2y + beta A k^2 sin y."""
    n, amplitude, mean, omega, phase, beta = round(LENGTH / dx), 0.2, 0.3, -0.4, 0.3, 20.0
    system = systems.get("burgers", n_points=n, dt=1 / 32)
    sines = (
        (amplitude * (omega + mean * K), omega, 1.0, phase + math.pi / 2),
        (amplitude**2 * K / 2, 2 * omega, 2.0, 2 * phase),
        (beta * amplitude * K**2, omega, 1.0, phase),
    )
    named = {"diffusivity": beta}
    for j, sine in enumerate(sines, 1):
        named |= {
            f"forcing_{word}_{j}": v for word, v in zip(("amplitude", "frequency", "mode", "phase"), sine, strict=True)
        }

    def exact(t: float) -> np.ndarray:
        return cell_means(lambda x: mean + amplitude * np.sin(K * x + omega * t + phase), n)

    return relative_error(frame(system, exact(0.0), 2.0, **named), exact(2.0))


# ---- Vorticity -------------------------------------------------------------------------------------------------
def taylor_green_error(dx: float) -> float:
    n = round(2 * math.pi / dx)
    x = np.arange(n) * dx
    start = 2 * np.sin(x)[:, None] * np.sin(x)[None, :]
    system = systems.get("vorticity", n_points=n, solver_grid=n, dt=0.02)
    return relative_error(frame(system, start[None], 1.0, viscosity=0.1), start[None] * math.exp(-0.2))


def smooth_flow(n: int) -> np.ndarray:
    x, y = (axis * 2 * np.pi / n for axis in np.ogrid[:n, :n])
    return np.asarray(np.sin(x) * np.cos(2 * y) + 0.5 * np.cos(x + y) + 0.7 * np.sin(2 * x - y + 0.3))


@cache
def true_flow() -> np.ndarray:
    return semidiscrete.integrate(semidiscrete.heterns(96, 2 * np.pi, 0.02), smooth_flow(96), 1.0, rtol=1e-9)


def smooth_flow_error(dx: float) -> float:
    n = round(2 * math.pi / dx)
    system = systems.get("vorticity", n_points=n, solver_grid=n, dt=0.02)
    every = 96 // n
    return relative_error(frame(system, smooth_flow(n)[None], 1.0, viscosity=0.02)[0], true_flow()[::every, ::every])


# ---- Gray-Scott ------------------------------------------------------------------------------------------------
def fading_error(dx: float) -> float:
    """Without b, a - 1 diffuses and decays; without feed and a, so does b.  Both closed forms meet the full solver."""
    n = round(64 / dx)
    k, x = 2 * math.pi / 64, np.arange(n) * dx
    wave = np.cos(k * x)[:, None] * np.sin(2 * k * x)[None, :]
    system, still = systems.get("gray_scott", n_points=n, dx=dx, dt=1.0), np.zeros_like(wave)
    a = frame(system, np.stack((1 + 0.3 * wave, still)), 20.0, feed=0.03, kill=0.06)[0] - 1
    b = frame(system, np.stack((still, 0.3 * wave)), 20.0, feed=0.0, kill=0.06)[1]
    exact_a = 0.3 * wave * math.exp(-(0.03 + gray_scott.D_A * 5 * k**2) * 20)
    exact_b = 0.3 * wave * math.exp(-(0.06 + gray_scott.D_B * 5 * k**2) * 20)
    return relative_error(a, exact_a) + relative_error(b, exact_b)


def smooth_species(n: int) -> np.ndarray:
    x, y = (axis * 2 * np.pi / n for axis in np.ogrid[:n, :n])
    return np.stack((0.6 + 0.2 * np.sin(x) * np.cos(y) + 0 * x * y, 0.3 + 0.1 * np.cos(x + y) + 0.05 * np.sin(y)))


@cache
def true_species() -> np.ndarray:
    rhs = semidiscrete.gray_scott_spectral(96, 64 / 96, 0.03, 0.06)
    return semidiscrete.integrate(rhs, smooth_species(96), 10.0, rtol=1e-9)


def reaction_error(dx: float) -> float:
    n = round(64 / dx)
    system = systems.get("gray_scott", n_points=n, dx=dx, dt=0.25)
    every = 96 // n
    return relative_error(
        frame(system, smooth_species(n), 10.0, feed=0.03, kill=0.06), true_species()[:, ::every, ::every]
    )


# ---- Wave-2D ---------------------------------------------------------------------------------------------------
def interior_error(dx: float) -> float:
    """The Laplacian of a smooth field, away from the walls."""
    system = systems.get("wave_2d", n_points=round(1 / dx) + 1)
    x = system.axes["x"]
    u = torch.sin(3 * x)[:, None] * torch.exp(x)[None, :]
    laplacian = system.operators(torch.stack((u, u))[None])[0, 0, 1]
    return relative_error(laplacian[2:-2, 2:-2], (-8 * u)[2:-2, 2:-2])


def wall_error(bc: str, dx: float) -> float:
    """The slowest standing wave of the unit square."""
    system = systems.get("wave_2d", n_points=round(1 / dx) + 1, bc=bc)
    wave = np.sin if bc == "dirichlet" else np.cos
    x = np.arange(system.grid[0]) * dx
    mode = wave(math.pi * x)[:, None] * wave(math.pi * x)[None, :]
    exact = mode * math.cos(300 * math.pi * math.sqrt(2) * 5e-4)
    return relative_error(frame(system, np.stack((mode, 0 * mode)), 5e-4, celerity=300.0, damping=0.0)[0], exact)


# ---- spectral methods ------------------------------------------------------------------------------------------
def chebyshev_error(spacing: float) -> float:
    """The right-moving leg of a pulse after one reflection, against the analytic pulse."""
    n = round(16 / spacing) + 1
    system = systems.get("wave_b", n_points=n)
    x = system.axes["x"].numpy()
    solved = frame(system, np.exp(-((x + 1) ** 2))[None], 6.5, bc_left=1.0, bc_right=0.0)
    return float(np.abs(solved[0] - np.exp(-((2 * 6.5 - x - 16 + 1) ** 2))).max())


def waves(n: int) -> np.ndarray:
    x = np.arange(n) * LENGTH / n
    return np.asarray(0.5 * np.sin(K * x) + 0.3 * np.cos(2 * K * x))


@cache
def true_waves() -> np.ndarray:
    return semidiscrete.integrate(semidiscrete.combined(192, LENGTH, 1.0, 0.1, 0.1), waves(192), 1.0)


def combined_error(dx: float) -> float:
    n = round(LENGTH / dx)
    solved = frame(
        systems.get("combined", n_points=n, dt=1 / 128),
        waves(n)[None],
        1.0,
        advection=1.0,
        diffusivity=0.1,
        dispersion=0.1,
    )
    return relative_error(solved[0], true_waves()[:: 192 // n])


def smooth_torus(n: int) -> np.ndarray:
    x, y = (axis * 2 * np.pi / n for axis in np.ogrid[:n, :n])
    return np.asarray(2 * np.sin(x) + np.cos(x + y + 0.5) + 0.7 * np.sin(y))


@cache
def true_torus() -> np.ndarray:
    n = 48
    x, y = (axis / n for axis in np.ogrid[:n, :n])
    force = 0.1 * (np.sin(2 * np.pi * (x + y)) + np.cos(2 * np.pi * (x + y)))
    return semidiscrete.integrate(semidiscrete.heterns(n, 1.0, 1e-2, force), smooth_torus(n), 0.5, rtol=1e-10)


def heterns_error(dx: float) -> float:
    n = round(1 / dx)
    system = systems.get("heterns", n_points=n, solver_grid=n, dt=1 / 128)
    solved = frame(system, smooth_torus(n)[None], 0.5, viscosity=1e-2, forcing_frequency=2.0)
    return relative_error(solved[0], true_torus()[:: 48 // n, :: 48 // n])


def spacings(length: float, *ns: int) -> tuple[float, ...]:
    return tuple(length / n for n in ns)


_CORNERS = Mutant(
    "corners weigh 0.3", mutants.swap(gray_scott, "nine_point_laplacian", mutants.nine_point_with_wrong_corners)
)
_WALLS = Mutant("the other kind of wall", mutants.swap(wave_2d, "wall_matrix", mutants.other_walls))
_CENTRED = Mutant("sin(k dx)/dx for k", mutants.swap(spectral, "wavenumbers", mutants.wavenumbers_of_differences))
_SYMBOL_2 = Mutant(
    "three-point second difference", mutants.swap(differences, "second_difference_symbol", mutants.symbol_of_order_two)
)

STUDIES = (
    Study(
        "burgers",
        "space, WENO5, characteristics",
        "dx",
        spacings(LENGTH, 48, 64, 96, 128, 192, 256),
        inviscid_error,
        Order(5),
        Mutant("linear weights .2 .5 .3", mutants.swap(weno, "LINEAR", (0.2, 0.5, 0.3))),
    ),
    Study(
        "burgers", "space, Cole-Hopf", "dx", spacings(LENGTH, 32, 48, 64, 96, 128), cole_hopf_error, Order(4), _SYMBOL_2
    ),
    Study(
        "burgers",
        "space, manufactured by the forcing",
        "dx",
        spacings(LENGTH, 24, 32, 48, 64, 96),
        manufactured_error,
        Order(4),
        _SYMBOL_2,
    ),
    Study(
        "vorticity",
        "space, Taylor-Green",
        "dx",
        spacings(2 * math.pi, 16, 24, 32, 48, 64),
        taylor_green_error,
        Order(2),
        Mutant(
            "Laplacian 1 % short", mutants.swap(arakawa, "five_point_laplacian", mutants.five_point_with_wrong_centre)
        ),
    ),
    Study(
        "vorticity",
        "space, general flow",
        "dx",
        spacings(2 * math.pi, 16, 24, 32, 48, 96),
        smooth_flow_error,
        Order(2),
        Mutant("Arakawa without its third form", mutants.swap(arakawa, "jacobian", mutants.jacobian_without_one_form)),
    ),
    Study("gray_scott", "space, linear limits", "dx", spacings(64.0, 16, 24, 32, 48), fading_error, Order(2), _CORNERS),
    Study(
        "gray_scott",
        "space, reaction and diffusion",
        "dx",
        spacings(64.0, 24, 32, 48, 96),
        reaction_error,
        Order(2),
        _CORNERS,
    ),
    Study(
        "wave_2d",
        "space, interior stencil",
        "dx",
        spacings(1.0, 16, 32, 64, 128),
        interior_error,
        Order(4),
        Mutant(
            "three-point second difference", mutants.swap(differences, "SECOND_DIFFERENCE", (0.0, 1.0, -2.0, 1.0, 0.0))
        ),
    ),
    Study(
        "wave_2d",
        "space, zero ghosts at the walls",
        "dx",
        spacings(1.0, 32, 64, 128, 256),
        lambda dx: wall_error("dirichlet", dx),
        Order(1),
        _WALLS,
    ),
    Study(
        "wave_2d",
        "space, mirrored walls",
        "dx",
        spacings(1.0, 32, 64, 128, 256),
        lambda dx: wall_error("neumann", dx),
        Order(1),
        _WALLS,
    ),
    Study(
        "wave_b",
        "space, Chebyshev",
        "dx",
        spacings(16.0, 23, 31, 47, 63, 71),
        chebyshev_error,
        Spectral(1e-8),
        Mutant(
            "end weights not halved", mutants.swap(chebyshev, "barycentric_weights", mutants.equal_barycentric_weights)
        ),
    ),
    Study(
        "combined",
        "space, Fourier",
        "dx",
        spacings(LENGTH, 16, 24, 32, 48, 64),
        combined_error,
        Spectral(1e-7),
        _CENTRED,
    ),
    Study("heterns", "space, Fourier", "dx", spacings(1.0, 8, 12, 16, 24), heterns_error, Spectral(1e-6), _CENTRED),
)

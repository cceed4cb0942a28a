"""Where one system turns into another one, or into an equation whose answer is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from pdejepa import systems
from pdejepa.operators import spectral, weno
from pdejepa.systems import burgers
from tests.verification import mutants, semidiscrete
from tests.verification.orders import relative_error
from tests.verification.studies_in_space import cell_means

pytestmark = pytest.mark.verification


def means_of_points(u: Tensor) -> Tensor:
    """Means over the cells around the points, of the band-limited function through point values u (...,N)."""
    k = torch.arange(u.shape[-1] // 2 + 1, dtype=torch.float64)
    return torch.fft.irfft(torch.fft.rfft(u) * torch.sinc(k / u.shape[-1]), n=u.shape[-1])


# ---- Burgers and Combined --------------------------------------------------------------------------------------
def test_burgers_equals_combined_without_dispersion() -> None:
    """Finite volumes and Fourier modes have nothing in common but the equation; they meet as the cells shrink."""
    named = {"diffusivity": 0.2, "times": [0.5, 2.0]}
    u0, _ = systems.get("combined").sample("train", range(4))
    points = systems.get("combined").solve(u0, advection=1.0, dispersion=0.0, **named).as_subclass(Tensor)
    truth, start, apart = means_of_points(points), means_of_points(u0), {}
    for n in (128, 256):
        cells = systems.get("burgers", n_points=n).solve(burgers.change_cells(start, n), **named).as_subclass(Tensor)
        apart[n] = relative_error(burgers.change_cells(cells, 256), truth)
    assert apart[256] < 5e-6
    assert apart[128] > 8 * apart[256]


@pytest.mark.parametrize("n", [128, 512])
def test_change_of_cells_keeps_the_function(n: int) -> None:
    def wave(x: np.ndarray) -> np.ndarray:
        return np.asarray(0.3 + np.sin(2 * np.pi * 3 * x / 16 + 1) - 0.4 * np.cos(2 * np.pi * x / 16))

    changed = burgers.change_cells(torch.from_numpy(cell_means(wave, 256)), n)
    assert np.abs(changed.numpy() - cell_means(wave, n)).max() < 1e-13


def test_burgers_initial_state_and_forcing_are_cell_means() -> None:
    """The same law on twice as many cells, brought back, is the same state and the same force."""
    coarse, fine = systems.get("burgers"), systems.get("burgers", n_points=512)
    u0, xi = coarse.sample("train", range(5))
    fine_u0, _ = fine.sample("train", range(5))
    assert float((burgers.change_cells(fine_u0, 256) - u0).abs().max()) < 1e-12
    force, fine_force = coarse.forcing(0.7, xi, u0), fine.forcing(0.7, xi, fine_u0)
    assert float((burgers.change_cells(fine_force, 256) - force).abs().max()) < 1e-12


def test_combined_carries_a_kdv_soliton() -> None:
    """u_t + 6 u u_x + u_xxx = 0 has u = c/2 sech^2(sqrt(c)/2 (x - ct)); it crosses the seam here."""
    system = systems.get("combined")
    x, speed = system.axes["x"], 9.0

    def soliton(centre: float) -> Tensor:
        distance = torch.remainder(x - centre + 8, 16) - 8
        return speed / 2 / torch.cosh(math.sqrt(speed) / 2 * distance) ** 2

    errors = []
    for dt in (0.05, 0.01):  # of the full step; short waves turn fast and take finer ones
        solved = replace(system, dt=dt).solve(
            soliton(14.0)[None, None], advection=6.0, diffusivity=0.0, dispersion=1.0, times=[0.5]
        )
        assert solved.outcome[0].label == "ok"
        errors.append(relative_error(solved[0, 0, 0], soliton(18.5)))
    assert errors[1] < 5e-7
    assert errors[0] > 10 * errors[1]  # what is left is the time step


def test_printed_flux_is_twice_the_released_one() -> None:
    u0, _ = systems.get("combined").sample("train", range(2))
    named = {"diffusivity": 0.1, "dispersion": 0.3, "times": [1.0]}
    printed = systems.get("combined", flux="alpha u^2").solve(u0, advection=0.4, **named)
    assert relative_error(printed, systems.get("combined").solve(u0, advection=0.8, **named)) < 1e-13


@pytest.mark.parametrize("dispersion", [0.0, 1.0, -0.7])
def test_combined_without_transport_is_exact_per_mode(dispersion: float) -> None:
    system, beta = systems.get("combined"), 0.3
    x, times = system.axes["x"], [0.7, 10.0]
    u0, exact = torch.zeros_like(x), [torch.zeros_like(x) for _ in times]
    for amplitude, mode, phase in ((0.5, 1, 0.3), (0.2, 4, 2.0), (-0.1, 30, 1.0)):
        k = 2 * math.pi * mode / 16
        u0 = u0 + amplitude * torch.sin(k * x + phase)
        for i, t in enumerate(times):
            exact[i] += amplitude * math.exp(-beta * k**2 * t) * torch.sin(k * x + phase + dispersion * k**3 * t)
    solved = system.solve(u0[None, None], advection=0.0, diffusivity=beta, dispersion=dispersion, times=times)
    assert float((solved[0, :, 0] - torch.stack(exact)).abs().max()) < 1e-10


# ---- shocks and fans -------------------------------------------------------------------------------------------
def test_godunov_flux_is_the_extremum_between_the_states() -> None:
    """min of u^2/2 over [left, right] where the characteristics part, max over [right, left] where they meet."""
    states = torch.linspace(-2.0, 2.0, 41, dtype=torch.float64)
    left, right = torch.meshgrid(states, states, indexing="ij")
    between = left[..., None] + (right - left)[..., None] * torch.linspace(0, 1, 4001, dtype=torch.float64)
    values = between**2 / 2
    brute = torch.where(left <= right, values.amin(-1), values.amax(-1))
    flux = weno.godunov(left, right)
    assert float((flux - brute).abs().max()) < 1e-6
    assert np.allclose(flux.numpy(), semidiscrete.riemann_flux(left.numpy(), right.numpy()), atol=1e-14)


def roe_flux(left: Tensor, right: Tensor) -> Tensor:
    """Upwind by the mean state: no sonic point, hence expansion shocks."""
    return torch.where(left + right >= 0, left**2, right**2) / 2


def largest_jump_of_a_transonic_fan() -> tuple[float, float]:
    """u = -1, then +1: the largest step between neighbours inside the fan at t = 2, and the distance from x/t."""
    system = systems.get("burgers")
    x = system.axes["x"] - 8.0
    u0 = torch.where(x < -1 / 64, -1.0, 1.0).double()
    solved = system.solve(u0[None, None], diffusivity=0.0, times=[2.0])[0, 0, 0]
    fan = (x.abs() < 1.9).nonzero().flatten()
    return float(solved[fan].diff().abs().max()), float((solved[fan] - (x[fan] + 1 / 32) / 2).abs().mean())


def test_transonic_rarefaction_has_no_expansion_shock() -> None:
    jump, distance = largest_jump_of_a_transonic_fan()
    assert jump < 0.1  # x/t rises by 1/32 per cell
    assert distance < 0.01
    with mutants.replaced(weno, "godunov", roe_flux):
        jump, _ = largest_jump_of_a_transonic_fan()
    assert jump > 1.0


def test_burgers_shock_moves_at_the_mean_of_its_states() -> None:
    """u = 1 behind, 0 ahead: the front moves by t/2; the fan behind it does not reach it by t = 2."""
    system = systems.get("burgers")
    x = system.axes["x"]
    u0 = ((x > 2) & (x < 8)).double()
    solved = system.solve(u0[None, None], diffusivity=0.0, times=[2.0])[0, 0, 0]
    mass = float(u0.sum() / 16)
    assert float(solved.sum() / 16) == pytest.approx(mass, abs=1e-12)
    front = float(((solved > 0.5) & (x > 6)).nonzero().max() / 16)
    assert front == pytest.approx(9.0, abs=2 / 16)
    assert float(solved.max()) < 1.01
    assert float(solved.min()) > -0.01


# ---- flows -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("m", "viscosity"), [(2.0, 1e-5), (2.0, 1e-3), (4.0, 0.01), (6.0, 0.0)])
def test_heterns_from_rest_with_even_forcing_is_one_growing_mode(m: float, viscosity: float) -> None:
    """Lawson's scheme is exact here, whatever the step."""
    system = systems.get("heterns", solver_grid=32, n_points=32, dt=0.25)
    rest = torch.zeros((1, 1, 32, 32), dtype=torch.float64)
    xi = system.xi(viscosity=viscosity, forcing_frequency=m)
    times = [1.0, 5.0]
    solved, decay = system.solve(rest, xi, times=times), viscosity * 2 * (m * math.pi) ** 2
    force = system.forcing(0.0, xi, rest)[0]
    for i, t in enumerate(times):
        growth = -math.expm1(-decay * t) / decay if decay else t
        assert float((solved[0, i] - growth * force).abs().max()) < 1e-12 * (1 + t)


@pytest.mark.parametrize("m", [0.0, 0.5, 1.0, 3.0])
def test_heterns_mean_drifts_with_the_mean_of_the_forcing(m: float) -> None:
    """The mean over the solver grid; sampled on a coarser grid a forcing with a jump has a slightly different mean."""
    system = systems.get("heterns", solver_grid=32, n_points=32)
    u0, _ = system.sample("train", 0, dtype=torch.float64)
    xi = system.xi(viscosity=1e-3, forcing_frequency=m)
    solved = system.solve(u0, xi, times=[1.0, 4.0]).as_subclass(Tensor)
    drift = float(system.forcing(0.0, xi, u0).mean())
    assert torch.allclose(
        solved.mean((-2, -1)).flatten(), drift * torch.tensor([1.0, 4.0], dtype=torch.float64), atol=1e-12
    )


def test_heterns_transport_is_the_advective_form() -> None:
    """One tiny step forward and back without viscosity gives the transport, up to h^2."""
    system, n, h = systems.get("heterns", solver_grid=64), 64, 1e-3
    x, y = (2 * math.pi * axis / n for axis in torch.meshgrid(*(torch.arange(n).double(),) * 2, indexing="ij"))
    omega = torch.sin(x) + torch.cos(2 * x + y) - torch.sin(3 * y - x + 0.4)
    xi = system.xi(viscosity=0.0, forcing_frequency=0.0)  # forcing 0.1 everywhere
    stepper = system.stepper(xi, omega[None, None])
    start = stepper.start(omega[None, None])
    ahead, behind = (stepper.observe(stepper.advance(start.clone(), 0.0, s * h, 1))[0, 0] for s in (1, -1))
    transport = (ahead - behind) / (2 * h) - 0.1
    exact = spectral.advection2(omega, 1.0)
    assert float((transport - exact).abs().max() / exact.abs().max()) < 1e-5
    half = (stepper.observe(stepper.advance(start.clone(), 0.0, s * h / 2, 1))[0, 0] for s in (1, -1))
    better = (next(half) - next(half)) / h - 0.1
    assert float(((4 * better - transport) / 3 - exact).abs().max() / exact.abs().max()) < 1e-8


def test_both_flow_solvers_agree() -> None:
    """The stencil solver of Vorticity and the spectral one of HeterNS on one smooth flow, second-order apart."""
    n = 64
    x, y = (2 * math.pi * axis / n for axis in torch.meshgrid(*(torch.arange(n).double(),) * 2, indexing="ij"))
    omega = (torch.sin(x) * torch.cos(y) + 0.5 * torch.cos(x - 2 * y))[None, None]
    stencil = systems.get("vorticity", n_points=n, solver_grid=n).solve(omega, viscosity=0.02, times=[1.0])
    fourier = systems.get("heterns", n_points=n, solver_grid=n, length=2 * math.pi)
    xi = fourier.xi(viscosity=0.02, forcing_frequency=0.0)
    spectral_solution = fourier.solve(omega, xi, times=[1.0]).as_subclass(Tensor) - 0.1  # mean drift of m = 0
    assert relative_error(stencil, spectral_solution) < 4e-3


# ---- Gray-Scott ------------------------------------------------------------------------------------------------
def test_gray_scott_rests_without_b() -> None:
    system = systems.get("gray_scott")
    u0 = torch.stack((torch.ones(32, 32), torch.zeros(32, 32))).double()[None]
    solved = system.solve(u0, feed=0.04, kill=0.06)
    assert float((solved - u0[:, None]).abs().max()) == 0.0


def test_uniform_gray_scott_is_an_ordinary_differential_equation() -> None:
    system = systems.get("gray_scott", dt=0.1)
    start = np.array([0.3, 0.9])
    u0 = torch.from_numpy(start)[None, :, None, None].expand(1, 2, 32, 32)
    solved = system.solve(u0, feed=0.04, kill=0.06, times=[50.0])[0, 0].numpy()

    def rhs(_t: float, state: np.ndarray) -> np.ndarray:
        a, b = state
        return np.array([-a * b**2 + 0.04 * (1 - a), a * b**2 - 0.1 * b])

    truth = semidiscrete.integrate(rhs, start, 50.0)
    assert np.ptp(solved, axis=(1, 2)).max() < 1e-14
    assert np.abs(solved[:, 0, 0] - truth).max() < 1e-8


def test_gray_scott_without_reaction_keeps_the_mean_deficit() -> None:
    """b = 0: diffusion moves a about, feed pulls its mean to 1 as e^{-Ft}."""
    system = systems.get("gray_scott")
    u0, _ = system.sample("train", 3)
    u0[:, 1] = 0.0
    solved = system.solve(u0, feed=0.03, kill=0.06, times=[100.0]).as_subclass(Tensor)
    deficit = 1 - float(u0[0, 0].mean())
    assert 1 - float(solved[0, 0, 0].mean()) == pytest.approx(deficit * math.exp(-3.0), rel=1e-8)
    assert float(solved[0, 0, 1].abs().max()) == 0.0

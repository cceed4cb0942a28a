"""What the equations keep, the schemes keep: to rounding where the scheme is built for it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from pdejepa import systems
from pdejepa.operators import arakawa, chebyshev, spectral, weno
from tests.verification import mutants, semidiscrete
from tests.verification.geometry import quadrature

pytestmark = pytest.mark.verification


def random_fields(n: int = 24) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    psi, omega = torch.randn((2, n, n), generator=generator, dtype=torch.float64)
    return psi, omega


def arakawa_sums() -> list[float]:
    """Mean of J, psi J and omega J for random fields, relative to their sizes."""
    psi, omega = random_fields()
    tendency = arakawa.jacobian(arakawa.neighbours(psi), arakawa.neighbours(omega), 0.1)
    return [
        float((factor * tendency).sum() / (factor * tendency).abs().sum())
        for factor in (torch.ones_like(psi), psi, omega)
    ]


def test_arakawa_keeps_mean_energy_and_enstrophy() -> None:
    assert max(map(abs, arakawa_sums())) < 1e-14


@pytest.mark.parametrize("mutant", [mutants.advective_jacobian, mutants.jacobian_without_one_form])
def test_arakawas_forms_alone_do_not(mutant: object) -> None:
    with mutants.replaced(arakawa, "jacobian", mutant):
        assert max(map(abs, arakawa_sums())) > 1e-3


def test_arakawa_equals_the_mean_of_its_three_forms_and_is_antisymmetric() -> None:
    psi, omega = random_fields()
    around_psi, around_omega = arakawa.neighbours(psi), arakawa.neighbours(omega)
    tendency = arakawa.jacobian(around_psi, around_omega, 0.1)
    forms = semidiscrete.arakawa_forms(psi.numpy(), omega.numpy(), 0.1)
    assert np.allclose(tendency.numpy(), sum(forms) / 3, rtol=0, atol=1e-11)
    assert torch.allclose(tendency, -arakawa.jacobian(around_omega, around_psi, 0.1), rtol=0, atol=1e-11)


def test_inviscid_vorticity_keeps_energy_and_enstrophy() -> None:
    """The grid keeps both; what is lost is the time step's, fifth order for RK4 on an oscillation."""
    drift = {}
    for dt in (0.01, 0.005):
        system = systems.get("vorticity", n_points=32, solver_grid=32, dt=dt)
        u0 = system.sample("train", 1, dtype=torch.float64)[0] / 4
        omega = system.solve(u0, viscosity=0.0, times=[0.0, 1.0])[0, :, 0]
        energy, enstrophy = system.energy(omega), omega.pow(2).mean((-2, -1))
        drift[dt] = max(abs(float(value[1] / value[0] - 1)) for value in (energy, enstrophy))
        assert abs(float(omega[1].mean())) < 1e-14
    assert drift[0.005] < 1e-8
    assert drift[0.01] > 12 * drift[0.005]


def test_combined_keeps_mean_and_energy_without_diffusion() -> None:
    """Dealiasing makes the transport energy-neutral; without it, energy leaks where the wave is not resolved."""

    def energy_error() -> float:
        system = systems.get("combined", n_points=48, dt=1e-3)
        x = system.axes["x"]
        u0 = (1.0 + torch.sin(2 * math.pi * x / 16) + 0.5 * torch.cos(6 * math.pi * x / 16))[None, None]
        solved = system.solve(u0, advection=1.0, diffusivity=0.0, dispersion=0.01, times=[0.0, 3.0])[0, :, 0]
        assert abs(float(solved[1].mean() - 1)) < 1e-13
        energy = solved.pow(2).mean(1)
        return abs(float(energy[1] / energy[0] - 1))

    assert energy_error() < 1e-9
    with mutants.replaced(spectral, "dealias_mask", mutants.no_dealiasing):
        assert energy_error() > 1e-6


def test_diffusion_only_takes_energy() -> None:
    system = systems.get("combined")
    u0, xi = system.sample("train", range(6))
    energy = system.solve(u0, xi).as_subclass(Tensor).pow(2).mean((2, 3))
    assert bool((energy.diff(dim=1) < 0).all())


def test_burgers_keeps_its_mean_and_its_bounds() -> None:
    """Unforced: mass to rounding; range and total variation never grow, up to WENO's small excess."""
    system = systems.get("burgers")
    u0, _ = system.sample("train", range(6))
    solved = system.solve(u0 + 0.3, diffusivity=1e-3, times=[0.0, 1.0, 2.0, 4.0]).as_subclass(Tensor)[:, :, 0]
    assert float((solved.mean(2) - solved[:, :1].mean(2)).abs().max()) < 1e-13
    top, bottom = solved.amax(2), solved.amin(2)
    assert float((top - top[:, :1]).max()) < 1e-3
    assert float((bottom[:, :1] - bottom).max()) < 1e-3
    variation = (solved.roll(-1, 2) - solved).abs().sum(2)
    assert float((variation.diff(dim=1) / variation[:, :1]).max()) < 1e-3


def test_weno_tendency_is_conservative_and_mirror_symmetric() -> None:
    """Sum zero; reflecting x and u together leaves the equation as it is."""
    u = torch.randn((3, 40), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tendency = weno.burgers_tendency(u, 0.1)
    assert float(tendency.sum(1).abs().max()) < 1e-11
    assert torch.allclose(weno.burgers_tendency(-u.flip(1), 0.1), -tendency.flip(1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [33, 64])
def test_clenshaw_curtis_integrates_polynomials_exactly(n: int) -> None:
    x, weights = chebyshev.nodes(n, 8.0), quadrature(n, 8.0)
    for power in (0, 2, 6, 12):
        exact = 2 * 8.0 ** (power + 1) / (power + 1)
        assert float(weights @ x**power) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("name", systems.NAMES)
def test_invariants_hold_on_generated_data(name: str) -> None:
    """The checks that an audit applies to files pass on what the solvers make."""
    system = systems.get(name).at_size("tiny")
    made = system.generate("train", {"vorticity": 1, "heterns": 2}.get(name, 8))
    for check in system.invariants(made.fields.double(), made.xi, made.times):
        assert check.passed, f"{name}: {check.name}: {check.value:g} > {check.bound:g}"


@pytest.mark.parametrize("name", systems.NAMES)
def test_invariants_notice_damage(name: str) -> None:
    """Noise of a tenth of the fields' size must break at least one check."""
    smaller = {
        "heterns": {"n_points": 16, "solver_grid": 16, "dt": 0.1},
        "vorticity": {"n_points": 16, "solver_grid": 16},
    }
    system = systems.get(name, **smaller.get(name, {}))
    made = system.generate("train", 2)
    fields = made.fields.double()
    noise = torch.randn(fields.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    size = fields.pow(2).mean((0, 1, *range(3, fields.ndim)), keepdim=True).sqrt()
    grown = 1.5 * fields + 0.3 * size * noise
    assert any(not check.passed for check in system.invariants(grown, made.xi, made.times))

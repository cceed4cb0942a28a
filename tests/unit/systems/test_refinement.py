"""The error in space: told by ranges, and as large as the order of the scheme says."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pdejepa import systems
from pdejepa.solve.march import March
from pdejepa.systems import vorticity
from pdejepa.systems.base import System
from pdejepa.systems.flow import SpectralStepper
from pdejepa.systems.refinement import by_range

SMALL = {
    "burgers": {"n_points": 64},
    "gray_scott": {},
    "heterns": {"solver_grid": 64, "dt": 1 / 40},
    "vorticity": {"solver_grid": 64, "n_points": 32, "dt": 1 / 60},
}


def test_means_by_range() -> None:
    values, error = torch.tensor([0.5, 1.0, 1.5, 9.0]), torch.tensor([1.0, 2.0, 4.0, 8.0])
    told = by_range("32 -> 64 points", "feed", values, error, (0.0, 1.0, 2.0, 5.0, math.inf))
    assert told == {
        "32 -> 64 points, feed in [0, 1)": 1.0,
        "32 -> 64 points, feed in [1, 2)": 3.0,
        "32 -> 64 points, feed in [5, inf)": 8.0,
    }


def rows_of(system: System, split: str, rows: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    u0, xi = system.sample(split, rows)
    return u0, xi, system.solve(u0, xi).as_subclass(Tensor)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "heterns")) for n in SMALL])
def test_stepped_systems_tell_it_by_parameter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vorticity, "SPECTRAL_GRID", 96)
    system = systems.get(name, **SMALL[name])
    told = system.refinement_report(*rows_of(system, "train", [1, 2]))
    word = system.parameter_names[0]
    assert told
    assert all(f", {word} in [" in what for what in told)
    assert all(0 < error < 1 for error in told.values())


def test_vorticity_is_of_second_order_against_the_spectral_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vorticity, "SPECTRAL_GRID", 128)
    errors = []
    for n in (64, 128):
        system = systems.get("vorticity", solver_grid=n, n_points=32, dt=1 / 60, k0=2.0)
        u0, _ = system.sample("train", 0)
        xi = system.xi(viscosity=0.02)
        (error,) = system.refinement_report(u0, xi, system.solve(u0, xi).as_subclass(Tensor)).values()
        errors.append(error)
    assert math.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.2)


def test_the_spectral_flow_is_exact_for_taylor_green_vortices() -> None:
    system, n = systems.get("vorticity"), 16
    x = torch.arange(n, dtype=torch.float64) * (system.length / n)
    omega = (torch.sin(2 * x)[:, None] * torch.sin(2 * x)[None, :])[None, None].repeat(2, 1, 1, 1)
    xi = torch.tensor([[0.01], [0.05]], dtype=torch.float64)
    solved, status = March(SpectralStepper(system, xi, n, omega), 2, 0.01, 10_000, math.inf).run(omega, [0.5, 1.0], 0.0)
    for frame, t in enumerate((0.5, 1.0)):
        expected = omega * torch.exp(-8 * xi * t)[..., None, None]
        torch.testing.assert_close(solved[:, frame], expected, rtol=1e-9, atol=1e-12)
    assert status.tolist() == [0, 0]

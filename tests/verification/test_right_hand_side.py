"""`rhs` is the time derivative of `solve`, and splits into the terms that a structured predictor mirrors."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pdejepa import systems
from pdejepa.systems.base import System
from tests.verification.orders import relative_error

pytestmark = pytest.mark.verification


def sampled(name: str, n: int = 3) -> tuple[System, Tensor, Tensor]:
    """A system, states that its right-hand side acts on, and parameters, all float64."""
    system = systems.get(name).at_size("tiny")
    u, xi = system.sample("train", range(n), dtype=torch.float64)
    if name == "wave_b":  # u and u_t, not small at the ends, where the terms differ
        u = torch.cat((u + torch.cos(system.axes["x"] / 3), u.flip(-1)), 1)
    if name == "wave_2d":  # the sampled start is at rest
        u[:, 1] = 1000 * u[:, 0].flip(-1)
    return system, u, xi


def slope_of_frames(system: System, u0: Tensor, xi: Tensor, t: float, step: float) -> tuple[Tensor, Tensor]:
    """Frame at t and its time derivative, by fourth-order differences of five frames."""
    times = [t + j * step for j in (-2, -1, 0, 1, 2)]
    far_back, back, now, ahead, far_ahead = system.solve(u0, xi, times=times).as_subclass(Tensor).unbind(1)
    return now, (far_back - 8 * back + 8 * ahead - far_ahead) / (12 * step)


@pytest.mark.parametrize(
    ("name", "t", "step", "tolerance"),
    [
        ("advection", 5.0, 1e-2, 1e-9),
        ("burgers", 0.5, 1e-3, 1e-7),
        ("heat", 1.3, 1e-2, 1e-8),
        ("combined", 0.5, 1e-3, 1e-7),
        ("wave_2d", 1e-3, 4e-7, 1e-7),
        ("gray_scott", 30.0, 1e-2, 1e-8),
    ],
)
def test_rhs_is_the_derivative_of_the_solution(name: str, t: float, step: float, tolerance: float) -> None:
    system, u0, xi = sampled(name, 6)
    now, slope = slope_of_frames(system, u0, xi, t, step)
    for channel in range(now.shape[1]):
        assert relative_error(system.rhs(now, t, xi)[:, channel], slope[:, channel]) < tolerance


def test_wave_b_rhs_is_the_derivative_of_the_solution() -> None:
    """The state is (u, u_t); u_t is what the propagator makes of c u0'."""
    system = systems.get("wave_b")
    x = system.axes["x"]
    u0 = torch.exp(-((x - 1.0) ** 2))
    both, t, step = torch.stack((u0, -4 * (x - 1.0) * u0))[:, None], 3.9, 1e-3  # at the left end, turning
    for left, right in ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)):
        xi = system.xi(bc_left=left, bc_right=right)
        now, slope = slope_of_frames(system, both, xi.expand(2, -1), t, step)  # rows: u and u_t
        state = now[:, 0][None]  # (1,2,N)
        assert relative_error(system.rhs(state, t, xi)[0], slope[:, 0]) < 1e-6


def test_vorticity_rhs_is_the_limit_of_the_stencil_solver() -> None:
    """`rhs` is spectral on the stored grid, the solver second order on a finer one; they meet as that is refined."""
    errors = []
    for grid in (32, 64, 128):
        system = systems.get("vorticity", n_points=32, solver_grid=grid, dt=0.01)
        x, y = (
            2 * math.pi * axis / grid for axis in torch.meshgrid(*(torch.arange(grid).double(),) * 2, indexing="ij")
        )
        u0 = (torch.sin(x) * torch.cos(2 * y) + 0.6 * torch.cos(2 * x - y))[None, None]
        xi = system.xi(viscosity=5e-3)
        now, slope = slope_of_frames(system, u0, xi, 0.5, 1e-2)
        errors.append(relative_error(system.rhs(now, 0.5, xi), slope))
    assert errors[-1] < 1e-2
    assert errors[0] > 3 * errors[1] > 9 * errors[2]


def test_heterns_rhs_is_the_derivative_of_the_solution() -> None:
    """Exact for an even forcing frequency and a resolved flow."""
    system = systems.get("heterns", solver_grid=64, dt=1e-2)
    x, y = (2 * math.pi * axis / 64 for axis in torch.meshgrid(*(torch.arange(64).double(),) * 2, indexing="ij"))
    u0 = (torch.sin(x) * torch.cos(2 * y) + 0.6 * torch.cos(2 * x - y))[None, None]
    xi = system.xi(viscosity=1e-3, forcing_frequency=2.0)
    now, slope = slope_of_frames(system, u0, xi, 0.5, 1e-2)
    assert relative_error(system.rhs(now, 0.5, xi), slope) < 1e-7


@pytest.mark.parametrize("name", systems.NAMES)
def test_rhs_is_shared_plus_terms_plus_forcing(name: str) -> None:
    system, u, xi = sampled(name)
    named = system.named(xi)
    total = system.shared(u) + system.forcing(0.3, xi, u)
    for j, term in enumerate(system.structure.terms):
        weight = (term.sign * term.coefficient(named)).reshape(-1, *[1] * (u.ndim - 1))
        total = total + weight * system.operators(u)[:, j]
    assert relative_error(total, system.rhs(u, 0.3, xi)) < 1e-13


@pytest.mark.parametrize("name", systems.NAMES)
def test_rhs_is_linear_in_the_normalised_coefficients(name: str) -> None:
    """rhs = C + sum_j r_j D_j with C = shared + forcing + sum_j sign_j centre_j operator_j and D_j = d rhs / d r_j."""
    system, u, xi = sampled(name)
    train = system.sample("train", range(200))[1]
    fitted = system.coefficients(train)
    r, responses = fitted.r(system.named(xi)), system.responses(u, fitted)  # (B,M), (B,M,C,*grid)
    ones = [1] * (u.ndim - 1)
    centre = (fitted.sign * fitted.centre).reshape(1, -1, *ones)
    total = system.shared(u) + system.forcing(0.3, xi, u) + (centre * system.operators(u)).sum(1)
    total = total + (r.reshape(*r.shape, *ones) * responses).sum(1)
    assert relative_error(total, system.rhs(u, 0.3, xi)) < 1e-12


def moved(xi: Tensor, column: int, amount: float) -> Tensor:
    out = xi.clone()
    out[:, column] += amount
    return out


@pytest.mark.parametrize("name", [name for name in systems.NAMES if name != "wave_b"])
def test_responses_are_the_derivatives_of_the_rhs(name: str) -> None:
    """Move each parameter a little: the right-hand side moves by sum_j D_j dr_j."""
    system, u, xi = sampled(name)
    fitted = system.coefficients(system.sample("train", range(200))[1])
    responses, ones, touched = system.responses(u, fitted), [1] * (u.ndim - 1), 0
    for column, parameter in enumerate(system.parameters):
        if parameter.name.startswith("forcing"):
            continue
        amount = 1e-4 * max(abs(value) for value in parameter.train)
        up, down = moved(xi, column, amount), moved(xi, column, -amount)
        change = system.rhs(u, 0.0, up) - system.rhs(u, 0.0, down)
        dr = fitted.r(system.named(up)) - fitted.r(system.named(down))  # (B,M)
        assert relative_error((dr.reshape(*dr.shape, *ones) * responses).sum(1), change) < 1e-7
        touched += int(bool((dr != 0).any()))
    assert touched == len(system.structure.terms)


def test_wave_b_responses_are_what_an_exchange_of_ends_changes() -> None:
    system, u, _ = sampled("wave_b", 1)
    fitted = system.coefficients(system.sample("train", range(8))[1])
    responses = system.responses(u, fitted)
    pairs = {code: system.xi(bc_left=float(code[0] == "N"), bc_right=float(code[1] == "N")) for code in fitted.names}
    for i, (first, xi) in enumerate(pairs.items()):
        assert fitted.r(system.named(xi)).tolist() == [[float(code == first) for code in fitted.names]]
        for j, other in enumerate(pairs.values()):
            if i != j:
                change = system.rhs(u, 0.0, xi) - system.rhs(u, 0.0, other)
                assert relative_error(responses[:, i] - responses[:, j], change) < 1e-8


@pytest.mark.parametrize("name", systems.NAMES)
def test_normalised_coefficients_have_unit_size_on_train(name: str) -> None:
    system = systems.get(name, **({"solver_grid": 16, "n_points": 16} if name in ("vorticity", "heterns") else {}))
    xi = system.sample("train", range(1200))[1]
    fitted = system.coefficients(xi)
    r = fitted.r(system.named(xi))
    for j, term in enumerate(system.structure.terms):
        size = {
            "rms": r[:, j].pow(2).mean().sqrt(),
            "mean_abs": r[:, j].abs().mean(),
            "midrange": r[:, j].abs().max(),
            "unit": r[:, j].abs().max(),
        }[term.rule]
        assert float(size) == pytest.approx(1.0, rel=1e-12)
        assert math.isfinite(float(fitted.scale[j]))

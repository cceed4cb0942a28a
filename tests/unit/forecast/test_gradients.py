"""Forecasts carry gradients when they are asked to: to parameters by name, to xi, and to the state."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import pdejepa
from pdejepa.forecast.forecaster import Forecaster
from tests.unit.forecast import tiny

N_FRAMES = 3


@pytest.fixture(scope="module")
def model() -> Forecaster:
    return pdejepa.load("combined", "cpu")


def loss(model: Forecaster, u0: Tensor, xi: Tensor) -> Tensor:
    return model.forecast(u0, xi, n_frames=N_FRAMES, gradients=True).new.double().square().mean()


def test_gradients_are_difference_quotients(model: Forecaster) -> None:
    u0, xi = model.system.sample("test", 1)
    xi.requires_grad_(True)
    u0.requires_grad_(True)
    by_xi, by_u = torch.autograd.grad(loss(model, u0, xi), (xi, u0))
    with torch.no_grad():
        for j in range(3):
            h = torch.zeros_like(xi)
            h[0, j] = 1e-3
            slope = (loss(model, u0, xi + h) - loss(model, u0, xi - h)) / 2e-3
            assert float(by_xi[0, j]) == pytest.approx(float(slope), rel=2e-2, abs=1e-4)
        direction = torch.sin(torch.linspace(0, 6.28, 256, dtype=u0.dtype)).reshape(u0.shape)
        slope = (loss(model, u0 + 1e-3 * direction, xi) - loss(model, u0 - 1e-3 * direction, xi)) / 2e-3
        assert float((by_u * direction).sum()) == pytest.approx(float(slope), rel=2e-2, abs=1e-4)


def test_parameters_by_name(model: Forecaster) -> None:
    u0, _ = model.system.sample("test", 1)
    advection = torch.tensor(0.5, requires_grad=True)
    result = model.forecast(u0, advection=advection, diffusivity=0.1, dispersion=0.2, n_frames=2, gradients=True)
    result.new.sum().backward()
    assert advection.grad is not None
    assert float(advection.grad.abs()) > 0


def test_usually_there_are_none(model: Forecaster) -> None:
    u0, xi = model.system.sample("test", 1)
    result = model.forecast(u0, xi.requires_grad_(True), n_frames=2)
    assert not result.fields.requires_grad
    assert not result.xi.requires_grad


def test_values_are_the_same_with_and_without() -> None:
    for name in ("burgers", "wave_b"):
        model = tiny.forecaster(name)
        u0, values = tiny.state(model.problem, 2), tiny.middle(model.problem)
        plain = model.forecast(u0, values, n_frames=N_FRAMES).fields
        found = model.forecast(u0.requires_grad_(True), values, n_frames=N_FRAMES, gradients=True).fields
        assert found.requires_grad
        model.is_quick = False  # with gradients every network is asked as it was trained
        same = model.forecast(u0.detach(), values, n_frames=N_FRAMES).fields
        torch.testing.assert_close(found.detach(), same, rtol=1e-6, atol=1e-7)
        assert float((found.detach() - plain).norm() / plain.norm()) < 1e-5

"""Forcing: from parameters, as coefficients, as a field, as a function of time and place."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pdejepa.core.errors import DataError, ParameterError
from pdejepa.forecast.forecaster import Forecaster
from tests.unit.forecast import tiny

SINE = {"forcing_amplitude_1": 0.4, "forcing_frequency_1": 0.3, "forcing_mode_1": 2.0, "forcing_phase_1": 1.0}


def sine(t: Tensor, x: Tensor) -> Tensor:
    return 0.4 * torch.sin(0.3 * t + 2 * math.pi * 2 * x / 16 + 1.0)


@pytest.fixture(scope="module", params=["heat", "burgers"])
def model(request: pytest.FixtureRequest) -> Forecaster:
    return tiny.forecaster(request.param, speed=300.0)


def gap(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().amax())


def test_the_same_sine_by_hand(model: Forecaster) -> None:
    u0 = tiny.state(model.system, 2)
    for t0 in (None, 1.5):
        named = model.forecast(u0, diffusivity=0.5, t0=t0, n_frames=6, **SINE)
        by_hand = model.forecast(u0, diffusivity=0.5, t0=t0, n_frames=6, forcing=sine)
        coefficients = model.forecast(u0, diffusivity=0.5, t0=t0, n_frames=6, forcing=SINE)
        without = model.forecast(u0, diffusivity=0.5, t0=t0, n_frames=6)
        effect = gap(named.fields, without.fields)
        assert effect > 1e-3
        assert gap(named.fields, by_hand.fields) < 1e-3 * effect  # burgers takes cell means, 1e-4 smaller
        assert torch.equal(named.fields, coefficients.fields)
        assert float(named.times[0]) == (t0 or 0.0)
    assert gap(model.forecast(u0, diffusivity=0.5, t0=5.0, n_frames=6, **SINE).fields, named.fields) > 1e-4


def test_no_forcing_at_all(model: Forecaster) -> None:
    u0 = tiny.state(model.system)
    quiet = model.forecast(u0, diffusivity=0.5, n_frames=4)  # amplitudes are zero by default
    for nothing in (0.0, torch.zeros(256), lambda t, x: 0 * x, {"forcing_amplitude_3": 0.0}):
        assert torch.equal(model.forecast(u0, diffusivity=0.5, n_frames=4, forcing=nothing).fields, quiet.fields)


def test_shapes_of_fields(model: Forecaster) -> None:
    u0 = tiny.state(model.system, 2)
    field = 0.3 * tiny.state(model.system, 1, seed=2)[0, 0]  # (N,)
    run = lambda forcing: model.forecast(u0, diffusivity=0.5, n_frames=3, forcing=forcing).fields  # noqa: E731
    expected = run(field)
    assert gap(expected, run(None)) > 1e-3
    for same in (field[None], field[None, None].expand(2, 1, -1), field.numpy(), lambda t, x: field):
        assert torch.equal(run(same), expected)
    two = torch.stack((field, 2 * field))[:, None]  # (2,1,N): one for each row
    assert torch.equal(run(two)[0], expected[0])
    assert gap(run(two)[1], expected[1]) > 1e-4
    assert torch.equal(run(lambda t, x: two), run(two))


def test_support_of_an_own_field(model: Forecaster) -> None:
    result = model.forecast(tiny.state(model.system), diffusivity=0.5, n_frames=2, forcing=sine)
    assert [sentence[:11] for sentence in tiny.told(result).sentences] == ["Not checked"]
    assert tiny.told(result).is_inside


def test_a_plane() -> None:
    model = tiny.forecaster("heterns", speed=300.0)
    u0 = tiny.state(model.system)

    def bands(t: Tensor, x: Tensor, y: Tensor) -> Tensor:
        assert x.shape == (64, 1)
        assert y.shape == (1, 64)
        return 0.1 * (torch.sin(2 * math.pi * (x + y)) + torch.cos(2 * math.pi * (x + y)))

    named = model.forecast(u0, viscosity=1e-4, forcing_frequency=2.0, n_frames=3)
    by_hand = model.forecast(u0, viscosity=1e-4, forcing=bands, n_frames=3)  # the frequency need not be given
    other = model.forecast(u0, viscosity=1e-4, forcing_frequency=3.0, n_frames=3)
    assert gap(named.fields, other.fields) > 1e-3
    assert gap(named.fields, by_hand.fields) < 1e-5
    three = model.system.xi(viscosity=1e-4, forcing_frequency=3.0)
    replaced = model.forecast(u0, three, forcing={"forcing_frequency": 2}, n_frames=3)
    assert torch.equal(replaced.fields, named.fields)


@pytest.mark.parametrize(
    ("forcing", "words"),
    [
        (torch.zeros(128), r"expects the forcing as \(1, 256\) or \(2, 1, 256\); got \(128,\)"),
        (torch.zeros(3, 1, 256), r"got \(3, 1, 256\)"),
        (torch.zeros(1, 1, 1, 256), "expects the forcing"),
        (torch.full((256,), torch.nan), "NaN or infinite"),
        (lambda t, x: x / 0, "NaN or infinite values at t = 0"),
        (lambda t, x: x[:7], r"got \(7,\)"),
        (lambda t, x: "wind", "array of real numbers"),
        ("wind", "array of real numbers"),
        (1e60, "the forcing must fit single precision"),
        (lambda t, x: 1 / 0, r"called as f\(t, x\), ended with ZeroDivisionError: division by zero\."),
        (lambda t: t, "ended with TypeError: .* takes 1 positional argument"),
        (lambda t, x: x / (t < 0.1) if t < 0.1 else {}[t], "ended with KeyError"),  # only later
    ],
)
def test_wrong_fields(forcing: Any, words: str) -> None:
    model = tiny.forecaster("heat")
    with pytest.raises(DataError, match=words):
        model.forecast(tiny.state(model.system, 2), diffusivity=0.5, forcing=forcing)


def test_the_own_failure_of_a_function_is_kept() -> None:
    model = tiny.forecaster("heat")
    with pytest.raises(DataError) as caught:
        model.forecast(tiny.state(model.system), diffusivity=0.5, forcing=lambda t, x: 1 / 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_wrong_coefficients() -> None:
    model = tiny.forecaster("heat")
    u0 = tiny.state(model.system)
    with pytest.raises(ParameterError, match="did you mean 'forcing_amplitude_1'"):
        model.forecast(u0, diffusivity=0.5, forcing={"forcing_amplitud_1": 1.0})
    with pytest.raises(ParameterError, match="no forcing coefficient 'diffusivity'"):
        model.forecast(u0, forcing={"diffusivity": 1.0})
    with pytest.raises(ParameterError, match="forcing_mode_1 is given twice"):
        model.forecast(u0, diffusivity=0.5, forcing_mode_1=1, forcing={"forcing_mode_1": 2})
    with pytest.raises(ParameterError, match="forcing_mode_1 must be one of"):
        model.forecast(u0, diffusivity=0.5, forcing={"forcing_mode_1": 2.5})


@pytest.mark.parametrize("forcing", [torch.zeros(256), sine, {"forcing_amplitude_1": 1.0}, 0.0])
def test_systems_without_forcing(forcing: Any) -> None:
    model = tiny.forecaster("advection")
    with pytest.raises(ParameterError, match="advection has no forcing"):
        model.forecast(tiny.state(model.system), speed=1.0, forcing=forcing)

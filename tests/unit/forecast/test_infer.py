"""Parameters from frames: a model finds what its own forecasts were made with, and says when it cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pdejepa.core.errors import DataError, ParameterError
from pdejepa.forecast import known_examples, least_squares, sensitivity
from pdejepa.forecast.denoise import FirstFrames
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.forecast.infer import infer
from pdejepa.forecast.least_squares import coordinate, value_at
from tests.unit.forecast import tiny

TRUTH = {"advection": 0.7, "diffusivity": 0.1, "dispersion": 0.3}


@pytest.fixture(scope="module")
def combined() -> Forecaster:
    return tiny.forecaster("combined", speed=200.0)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_examples, "N_CALIBRATION", 3)
    monkeypatch.setattr(least_squares, "N_STARTS", 16)


def own_frames(model: Forecaster, n: int = 5, **named: Any) -> Tensor:
    """A trajectory (n,C,*grid) of the model itself, so that its forecasts have no error."""
    history = model.surrogate.history
    first = model.system.generate("test", 1).fields[:, :history]
    # what inference begins with is filtered; then so is the truth
    silence = torch.zeros(first.shape[2], *[1] * (first.ndim - 3))
    first, _ = FirstFrames.of(model.system, history).filtered(first, silence)
    return model.forecast(first, n_frames=n - history, **named).fields[0]


@pytest.mark.parametrize("name", ["advection", "heat", "gray_scott", "wave_2d", "heterns"])
def test_derivatives_are_those_of_finite_differences(name: str) -> None:
    model = tiny.forecaster(name, speed=100.0)
    u, xi = tiny.state(model.system, 2)[:, None], model.system.xi(tiny.middle(model.system)).repeat(2, 1)
    varied = [0, xi.shape[1] - 1] if xi.shape[1] > 1 else [0]
    value, slopes = sensitivity.derivatives(model, u, xi, 3, varied)
    torch.testing.assert_close(value, sensitivity.frames(model, u, xi, 3), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(value, model.forecast(u, xi, n_frames=3).new, rtol=1e-4, atol=1e-5)
    for k, column in enumerate(varied):
        p = model.problem.parameters[column]
        step = torch.zeros_like(xi)
        step[:, column] = 1e-2 * (p.train[1] - p.train[0])
        ends = [sensitivity.frames(model, u, xi + sign * step, 3).double() for sign in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * step[0, column])
        apart = (slope - slopes[:, k].double()).norm() / slope.norm().clamp(min=1e-12)
        assert float(apart) < 2e-2, (name, column)


def test_a_model_finds_its_own_parameters(combined: Forecaster) -> None:
    found = infer(combined, own_frames(combined, **TRUTH), noise=0.0)
    for name, value in TRUTH.items():
        low, high = found[name].train
        assert abs(found[name].value - value) < 2e-3 * (high - low), found
    assert found.misfit < 1e-3
    assert found.correlation.shape == (3, 3)
    torch.testing.assert_close(found.correlation.diagonal(), torch.ones(3, dtype=torch.float64))
    assert found.to_dict()["parameters"]["advection"]["value"] == found["advection"].value
    assert "advection = 0.7" in repr(found)


@pytest.mark.slow
def test_some_points_of_some_frames_are_enough(combined: Forecaster) -> None:
    """Frames 0, 2 and 5, half of the points masked, a tenth NaN."""
    frames = own_frames(combined, 6, **TRUTH)[[0, 2, 5]]
    mask = torch.ones(frames.shape, dtype=torch.bool)
    mask[1:, :, ::2] = False
    frames[1:, :, 1:26] = torch.nan
    known = {"dispersion": TRUTH["dispersion"]}
    found = infer(combined, frames, known=known, at=[0, 2, 5], mask=mask, noise=0.0)
    assert [estimate.name for estimate in found.estimates] == ["advection", "diffusivity"]
    assert found["advection"].value == pytest.approx(TRUTH["advection"], abs=5e-3)


def test_a_parameter_without_effect_is_not_identifiable(combined: Forecaster) -> None:
    model = tiny.forecaster("combined", speed=200.0)
    for value in model.surrogate.field.D_heads[2].parameters():
        value.data.zero_()
    found = infer(model, own_frames(model, **TRUTH), noise=0.0)
    assert found["dispersion"].outcome == "not identifiable"
    low, high = found["dispersion"].low, found["dispersion"].high
    assert high - low > 0.5


@pytest.mark.slow
def test_a_parameter_beyond_the_range_ends_at_its_border(combined: Forecaster) -> None:
    found = infer(combined, own_frames(combined, **{**TRUTH, "advection": 1.3}), noise=0.0)
    assert found["advection"].value == pytest.approx(1.0, abs=1e-2)
    assert found["advection"].outcome == "at the border of the training range"
    assert {found[name].outcome for name in ("diffusivity", "dispersion")} <= {
        "another is at the border",
        "not identifiable",
    }


def test_ends_of_a_wave_are_enumerated() -> None:
    model = tiny.forecaster("wave_b", speed=30.0)
    found = infer(model, own_frames(model, 6, bc_left=1.0, bc_right=0.0))
    assert (found["bc_left"].value, found["bc_right"].value) == (1.0, 0.0)
    assert found["bc_left"].outcome == "ok"
    assert len(found.alternatives) == 4


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"unknown": ["speed"]}, ParameterError, "has no parameter 'speed'"),
        ({"unknown": ["advection"]}, ParameterError, "needs diffusivity, dispersion too"),
        ({"known": {"advection": 1.0}, "unknown": ["advection"]}, ParameterError, "both known and unknown"),
        ({"known": TRUTH}, ParameterError, "nothing is unknown"),
        ({"noise": -1.0}, ParameterError, "noise is relative"),
        ({"at": [0, 2]}, DataError, "at must number the 5 frames"),
        ({"at": [1, 2, 3, 4, 5]}, DataError, "beginning with 0"),
        ({"at": [0, 1, 2, 3, 14]}, DataError, "Frames up to number 14 were given"),
        ({"frames": torch.zeros(3, 7)}, DataError, r"observed frames as \(T, 1, 256\) with T = 2 or more"),
        ({"frames": torch.zeros(1, 1, 256)}, DataError, "at least one to compare with"),
        ({"mask": torch.zeros(5, 1, 256)}, DataError, "nothing was observed"),
    ],
)
def test_mistakes_are_named(combined: Forecaster, change: dict[str, Any], error: type[Exception], words: str) -> None:
    given = {"frames": own_frames(combined, **TRUTH), **change}
    with pytest.raises(error, match=words):
        infer(combined, given.pop("frames"), **given)


def test_coordinates_of_a_range() -> None:
    """0 and 1 are its ends; logarithmic where the law is, or where the ends differ by much."""
    speed, diffusivity = (tiny.forecaster(name).problem.parameters[0] for name in ("advection", "heat"))
    for parameter, middle in ((speed, 2.0), (diffusivity, (1e-3 * 5) ** 0.5)):
        ends = value_at(parameter, torch.tensor([0.0, 1.0, 0.5]))
        assert ends.tolist() == pytest.approx([*parameter.train, middle])
        assert coordinate(parameter, middle) == pytest.approx(0.5)


def test_noise_of_first_frames_is_taken_out_and_estimated() -> None:
    """Smooth states keep a fifth of it; without noise nothing changes; an unknown level is found within a third."""
    system = tiny.forecaster("combined").system
    law, clean = FirstFrames.of(system, 1), system.generate("test", 4).fields[:, :1]
    size = law.size
    noisy = clean + 0.02 * size * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    again, _ = law.filtered(noisy.float(), 0.02 * size)
    assert float((again - clean).norm()) < 0.2 * float((noisy - clean).norm())
    same, _ = law.filtered(clean, 0 * size)
    torch.testing.assert_close(same, clean, atol=1e-5, rtol=1e-5)
    level = law.filtered(noisy.float())[1]
    assert float(level / size) == pytest.approx(0.02, rel=0.33)
    assert float((law.filtered(clean)[1] / size).max()) < 2e-3


@pytest.mark.slow
def test_calibration_widens_intervals_where_forecasts_are_wrong(combined: Forecaster) -> None:
    """An untrained model is off on trajectories of the system, so it may not be sure of what its fits look like."""
    frames = own_frames(combined, **TRUTH)
    found = infer(combined, frames, noise=0.0)
    perfect = replace(found.estimates[0], low=found.estimates[0].value, high=found.estimates[0].value)
    assert found.estimates[0].high - found.estimates[0].low > 1e-3 > perfect.high - perfect.low

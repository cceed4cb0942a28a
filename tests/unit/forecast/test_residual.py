"""The residual of a forecast: zero for the truth, large for what breaks the equation, whatever the model is."""

from __future__ import annotations

import pytest
import torch

from pdejepa import systems
from pdejepa.core.errors import DataError
from pdejepa.forecast.residual import of_forecast, residuals
from tests.unit.forecast import tiny


@pytest.mark.parametrize("name", ["advection", "burgers", "combined", "gray_scott", "heat", "wave_2d"])
def test_true_frames_obey(name: str) -> None:
    system = systems.get(name).at_size("tiny")
    made = system.generate("test", 2)
    found = residuals(system, made.fields, made.xi, made.times)
    assert found.shape == (2, len(made.times) - 1)
    assert float(found.max()) < 2e-3


def test_wrong_parameters_and_wrong_frames_do_not() -> None:
    system = systems.get("combined")
    made = system.generate("test", 2)
    other = made.xi.clone()
    other[:, 1] *= 1.5
    assert float(residuals(system, made.fields, other, made.times).mean()) > 1e-3
    broken = made.fields.clone()
    broken[0, 5] *= 1.1
    found = residuals(system, broken, made.xi, made.times)
    assert (found > 0.01).nonzero().tolist() == [[0, 4], [0, 5]]


def test_of_a_forecast() -> None:
    model = tiny.forecaster("heat", speed=100.0)
    made = model.system.generate("test", 2)
    result = model.forecast(made.fields[:, :1], made.xi)
    found = of_forecast(model.system, result)
    assert found.shape == (2, 24)
    assert float(found.mean()) > 0.01  # an untrained model obeys nothing
    lost = result.fields.clone()
    lost[1, 3:] = torch.nan
    partly = residuals(model.system, lost, made.xi, made.times)
    assert bool(partly[1, 2:].isnan().all())
    torch.testing.assert_close(partly[0], found[0])


def test_where_a_frame_is_no_state_it_is_refused() -> None:
    system = systems.get("wave_b")
    made = system.generate("test", 1)
    with pytest.raises(DataError, match="One frame of wave_b is not a state"):
        residuals(system, made.fields, made.xi, made.times)

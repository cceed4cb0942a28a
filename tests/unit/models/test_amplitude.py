"""Unit amplitude: sizes, the parameters that go with them, training data, and forecasts that do not know the size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pdejepa import systems
from pdejepa.core.errors import CheckpointError, ConfigError
from pdejepa.forecast.forecaster import Forecaster, load
from pdejepa.method.align import Align
from pdejepa.method.load_data import load_data
from pdejepa.method.save_model import save_model
from pdejepa.models.amplitude import amplitude, at_unit_amplitude, rescale
from tests.unit.forecast import tiny
from tests.unit.method.small_run import CPU, build, small_config

UNIT = {"advection": (0.0, 1.5), "diffusivity": (0.0, 0.4), "dispersion": (0.0, 1.0)}


def forecaster(name: str = "combined", **unit_ranges: Any) -> Forecaster:
    """An untrained model for unit amplitude."""
    model = tiny.surrogate(name)
    model.set_statistics(replace(model.statistics, unit_ranges=unit_ranges))
    return Forecaster(model, dict(tiny.DETAILS), CPU)


def waves(n: int = 2) -> Tensor:
    return tiny.state(systems.get("combined"), n)


def test_the_size_is_the_rms_of_the_first_frame() -> None:
    first, later = torch.tensor([[3.0, -3.0], [0.0, 0.0], [torch.nan, 1.0]]), torch.full((3, 2), 100.0)
    u = torch.stack((first, later), 1)[:, :, None]  # (3,2,1,2)
    assert amplitude(u).tolist() == [3.0, 1.0, 1.0]  # nothing to divide by: left alone


def test_parameters_follow_the_fields() -> None:
    system, u = systems.get("combined"), waves()[:, None]
    xi = system.xi(advection=[0.5, 1.0], diffusivity=0.1, dispersion=0.2)
    size, rows = at_unit_amplitude(system, 5.0 * u, xi)
    torch.testing.assert_close(amplitude(5.0 * u / size), torch.ones(2).double())
    torch.testing.assert_close(rows[:, 0], xi[:, 0] * 5.0 * amplitude(u))
    assert torch.equal(rows[:, 1:], xi[:, 1:])
    s = torch.tensor([2.0, 4.0])
    assert torch.equal(rescale(system, rescale(system, xi, s), 1 / s), xi)
    with pytest.raises(ConfigError, match="burgers has none"):
        rescale(systems.get("burgers"), xi, torch.ones(2))


def test_training_data_at_unit_amplitude() -> None:
    plain, unit = (
        load_data(small_config("combined", f"amplitude={word}"), CPU, show=False) for word in ("as_is", "unit")
    )
    mean, std = unit.statistics.moments(1, CPU)
    fields = {split: values * std + mean for split, values in unit.fields.items()}
    before = plain.fields["train"] * plain.statistics.std[0] + plain.statistics.mean[0]
    size = amplitude(before)
    for split in ("train", "valid"):
        torch.testing.assert_close(amplitude(fields[split]), torch.ones(unit.n(split)).double(), rtol=1e-5, atol=0)
    torch.testing.assert_close(fields["train"] * size.float()[:, None, None, None], before, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(unit.xi["train"][:, 0], plain.xi["train"][:, 0] * size, rtol=1e-5, atol=0)
    assert unit.hash == plain.hash  # of what was generated
    assert unit.statistics.ranges == plain.statistics.ranges  # a user's parameters are judged by these
    assert not plain.statistics.unit_ranges
    largest = float(unit.xi["train"][:, 0].max())
    assert unit.statistics.unit_ranges["advection"][1] == pytest.approx(largest)
    assert unit.statistics.coefficients["advection"] != plain.statistics.coefficients["advection"]
    assert float(unit.fields["train"].std()) == pytest.approx(1.0, rel=1e-2)


def test_stages_take_the_parameters_of_the_rescaled_fields() -> None:
    stage = build(Align, "combined", "amplitude=unit")
    rows = torch.arange(3)
    torch.testing.assert_close(stage.drive("train", rows).r, stage.model.conditioner.r(stage.data.xi["train"][rows]))


def test_systems_without_the_symmetry_refuse() -> None:
    with pytest.raises(ConfigError, match="heat has none"):
        load_data(small_config("heat", "amplitude=unit"), CPU, show=False)


def test_a_forecast_does_not_know_the_size() -> None:
    """(s u, alpha / s) gives s times the forecast of (u, alpha), whatever the weights; as_is it does not."""
    u0, s, fixed = waves(), 4.0, {"diffusivity": 0.1, "dispersion": 0.5, "n_frames": 5}
    model, other = forecaster(**UNIT), tiny.forecaster("combined")
    for one, is_equal in ((model, True), (other, False)):
        small = one.forecast(u0, advection=0.8, **fixed)  # type: ignore[arg-type]
        large = one.forecast(s * u0, advection=0.8 / s, **fixed)  # type: ignore[arg-type]
        assert torch.allclose(large.fields, s * small.fields, rtol=1e-4, atol=1e-5) == is_equal
        assert torch.allclose(large.reconstruction, s * small.reconstruction, rtol=1e-4, atol=1e-5) == is_equal


def test_the_range_is_said_in_the_users_units_and_steps_follow_the_rescaled_ones() -> None:
    model = forecaster(**UNIT)
    u0 = waves(1) / float(amplitude(waves(1)[:, None])[0])
    low, high = 0.1 * u0, u0
    result = model.forecast(low, advection=3.0, diffusivity=0.1, dispersion=0.5, n_frames=2)
    assert not result.support.is_inside  # 3 is beyond what was trained on, whatever the size
    for u, n_finer in ((low, None), (high, 2)):  # strength 0.3 and 3 at unit amplitude, where 1.5 is the largest
        _, xi = model.surrogate.sized(u[:, None], model.system.xi(advection=3.0, diffusivity=0.1, dispersion=0.5))
        steps = model.surrogate.finer_steps(xi)
        assert (None if steps is None else steps.shape[1]) == n_finer


def test_saved_and_loaded(tmp_path: Path) -> None:
    model = forecaster(**UNIT)
    save_model(model.surrogate, tmp_path / "m", dict(tiny.DETAILS))
    again = load(tmp_path / "m", device="cpu")
    assert again.surrogate.statistics == model.surrogate.statistics
    words = {"advection": 0.3, "diffusivity": 0.1, "dispersion": 0.5, "n_frames": 3}
    assert torch.equal(again.forecast(waves(), **words).fields, model.forecast(waves(), **words).fields)  # type: ignore[arg-type]


def test_hostile_unit_ranges(tmp_path: Path) -> None:
    whole = dict.fromkeys(systems.get("heat").parameter_names, (0.0, 1.0))
    cases = (("combined", {"advection": (0.0, 1.0)}, "statistics do not fit"), ("heat", whole, "heat has none"))
    for name, ranges, message in cases:
        save_model(forecaster(name, **ranges).surrogate, tmp_path / name, dict(tiny.DETAILS))
        with pytest.raises(CheckpointError, match=message):
            load(tmp_path / name, device="cpu")
    with pytest.raises(CheckpointError, match="finite"):
        broken = forecaster(**{**UNIT, "advection": (0.0, float("nan"))})
        save_model(broken.surrogate, tmp_path / "m", dict(tiny.DETAILS))

"""Inside is inside, outside is outside, and the clock starts after the first call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from pdejepa import systems
from pdejepa.core.text import percent
from pdejepa.evaluate import demo_scenes, metrics
from pdejepa.evaluate.cases import Case, Truth, forecast_errors
from pdejepa.evaluate.demo_scenes import inside_scene, outside_scene, push, show, support_of
from tests.unit.forecast import tiny


@pytest.mark.parametrize("name", [name for name in systems.NAMES if name != "wave_b"])
def test_outside_is_outside(name: str) -> None:
    model = tiny.forecaster(name)
    inside, outside = inside_scene(model, 1), outside_scene(model, 0)
    assert (inside.case.split, inside.case.index) == ("test", 1)
    assert support_of(model, inside.case).is_inside
    assert not support_of(model, outside.case).is_inside
    assert model.system.split(outside.case.split).is_ood
    assert outside.how.startswith(f"{outside.case.split} {outside.case.index}: ")


def test_unseen_values_between_trained_ones_are_not_outside() -> None:
    assert outside_scene(tiny.forecaster("heterns"), 0).case.split == "ood_viscosity_extrap"


def test_a_corner_of_the_training_range_is_not_outside() -> None:
    case = outside_scene(tiny.forecaster("wave_2d"), 0).case
    assert (case.split, case.index) == ("ood", 1)  # number 0 has the largest trained celerity and damping


def test_without_a_split_a_parameter_is_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.forecaster("heat")
    splits = tuple(split for split in model.system.splits if not split.is_ood)
    monkeypatch.setattr(type(model.system), "splits", splits)
    scene = outside_scene(model, 2)
    assert scene.how == "test 2 with diffusivity pushed 20% of its training range beyond the end"
    low, high = model.surrogate.statistics.ranges["diffusivity"]
    moved = model.system.named(scene.case.xi)
    assert float(moved["diffusivity"]) == pytest.approx(high + 0.2 * (high - low))
    before = model.system.named(inside_scene(model, 2).case.xi)
    assert all(torch.equal(moved[name], before[name]) for name in before if name != "diffusivity")
    assert not support_of(model, scene.case).is_inside


def test_where_nothing_can_be_pushed_the_forecast_is_longer() -> None:
    model = tiny.forecaster("wave_b")
    shown = show(model, outside_scene(model, 0))
    assert shown.result.fields.shape[1] == 30  # 25 and a fifth
    assert tiny.told(shown.result).sentences == (
        "Extrapolating: 30 frames in all, but the trajectories of the training data have 25.",
    )
    assert shown.truth.fields.shape[0] == 30


def test_pushing_keeps_within_physical_limits() -> None:
    system = systems.get("advection")
    (speed,) = system.parameters
    assert push(system, {"speed": (0.0, 4.0)}) == {"speed": pytest.approx(4.8)}
    low, high = speed.limits
    assert push(system, {"speed": (high / 2, high)}) == {"speed": pytest.approx(0.4 * high)}
    assert push(system, {"speed": (low, high)}) == {}
    assert push(system, {"speed": (1.0, 1.0)}) == {}
    assert push(systems.get("wave_b"), {"bc_left": (0.0, 1.0), "bc_right": (0.0, 1.0)}) == {}


def test_errors_and_times(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.forecaster("heat")
    forecast, n_calls, seconds = model.forecast, [0, 0], [9.0, 1.0, 5.0, 2.0]

    def slow_first(*args: Any, **options: Any) -> Any:
        n_calls[0] += 1
        return replace(forecast(*args, **options), seconds=seconds[n_calls[0] - 1])

    truth = Case.truth

    def solve(case: Case, times: torch.Tensor) -> Truth:
        found = truth(case, times)
        if len(times) == 1:
            return found  # the observed frame
        n_calls[1] += 1
        return replace(found, seconds=seconds[n_calls[1] - 1] / 10)

    monkeypatch.setattr(model, "forecast", slow_first)
    monkeypatch.setattr(Case, "truth", solve)
    shown = show(model, inside_scene(model, 0))
    assert n_calls == [4, 4]
    assert (shown.forecast_seconds, shown.solver_seconds, shown.is_solved_once) == (2.0, 0.2, False)
    fields = shown.truth.fields[None]
    assert shown.errors.forecast == float(metrics.rel_l2(shown.result.fields, fields)[0])
    assert shown.errors.repeat == float(metrics.rel_l2(fields[:, :1].expand_as(fields), fields)[0])
    n_calls[:] = [0, 0]
    monkeypatch.setattr(demo_scenes, "SLOW", 0.5)
    shown = show(model, inside_scene(model, 0))
    assert n_calls == [4, 1]
    assert (shown.solver_seconds, shown.is_solved_once) == (0.9, True)


def test_comparison_by_hand() -> None:
    model = tiny.forecaster("heat")
    result = model.forecast(tiny.state(model.system), tiny.middle(model.system), n_frames=2)
    fields = torch.ones(3, 1, 256)
    guess = torch.stack((fields[0], 1.1 * fields[1], 1.3 * fields[2]))[None]
    errors = forecast_errors(replace(result, fields=guess), Truth(fields, 0.0))
    assert errors.forecast == pytest.approx((0.5 * (0.1**2 + 0.3**2)) ** 0.5, rel=1e-5)
    assert errors.last == pytest.approx(0.3, rel=1e-5)
    assert errors.repeat == 0
    gone = forecast_errors(replace(result, fields=guess * torch.nan), Truth(fields, 0.0))
    assert (percent(gone.forecast), percent(errors.last)) == ("-", "30%")

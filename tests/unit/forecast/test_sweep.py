"""Sweeps: rows equal to single forecasts, derivatives equal to differences, ranges told, blocks that do not matter."""

from __future__ import annotations

import csv
import io
import json
import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pdejepa.core.errors import DataError, ParameterError
from pdejepa.forecast import sweep as room
from pdejepa.forecast.sweep import Sweep
from pdejepa.forecast.sweep_output import arrays_of, csv_of, json_of, write_sweep
from tests.unit.forecast import tiny

FIXED = {"advection": 0.5, "dispersion": 0.2}
VALUES = [0.05, 0.1, 0.3, 0.9]  # the last one lies outside


def found(**options: object) -> Sweep:
    model = tiny.forecaster("combined")
    return model.sweep(tiny.state(model.system), {"diffusivity": VALUES}, n_frames=4, **FIXED, **options)  # type: ignore[arg-type]


def test_rows_are_single_forecasts() -> None:
    model, result = tiny.forecaster("combined"), found()
    u0 = tiny.state(model.system)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        single = [model.forecast(u0, diffusivity=value, n_frames=4, **FIXED) for value in VALUES]
    first = single[0].new.double()
    for row, one in enumerate(single):
        new = one.new.double()
        assert torch.allclose(result.last[row], one.new[0, -1], atol=1e-6)
        assert float(result.rms[row, -1, 0]) == pytest.approx(float(new[0, -1].square().mean().sqrt()), rel=1e-5)
        assert float(result.low[row, 0]) == pytest.approx(float(new.min()), rel=1e-5)
        assert float(result.high[row, 0]) == pytest.approx(float(new.max()), rel=1e-5)
        assert float(result.distance[row]) == pytest.approx(float((new - first).norm() / first.norm()), abs=1e-6)
    assert float(result.distance[0]) == 0 < float(result.distance[1])
    assert [bool(told) for told in result.outside] == [False, False, False, True]
    assert "diffusivity 0.9 is above the training range" in result.outside[-1][0]
    assert any("does not see the observed frames" in remark for remark in result.remarks)
    assert "4 rows, 4 values of diffusivity; 1 extrapolate, 0 unstable" in repr(result)


def test_sensitivities_are_derivatives() -> None:
    model, result = tiny.forecaster("combined"), found()
    u0, step = tiny.state(model.system), 1e-2
    after, before = (
        model.forecast(u0, diffusivity=VALUES[1] + h, n_frames=4, **FIXED).new.double() for h in (step, -step)
    )
    middle = model.forecast(u0, diffusivity=VALUES[1], n_frames=4, **FIXED).new.double()
    expected = float(((after - before) / (2 * step)).norm() / middle.norm())
    assert float(result.sensitivity["diffusivity"][1]) == pytest.approx(expected, rel=1e-2)
    assert list(result.sensitivity) == ["diffusivity"]
    assert found(sensitivities=False).sensitivity == {}


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, done = found(), list[int]()
    monkeypatch.setattr(room, "MAX_BLOCK", 3)
    model = tiny.forecaster("combined")
    values = {"diffusivity": torch.tensor(VALUES)}
    cut = room.sweep(model, tiny.state(model.system), values, FIXED, n_frames=4, report=done.append)
    assert done == [3, 1]
    assert torch.allclose(cut.last, whole.last, atol=1e-6)
    assert torch.allclose(cut.distance, whole.distance, atol=1e-6)
    assert cut.outside == whole.outside
    monkeypatch.setattr(room, "BLOCK_BYTES", 1.0)
    assert room._block(model, tiny.state(model.system)[None], 4, 1) == 1  # a row at a time where frames are large


def test_two_parameters() -> None:
    model = tiny.forecaster("gray_scott")
    vary = {"feed": [0.03, 0.04], "kill": [0.059, 0.06, 0.07]}
    result = model.sweep(tiny.state(model.system), vary, n_frames=2, sensitivities=False)
    named = model.problem.named(result.xi)
    assert named["feed"].tolist() == [0.03] * 3 + [0.04] * 3
    assert named["kill"].tolist() == [0.059, 0.06, 0.07] * 2
    assert result.last.shape == (6, 2, 32, 32)
    assert [bool(told) for told in result.outside] == [False, False, True] * 2


def test_choices_have_no_derivative() -> None:
    model = tiny.forecaster("wave_b")
    result = model.sweep(tiny.state(model.system), {"bc_left": [0.0, 1.0]}, n_frames=2, bc_right=0.0)
    assert result.sensitivity == {}
    assert float(result.distance[1]) > 0


def test_unstable_rows_are_told_and_the_others_kept() -> None:
    model = tiny.forecaster("advection", speed=300.0)
    result = model.sweep(tiny.state(model.system), {"speed": [0.01, 3.9]}, n_frames=30)
    assert [row.label for row in result.outcome] == ["ok", "unstable"]
    assert math.isfinite(float(result.distance[0]))
    assert not math.isfinite(float(result.distance[1]))
    assert not math.isfinite(float(result.sensitivity["speed"][1]))
    rows = json_of(result)["rows"]
    assert rows[1]["distance"] is None
    json.dumps(rows, allow_nan=False)


def test_files(tmp_path: Path) -> None:
    result = found()
    write_sweep(result, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["sweep.csv", "sweep.npz", "sweep.png"]
    with np.load(tmp_path / "out/sweep.npz") as arrays:
        assert set(arrays) == set(arrays_of(result))
        assert np.array_equal(arrays["last"], result.last.numpy())
        assert arrays["extrapolates"].tolist() == [False, False, False, True]
        assert np.allclose(arrays["parameter_diffusivity"], VALUES)
    table = list(csv.DictReader(io.StringIO(csv_of(result))))
    assert [float(row["diffusivity"]) for row in table] == VALUES
    assert [row["extrapolates"] for row in table] == ["no", "no", "no", "yes"]
    assert float(table[2]["distance"]) == pytest.approx(float(result.distance[2]))
    assert json_of(result)["fixed"] == FIXED


@pytest.mark.parametrize("name", ["combined", "gray_scott"])
def test_pictures_differ_with_what_they_show(name: str, tmp_path: Path) -> None:
    model = tiny.forecaster(name)
    first, second = [p.name for p in model.problem.parameters][:2]
    fixed = {word: value for word, value in tiny.middle(model.system).items() if word not in (first, second)}
    low, high = model.problem.parameters[0].train
    values = torch.linspace(low + 1e-3, 1.5 * high, 3)
    state = tiny.state(model.system)
    middle = tiny.middle(model.system)[second]
    one = model.sweep(state, {first: values}, n_frames=2, sensitivities=False, **{second: middle}, **fixed)
    two = model.sweep(state, {first: values, second: [middle, 1.1 * middle]}, n_frames=2, sensitivities=False, **fixed)
    pictures = []
    for number, result in enumerate((one, two, replace(one, distance=2 * one.distance))):
        write_sweep(result, tmp_path / str(number))
        pictures.append((tmp_path / str(number) / "sweep.png").read_bytes())
    assert len(set(pictures)) == 3


def test_bad_requests() -> None:
    model = tiny.forecaster("combined")
    u0 = tiny.state(model.system)
    with pytest.raises(ParameterError, match="varies one or two parameters; got 0"):
        model.sweep(u0, {}, **FIXED)
    with pytest.raises(ParameterError, match="both varied and fixed"):
        model.sweep(u0, {"advection": [0.1]}, advection=0.5)
    with pytest.raises(ParameterError, match="did you mean 'diffusivity'"):
        model.sweep(u0, {"difusivity": [0.1]}, **FIXED)
    with pytest.raises(ParameterError, match="needs advection, diffusivity, dispersion"):
        model.sweep(u0, {"diffusivity": [0.1]}, advection=0.5)
    with pytest.raises(ParameterError, match="lists of numbers"):
        model.sweep(u0, {"diffusivity": ["much"]}, **FIXED)
    with pytest.raises(ParameterError, match="1 to 100,000 rows; got 0"):
        model.sweep(u0, {"diffusivity": []}, **FIXED)
    with pytest.raises(ParameterError, match="one state; got 2"):
        model.sweep(tiny.state(model.system, 2), {"diffusivity": [0.1]}, **FIXED)
    with pytest.raises(DataError, match="expects the observed state"):
        model.sweep(u0[..., :7], {"diffusivity": [0.1]}, **FIXED)

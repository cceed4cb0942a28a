"""Forecasts as files, Datasets and pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pdejepa.core.errors import DataError, ParameterError, ResourceError, UsageError
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.forecast.interface import Forecast
from pdejepa.forecast.output import trajectory
from tests.unit.forecast import tiny


@pytest.fixture(scope="module")
def gray_scott() -> Forecaster:
    return tiny.forecaster("gray_scott")


@pytest.fixture(scope="module")
def two(gray_scott: Forecaster) -> Forecast:
    u0 = tiny.state(gray_scott.system, 2)
    return gray_scott.forecast(u0, feed=[0.05, 0.06], kill=0.06, n_frames=3)


def test_saved_arrays_are_all_that_a_forecast_holds(two: Forecast, gray_scott: Forecaster, tmp_path: Path) -> None:
    two.save(tmp_path / "f.npz")
    with np.load(tmp_path / "f.npz", allow_pickle=False) as found:
        kept = {name: found[name] for name in found.files}
    problem = gray_scott.problem
    assert kept["fields"].tobytes() == two.fields.numpy().tobytes()
    assert kept["fields"].shape == (2, 4, 2, 32, 32)
    assert kept["times"].tolist() == two.times.tolist()
    assert kept["parameter_feed"].tolist() == [0.05, 0.06]
    assert kept["first_bad"].tolist() == [-1, -1]
    assert kept["field_names"].tolist() == list(problem.fields)
    assert all(len(kept[name]) == n for name, n in zip(problem.axes_names, problem.grid, strict=True))
    assert {f"parameter_{name}" for name in problem.parameter_names} <= set(kept)
    assert int(kept["n_observed"]) == 1


def test_an_unstable_row_says_so_in_the_file(two: Forecast, tmp_path: Path) -> None:
    from dataclasses import replace

    from pdejepa.forecast.interface import Outcome

    replace(two, outcome=(Outcome.of(4, 4), Outcome.of(2, 4))).save(tmp_path / "f.npz")
    with np.load(tmp_path / "f.npz") as found:
        assert found["first_bad"].tolist() == [-1, 2]


def test_a_dataset_with_names_and_coordinates(two: Forecast, gray_scott: Forecaster) -> None:
    pytest.importorskip("xarray")
    data = two.to_xarray()
    u, v = gray_scott.problem.fields
    assert data[u].dims == ("row", "time", *gray_scott.problem.axes_names)
    assert data[v].values.tobytes() == two.fields[:, :, 1].numpy().tobytes()
    assert data["feed"].values.tolist() == [0.05, 0.06]
    assert float(data[u].sel(time=two.times[2].item()).isel(row=1).mean()) == pytest.approx(
        float(two.fields[1, 2, 0].mean())
    )


def test_without_xarray_it_is_named(two: Forecast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "xarray", None)
    with pytest.raises(ResourceError, match="pip install xarray"):
        two.to_xarray()


def test_pictures_of_a_row(two: Forecast, tmp_path: Path) -> None:
    truth = two.fields + 0.1
    two.plot(tmp_path / "f.png", row=1)
    figure = two.plot(row=1, truth=truth)
    assert "row 1" in figure.texts[0].get_text()
    two.animate(tmp_path / "f.gif", truth=truth)
    two.animate(tmp_path / "g.gif")
    for name in ("f.gif", "g.gif"):
        with Image.open(tmp_path / name) as film:
            assert film.n_frames == 4  # type: ignore[attr-defined]
    for given in (truth, truth[1], truth[1:], truth.numpy()):
        assert torch.equal(torch.from_numpy(trajectory(two, 1, given).fields), truth[1])
    drawn = trajectory(two, 1)
    assert drawn.n_observed == 1
    assert drawn.xi["feed"] == 0.06


def test_mistakes_are_named(two: Forecast, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"2 rows, 0 to 1; got row 2"):
        two.plot(row=2)
    with pytest.raises(DataError, match="truth must hold the frames of the forecast"):
        two.plot(truth=two.fields[:, :2])
    with pytest.raises(UsageError, match=r"saved as \.npz"):
        two.save(tmp_path / "f.npy")
    with pytest.raises(UsageError, match="Pictures are written as"):
        two.plot(tmp_path / "f.bmp")

"""Bands: they hold as often as promised on exchangeable cases, whatever the forecasts are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pdejepa.app.cli import main
from pdejepa.core.errors import CheckpointError, DataError, ParameterError
from pdejepa.data.source import Arrays
from pdejepa.forecast import bands as module
from pdejepa.forecast.bands import (
    LEVELS,
    Bands,
    Coverage,
    calibrate,
    n_cases,
    read_bands,
    scores,
    size_of,
    write_bands,
)
from pdejepa.forecast.forecaster import Forecaster, load
from pdejepa.forecast.output import arrays_of, trajectory
from tests.unit.forecast import tiny

SHA = "a" * 64


@pytest.fixture(scope="module")
def heat() -> Forecaster:
    model = tiny.forecaster("heat", speed=1.0)
    model.details = {**model.details, "weights_sha256": SHA}
    return model


@pytest.fixture(scope="module")
def calibrated(heat: Forecaster) -> Bands:
    return calibrate(heat, 40, 24)


def test_they_hold_as_often_as_promised(calibrated: Bands, heat: Forecaster) -> None:
    """An untrained model is far off; its bands are wide, and hold on new cases of the same law."""
    (split, n, shares), ood = ((part.split, part.n, part.shares) for part in calibrated.coverage)
    assert (split, n, ood[0]) == ("test", 24, "ood")
    for level, share in zip(LEVELS, shares, strict=True):
        assert abs(share - level) < 0.2, shares
    assert list(shares) == sorted(shares)


def test_conformal_ranks() -> None:
    """With scores 1 .. 99 the band of level .9 is the 90th, and of .5 the 50th."""
    cases = torch.arange(1.0, 100.0)
    forecast, truth = torch.ones(99, 2, 1, 10), torch.ones(99, 2, 1, 10) + 1e-3 * cases[:, None, None, None]
    found = scores(forecast, truth)[:, 1, 0].sort().values
    assert found[89].item() == pytest.approx(0.09)
    assert found[49].item() == pytest.approx(0.05)


def test_a_tenth_of_the_points_may_lie_outside() -> None:
    forecast, truth = torch.ones(1, 1, 1, 20), torch.ones(1, 1, 1, 20)
    truth[..., :2] += 100.0
    assert float(scores(forecast, truth)) == pytest.approx(0.0, abs=1e-6)
    truth[..., 2] += 1.0
    assert float(scores(forecast, truth)) == pytest.approx(1.0)
    assert float(scores(forecast * torch.nan, truth)) == float("inf")


def test_a_forecast_tells_its_half_widths(heat: Forecaster, calibrated: Bands, tmp_path: Path) -> None:
    heat.bands = calibrated
    try:
        u0 = tiny.state(heat.system, 2)
        result = heat.forecast(u0, tiny.middle(heat.system), n_frames=30)
    finally:
        heat.bands = None
    half = result.half_width(0.9)
    assert half is not None
    assert half.shape == (2, 31, 1)
    assert float(half[:, 0].max()) < 0.1 * float(size_of(result.fields).max())  # the observed frame is as it was given
    assert bool(half[:, 1:25].isfinite().all())
    assert bool(half[:, 25:].isnan().all())  # beyond the trained length nothing is promised
    with pytest.raises(ParameterError, match=r"calibrated for 0\.5, 0\.8, 0\.9, 0\.95; got level 0\.7"):
        result.half_width(0.7)
    drawn = trajectory(result, 1)
    assert drawn.band is not None
    assert drawn.band.tolist()[3] == half[1, 3].tolist()
    assert not drawn.is_promised  # 30 frames are more than in training
    result.plot(tmp_path / "f.png", row=1)
    result.save(tmp_path / "f.npz")
    with np.load(tmp_path / "f.npz") as kept:
        assert kept["half_width_90"].shape == (2, 31, 1)
    assert heat.forecast(u0, tiny.middle(heat.system)).half_width() is None


def test_the_picture_shows_them(heat: Forecaster, calibrated: Bands) -> None:
    """Filled inside the training range, dashed edges outside."""
    heat.bands = calibrated
    try:
        result = heat.forecast(tiny.state(heat.system, 1), tiny.middle(heat.system))
    finally:
        heat.bands = None
    filled = result.plot().axes[1]
    n_curves = len(filled.lines)
    has_support = result.support.is_inside
    assert (len(filled.collections) > 0) == has_support
    if not has_support:  # an untrained model does not see the state as it is
        assert sum(line.get_linestyle() == "--" for line in filled.lines) > 2
        assert n_curves > 5


def test_write_and_read(calibrated: Bands, tmp_path: Path) -> None:
    write_bands(calibrated, tmp_path)
    assert read_bands(tmp_path, SHA) == calibrated
    with pytest.raises(CheckpointError, match="belongs to other weights"):
        read_bands(tmp_path, "b" * 64)
    plain = json.loads((tmp_path / "bands.json").read_text())
    for damage in ({"levels": [0.9, 0.5]}, {"widths": [[[0.1], [0.1, 0.2]]]}, {"n": "many"}, {"widths": []}):
        (tmp_path / "bands.json").write_text(json.dumps({**plain, **damage}))
        with pytest.raises(CheckpointError, match="cannot be read"):
            read_bands(tmp_path, SHA)
    (tmp_path / "bands.json").unlink()
    assert read_bands(tmp_path, SHA) is None


def test_new_weights_take_the_bands_of_others_away(calibrated: Bands, tmp_path: Path) -> None:
    folder = tiny.saved("heat", tmp_path / "m")
    digest = load(folder, "cpu").details["weights_sha256"]
    write_bands(replace(calibrated, weights_sha256=digest), folder)
    tiny.saved("heat", folder)
    assert load(folder, "cpu").bands is not None  # the same weights again
    tiny.saved("heat", folder, seed=1)
    assert load(folder, "cpu").bands is None
    (folder / "bands.json").write_text("{")
    tiny.saved("heat", folder)
    assert not (folder / "bands.json").exists()


def test_too_few_or_unstable_cases_are_refused(heat: Forecaster, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"10 cases are too few for bands of level 0\.95; give 19"):
        calibrate(heat, 10)
    monkeypatch.setattr(module, "scores", lambda a, b: torch.full((len(a), 25, 1), torch.inf))
    with pytest.raises(DataError, match=r"is unstable, so no band of 0\.5 holds"):
        calibrate(heat, 24)


def test_cases_of_a_data_set(heat: Forecaster) -> None:
    """Of imported data there are as many as valid has; levels are those that their number allows."""
    made = {split: heat.system.generate(split, n) for split, n in (("valid", 6), ("test", 4), ("ood", 4))}
    data = Arrays(
        heat.problem,
        {split: one.fields for split, one in made.items()},
        {split: one.xi for split, one in made.items()},
    )
    assert n_cases(heat, 360, 120, data) == 6 + 4 + 4
    done: list[int] = []
    found = calibrate(heat, 360, 120, done.append, data)
    assert sum(done) == 14
    assert (found.levels, found.usual_level, found.n) == ((0.5, 0.8), 0.8, 6)
    assert [(part.split, part.n) for part in found.coverage] == [("test", 4), ("ood", 4)]
    heat.bands = found
    try:
        result = heat.forecast(tiny.state(heat.system, 1), tiny.middle(heat.system), n_frames=2)
    finally:
        heat.bands = None
    half = result.half_width()
    assert half is not None
    assert torch.equal(half, result.half_width(0.8))  # type: ignore[arg-type]
    assert "half_width_80" in arrays_of(result)


def test_cases_of_one_environment_are_alike() -> None:
    """The sampling interval is that of the environments where it is wider than that of single cases."""
    alone = Coverage("test", 100, (0.9,))
    assert alone.half(0.9, 0) == pytest.approx(1.96 * 0.03)
    assert Coverage("test", 100, (0.9,), (0.05,), 10).half(0.9, 0) == pytest.approx(2.262 * 0.05, rel=1e-3)
    assert Coverage("test", 100, (0.9,), (0.01,), 10).half(0.9, 0) == pytest.approx(1.96 * 0.03)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.saved("advection", tmp_path / "m", speed=1.0)
    assert main(["calibrate", str(tmp_path / "m"), "--n", "24", "--check", "8"]) == 0
    out = capsys.readouterr().out
    assert "From 24 cases: in 90 of 100 cases nine tenths of the points of the last frame are within" in out
    rows = [line.split()[:2] for line in out.splitlines() if line.startswith(("test ", "ood "))]
    assert rows == [["test", "8"], ["ood", "8"]]
    assert load(tmp_path / "m", "cpu").bands is not None
    assert main(["forecast", str(tmp_path / "m"), "--out", str(tmp_path / "f.png")]) == 0
    assert "Band: " in capsys.readouterr().out
    assert main(["calibrate", "combined"]) == 2
    assert "stays as it is" in capsys.readouterr().err
    assert main(["calibrate", str(tmp_path / "m"), "--shipped"]) == 2
    assert "does not come with pdejepa" in capsys.readouterr().err

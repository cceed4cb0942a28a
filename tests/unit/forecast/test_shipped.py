"""The models that come with the package: files and cards are what was measured, and forecasts repeat the errors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pdejepa
from pdejepa import systems
from pdejepa.app.cli import main
from pdejepa.core.errors import CheckpointError, ConfigError, ParameterError
from pdejepa.core.files import sha256_file
from pdejepa.evaluate import metrics
from pdejepa.forecast.bands import BANDS_NAME
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.forecast.locate import WEIGHTS_NAME, shipped_models
from tests.unit.scripts import ROOT, load_script

RESULTS = ROOT / "results"
FORMAT_1 = ROOT / "tests/golden/format1-advection.json"  # config.json as it was shipped
SHIPPED = shipped_models()
QUICK = ("combined", "gray_scott")
N = 3
TOLERANCE = 0.02  # of an error: data and forecasts are made on another device than where the record was
MAX_BYTES, MAX_WORDS = 5_000_000, 32_000  # of the weights; of config.json and README.md together
MAX_BANDS = 50_000  # of bands.json


def record(name: str) -> dict:
    """What `pdejepa evaluate` wrote of exactly these weights."""
    own = sha256_file(SHIPPED[name] / WEIGHTS_NAME)
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{name}-*-polish-s0.json"))]
    return next(one for one in found if one["weights_sha256"] == own)


def test_there_are_some() -> None:
    assert {*systems.NAMES} - {"heterns"} <= set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_models_are_small(name: str) -> None:
    sizes = {path.name: path.stat().st_size for path in SHIPPED[name].iterdir()}
    assert sizes.pop(WEIGHTS_NAME) <= MAX_BYTES
    assert sizes.pop(BANDS_NAME) <= MAX_BANDS
    assert set(sizes) == {"README.md", "config.json"}
    assert sum(sizes.values()) <= MAX_WORDS


@pytest.mark.parametrize("name", SHIPPED)
def test_bands_hold_on_test_as_often_as_promised(name: str) -> None:
    """As counted when they were calibrated, within the 95 % sampling interval of the count."""
    bands = pdejepa.load(name, device="cpu").bands
    assert bands is not None
    assert bands.n >= 100
    part = next(part for part in bands.coverage if part.split == "test")
    assert part.n >= 60
    for number, (level, share) in enumerate(zip(bands.levels, part.shares, strict=True)):
        if level in (0.5, 0.9):
            assert abs(share - level) <= part.half(level, number), (level, share)


def test_a_forecast_of_a_shipped_model_has_a_band(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forecast", "combined", "--frames", "2", "--out", str(tmp_path / "f.npz")]) == 0
    assert "Band: in 90 of 100 cases nine tenths of the points of the last frame are within u ± 0.0" in (
        capsys.readouterr().out
    )
    with np.load(tmp_path / "f.npz") as kept:
        assert kept["half_width_90"].shape == (1, 3, 1)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_card_tells_the_recorded_errors_and_how_to_repeat_them(name: str) -> None:
    card, found = (SHIPPED[name] / "README.md").read_text(), record(name)
    errors = found["errors"]
    for split, values in errors.items():
        assert f"| `{split}` |" in card
        assert f"{100 * values['rel_l2']:.3g}%" in card
    assert f"pdejepa train {name} --recipe {found['recipe']}" in card


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in SHIPPED])
def test_forecasts_repeat_the_recorded_errors(name: str) -> None:
    """The first trajectories of test, made anew; the record holds the error of every trajectory."""
    model = pdejepa.load(name, device="cpu")
    made = model.system.generate("test", N)
    observed = model.surrogate.history
    guess = model.forecast(made.fields[:, :observed], made.xi).fields
    expected = torch.tensor(record(name)["errors"]["test"]["trajectories"][:N], dtype=torch.float64)
    torch.testing.assert_close(
        metrics.rel_l2(guess, made.fields, observed).double(), expected, rtol=TOLERANCE, atol=0.0
    )


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "vorticity")) for n in SHIPPED])
def test_states_like_the_training_data_are_told_from_others(name: str) -> None:
    model = pdejepa.load(name, device="cpu")
    made = model.system.generate("test", N)
    u = made.fields[:, : model.surrogate.history]
    assert model.forecast(u, made.xi, n_frames=1).support.is_inside
    noise = 0.2 * u.std() * torch.randn(u.shape, generator=torch.Generator().manual_seed(0))
    assert f"of {N} of {N} rows" in model.forecast(u + noise, made.xi, n_frames=1).support.unlike
    if not model.surrogate.statistics.unit_ranges:  # others do not mind the size
        assert f"of {N} of {N} rows" in model.forecast(30 * u, made.xi, n_frames=1).support.unlike


def observed(model: Forecaster, n: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """The frames (n,H,C,*grid) that forecasts of test trajectories begin with, and their parameters (n,P)."""
    system, history = model.system, model.surrogate.history
    u0, xi = system.sample("test", range(n))
    return system.solve(u0, xi, times=system.times[:history]).as_subclass(torch.Tensor), xi


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_models_open_where_their_equation_is_not_known(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = pdejepa.load(name, device="cpu")
    u, xi = observed(known)
    needs_forcing = known.problem.structure.forcing != "none"
    own: dict[str, Any] = {"forcing": lambda t, x: 0.1 * torch.sin(t + x)} if needs_forcing else {}
    expected = known.forecast(u, xi, n_frames=3, **own).fields

    def refuse(wanted: str, **_: Any) -> None:
        raise ConfigError(f"There is no system {wanted!r}.")

    monkeypatch.setattr("pdejepa.systems.registry.get", refuse)
    model = pdejepa.load(name, device="cpu")
    with pytest.raises(CheckpointError, match="is not known here, so nothing can be sampled or solved"):
        _ = model.system
    assert torch.equal(model.forecast(u, xi, n_frames=3, **own).fields, expected)
    if needs_forcing:
        with pytest.raises(ParameterError, match=rf"The forcing of {name} is computed by its system.*forcing=f"):
            model.forecast(u, xi, n_frames=3)


def in_format_1(folder: Path) -> Path:
    """The shipped model of Advection as it was shipped before format 2."""
    shutil.copytree(SHIPPED["advection"], folder)
    shutil.copyfile(FORMAT_1, folder / "config.json")
    return folder


def test_format_1_is_still_read(tmp_path: Path) -> None:
    older, newer = pdejepa.load(in_format_1(tmp_path / "m"), "cpu"), pdejepa.load("advection", device="cpu")
    assert (older.details["format_version"], newer.details["format_version"]) == (1, 2)
    assert "problem" not in older.details
    u, xi = observed(newer)
    assert torch.equal(older.forecast(u, xi).fields, newer.forecast(u, xi).fields)


def test_a_model_is_converted_to_format_2(tmp_path: Path) -> None:
    folder = in_format_1(tmp_path / "m")
    before, digest = json.loads(FORMAT_1.read_text()), sha256_file(folder / WEIGHTS_NAME)
    assert load_script("tools/convert_models.py").convert(folder) == f"{folder}: format 1 -> 2"
    after = json.loads((folder / "config.json").read_text())
    assert before["as_trained"] is True
    assert {key for key in {*before, *after} if before.get(key) != after.get(key)} == {
        "flops",
        "machine",
        "as_trained",
        "format_version",
        "problem",
    }
    assert sha256_file(folder / WEIGHTS_NAME) == digest == after["weights_sha256"]
    assert "model format 2" in (folder / "README.md").read_text()
    u, xi = observed(pdejepa.load("advection", device="cpu"))
    again = pdejepa.load(folder, "cpu").forecast(u, xi, n_frames=3)
    assert torch.equal(again.fields, pdejepa.load("advection", device="cpu").forecast(u, xi, n_frames=3).fields)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_models_are_in_format_2_and_rounded(name: str) -> None:
    config, card = (json.loads((SHIPPED[name] / "config.json").read_text()), (SHIPPED[name] / "README.md").read_text())
    assert config["format_version"] == 2
    assert config["problem"]["name"] == name
    assert "as_trained" not in config
    assert "model format 2" in card
    assert "stored rounded to bfloat16, as the products of training saw them." in card


def test_a_large_state_makes_parameters_strong() -> None:
    model = pdejepa.load("combined", device="cpu")
    made = model.system.generate("test", 1)
    result = model.forecast(300 * made.fields[:, 0], made.xi, n_frames=1)
    assert not result.support.unlike  # it is of the right shape
    assert "Extrapolating: advection at unit amplitude" in str(result.support)

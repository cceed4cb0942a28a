"""The models that come with the package: files and cards are what was measured, and forecasts repeat the errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import pdejepa
from pdejepa.core.files import sha256_file
from pdejepa.evaluate import metrics
from pdejepa.forecast.locate import WEIGHTS_NAME, shipped_models

RESULTS = Path(__file__).parents[3] / "results"
SHIPPED = shipped_models()
QUICK = ("combined", "gray_scott")
N = 3
TOLERANCE = 0.02  # of an error: data and forecasts are made on another device than where the record was
MAX_BYTES = 5_000_000


def record(name: str) -> dict:
    found = json.loads((RESULTS / f"{name}-fast-polish-s0.json").read_text())
    assert found["weights_sha256"] == sha256_file(SHIPPED[name] / WEIGHTS_NAME)
    return found


def test_there_are_some() -> None:
    assert {"advection", "burgers", "combined", "gray_scott", "heat", "wave_b"} <= set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_models_are_small(name: str) -> None:
    assert sum(path.stat().st_size for path in SHIPPED[name].iterdir()) <= MAX_BYTES


@pytest.mark.parametrize("name", SHIPPED)
def test_the_card_tells_the_recorded_errors_and_how_to_repeat_them(name: str) -> None:
    card, errors = (SHIPPED[name] / "README.md").read_text(), record(name)["errors"]
    for split, values in errors.items():
        assert f"| `{split}` |" in card
        assert f"{100 * values['rel_l2']:.3g}%" in card
    assert f"pdejepa train {name} --recipe fast" in card


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


@pytest.mark.parametrize("name", SHIPPED)
def test_states_like_the_training_data_are_told_from_others(name: str) -> None:
    model = pdejepa.load(name, device="cpu")
    made = model.system.generate("test", N)
    u = made.fields[:, : model.surrogate.history]
    assert model.forecast(u, made.xi, n_frames=1).support.is_inside
    noise = 0.2 * u.std() * torch.randn(u.shape, generator=torch.Generator().manual_seed(0))
    assert f"of {N} of {N} rows" in model.forecast(u + noise, made.xi, n_frames=1).support.unlike
    if not model.surrogate.statistics.unit_ranges:  # others do not mind the size
        assert f"of {N} of {N} rows" in model.forecast(30 * u, made.xi, n_frames=1).support.unlike


def test_a_large_state_makes_parameters_strong() -> None:
    model = pdejepa.load("combined", device="cpu")
    made = model.system.generate("test", 1)
    result = model.forecast(30 * made.fields[:, 0], made.xi, n_frames=1)
    assert not result.support.unlike  # it is of the right shape
    assert "Extrapolating: advection at unit amplitude" in str(result.support)

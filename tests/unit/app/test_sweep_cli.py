"""`pdejepa sweep`: values from words, a table, files, one sentence for every mistake."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pdejepa.app.cli import main
from pdejepa.app.commands.sweep import _values
from pdejepa.core.errors import UsageError
from tests.unit.forecast import tiny

Printed = pytest.CaptureFixture[str]


def test_values() -> None:
    assert _values("viscosity=1e-4:1e-2:3:log") == ("viscosity", pytest.approx([1e-4, 1e-3, 1e-2]))
    assert _values("b=-1:1:5") == ("b", [-1.0, -0.5, 0.0, 0.5, 1.0])
    assert _values("b=2:3:1") == ("b", [2.0])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("viscosity", "takes NAME=LOW:HIGH:N"),
        ("viscosity=1:2", "takes NAME=LOW:HIGH:N"),
        ("viscosity=1:2:3:lin", "takes NAME=LOW:HIGH:N"),
        ("=1:2:3", "takes NAME=LOW:HIGH:N"),
        ("viscosity=1:nan:3", "takes NAME=LOW:HIGH:N"),
        ("viscosity=0:1:3:log", "positive; got 0 to 1"),
        ("viscosity=0:1:0", "1 to 10,000 values; got 0"),
    ],
)
def test_bad_words(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        _values(text)


def test_from_a_trajectory(tmp_path: Path, capsys: Printed) -> None:
    model, out = str(tiny.saved("combined", tmp_path / "m")), tmp_path / "out"
    words = ["sweep", model, "--vary", "diffusivity=0.1:0.8:3", "--from", "test:3", "--set", "advection=0.25"]
    assert main([*words, "--frames", "2", "--out", str(out), "--json", str(tmp_path / "t.json")]) == 0
    text = capsys.readouterr().out
    assert "Combined equation, test 3" in text
    assert "sensitivity diffusivity" in text
    assert text.count("extrapolates") == 3  # the name of the column, and two rows
    assert "diffusivity 0.8 is above the training range" in text
    told = json.loads((tmp_path / "t.json").read_text())
    assert told["fixed"]["advection"] == 0.25
    assert told["varied"]["diffusivity"] == pytest.approx([0.1, 0.45, 0.8])
    assert (out / "sweep.png").stat().st_size > 10_000


def test_from_a_file(tmp_path: Path, capsys: Printed) -> None:
    model = tiny.saved("gray_scott", tmp_path / "m")
    np.save(tmp_path / "u0.npy", tiny.state(tiny.forecaster("gray_scott").system)[0].numpy())
    words = ["sweep", str(model), "--u0", str(tmp_path / "u0.npy"), "--vary", "feed=0.03:0.04:2", "--frames", "1"]
    words += ["--no-sensitivities", "--out", str(tmp_path / "out")]
    assert main([*words, "--set", "kill=0.06"]) == 0
    assert "Gray-Scott, u0.npy" in capsys.readouterr().out
    assert main(words) == 2
    assert "needs feed, kill; got feed" in capsys.readouterr().err
    assert main([*words, "--set", "feed=0.03"]) == 2
    assert "both varied and fixed" in capsys.readouterr().err
    assert main([*words, "--vary", "feed=0.03:0.04:2"]) == 2
    assert "--vary names feed twice" in capsys.readouterr().err


def test_unstable_forecasts_end_with_5(tmp_path: Path, capsys: Printed) -> None:
    model = tiny.saved("advection", tmp_path / "m", speed=300.0)
    words = ["sweep", str(model), "--vary", "speed=0.01:3.9:2", "--frames", "30", "--no-sensitivities"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 5
    assert "1 of 2 forecasts became unstable" in capsys.readouterr().err
    assert (tmp_path / "out/sweep.csv").exists()

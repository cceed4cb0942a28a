"""`pdejepa infer`, end to end with untrained models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest
from PIL import Image

from pdejepa.app.cli import main
from pdejepa.forecast import known_examples, least_squares
from tests.unit.forecast import tiny

Printed = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_examples, "N_CALIBRATION", 3)
    monkeypatch.setattr(least_squares, "N_STARTS", 8)
    monkeypatch.setattr(least_squares, "N_ITERATIONS", 3)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("gray_scott", "burgers")]


@pytest.mark.parametrize("name", ["combined", "wave_b", *SLOW])
def test_demo(name: str, tmp_path: Path, capsys: Printed) -> None:
    """Parameters with truth and interval, a picture and a file; forcing is known."""
    tiny.saved(name, tmp_path / "m", speed=50.0)
    files = ["--json", str(tmp_path / "f.json"), "--out", str(tmp_path / "f.png")]
    assert main(["infer", str(tmp_path / "m"), "--demo", *files]) == 0
    out = capsys.readouterr().out
    found = json.loads((tmp_path / "f.json").read_text())
    assert set(found["parameters"]) == {
        "combined": {"advection", "diffusivity", "dispersion"},
        "gray_scott": {"feed", "kill"},
        "burgers": {"diffusivity"},
        "wave_b": {"bc_left", "bc_right"},
    }[name]
    for word, estimate in found["parameters"].items():
        assert f"{word} = " in out
        assert f"(truth {found['truth'][word]:.5g})" in out
        assert estimate["train"][0] <= estimate["value"] <= estimate["train"][1]
    assert "The fit is " in out
    with Image.open(tmp_path / "f.png") as image:
        assert image.format == "PNG"


def test_frames_of_a_file(tmp_path: Path, capsys: Printed) -> None:
    model = tiny.forecaster("advection", speed=100.0)
    tiny.saved("advection", tmp_path / "m", speed=100.0)
    u0 = model.system.generate("test", 1).fields[:, 0]
    frames = model.forecast(u0, speed=1.5, n_frames=5).fields[0, [0, 2, 5]]
    numpy.save(tmp_path / "u.npy", frames.numpy())
    options = ["--frames", str(tmp_path / "u.npy"), "--at", "0,2,5", "--noise", "0.1%"]
    assert main(["infer", str(tmp_path / "m"), *options]) == 0
    assert capsys.readouterr().out.startswith("speed = 1.")


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ([], 2, "Say what was observed"),
        (["--demo", "--frames", "u.npy"], 2, "Say what was observed"),
        (["--frames", "nowhere.npy"], 3, "cannot be read"),
        (["--demo", "--noise", "much"], 2, "--noise takes a share of the rms"),
        (["--demo", "--at", "a"], 2, "--at takes numbers of frames"),
        (["--demo", "--set", "speed"], 2, "--set takes NAME=VALUE"),
        (["--demo", "--unknown", "sped"], 2, "did you mean 'speed'"),
        (["--demo", "--out", "f.bmp"], 2, "Pictures are written as"),
    ],
)
def test_mistakes(options: list[str], code: int, words: str, tmp_path: Path, capsys: Printed) -> None:
    tiny.saved("advection", tmp_path / "m")
    assert main(["infer", str(tmp_path / "m"), *options]) == code
    out, err = capsys.readouterr()
    assert words in err
    assert out == ""

"""The tiny recipe is a real training: in a minute or two it beats repeating the first frame by a factor of three."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdejepa.app.cli import main


@pytest.mark.slow
@pytest.mark.parametrize("name", ["advection", "gray_scott"])
def test_train_evaluate_forecast_report(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, picture = tmp_path / "run", tmp_path / "f.png"
    assert main(["train", name, "--recipe", "tiny", "--out", str(run), "--device", "cpu"]) == 0
    assert main(["evaluate", str(run), "--splits", "test", "--n", "30"]) == 0
    record = json.loads((run / "results" / f"{name}-tiny-s0.json").read_text())
    errors = record["errors"]["test"]
    assert errors["rel_l2"] <= errors["repeat_first"] / 3
    assert errors["n_unstable"] == 0
    assert main(["forecast", str(run), "--from", "test:3", "--compare", "--out", str(picture)]) == 0
    assert picture.stat().st_size > 10_000
    assert main(["report", str(run)]) == 0
    assert "Verdict: healthy" in (run / "report.html").read_text()
    assert "Relative L2 error" in capsys.readouterr().out

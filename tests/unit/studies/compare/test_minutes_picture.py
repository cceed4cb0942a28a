"""Error against minutes of training: the curves that records keep, and their picture."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from pdejepa.app.cli import main
from pdejepa.studies.compare import minutes_picture
from pdejepa.studies.compare.minutes_picture import plot, spread
from pdejepa.studies.compare.training_curve import curve
from tests.unit.studies.compare.records_made import made, record

CURVE = [{"seconds": 60.0, "score": 0.4}, {"seconds": 120.0, "score": None}, {"seconds": 170.0, "score": 0.1}]


def _stage(folder: Path, name: str, lines: list[tuple[int, float, float]], is_timed: bool = True) -> None:
    """Files of a stage with scores (step, seconds, score), and a line of its loss before each."""
    (folder / name).mkdir(parents=True)
    metrics, timings = [], []
    for step, seconds, score in lines:
        metrics += [{"step": step, "train": {"loss": 1.0}}, {"step": step, "valid": {"score": score}}]
        timings += [{"step": step, "seconds": seconds - 1}, {"step": step, "seconds": seconds}]
    (folder / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    if is_timed:
        (folder / name / "timings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in timings))


def test_scores_of_fields_follow_the_seconds_of_all_stages(tmp_path: Path) -> None:
    _stage(tmp_path, "pretrain", [(5, 9.0, 7.0)])
    _stage(tmp_path, "decode", [(5, 4.0, 0.5), (10, 8.0, 0.25)])
    report = {"pretrain": {"seconds": 10.0}, "decode": {"seconds": 9.0}}
    expected = [{"seconds": 14.0, "score": 0.5}, {"seconds": 18.0, "score": 0.25}]
    assert curve(tmp_path, report, ("decode", "polish")) == expected
    later = curve(tmp_path, report, ("decode", "polish"), total=119.0)  # 100 s of set-up and trials came before
    assert [one["seconds"] for one in later] == [114.0, 118.0]


def test_what_is_fitted_at_once_has_one_score(tmp_path: Path) -> None:
    _stage(tmp_path, "fit", [(0, 0.0, 0.3)], is_timed=False)
    assert curve(tmp_path, {"fit": {"seconds": 3.0}}, ("fit",)) == [{"seconds": 3.0, "score": 0.3}]


def test_names_stand_apart_and_near_their_dots() -> None:
    assert spread([0.1, 0.5, 0.9], 0.1) == pytest.approx([0.1, 0.5, 0.9])
    assert spread([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])
    found = spread([0.3, 0.31, 0.32, 0.44, 0.9], 0.1)
    assert all(b - a >= 0.1 - 1e-9 for a, b in itertools.pairwise(found))
    assert found[-1] == pytest.approx(0.9)
    assert sum(found[:4]) == pytest.approx(0.3 + 0.31 + 0.32 + 0.44)


def test_lines_dots_and_diamonds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    make = minutes_picture.new_figure
    monkeypatch.setattr(minutes_picture, "new_figure", lambda *size: figures.append(make(*size)) or figures[-1])
    learned = made("fno", 0.05, curve=CURVE)
    longer = made("fno", 0.02, curve=CURVE, budget_seconds=600.0, seconds=600.0)
    classical = made("opinf", 0.04, steps={"fit": 0}, seconds=6.0)
    rescaled = made("fno", 0.03, amplitude="unit")
    plot([learned, longer, classical, rescaled], tmp_path / "m.png")
    (axis,) = figures[0].axes
    lines = [[round(float(x), 3) for x in line.get_xdata()] for line in axis.lines]
    assert lines.count([1.0, round(170 / 60, 3)]) == 2  # a score that was not finite is left out
    assert [3.02, 10.0] in lines  # two budgets, joined
    assert [0.1] in lines
    names = [text.get_text() for text in axis.texts if text.get_text()]
    assert sorted(names) == ["FNO", "FNO, unit amplitude", "OPINF"]
    assert "diamond" in figures[0].texts[0].get_text()
    assert (tmp_path / "m.png").stat().st_size > 5_000


def test_a_report_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text(json.dumps(record("fno", 0.05, curve=CURVE)))
    assert main(["compare", "--report", str(tmp_path)]) == 0
    assert "compare-minutes.png" in capsys.readouterr().out
    assert "](compare-minutes.png)" in (tmp_path / "compare.md").read_text()
    assert (tmp_path / "compare-minutes.png").exists()

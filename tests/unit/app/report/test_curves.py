"""Charts: legible limits, bounded size, no trace of the machine."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from pdejepa.app.report import curves, examples
from pdejepa.app.report.content import StageContent, read_run
from pdejepa.method.health import judge
from tests.unit.app.report import folder


@pytest.mark.parametrize(
    ("key", "limit", "sign", "word"),
    [
        ("channel_std", curves.LOW_SPREAD, -1, "collapsing"),
        ("rank", curves.low_rank(64), -1, "collapsing"),
        ("rank", curves.low_rank(16), -1, "collapsing"),
        ("cosine", curves.HIGH_COSINE, 1, "collapsing"),
        ("share_place", curves.HIGH_PLACE, 1, "position-only"),
        ("read_u", curves.LOW_READ, -1, "collapsing"),
    ],
)
def test_drawn_limits_are_those_of_the_verdict(key: str, limit: float, sign: int, word: str) -> None:
    width = 16 if limit == curves.low_rank(16) else 64
    assert judge({**folder.HEALTH, key: limit - sign * 1e-6}, width).word == "healthy"
    assert judge({**folder.HEALTH, key: limit + sign * 1e-6}, width).word == word


def test_nothing_to_draw() -> None:
    assert curves.loss_chart(StageContent("decode"), "score") is None
    assert curves.health_charts((), 64) == []
    assert curves.angle_charts(()) == []
    assert curves.error_chart(()) is None
    assert curves.frame_chart({"test": {}}) is None
    assert curves.frame_chart({"test": {"per_frame": 3}}) is None


def test_one_point_and_odd_values_are_drawn() -> None:
    lines = ({"step": 0, "loss": 0.0, "lr": 0.0}, {"step": 5, "loss": -1.0}, {"step": 6, "loss": None})
    for stage in (StageContent("decode", train=lines), StageContent("decode", valid=({"step": 3, "score": 1e-20},))):
        chart = curves.loss_chart(stage, "score")
        assert chart is not None
        assert curves.svg(chart.figure).startswith(b"<?xml")
    assert len(curves.health_charts(({"step": 1, "rank": 0.0},), None)) == 1


def test_read_outs_far_below_zero_do_not_hide_the_rest() -> None:
    chart = curves.health_charts(({"step": 10, "read_u": 0.9, "read_xi": -300.0},), 64)[-1]
    low, high = chart.figure.axes[0].get_ylim()
    assert -1 < low < curves.LOWEST_R2
    assert 0.9 < high < 1.5


def test_long_curves_keep_their_spikes() -> None:
    values = np.ones(50_000)
    values[[12_345, 40_000]] = (100.0, 1e-4)
    steps, kept = curves._thinned((np.arange(50_000), values))
    assert len(steps) <= curves.MAX_POINTS + 2
    assert (kept.max(), kept.min()) == (100.0, 1e-4)
    assert (steps[0], steps[-1]) == (0, 49_999)
    assert list(steps) == sorted(steps)


def test_equal_runs_give_equal_pictures(tmp_path: Path) -> None:
    content = read_run(folder.write_run(tmp_path / "run"))
    made = []
    for _ in range(2):
        chart = curves.loss_chart(content.stages["decode"], "error")
        assert chart is not None
        made.append(curves.svg(chart.figure))
    assert made[0] == made[1]
    assert len(made[0]) < 60_000


def test_split_names_cannot_be_formulas() -> None:
    chart = curves.frame_chart({"$\\frac{": folder.errors(), "_hidden": folder.errors(), "日本": folder.errors()})
    assert chart is not None
    legend = chart.figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["frac", "hidden", "?"]
    curves.svg(chart.figure)


def test_pictures_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = Figure(figsize=(3, 2))
    figure.subplots().imshow(np.random.default_rng(0).random((200, 300)))
    fine = examples.png(figure)
    monkeypatch.setattr(examples, "MAX_BYTES", len(fine) // 2)
    coarse = examples.png(figure)
    assert len(coarse) <= len(fine) // 2
    with Image.open(io.BytesIO(coarse)) as image:
        assert image.format == "PNG"

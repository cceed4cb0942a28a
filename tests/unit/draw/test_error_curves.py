"""Errors over time: a panel for each system, a curve for each kind and split."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pdejepa import systems
from pdejepa.core.errors import DataError, UsageError
from pdejepa.draw.error_curves import draw_errors, error_picture
from pdejepa.evaluate.against_paper import make_rows
from pdejepa.evaluate.errors_over_time import error_panels
from pdejepa.evaluate.evaluations import Evaluation
from tests.unit.evaluate.made import record


def without_frames(base: Evaluation) -> Evaluation:
    return replace(base, errors={split: replace(found, per_frame=()) for split, found in base.errors.items()})


def test_panels_and_curves() -> None:
    records = [
        record("combined", {"test": 0.02, "ood": 0.09}),  # not shown: it was polished
        record("combined", {"test": 0.01, "ood": 0.04}, polish=True, recipe="laptop"),
        record("combined", {"test": 0.005, "ood": 0.03}, polish=True),
        record("heat", {"test": 0.02, "ood": 0.3}),
        record("gray_scott"),
        without_frames(record("advection")),
    ]
    figure = error_picture(error_panels(make_rows(records, ("fast", "laptop"))))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["Heat", "Combined equation", "Gray-Scott, mean over channels"]
    curves = {line.get_label(): line for line in figure.axes[1].lines}
    recipes = ("fast", "laptop")
    assert set(curves) == {f"{split}, {recipe}, polished" for split in ("test", "ood") for recipe in recipes}
    polished = curves["test, fast, polished"]
    times, errors = polished.get_data()
    np.testing.assert_allclose(times, systems.get("combined").times[1:])
    np.testing.assert_allclose(errors, [0.5 * (1 + i / 100) for i in range(13)])
    laptop, ood = curves["test, laptop, polished"], curves["ood, fast, polished"]
    assert polished.get_color() == laptop.get_color() != ood.get_color()
    assert polished.get_linestyle() == curves["ood, fast, polished"].get_linestyle()
    assert polished.get_linestyle() != curves["test, laptop, polished"].get_linestyle()
    assert polished.get_marker() != curves["ood, fast, polished"].get_marker()  # readable without colours
    assert "ood (our split), four stages" in [line.get_label() for line in figure.axes[0].lines]


def test_seeds_become_a_mean_and_a_band() -> None:
    records = [record("heat", {"test": value}, seed=seed) for seed, value in enumerate((0.1, 0.3))]
    (panel,) = error_picture(error_panels(make_rows(records, ("fast",)))).axes
    (curve,) = panel.lines
    assert curve.get_ydata()[0] == pytest.approx(20.0)
    (band,) = panel.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.min() == pytest.approx(10.0)
    assert heights.max() == pytest.approx(30.0 * 1.23)


def test_observed_frames_shift_the_times() -> None:
    (panel,) = error_picture(error_panels(make_rows([record("wave_b", observed_frames=2)], ("fast",)))).axes
    assert panel.lines[0].get_xdata()[0] == pytest.approx(float(systems.get("wave_b").times[2]))


def test_a_panel_with_one_split_tells_kinds_by_colour_and_has_its_remark() -> None:
    records = [record("wave_b", observed_frames=n, polish=True) for n in (1, 2)]
    (panel,) = error_picture(error_panels(make_rows(records, ("fast",)))).axes
    one, two = panel.lines
    assert one.get_color() != two.get_color()
    assert one.get_marker() != two.get_marker()
    assert panel.get_title() == "Wave-B"
    assert any("a pulse cancels its reflection" in text.get_text() for text in panel.texts)


def test_a_flat_curve_has_an_axis_to_read(tmp_path: Path) -> None:
    base = record("heat")
    flat = replace(base, errors={"test": replace(base.errors["test"], per_frame=(1.0,) * 24)})
    (panel,) = error_picture(error_panels(make_rows([flat], ("fast",)))).axes
    low, high = panel.get_ylim()
    assert low < 60
    assert high > 180


def test_files(tmp_path: Path) -> None:
    panels = error_panels(make_rows([record("heat")], ("fast",)))
    for name in ("a.png", "b.png"):
        draw_errors(panels, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with Image.open(tmp_path / "a.png") as image:
        assert min(image.size) > 300
    with pytest.raises(UsageError, match="Pictures are written as"):
        draw_errors(panels, tmp_path / "a.bmp")


@pytest.mark.parametrize("frames", [(), (0.1, 0.2), (None,) * 24])
def test_nothing_to_draw(frames: tuple[float | None, ...]) -> None:
    base = record("heat")
    odd = replace(base, errors={"test": replace(base.errors["test"], per_frame=frames)})
    with pytest.raises(DataError, match="nothing to plot"):
        error_picture(error_panels(make_rows([odd], ("fast",))))

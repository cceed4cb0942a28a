"""Truth beside forecast: every kind of trajectory, one scale for both, gaps where the forecast ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from pdejepa.core.errors import UsageError
from pdejepa.draw.colours import Scale
from pdejepa.draw.panels import frame_label, magnified
from pdejepa.draw.trajectory import Trajectory
from pdejepa.draw.truth_and_forecast import animate_comparison, compare, draw_comparison, film, frame_errors


def pair(grid: tuple[int, ...], n_channels: int = 1, n_frames: int = 4) -> tuple[Trajectory, Trajectory]:
    """A truth and a forecast that is ten percent too large."""
    rng = np.random.default_rng(0)
    fields = rng.standard_normal((n_frames, n_channels, *grid)).astype(np.float32)
    made = [
        Trajectory(
            fields=factor * fields,
            xi={"viscosity": 1e-3},
            times=np.linspace(0.0, 2.0, n_frames),
            axes={name: np.linspace(0.0, 1.0, n) for name, n in zip("xy", grid, strict=False)},
            field_names=tuple(f"u{i}" for i in range(n_channels)),
            split="test",
            index=3,
            system_name="toy",
        )
        for factor in (1.0, np.float32(1.1))
    ]
    return made[0], made[1]


SHAPES = [((16,), 1), ((16,), 2), ((12, 10), 1), ((12, 10), 2)]


@pytest.mark.parametrize(("grid", "n_channels"), SHAPES)
def test_every_shape(tmp_path: Path, grid: tuple[int, ...], n_channels: int) -> None:
    truth, guess = pair(grid, n_channels)
    draw_comparison(truth, guess, tmp_path / "p.png", "A title")
    animate_comparison(truth, guess, tmp_path / "p.gif", "A title")
    with Image.open(tmp_path / "p.png") as image:
        assert min(image.size) > 100
    with Image.open(tmp_path / "p.gif") as image:
        assert image.n_frames == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.gif", "p.png"]


def test_truth_and_forecast_share_their_scale() -> None:
    figure = compare(*pair((12, 10), 2))
    drawn = [one for axes in figure.axes for one in axes.collections if isinstance(one, QuadMesh)]
    meshes = [mesh for mesh in drawn if mesh.get_array().size == 120]
    assert len(meshes) == 2 * 3 * 4
    limits = [(mesh.norm.vmin, mesh.norm.vmax) for mesh in meshes]
    assert len(set(limits)) == 4  # two channels, fields and errors
    assert limits[:8] == limits[:1] * 8
    assert any("10%" in axes.get_xlabel() for axes in figure.axes)


def test_errors_of_frames() -> None:
    truth, guess = pair((16,))
    errors = frame_errors(truth.fields[:, 0], guess.fields[:, 0])
    np.testing.assert_allclose(errors, 0.1, rtol=1e-5)
    assert np.isnan(frame_errors(np.zeros((1, 4)), np.ones((1, 4)))).all()


@pytest.mark.parametrize("grid", [(16,), (12, 10)])
def test_a_forecast_that_ended_early(tmp_path: Path, grid: tuple[int, ...]) -> None:
    truth, guess = pair(grid)
    guess.fields[2:] = np.nan
    draw_comparison(truth, guess, tmp_path / "p.png")
    animate_comparison(truth, guess, tmp_path / "p.webp")
    guess.fields[...] = np.nan
    draw_comparison(truth, guess, tmp_path / "q.png")


def test_equal_data_give_equal_bytes_and_formats_are_checked(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        draw_comparison(*pair((12, 10)), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with pytest.raises(UsageError, match="Pictures are written as"):
        draw_comparison(*pair((16,)), tmp_path / "p.bmp")
    with pytest.raises(UsageError, match="Animations are written as"):
        animate_comparison(*pair((16,)), tmp_path / "p.mp4")


def texts_of(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.findobj(Text) if text.get_text()]


@pytest.mark.parametrize("grid", [(16,), (12, 10)])
def test_observed_frames_are_marked(grid: tuple[int, ...]) -> None:
    truth, guess = pair(grid)
    assert not [text for text in texts_of(compare(truth, guess)) if "observed" in text]
    marked = [text for text in texts_of(compare(truth, replace(guess, n_observed=1))) if "observed" in text]
    assert marked == (["observed below"] * 2 if len(grid) == 1 else ["t = 0.0\nobserved"])


def test_a_film_tells_which_frames_were_observed() -> None:
    assert [frame_label(i, np.array([0.0, 0.5, 1.0]), 1) for i in range(2)] == ["t = 0.00, observed", "t = 0.50"]


@pytest.mark.parametrize(("grid", "words"), [((16,), "(forecast - truth) x 10"), ((12, 10), "|error| x 10")])
def test_the_finer_scale_of_differences_is_told(grid: tuple[int, ...], words: str) -> None:
    assert words in texts_of(compare(*pair(grid)))  # the forecast is ten percent too large


def test_a_scale_that_is_not_finer_is_not_remarked() -> None:
    assert magnified("error", Scale(0.0, 1.0, False, "neither"), Scale(-1.0, 1.0, True, "neither")) == "error"
    assert magnified("error", Scale(-0.01, 0.01, True, "neither"), Scale(0.0, 1.0, False, "neither")) == "error x 100"


def test_fields_are_named_in_upright_titles() -> None:
    figure = compare(*pair((16,)))
    assert [axes.get_title() for axes in figure.axes[:2]] == ["truth, u0", "forecast, u0"]
    short = [text for axes in figure.axes for text in axes.findobj(Text) if 0 < len(text.get_text()) <= 2]
    assert all(text.get_rotation() == 0 for text in short)


def test_two_channels_make_a_wide_film() -> None:
    truth, guess = pair((12, 10), 2)
    first = next(film(truth, guess, "A title", 60, 2))
    assert first.width > 2 * first.height

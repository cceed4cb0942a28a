"""Truth beside forecast: every kind of trajectory, one scale for both, gaps where the forecast ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from PIL import Image

from pdejepa.core.errors import UsageError
from pdejepa.draw.trajectory import Trajectory
from pdejepa.draw.truth_and_forecast import animate_comparison, compare, draw_comparison, frame_errors


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

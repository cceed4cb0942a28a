"""Pictures and animations: every kind of trajectory, one scale per channel, no trace left behind."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from PIL import Image

from pdejepa.core.errors import UsageError
from pdejepa.draw.animation import MAX_BYTES
from pdejepa.draw.colours import diverging, lab_to_srgb, scale_of
from pdejepa.draw.panels import edges, pick_frames, time_label, titles
from pdejepa.draw.pictures import animate_trajectory, draw, draw_trajectory
from pdejepa.draw.trajectory import Trajectory


def trajectory(
    grid: tuple[int, ...] = (16,), n_channels: int = 1, n_frames: int = 6, signed: bool = True, **changes: object
) -> Trajectory:
    rng = np.random.default_rng(0)
    fields = rng.standard_normal((n_frames, n_channels, *grid)).astype(np.float32)
    values = {
        "fields": fields if signed else np.abs(fields),
        "xi": {"speed": 1.25, "viscosity": 1e-3},
        "times": np.linspace(0.0, 2.0, n_frames),
        "axes": {name: np.linspace(0.0, 1.0, n) for name, n in zip("xyz", grid, strict=False)},
        "field_names": tuple(f"u{i}" for i in range(n_channels)),
        "split": "test",
        "index": 3,
        "system_name": "toy",
    }
    return Trajectory(**{**values, **changes})  # type: ignore[arg-type]


SHAPES = [((16,), 1), ((16,), 2), ((12, 10), 1), ((12, 10), 2), ((8, 6, 5), 1), ((1,), 1), ((40, 3), 1)]


@pytest.mark.parametrize(("grid", "n_channels"), SHAPES)
def test_every_shape_can_be_drawn(tmp_path: Path, grid: tuple[int, ...], n_channels: int) -> None:
    path = tmp_path / "deep" / "p.png"
    draw_trajectory(trajectory(grid, n_channels), path, "A title")
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert min(image.size) > 100
        assert max(image.size) < 4000
    assert [entry.name for entry in path.parent.iterdir()] == ["p.png"]


@pytest.mark.parametrize("suffix", ["pdf", "svg", "jpg", "webp", "PNG"])
def test_formats(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"p.{suffix}"
    draw_trajectory(trajectory(), path)
    assert path.stat().st_size > 1000


@pytest.mark.parametrize("name", ["p.bmp", "p", "p.hdf5"])
def test_unknown_formats_are_refused_before_drawing(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="Pictures are written as"):
        draw_trajectory(trajectory(), tmp_path / name)
    with pytest.raises(UsageError, match="Animations are written as"):
        animate_trajectory(trajectory(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_equal_data_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        draw_trajectory(trajectory((12, 10)), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_no_global_state_is_touched(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    backend = matplotlib.get_backend(auto_select=False)
    draw_trajectory(trajectory(), tmp_path / "p.png")
    assert dict(matplotlib.rcParams) == before
    assert matplotlib.get_backend(auto_select=False) == backend


def test_one_scale_per_channel() -> None:
    given = trajectory((12, 10), 2)
    given.fields[:, 1] *= 1000
    figure = draw(given)
    drawn = [collection for axes in figure.axes for collection in axes.collections]
    meshes = [one for one in drawn if isinstance(one, QuadMesh) and one.get_array().size == 120]
    scales = {(mesh.norm.vmin, mesh.norm.vmax) for mesh in meshes}
    assert len(meshes) == 2 * 6
    assert len(scales) == 2
    assert all(low == -high for low, high in scales)


def test_scales() -> None:
    rng = np.random.default_rng(0)
    signed, positive = scale_of(rng.standard_normal(10_000)), scale_of(rng.random(10_000))
    assert signed.is_signed
    assert signed.low == -signed.high
    assert signed.extend == "both"  # a few peaks lie beyond
    assert not positive.is_signed
    assert 0 <= positive.low < 0.01
    assert positive.high > 0.99
    almost = scale_of(np.append(rng.random(1000), -1e-4))  # rounding below zero does not make a field signed
    assert not almost.is_signed
    assert scale_of(np.full(5, 3.0)).low < 3.0 < scale_of(np.full(5, 3.0)).high
    assert scale_of(np.array([np.nan, 1.0, 2.0])).high == pytest.approx(2.0, rel=1e-3)
    assert scale_of(np.array([np.nan])).high == 1.0
    spike = np.zeros(10_000)
    spike[:3] = [1.0, -1.0, 0.5]
    assert scale_of(spike).high == 1.0


def test_the_diverging_map_is_even_and_symmetric() -> None:
    colours = diverging()(np.linspace(0, 1, 256))[:, :3]
    lightness = [_lightness(colour) for colour in colours]
    steps = np.diff(lightness)
    assert np.abs(steps[:120] - steps[:120].mean()).max() < 0.15  # equal steps of perceived lightness
    assert np.abs(np.array(lightness) - lightness[::-1]).max() < 1.0
    assert min(colours[128]) > 0.94
    assert colours[0][2] > colours[0][0] + 0.2  # blue
    assert colours[-1][0] > colours[-1][2] + 0.2  # orange


def _lightness(colour: np.ndarray) -> float:
    linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    y = float(linear @ (0.2126, 0.7152, 0.0722))
    return 116 * y ** (1 / 3) - 16


def test_lab() -> None:
    np.testing.assert_allclose(lab_to_srgb(np.array([100.0, 0.0, 0.0])), [1.0, 1.0, 1.0], atol=2e-3)
    np.testing.assert_allclose(lab_to_srgb(np.array([53.24, 80.09, 67.20])), [1.0, 0.0, 0.0], atol=5e-3)


def test_cells_stand_at_their_true_coordinates() -> None:
    np.testing.assert_allclose(edges(np.array([0.0, 1.0, 4.0])), [-0.5, 0.5, 2.5, 5.5])
    x = np.cos(np.linspace(np.pi, 0, 9))  # Chebyshev points
    figure = draw(trajectory((9,), axes={"x": x}))
    mesh = next(c for axes in figure.axes for c in axes.collections if isinstance(c, QuadMesh))
    np.testing.assert_allclose(mesh.get_coordinates()[0, :, 0], edges(x))


def test_words() -> None:
    given = trajectory()
    assert titles(given, None) == ("toy, test 3", "speed = 1.25,  viscosity = 0.001")
    many = trajectory(xi={f"forcing_amplitude_{i}": 0.5 for i in range(21)})
    assert titles(many, "T", 80)[1].endswith("and 19 more")
    assert len(titles(many, "T", 80)[1]) <= 80
    assert titles(trajectory(xi={}), "T") == ("T", "")
    assert pick_frames(20, 7) == [0, 3, 6, 10, 13, 16, 19]
    assert pick_frames(3, 7) == [0, 1, 2]
    assert pick_frames(1, 7) == [0]
    assert time_label(0.00017, np.array([0.0, 0.00017])) == "t = 0.00017"
    assert time_label(30.0, np.arange(0.0, 200.0, 10.0)) == "t = 30"
    assert time_label(2.5, np.array([2.5])) == "t = 2.5"


@pytest.mark.parametrize("suffix", ["gif", "webp"])
@pytest.mark.parametrize(("grid", "n_channels"), [((16,), 2), ((12, 10), 2)])
def test_animations(tmp_path: Path, suffix: str, grid: tuple[int, ...], n_channels: int) -> None:
    path = tmp_path / f"a.{suffix}"
    animate_trajectory(trajectory(grid, n_channels), path)
    with Image.open(path) as image:
        assert image.format == suffix.upper()
        assert image.n_frames == 6
        assert image.info["loop"] == 0
        first = np.asarray(image.convert("RGB"))
        image.seek(5)
        last = np.asarray(image.convert("RGB"))
    assert first.shape == last.shape
    assert (first != last).any()


@pytest.mark.slow
def test_a_long_animation_is_thinned_and_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "a.gif"
    animate_trajectory(trajectory((24, 24), n_frames=200), path)
    assert path.stat().st_size <= MAX_BYTES
    with Image.open(path) as image:
        assert image.n_frames <= 120


def test_values_that_are_not_finite_are_drawn_as_gaps(tmp_path: Path) -> None:
    given = trajectory((12, 10))
    given.fields[3:] = np.nan
    draw_trajectory(given, tmp_path / "p.png")
    line = trajectory((16,))
    line.fields[...] = np.nan
    draw_trajectory(line, tmp_path / "q.png")
    animate_trajectory(line, tmp_path / "q.gif")

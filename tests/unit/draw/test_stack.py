"""Comparisons one below the other: nothing is cut, and films of different lengths end together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pdejepa.core.errors import UsageError
from pdejepa.draw.stack import GAP, animate_comparisons, draw_comparisons, stack
from pdejepa.draw.trajectory import Trajectory


def pair(grid: tuple[int, ...], n_frames: int) -> tuple[Trajectory, Trajectory, str]:
    fields = np.random.default_rng(0).standard_normal((n_frames, 1, *grid)).astype(np.float32)
    axes = {name: np.linspace(0.0, 1.0, n) for name, n in zip("xy", grid, strict=False)}
    shared = {"xi": {"speed": 1.0}, "times": np.linspace(0.0, 1.0, n_frames), "axes": axes, "field_names": ("u",)}
    names = {"split": "test", "index": 0, "system_name": "toy"}
    truth, guess = (Trajectory(fields=factor * fields, **shared, **names) for factor in (1.0, np.float32(1.1)))  # type: ignore[arg-type]
    return truth, guess, "A title"


def test_stack() -> None:
    whole = stack([Image.new("RGB", (4, 2), "red"), Image.new("RGB", (6, 3), "blue")])
    assert whole.size == (6, 2 + GAP + 3)
    assert whole.getpixel((3, 1)) == (255, 0, 0)
    assert whole.getpixel((5, 1)) == (255, 255, 255)
    assert whole.getpixel((0, 2)) == (255, 255, 255)
    assert whole.getpixel((5, 2 + GAP)) == (0, 0, 255)


@pytest.mark.parametrize("grid", [(16,), (12, 10)])
def test_files(tmp_path: Path, grid: tuple[int, ...]) -> None:
    pairs = [pair(grid, 3), pair(grid, 5)]
    draw_comparisons(pairs[:1], tmp_path / "one.png")
    draw_comparisons(pairs, tmp_path / "two.png")
    animate_comparisons(pairs, tmp_path / "two.gif")
    with Image.open(tmp_path / "one.png") as one, Image.open(tmp_path / "two.png") as two:
        assert two.height > 1.8 * one.height
    with Image.open(tmp_path / "two.gif") as film:
        assert film.n_frames == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.png", "two.gif", "two.png"]


def test_only_png(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Several comparisons are drawn into one"):
        draw_comparisons([pair((16,), 3)], tmp_path / "p.pdf")

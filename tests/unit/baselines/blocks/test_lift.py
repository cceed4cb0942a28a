"""Lines and planes to other planes and back: exact, and what lies between."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pdejepa.baselines.blocks.lift import Chain, Lift, Repeat, Resize, Serpentine, lift_to_plane
from pdejepa.core.errors import ConfigError


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("kind", ["linear", "spectral"])
@pytest.mark.parametrize(("grid", "plane"), [((32, 32), (128, 128)), ((7, 10), (12, 15)), ((16, 16), (16, 40))])
def test_back_after_there(kind: str, grid: tuple[int, int], plane: tuple[int, int]) -> None:
    lift, u = Resize(grid, plane, kind), noise(2, 3, *grid)  # type: ignore[arg-type]
    assert lift(u).shape == (2, 3, *plane)
    torch.testing.assert_close(lift.inverse(lift(u)), u, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kind", ["linear", "spectral"])
def test_there_after_back_where_points_are_lost(kind: str) -> None:
    lift, y = Resize((24, 24), (16, 16), kind), noise(2, 16, 16)  # type: ignore[arg-type]
    torch.testing.assert_close(lift(lift.inverse(y)), y, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("lift", "plane"),
    [
        (lift_to_plane((64,), (128, 128)), (128, 128)),
        (Repeat(16), (64, 16)),
        (Chain(Resize((64,), (96,)), Repeat(16)), (96, 16)),
    ],
)
def test_lines(lift: Lift, plane: tuple[int, int]) -> None:
    u = noise(2, 3, 1, 64)
    assert lift(u).shape == (2, 3, 1, *plane)
    torch.testing.assert_close(lift.inverse(lift(u)), u, atol=1e-5, rtol=1e-5)


def test_trigonometric_interpolation_is_exact_for_waves() -> None:
    """A wave on 8 points, on 20 points; the fastest one, which stands for two, comes out as a cosine."""
    coarse, fine = torch.arange(8) / 8, torch.arange(20) / 20
    lift = Resize((8,), (20,), "spectral")
    for k in (1, 3, 4):
        wave = torch.cos(2 * math.pi * k * coarse)
        torch.testing.assert_close(lift(wave), torch.cos(2 * math.pi * k * fine), atol=1e-5, rtol=1e-5)


def test_straight_interpolation_is_the_common_one() -> None:
    u = noise(2, 3, 8, 8)
    expected = torch.nn.functional.interpolate(u, size=(32, 32), mode="bilinear", align_corners=False)
    torch.testing.assert_close(Resize((8, 8), (32, 32))(u), expected, atol=1e-6, rtol=1e-6)


def test_serpentine_keeps_neighbours() -> None:
    """Six points in two rows: 0 1 2 / 5 4 3, every step of the line is one step in the plane."""
    assert Serpentine(6)(torch.arange(6)).tolist() == [[0, 1, 2], [5, 4, 3]]
    plane = Serpentine(256)(torch.arange(256))
    assert plane.shape == (16, 16)
    places = torch.stack([(plane == n).nonzero()[0] for n in range(256)])
    assert bool((places.diff(dim=0).abs().sum(1) == 1).all())


def test_gradients_pass_and_nothing_is_saved() -> None:
    lift, u = lift_to_plane((64,), (32, 32)), noise(2, 64).requires_grad_()
    lift.inverse(lift(u)).square().sum().backward()
    torch.testing.assert_close(u.grad, 2 * u.detach(), atol=1e-5, rtol=1e-5)
    assert lift.state_dict() == {}
    assert list(Chain(Repeat(3)).parameters()) == []


def test_what_cannot_be_laid_out_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be laid out"):
        Serpentine(13)
    with pytest.raises(ConfigError, match="as many axes"):
        Resize((8,), (4, 4))

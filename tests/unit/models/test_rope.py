"""Rotary positions: products depend on differences of positions only, on rings modulo the length."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pdejepa.core.errors import ConfigError
from pdejepa.models.patches import PatchGrid
from pdejepa.models.rope import Axis, Rotary, ring_wavenumbers, rotate, token_axes

WIDTH = 20  # of a head: 10 pairs


def products(axes: tuple[Axis, ...]) -> Tensor:
    """q.k for one q and one k standing at all places, (*lengths, *lengths)."""
    rotary = Rotary(axes, WIDTH).double()
    n = math.prod(axis.length for axis in axes)
    q, k = (torch.randn(1, 1, 1, WIDTH, dtype=torch.float64).expand(-1, -1, n, -1) for _ in range(2))
    scores = rotate(q, *rotary()) @ rotate(k, *rotary()).transpose(-1, -2)
    lengths = [axis.length for axis in axes]
    return scores.reshape(*lengths, *lengths)


def test_plain_axes_depend_on_differences_only() -> None:
    scores = products((Axis(4, False), Axis(5, False), Axis(6, False)))
    for axis in range(3):
        later = scores.narrow(axis, 1, scores.shape[axis] - 1).narrow(axis + 3, 1, scores.shape[axis] - 1)
        sooner = scores.narrow(axis, 0, scores.shape[axis] - 1).narrow(axis + 3, 0, scores.shape[axis] - 1)
        torch.testing.assert_close(later, sooner, atol=1e-5, rtol=0)
        assert not torch.allclose(scores.roll((1, 1), (axis, axis + 3)), scores, atol=1e-2)  # no ring


@pytest.mark.parametrize("length", [5, 6, 64])
def test_rings_depend_on_differences_modulo_the_length(length: int) -> None:
    scores = products((Axis(3, False), Axis(length, True)))
    torch.testing.assert_close(scores.roll((1, 1), (1, 3)), scores, atol=1e-5, rtol=0)
    first = scores[0, 0, 0]  # (length,): all differences are told apart
    gaps = (first[:, None] - first[None, :]).abs() + torch.eye(length)
    assert gaps.min() > 1e-4


def test_both_members_of_a_pair_turn_by_the_same_angle() -> None:
    rotary = Rotary((Axis(7, False), Axis(8, True)), WIDTH)
    cos, sin = rotary()
    half = WIDTH // 2
    turned = rotate(torch.eye(WIDTH)[:, None, None].expand(-1, 1, 56, -1), cos, sin)[:, 0]  # (d,n,d)
    for i in range(half):
        torch.testing.assert_close(turned[i, :, i], cos[0, 0, :, i])
        torch.testing.assert_close(turned[i, :, i + half], sin[0, 0, :, i])
        torch.testing.assert_close(turned[i + half, :, i], -sin[0, 0, :, i])
        torch.testing.assert_close(turned[i + half, :, i + half], cos[0, 0, :, i])
    torch.testing.assert_close(turned.norm(dim=-1), torch.ones(WIDTH, 56))


def test_angles_of_each_axis_follow_the_formula() -> None:
    """Three axes share ten pairs: three each, and the last pair does not turn."""
    axes = (Axis(40, False), Axis(3, False), Axis(16, True))
    cos, sin = Rotary(axes, WIDTH)()
    t, x, y = 37, 2, 11
    place = (t * 3 + x) * 16 + y
    k = ring_wavenumbers(16, 3)
    angles = [t * 10000 ** (-i / 3) for i in range(3)] + [x * 10000 ** (-i / 3) for i in range(3)]
    angles += [y * 2 * math.pi * k[i] / 16 for i in range(3)] + [0.0]
    expected = torch.tensor(angles, dtype=torch.float64)
    torch.testing.assert_close(cos[0, 0, place].double(), expected.cos(), atol=1e-7, rtol=0)
    torch.testing.assert_close(sin[0, 0, place].double(), expected.sin(), atol=1e-7, rtol=0)


@pytest.mark.parametrize(
    ("length", "n_pairs", "expected"),
    [
        (16, 5, [1, 2, 3, 5, 8]),
        (64, 1, [1]),
        (8, 6, [1, 2, 3, 4, 4, 4]),
        (2, 3, [1, 1, 1]),
        (1, 2, [0, 0]),
    ],
)
def test_wavenumbers_of_rings(length: int, n_pairs: int, expected: list[int]) -> None:
    assert ring_wavenumbers(length, n_pairs) == expected


def test_wavenumbers_reach_the_finest_wave_without_repeats() -> None:
    numbers = ring_wavenumbers(64, 16)
    assert numbers == sorted(set(numbers))
    assert (numbers[0], numbers[-1]) == (1, 32)


def test_chosen_tokens_get_their_own_angles() -> None:
    rotary = Rotary((Axis(3, False), Axis(4, True)), WIDTH)
    idx = torch.tensor([[5, 0, 11], [2, 2, 7]])
    for table, chosen, first in zip(rotary(), rotary(idx), rotary.first(4), strict=True):
        assert table.shape == (1, 1, 12, WIDTH // 2)
        assert chosen.shape == (2, 1, 3, WIDTH // 2)
        assert torch.equal(chosen[1, 0, 2], table[0, 0, 7])
        assert torch.equal(first, table[:, :, :4])


def test_half_precision_is_turned_in_single_precision() -> None:
    rotary = Rotary((Axis(300, False),), WIDTH)
    x = torch.randn(2, 3, 300, WIDTH).bfloat16()
    turned = rotate(x, *rotary())
    assert turned.dtype == torch.bfloat16
    assert torch.equal(turned, rotate(x.float(), *rotary()).bfloat16())


def test_axes_of_a_clip() -> None:
    patches = PatchGrid((8, 12), 2, (True, False))
    assert token_axes(patches, "ring", 5) == (Axis(5, False), Axis(4, True), Axis(6, False))
    assert token_axes(patches, "rope", 5) == (Axis(5, False), Axis(4, False), Axis(6, False))
    assert token_axes(patches, "ring") == (Axis(4, True), Axis(6, False))


@pytest.mark.parametrize("head_width", [7, 4])
def test_head_widths_without_a_pair_for_each_axis_are_refused(head_width: int) -> None:
    with pytest.raises(ConfigError, match="even head width of 6 or more"):
        Rotary((Axis(2, False),) * 3, head_width)

"""Patches: exact inverse, order of tokens, and the convolution that a Linear on them is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pdejepa.core.errors import ConfigError, DataError
from pdejepa.models.patches import PatchGrid


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_join_undoes_split(patches: PatchGrid, lead: tuple[int, ...]) -> None:
    u = torch.randn(*lead, 3, *patches.grid)
    tokens = patches.split(u)
    assert tokens.shape == (*lead, patches.n_tokens, 3 * 2**patches.ndim)
    assert torch.equal(patches.join(tokens), u)
    assert torch.equal(patches.split(patches.join(tokens)), tokens)


def test_tokens_are_row_major_and_hold_channel_then_points() -> None:
    patches = PatchGrid((4, 6), 2, (True, True))
    u = torch.arange(2 * 4 * 6).reshape(2, 4, 6)
    token = patches.split(u)[1 * 3 + 2]  # second row of patches, third patch
    assert torch.equal(token, u[:, 2:4, 4:6].flatten())


@pytest.mark.parametrize("grid", [(12,), (8, 12)])
def test_a_linear_on_patches_is_a_strided_convolution(grid: tuple[int, ...]) -> None:
    patches = PatchGrid(grid, 4, (True,) * len(grid))
    u = torch.randn(2, 3, *grid)
    linear = nn.Linear(3 * patches.patch_points, 5)
    convolution = (torch.conv1d, torch.conv2d)[len(grid) - 1]
    kernel = linear.weight.reshape(5, 3, *(4,) * len(grid))
    expected = convolution(u, kernel, linear.bias, stride=4).flatten(2).transpose(1, 2)
    torch.testing.assert_close(linear(patches.split(u)), expected)


def test_sizes() -> None:
    patches = PatchGrid((64, 32), 8, (True, False))
    assert (patches.tokens, patches.n_tokens, patches.patch_points, patches.ndim) == ((8, 4), 32, 64, 2)


@pytest.mark.parametrize(("grid", "patch", "periodic"), [((10,), 4, (True,)), ((8,), 0, (True,)), ((8, 8), 4, (True,))])
def test_grids_that_cannot_be_cut_are_refused(grid: tuple[int, ...], patch: int, periodic: tuple[bool, ...]) -> None:
    with pytest.raises(ConfigError):
        PatchGrid(grid, patch, periodic)


def test_other_shapes_are_refused() -> None:
    patches = PatchGrid((8, 8), 4, (True, True))
    with pytest.raises(DataError, match=r"got \(2, 8, 4\)"):
        patches.split(torch.zeros(2, 8, 4))
    with pytest.raises(DataError, match=r"got \(3, 16\)"):
        patches.join(torch.zeros(3, 16))

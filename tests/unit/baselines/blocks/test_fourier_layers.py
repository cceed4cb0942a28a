"""Spectral convolutions against sums over modes written out, and the ways in which rows may differ."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pdejepa.baselines.blocks.fourier_layers import SpectralConv, SpectralMlp


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def conv(modes: tuple[int, ...], n_in: int = 2, n_out: int = 3) -> SpectralConv:
    torch.manual_seed(1)
    made = SpectralConv(n_in, n_out, modes)
    torch.nn.init.normal_(made.weight)
    return made


def test_a_wave_is_multiplied_by_the_weight_of_its_mode() -> None:
    """u = cos(2 pi k x): y = Re(W_k e^{2 pi i k x}); at k = 0 half of it would be missing, so k = 2 here."""
    made, x = conv((4,), 1, 1), torch.arange(16) / 16
    weight = torch.view_as_complex(made.weight)[0, 0, 0, 2]
    y = made(torch.cos(2 * math.pi * 2 * x)[None, None])
    expected = (weight * torch.exp(2j * math.pi * 2 * x)).real
    torch.testing.assert_close(y[0, 0], expected, atol=1e-5, rtol=1e-5)


def test_modes_beyond_are_dropped() -> None:
    x = torch.arange(16) / 16
    assert float(conv((4,), 1, 1)(torch.cos(2 * math.pi * 4 * x)[None, None]).abs().max().detach()) < 1e-5


@pytest.mark.parametrize(("k_x", "corner", "row"), [(1, 0, 1), (-2, 1, 1), (-3, 1, 0)])
def test_both_signs_on_the_first_axis(k_x: int, corner: int, row: int) -> None:
    """Mode -m..-1 of the first axis stands at place 0..m-1 of the second corner."""
    made = conv((3, 3), 1, 1)
    x, y = torch.meshgrid(torch.arange(12) / 12, torch.arange(8) / 8, indexing="ij")
    phase = 2 * math.pi * (k_x * x + 2 * y)
    expected = (torch.view_as_complex(made.weight)[corner, 0, 0, row, 2] * torch.exp(1j * phase)).real
    torch.testing.assert_close(made(torch.cos(phase)[None, None])[0, 0], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("modes", "grid"), [((4,), (16,)), ((3, 3), (12, 8)), ((9,), (8,)), ((9, 9), (8, 8))])
def test_rows_with_weights_of_their_own(modes: tuple[int, ...], grid: tuple[int, ...]) -> None:
    """delta and factors say the same thing, also where the grid has fewer modes than the weights."""
    made, corners = conv(modes), 2 ** (len(modes) - 1)
    x, code = noise(4, 2, *grid), noise(4, 5)
    left, right = noise(5, corners, 2, *modes), noise(5, corners, 3, *modes)
    delta = torch.einsum("bd,dci...,dco...->bcio...", code, left, right)
    low_rank = made(x, factors=(left, right, code))
    torch.testing.assert_close(low_rank, made(x, delta=delta.to(torch.complex64)), atol=1e-4, rtol=1e-4)
    alone = made(x[1:2], factors=(left, right, code[1:2]))
    torch.testing.assert_close(low_rank[1:2], alone, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(low_rank, made(x), atol=1e-2)


def test_gain_acts_before_mixing() -> None:
    made, x = conv((4,)), noise(3, 2, 16)
    torch.testing.assert_close(made(x, gain=torch.full((3, 2, 1, 4), 2.0 + 0j)), 2 * made(x))


def test_spectral_mlp_is_a_complex_network_on_every_mode() -> None:
    torch.manual_seed(2)
    made = SpectralMlp(6, 2)
    for p in made.parameters():
        torch.nn.init.normal_(p)
    x = noise(2, 6, 4, 8)
    modes = torch.fft.rfft2(x, norm="ortho")  # (B,D,X,Y/2+1)
    w1, w2, b1, b2 = (torch.complex(p[0], p[1]).detach() for p in (made.w1, made.w2, made.b1, made.b2))
    expected = torch.zeros_like(modes)
    for group in range(2):
        own = slice(3 * group, 3 * group + 3)
        hidden = torch.einsum("bixy,io->boxy", modes[:, own], w1[group]) + b1[group, :, None, None]
        hidden = torch.complex(torch.nn.functional.gelu(hidden.real), torch.nn.functional.gelu(hidden.imag))
        expected[:, own] = torch.einsum("bixy,io->boxy", hidden, w2[group]) + b2[group, :, None, None]
    expected_field = torch.fft.irfft2(expected, s=(4, 8), norm="ortho")
    torch.testing.assert_close(made(x), expected_field, atol=1e-4, rtol=1e-4)

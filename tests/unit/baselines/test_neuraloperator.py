"""Our spectral convolution against that of the package neuraloperator, with its weights."""

from __future__ import annotations

import pytest
import torch

from pdejepa.baselines.blocks.fourier_layers import SpectralConv

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("n", [32, 33])
def test_a_line(n: int) -> None:
    """They count modes of both signs and keep n/2 + 1 of them: 2 (m - 1) gives the modes 0 .. m-1."""
    theirs_module = pytest.importorskip("neuralop.layers.spectral_convolution")
    m = 5
    torch.manual_seed(0)
    theirs = theirs_module.SpectralConv(3, 4, n_modes=(2 * (m - 1),), bias=False)
    ours = SpectralConv(3, 4, (m,))
    with torch.no_grad():
        weight = theirs.weight.to_tensor() if hasattr(theirs.weight, "to_tensor") else theirs.weight
        ours.weight.copy_(torch.view_as_real(weight)[None])  # (1,I,O,m,2)
    x = torch.randn(2, 3, n)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)

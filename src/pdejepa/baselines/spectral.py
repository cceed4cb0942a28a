"""Convolution by the Fourier transform: the lowest modes of every axis are mixed, all others are dropped.

    y = F^{-1}( W_k (F x)_k ),   k = 0 .. m-1 on the last axis, and -m .. m-1 on the one before it

Weights are stored as real numbers with a last axis (real, imaginary), so that every optimiser can handle them.
Letters: B rows, I channels in, O channels out, X and Y points, m modes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class SpectralConv(nn.Module):
    """(B,I,*grid) -> (B,O,*grid) on one or two axes.

    `gain` (B,I,corners,m..) complex multiplies the modes before mixing; `delta` (B,corners,I,O,m..) complex is added
    to the weights of each row.
    """

    def __init__(self, n_in: int, n_out: int, modes: tuple[int, ...]) -> None:
        super().__init__()
        self.modes, self.n_out = modes, n_out
        self.n_corners = 2 ** (len(modes) - 1)
        scale = 1.0 / (n_in * n_out)
        self.weight = nn.Parameter(scale * torch.rand(self.n_corners, n_in, n_out, *modes, 2))

    def forward(self, x: Tensor, gain: Tensor | None = None, delta: Tensor | None = None) -> Tensor:
        axes = tuple(range(2, x.ndim))
        grid = x.shape[2:]
        x_hat = torch.fft.rfftn(x.float(), dim=axes)  # (B,I,X,Y/2+1)
        y_hat = x_hat.new_zeros((x.shape[0], self.n_out, *x_hat.shape[2:]))
        weight = torch.view_as_complex(self.weight.float())  # (corners,I,O,m..)
        for corner, place in enumerate(self._corners(x_hat.shape[2:])):
            part = x_hat[(slice(None), slice(None), *place)]  # (B,I,m..)
            inside: list[Any] = [slice(None), slice(None), *(slice(0, n) for n in part.shape[2:])]
            kept = weight[corner][tuple(inside)]  # (I,O,m..), fewer modes where the grid has not so many
            if gain is not None:
                part = part * gain[:, :, corner]
            if delta is None:
                mixed = torch.einsum("bi...,io...->bo...", part, kept)
            else:
                mixed = torch.einsum("bi...,bio...->bo...", part, kept + delta[:, corner])
            y_hat[(slice(None), slice(None), *place)] = mixed
        return torch.fft.irfftn(y_hat, s=grid, dim=axes)  # (B,O,*grid)

    def _corners(self, shape: torch.Size) -> list[tuple[slice, ...]]:
        """Where the kept modes stand: low positive ones on the last axis, both signs on the axis before."""
        last = slice(0, min(self.modes[-1], shape[-1]))
        if len(self.modes) == 1:
            return [(last,)]
        m = min(self.modes[0], shape[0] // 2)
        return [(slice(0, m), last), (slice(shape[0] - m, shape[0]), last)]

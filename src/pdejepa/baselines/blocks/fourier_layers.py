"""Convolution by the Fourier transform: the lowest modes of every axis are mixed, all others are dropped.

Beside it the coordinates of a grid, which the networks that are built of it read together with the fields.

    y = F^{-1}( W_k (F x)_k ),   k = 0 .. m-1 on the last axis, and -m .. m-1 on the one before it

Weights are stored as real numbers with a last axis (real, imaginary), so that every optimiser can handle them.
Letters: B rows, I channels in, O channels out, X and Y points, m modes, d numbers of a code, G groups of g channels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

Factors = tuple[Tensor, Tensor, Tensor]


def unit_coordinates(grid: tuple[int, ...]) -> Tensor:
    """Coordinates (ndim,*grid) of the points of a grid, in [0,1)."""
    return torch.stack(torch.meshgrid(*[torch.arange(n) / n for n in grid], indexing="ij"))


class SpectralConv(nn.Module):
    """(B,I,*grid) -> (B,O,*grid) on one or two axes.

    Rows may differ in three ways:
      gain     (B,I,corners,m..) complex            multiplies the modes before mixing
      delta    (B,corners,I,O,m..) complex          is added to the weights
      factors  A (d,corners,I,m..), B (d,corners,O,m..) and code c (B,d), all real
                                                    sum_d A_d c_d B_d is added to the weights, without building it
    """

    def __init__(self, n_in: int, n_out: int, modes: tuple[int, ...]) -> None:
        super().__init__()
        self.modes, self.n_out = modes, n_out
        self.n_corners = 2 ** (len(modes) - 1)
        scale = 1.0 / (n_in * n_out)
        self.weight = nn.Parameter(scale * torch.rand(self.n_corners, n_in, n_out, *modes, 2))

    def forward(
        self, x: Tensor, gain: Tensor | None = None, delta: Tensor | None = None, factors: Factors | None = None
    ) -> Tensor:
        axes = tuple(range(2, x.ndim))
        grid = x.shape[2:]
        x_hat = torch.fft.rfftn(x.float(), dim=axes)  # (B,I,X,Y/2+1)
        y_hat = x_hat.new_zeros((x.shape[0], self.n_out, *x_hat.shape[2:]))
        weight = torch.view_as_complex(self.weight.float())  # (corners,I,O,m..)
        for corner, place in enumerate(self._corners(x_hat.shape[2:])):
            part = x_hat[(slice(None), slice(None), *place)]  # (B,I,m..)
            kept = _inside(weight[corner], part)  # (I,O,m..), fewer modes where the grid has not so many
            if gain is not None:
                part = part * _inside(gain[:, :, corner], part)
            if delta is None:
                mixed = torch.einsum("bi...,io...->bo...", part, kept)
            else:
                mixed = torch.einsum("bi...,bio...->bo...", part, kept + _inside(delta[:, corner], part))
            if factors is not None:
                mixed = mixed + _low_rank(part, factors, corner)
            y_hat[(slice(None), slice(None), *place)] = mixed
        return torch.fft.irfftn(y_hat, s=grid, dim=axes)  # (B,O,*grid)

    def _corners(self, shape: torch.Size) -> list[tuple[slice, ...]]:
        """Where the kept modes stand: low positive ones on the last axis, both signs on the axis before."""
        last = slice(0, min(self.modes[-1], shape[-1]))
        if len(self.modes) == 1:
            return [(last,)]
        m = min(self.modes[0], shape[0] // 2)
        return [(slice(0, m), last), (slice(shape[0] - m, shape[0]), last)]


def _inside(values: Tensor, part: Tensor) -> Tensor:
    """The modes of `values` (..,m..) that `part` (B,I,m..) has too."""
    first: list[Any] = [slice(None)] * (values.ndim - part.ndim + 2)
    return values[(*first, *(slice(0, n) for n in part.shape[2:]))]


def _low_rank(part: Tensor, factors: Factors, corner: int) -> Tensor:
    """(B,O,m..) = sum_d B_do c_d sum_i A_di x_i at every mode."""
    left, right, code = factors
    left, right = (_inside(f[:, corner], part).to(part.dtype) for f in (left, right))  # (d,I,m..), (d,O,m..)
    inner = torch.einsum("bi...,di...->bd...", part, left)
    return torch.einsum("bd...,bd,do...->bo...", inner, code.to(part.dtype), right)


class SpectralMlp(nn.Module):
    """Two layers on every Fourier mode of a plane, in G groups of channels: adaptive Fourier mixing.

        o = GELU(W1 x + b1),  y = W2 o + b2        complex; GELU on real and imaginary parts by themselves

    (B,D,X,Y) -> (B,D,X,Y).  w1, w2 (2,G,g,g): real and imaginary parts, last axes (in, out); b1, b2 (2,G,g).
    """

    def __init__(self, width: int, n_groups: int) -> None:
        super().__init__()
        self.n_groups, size = n_groups, width // n_groups
        scale = size**-0.5
        self.w1, self.w2 = (nn.Parameter(scale * torch.randn(2, n_groups, size, size)) for _ in range(2))
        self.b1, self.b2 = (nn.Parameter(torch.zeros(2, n_groups, size)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x_hat = torch.fft.rfft2(x.float(), norm="ortho")  # (B,D,X,K), K = Y/2+1
        B, _, X, K = x_hat.shape
        o = torch.view_as_real(x_hat).unflatten(1, (self.n_groups, -1)).permute(1, 0, 3, 4, 5, 2)  # (G,B,X,K,2,g)
        o = nn.functional.gelu(_complex_linear(o.reshape(self.n_groups, B * X * K, -1), self.w1, self.b1))
        o = _complex_linear(o, self.w2, self.b2).reshape(self.n_groups, B, X, K, 2, -1)
        y_hat = torch.view_as_complex(o.permute(1, 0, 5, 2, 3, 4).flatten(1, 2).contiguous())  # (B,D,X,K)
        return torch.fft.irfft2(y_hat, s=x.shape[2:], norm="ortho")


def _complex_linear(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """(G,n,2g) -> (G,n,2g), real parts before imaginary ones: one real product, by [[re, im], [-im, re]]."""
    re, im = w  # (G,g,g)
    matrix = torch.cat((torch.cat((re, im), 2), torch.cat((-im, re), 2)), 1)  # (G,2g,2g)
    return torch.baddbmm(b.movedim(0, 1).flatten(1)[:, None], x, matrix)

"""Cutting a frame into square patches, one token each, and putting it together again.

    token[x, y, (c, a, b)] = u[c, x p + a, y p + b]

A Linear on tokens is therefore a convolution with kernel and stride p.  Tokens of a frame are numbered row-major.
Letters: C channels, p points per patch and axis, N tokens per frame, k spatial axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from pdejepa.core.errors import ConfigError, DataError


@dataclass(frozen=True)
class PatchGrid:
    """One frame cut into patches: the grid of points, the grid of tokens, and which axes are periodic."""

    grid: tuple[int, ...]
    patch: int
    is_periodic: tuple[bool, ...]

    def __post_init__(self) -> None:
        if not self.grid or len(self.grid) != len(self.is_periodic):
            raise ConfigError(
                f"A patch grid needs one is_periodic per axis; got {len(self.is_periodic)} for grid {self.grid}."
            )
        if self.patch < 1 or any(n < 1 or n % self.patch for n in self.grid):
            raise ConfigError(f"patch must divide every axis of the grid {self.grid}; got {self.patch}.")

    @property
    def ndim(self) -> int:
        return len(self.grid)

    @property
    def tokens(self) -> tuple[int, ...]:
        """Tokens per axis."""
        return tuple(n // self.patch for n in self.grid)

    @property
    def n_tokens(self) -> int:
        """N, tokens per frame."""
        return math.prod(self.tokens)

    @property
    def patch_points(self) -> int:
        """Points in one patch, p^k."""
        return self.patch**self.ndim

    def split(self, u: Tensor) -> Tensor:
        """(..., C, *grid) -> (..., N, C p^k)."""
        k = self.ndim
        if u.ndim < k + 1 or tuple(u.shape[-k:]) != self.grid:
            raise DataError(f"Fields must have shape (..., channels, *{self.grid}); got {tuple(u.shape)}.")
        lead = u.shape[: -k - 1]
        cut = [size for n in self.tokens for size in (n, self.patch)]
        u = u.reshape(*lead, u.shape[-k - 1], *cut)  # (..., C, X, p, Y, p)
        n = len(lead)
        sites, points = range(n + 1, u.ndim, 2), range(n + 2, u.ndim, 2)
        u = u.permute(*range(n), *sites, n, *points)  # (..., X, Y, C, p, p)
        return u.reshape(*lead, self.n_tokens, -1)  # (..., N, C p^k)

    def join(self, tokens: Tensor) -> Tensor:
        """(..., N, C p^k) -> (..., C, *grid), the inverse of `split`."""
        k, n = self.ndim, tokens.ndim - 2
        if n < 0 or tokens.shape[-2] != self.n_tokens or tokens.shape[-1] % self.patch_points:
            raise DataError(
                f"Tokens must have shape (..., {self.n_tokens}, a multiple of {self.patch_points}); "
                f"got {tuple(tokens.shape)}."
            )
        lead = tokens.shape[:-2]
        n_channels = tokens.shape[-1] // self.patch_points
        u = tokens.reshape(*lead, *self.tokens, n_channels, *(self.patch,) * k)  # (..., X, Y, C, p, p)
        pairs = [axis for i in range(k) for axis in (n + i, n + k + 1 + i)]
        u = u.permute(*range(n), n + k, *pairs)  # (..., C, X, p, Y, p)
        return u.reshape(*lead, n_channels, *self.grid)  # (..., C, *grid)

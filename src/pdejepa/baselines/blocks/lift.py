"""From the grid of the data to the plane that a solver was built for, and back: every way has an exact inverse.

    Repeat      (..,X)   -> (..,X,n)         copies of a line side by side; back: their mean
    Serpentine  (..,X)   -> (..,a,b)         a line laid out in rows, every other one reversed, so that neighbours on
                                             the line stay neighbours; back: the line
    Resize      (..,*g)  -> (..,*h)          interpolation along every axis, straight or trigonometric (periodic axes)
    Chain       one after the other; back in reverse order

Resize is y = U x along an axis, U the interpolation from g to h > g points, and back the least-squares inverse
x = (U^T U)^{-1} U^T y.  So back after there gives x to rounding.  With fewer points, h < g, the two change places, and
there after back is exact.  Straight interpolation takes the points as centres of cells and continues the outermost
values, as `torch.nn.functional.interpolate` does; trigonometric interpolation keeps point 0 in place.
The matrices are applied in float64: what stands at every step of a rollout should add no rounding of its own.
Letters: X points of a line, n copies, a x b points of a plane.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

from pdejepa.core.errors import ConfigError

Kind = Literal["linear", "spectral"]


class Lift(nn.Module, ABC):
    """Fields (..,*grid) -> fields (..,*plane) by `forward`, and back by `inverse`; no parameters, nothing saved."""

    @abstractmethod
    def inverse(self, y: Tensor) -> Tensor:
        """Fields (..,*plane) -> (..,*grid)."""


class Repeat(Lift):
    """(..,X) -> (..,X,n)."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def forward(self, x: Tensor) -> Tensor:
        return x[..., None].expand(*x.shape, self.n)

    def inverse(self, y: Tensor) -> Tensor:
        return y.mean(-1)


class Serpentine(Lift):
    """(..,X) -> (..,a,b) with a b = X, as square as X allows: 256 points on 16 x 16."""

    is_odd: Tensor

    def __init__(self, n_points: int) -> None:
        super().__init__()
        n_rows = next(n for n in range(math.isqrt(n_points), 0, -1) if n_points % n == 0)
        self.shape = (n_rows, n_points // n_rows)
        if n_rows == 1 and n_points > 3:
            raise ConfigError(f"{n_points} points cannot be laid out in rows; use a number with divisors.")
        self.register_buffer("is_odd", (torch.arange(n_rows) % 2 == 1)[:, None], persistent=False)  # (a,1)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.unflatten(-1, self.shape)
        return torch.where(self.is_odd, rows.flip(-1), rows)

    def inverse(self, y: Tensor) -> Tensor:
        return torch.where(self.is_odd, y.flip(-1), y).flatten(-2)


class Resize(Lift):
    """(..,*grid) -> (..,*target)."""

    def __init__(self, grid: tuple[int, ...], target: tuple[int, ...], kind: Kind = "linear") -> None:
        super().__init__()
        if len(grid) != len(target):
            raise ConfigError(f"a grid {grid} cannot be resized to {target}: give as many axes as it has.")
        self.sizes = list(zip(grid, target, strict=True))
        for axis, (n, m) in enumerate(self.sizes):
            up = interpolation(min(n, m), max(n, m), kind)  # (more,fewer)
            down = torch.linalg.pinv(up)  # (fewer,more)
            there, back = (up, down) if m >= n else (down, up)
            self.register_buffer(f"there_{axis}", there, persistent=False)
            self.register_buffer(f"back_{axis}", back, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self._apply_all(x, "there")

    def inverse(self, y: Tensor) -> Tensor:
        return self._apply_all(y, "back")

    def _apply_all(self, x: Tensor, way: str) -> Tensor:
        y = x
        for axis, (n, m) in enumerate(self.sizes):
            if n != m:
                place = axis - len(self.sizes)
                matrix: Tensor = getattr(self, f"{way}_{axis}")
                y = (y.double().movedim(place, -1) @ matrix.T).movedim(-1, place)
        return y.to(x.dtype)


class Chain(Lift):
    """Several lifts one after the other."""

    def __init__(self, *parts: Lift) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            assert isinstance(part, Lift)
            y = part.inverse(y)
        return y


def interpolation(n: int, m: int, kind: Kind) -> Tensor:
    """The matrix (m,n), float64, that takes n values on an axis to m >= n values."""
    one = torch.eye(n, dtype=torch.float64, device="cpu")  # (n values, n points)
    if n == m:
        return one
    if kind == "linear":
        return nn.functional.interpolate(one[None], size=m, mode="linear", align_corners=False)[0].T
    modes = torch.fft.rfft(one)  # (n,n/2+1)
    if n % 2 == 0:
        modes[:, -1] *= 0.5  # the fastest wave of the coarse grid stands for both its signs
    return (torch.fft.irfft(modes, n=m) * (m / n)).T


def lift_to_plane(grid: tuple[int, ...], plane: tuple[int, int], kind: Kind = "linear") -> Lift:
    """The way from a line or a plane of the data to the plane of a solver; a line is wound into rows and resized."""
    if len(grid) == 2:
        return Resize(grid, plane, kind)
    wound = Serpentine(grid[0])
    return Chain(wound, Resize(wound.shape, plane, "linear"))  # rows of a winding are not periodic

"""Rotary positions (Su et al. 2021) on grids of tokens: time, one or two axes of space, rings where space is periodic.

    (x_i, x_{i+d/2})  ->  (x_i cos a - x_{i+d/2} sin a,  x_{i+d/2} cos a + x_i sin a)

    plain axis   a = index 10000^(-i/m)
    ring axis    a = index 2 pi k_i / length,    k_i = 1 ... length/2 whole

Both members of a pair turn by the same angle, so q.k depends on differences of positions only.  On a ring these
differences count modulo the length, because a full turn of any whole wavenumber is not a turn.
Each axis owns m = floor(d / 2 / number of axes) pairs, in axis order; pairs left over do not turn.
Letters: B rows, H heads, n tokens, d head width, m pairs of one axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pdejepa.core.errors import ConfigError
from pdejepa.models.patches import PatchGrid

BASE = 10_000.0  # longest wavelength of a plain axis, in units of 2 pi tokens


@dataclass(frozen=True)
class Axis:
    length: int
    is_ring: bool


def token_axes(patches: PatchGrid, positions: str, n_frames: int = 0) -> tuple[Axis, ...]:
    """Time (if there are frames), then space; a spatial axis is a ring if `positions` is "ring" and it is periodic."""
    time = (Axis(n_frames, is_ring=False),) if n_frames else ()
    rings = [positions == "ring" and is_periodic for is_periodic in patches.is_periodic]
    return time + tuple(Axis(n, is_ring) for n, is_ring in zip(patches.tokens, rings, strict=True))


class Rotary(nn.Module):
    """cos and sin of the angles of all tokens of a grid of axes, in row-major order."""

    cos: Tensor
    sin: Tensor

    def __init__(self, axes: tuple[Axis, ...], head_width: int) -> None:
        super().__init__()
        if head_width % 2 or head_width // 2 < len(axes):
            raise ConfigError(
                f"Rotary positions on {len(axes)} axes need an even head width of {2 * len(axes)} or more; "
                f"got {head_width}. Use fewer heads or a larger width."
            )
        angles = _angles(axes, head_width // 2)  # (n, d/2), double precision
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, idx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """cos and sin (B,1,n,d/2) of the tokens idx (B,n), or (1,1,all,d/2)."""
        if idx is None:
            return self.cos[None, None], self.sin[None, None]
        return self.cos[idx].unsqueeze(1), self.sin[idx].unsqueeze(1)  # (B,1,n,d/2)

    def first(self, n: int) -> tuple[Tensor, Tensor]:
        """cos and sin (1,1,n,d/2) of the first n tokens: a clip with fewer frames."""
        return self.cos[None, None, :n], self.sin[None, None, :n]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs of x (B,H,n,d) by the angles of cos and sin (B or 1,1,n,d/2)."""
    wide = torch.promote_types(x.dtype, torch.float32)  # half precision would lose the angle
    first, second = x.to(wide).chunk(2, dim=-1)  # (B,H,n,d/2) each
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)  # (B,H,n,d)
    return turned.to(x.dtype)


def ring_wavenumbers(length: int, n_pairs: int) -> list[int]:
    """Whole numbers from 1 to length // 2, geometrically spread, each above the one before while there is room."""
    top = length // 2
    numbers: list[int] = []
    for i in range(n_pairs):
        wished = round(max(top, 1) ** (i / max(n_pairs - 1, 1)))
        previous = numbers[-1] if numbers else 0
        numbers.append(min(max(wished, previous + 1), top))
    return numbers


def _angles(axes: tuple[Axis, ...], n_pairs: int) -> Tensor:
    share = n_pairs // len(axes)
    lengths = [axis.length for axis in axes]
    columns = []
    for number, axis in enumerate(axes):
        shape = [1] * number + [axis.length] + [1] * (len(axes) - number - 1)
        index = torch.arange(axis.length).reshape(*shape, 1).expand(*lengths, 1)
        columns.append(_axis_angles(index.reshape(-1, 1), axis, share))  # (n, share)
    n = columns[0].shape[0]
    columns.append(torch.zeros(n, n_pairs - share * len(axes), dtype=torch.float64))
    return torch.cat(columns, dim=1)  # (n, d/2)


def _axis_angles(index: Tensor, axis: Axis, n_pairs: int) -> Tensor:
    if axis.is_ring:
        k = torch.tensor(ring_wavenumbers(axis.length, n_pairs))
        return (index * k % axis.length).double() * (2 * math.pi / axis.length)  # whole turns go exactly
    powers = torch.arange(n_pairs, dtype=torch.float64) / n_pairs
    return index.double() * BASE**-powers

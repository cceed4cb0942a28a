"""Shapes of the law `broad`: initial states of other kinds than the benchmark's.

A system mixes kinds; every row draws its own, so that a trajectory is the same alone and in any company:

    def broad(self, draws):
        return mixed(draws, (self._waves, self._pulses, self._steps))

Whatever a row draws stands at a place of its own, `AT + i`, far from those of the benchmark's law.
Letters: B rows, J shapes of a row, N points per axis, L length of a periodic axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pdejepa.core.seeds import Draws

AT = 1 << 10  # beyond the places that random Fourier modes are keyed by
KIND, FACTOR, OFFSET, COUNT, SIGN, CENTRE, WIDTH, HEIGHT, PHASE, OTHER = range(AT, AT + 10)
N_SHAPES = 3  # of a row, at most
N_MODES = 8
SLOPES = (0.0, 1.0, 2.0)  # of spectra, in powers of the mode
EDGE = 0.6  # of a patch, in the square of its radius
NARROWEST = 1 / 64  # of an axis: four points of 256 to each width, which every scheme resolves

Kind = Callable[[Draws], Tensor]


# ---- choosing ----------------------------------------------------------------------------------------------------
def mixed(draws: Draws, kinds: Sequence[Kind]) -> Tensor:
    """Every row from one of the kinds, each as often as the others."""
    choice = draws.integers(1, 0, len(kinds) - 1, at=KIND)[:, 0]
    rows = [(choice == number).nonzero().flatten() for number in range(len(kinds))]
    parts = [kind(draws.take(own)) for kind, own in zip(kinds, rows, strict=True) if len(own)]
    return torch.cat(parts)[torch.argsort(torch.cat(rows))]


def factor(draws: Draws, low: float = 0.3, high: float = 3.0) -> Tensor:
    """Factors (B,1), half of them below one and half above."""
    unit = draws.uniform(1, at=FACTOR)
    return torch.where(unit < 0.5, low + (1 - low) * 2 * unit, 1 + (high - 1) * (2 * unit - 1))


def offset(draws: Draws, most: float) -> Tensor:
    """Offsets (B,1) from -most to most; none in half of the rows."""
    unit = draws.uniform(2, at=OFFSET)
    return torch.where(unit[:, :1] < 0.5, 0.0, most * (2 * unit[:, 1:] - 1))


def heights(draws: Draws, low: float, high: float, n: int = N_SHAPES) -> Tensor:
    """Heights (B,J) of either sign; those of shapes that a row does not have are zero."""
    size, sign = draws.uniform(n, low, high, at=HEIGHT), draws.uniform(n, at=SIGN)
    is_there = torch.arange(n, device=draws.device) < draws.integers(1, 1, n, at=COUNT)
    return torch.where(sign < 0.5, -size, size) * is_there


# ---- a periodic line ---------------------------------------------------------------------------------------------
def images(x: Tensor, length: float, centre: Tensor) -> Tensor:
    """Distances (B,J,3,N) of the points x (N,) to the centres (B,J) and to their nearest periodic images."""
    shifts = length * torch.arange(-1, 2, dtype=x.dtype, device=x.device)
    return x - (centre[..., None] * length + shifts)[..., None]


def pulses(draws: Draws, x: Tensor, length: float, low: float = 0.3, high: float = 1.2) -> Tensor:
    """One to three Gaussian pulses of either sign, (B,N): standard deviations from L/64 to 3L/32."""
    width = length * draws.uniform(N_SHAPES, NARROWEST, 3 / 32, at=WIDTH)
    distance = images(x, length, draws.uniform(N_SHAPES, at=CENTRE))
    bumps = torch.exp(-((distance / width[..., None, None]) ** 2) / 2).sum(2)  # (B,J,N)
    return (heights(draws, low, high)[..., None] * bumps).sum(1)


def steps(draws: Draws, x: Tensor, length: float, low: float = 0.3, high: float = 1.2) -> Tensor:
    """One to three plateaus between two tanh fronts each, (B,N): fronts from L/64 to L/16, plateaus to L/2 wide."""
    front = length * draws.uniform(N_SHAPES, NARROWEST, 1 / 16, at=WIDTH)[..., None, None]
    half = length * draws.uniform(N_SHAPES, 1 / 16, 1 / 4, at=OTHER)[..., None, None]
    distance = images(x, length, draws.uniform(N_SHAPES, at=CENTRE))
    boxes = (torch.tanh((distance + half) / front) - torch.tanh((distance - half) / front)).sum(2) / 2
    return (heights(draws, low, high)[..., None] * boxes).sum(1)


def spectra(draws: Draws, x: Tensor, length: float, rms: float) -> Tensor:
    """Modes 1..8 with amplitudes falling as k^-p, p = 0, 1 or 2; (B,N) of the given rms."""
    mode = torch.arange(1, N_MODES + 1, dtype=torch.float64, device=draws.device)
    falling = torch.stack([mode**-slope for slope in SLOPES])  # (3,J)
    slope = draws.integers(1, 0, len(SLOPES) - 1, at=OTHER)[:, 0].long()
    amplitude = falling[slope] * draws.uniform(N_MODES, 0.2, 1.0, at=HEIGHT)
    amplitude = rms * amplitude / (amplitude.square().sum(1, keepdim=True) / 2).sqrt()
    angle = 2 * math.pi / length * mode[:, None] * x  # (J,N)
    phase = draws.uniform(N_MODES, 0.0, 2 * math.pi, at=PHASE)
    return (amplitude[..., None] * torch.sin(angle + phase[..., None])).sum(1)


def line_states(draws: Draws, x: Tensor, length: float, benchmark: Kind, most: float = 1.0) -> Tensor:
    """States (B,N) on a periodic line, times .3 to 3, half of them with an offset.

    The kinds: the benchmark's waves (B,N), pulses, plateaus, other spectra, and waves with a pulse on them.
    """
    kinds = (
        benchmark,
        lambda part: pulses(part, x, length),
        lambda part: steps(part, x, length),
        lambda part: spectra(part, x, length, rms=0.45),
        lambda part: (benchmark(part) + pulses(part, x, length)) / 2,
    )
    return factor(draws) * mixed(draws, kinds) + offset(draws, most)


# ---- a periodic square -------------------------------------------------------------------------------------------
def vortices(draws: Draws, n: int, length: float) -> Tensor:
    """Four Gaussian vortices and four opposite ones, (B,n,n) of heights up to one: the mean is zero."""
    x = torch.arange(n, dtype=torch.float64, device=draws.device) * (length / n)
    width = length * draws.uniform(4, 0.04, 0.09, at=WIDTH).repeat(1, 2)[..., None, None]
    height = draws.uniform(4, 0.3, 1.0, at=HEIGHT)
    height = torch.cat((height, -height), 1)
    along = [
        torch.exp(-((images(x, length, draws.uniform(8, at=place)) / width) ** 2) / 2).sum(2)
        for place in (CENTRE, PHASE)
    ]  # (B,8,n) each
    return summed(height, lambda j: along[0][:, j, :, None] * along[1][:, j, None, :])


def patches(draws: Draws, n: int, length: float) -> Tensor:
    """Two elliptic patches of even vorticity with soft edges and two opposite ones, (B,n,n), heights up to one."""
    x = torch.arange(n, dtype=torch.float64, device=draws.device) * (length / n)
    centre_x, centre_y = (length * draws.uniform(4, at=place) for place in (CENTRE, PHASE))
    height, sizes = draws.uniform(2, 0.3, 1.0, at=HEIGHT), length * draws.uniform(4, 0.1, 0.2, at=WIDTH)
    height, half_x, half_y = torch.cat((height, -height), 1), sizes[:, :2].repeat(1, 2), sizes[:, 2:].repeat(1, 2)

    def patch(j: int) -> Tensor:
        across = ((x - centre_x[:, j, None] + length / 2) % length - length / 2) / half_x[:, j, None]  # (B,n)
        down = ((x - centre_y[:, j, None] + length / 2) % length - length / 2) / half_y[:, j, None]
        return 0.5 - 0.5 * torch.tanh((across.square()[:, :, None] + down.square()[:, None, :] - 1) / EDGE)

    return summed(height, patch)


def shear_layers(draws: Draws, n: int, length: float) -> Tensor:
    """Two opposite layers of vorticity, along x or y, modulated so that they roll up; (B,n,n) of heights up to 1.3."""
    x = torch.arange(n, dtype=torch.float64, device=draws.device) * (length / n)
    width = length * draws.uniform(1, 0.025, 0.06, at=WIDTH)[..., None, None]
    first = draws.uniform(1, at=CENTRE)
    second = (first + draws.uniform(1, 0.35, 0.65, at=OTHER)) % 1.0
    layers = torch.exp(-((images(x, length, torch.cat((first, second), 1)) / width) ** 2) / 2).sum(2)  # (B,2,n)
    mode, phase = draws.integers(2, 1, 4, at=HEIGHT), draws.uniform(2, 0.0, 2 * math.pi, at=PHASE)
    waves = 1 + 0.3 * torch.sin(2 * math.pi / length * mode[..., None] * x + phase[..., None])  # (B,2,n)
    across = waves[:, 0, :, None] * layers[:, 0, None, :] - waves[:, 1, :, None] * layers[:, 1, None, :]
    return torch.where(draws.uniform(1, at=SIGN)[..., None] < 0.5, across, across.transpose(1, 2))


def summed(height: Tensor, shape: Callable[[int], Tensor]) -> Tensor:
    """sum_j height_j shape_j of fields (B,n,n), one after the other: the memory of a few fields."""
    total = height[:, 0, None, None] * shape(0)
    for j in range(1, height.shape[1]):
        total += height[:, j, None, None] * shape(j)
    return total

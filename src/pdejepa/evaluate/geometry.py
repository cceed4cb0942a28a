"""How trajectories bend, and how far latent trajectories are from those of the fields.

For a path x_0 .. x_{T-1} of states, flattened, with the changes d_t = x_{t+1} - x_t:

    cosine_t = <d_t, d_{t-1}> / (|d_t| |d_{t-1}|)                      lag-1 cosine
    angle_t  = arccos(cosine_t) in degrees                             turning angle; 0 is straight on, 180 back
    a_t = 2 |x_{t+1} - 2 x_t + x_{t-1}| / (|x_{t+1} - x_t| + |x_t - x_{t-1}|)    symmetric acceleration

a_t is the change of the step over the mean length of both steps: 0 where the change repeats itself, 2 where it is
taken back.  The error of a latent path is the mean absolute difference |measure of the latent path -
measure of the field's path| over t = 1 .. T-2 and over trajectories.  None of the three depends on the unit of x.
Where a path stands still, its cosine counts as 0 (90 degrees) and its acceleration as 0.
`method.losses` has the same angle in float32 with a larger smallest change, as a training logs it at every score; the
records keep float64, so neither can stand for the other without a change of digits.
Letters: B trajectories, T frames, C channels, N tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from pdejepa.core.errors import DataError
from pdejepa.evaluate.record import Checked

SMALLEST = 1e-12  # a change shorter than this is not a change


def lag_cosines(x: Tensor) -> Tensor:
    """Cosine between successive changes of x (B,T,...), (B,T-2)."""
    change = _changes(x)
    direction = change / change.norm(dim=-1, keepdim=True).clamp(min=SMALLEST)
    return (direction[:, 1:] * direction[:, :-1]).sum(-1)


def turning_angles(x: Tensor) -> Tensor:
    """Angle between successive changes of x (B,T,...) in degrees, (B,T-2)."""
    return torch.rad2deg(torch.acos(lag_cosines(x).clamp(-1.0, 1.0)))


def symmetric_accelerations(x: Tensor) -> Tensor:
    """a_t of x (B,T,...), (B,T-2)."""
    change = _changes(x)
    length = change.norm(dim=-1)  # (B,T-1)
    return 2 * change.diff(dim=1).norm(dim=-1) / (length[:, 1:] + length[:, :-1]).clamp(min=SMALLEST)


MEASURES: dict[str, Callable[[Tensor], Tensor]] = {
    "angle": turning_angles,
    "acceleration": symmetric_accelerations,
    "cosine": lag_cosines,
}

Paths = tuple[Tensor, Tensor, Tensor]  # u (B,T,C,*grid) normalised, z and q (B,T,N,D)


@dataclass(frozen=True)
class Geometry(Checked):
    """Errors of z (before alignment) and q (after) against u over n trajectories.

    mean_angle: of "u", "z" and "q"     angle, acceleration, cosine: the errors of "z" and "q"
    change: |q - z| / |z| over everything
    """

    n: int
    mean_angle: dict[str, float]
    angle: dict[str, float]
    acceleration: dict[str, float]
    cosine: dict[str, float]
    change: float


def compare_geometry(blocks: Iterable[Paths]) -> Geometry:
    """The geometry of paths over all blocks."""
    angles: dict[str, list[Tensor]] = {"u": [], "z": [], "q": []}
    errors: dict[tuple[str, str], list[Tensor]] = {}
    squares = torch.zeros(2, dtype=torch.float64)
    n = 0
    for u, z, q in blocks:
        n += len(u)
        for name, x in (("u", u), ("z", z), ("q", q)):
            angles[name].append(turning_angles(x).cpu())
        for measure, function in MEASURES.items():
            true = function(u)
            for name, x in (("z", z), ("q", q)):
                errors.setdefault((measure, name), []).append((function(x) - true).abs().cpu())
        squares += torch.stack([x.double().square().sum() for x in (q - z, z)]).cpu()
    if n == 0:
        raise DataError("There are no trajectories whose geometry could be compared.")
    return Geometry(
        n=n,
        mean_angle={name: float(torch.cat(values).mean()) for name, values in angles.items()},
        **{m: {name: float(torch.cat(errors[m, name]).mean()) for name in ("z", "q")} for m in MEASURES},
        change=float((squares[0] / squares[1]).sqrt()),
    )


def _changes(x: Tensor) -> Tensor:
    """d_t in float64, (B,T-1,features)."""
    if x.ndim < 3 or x.shape[1] < 3:
        raise DataError(f"A path needs the shape (B,T,...) with three frames or more; got {tuple(x.shape)}.")
    return x.double().flatten(2).diff(dim=1)

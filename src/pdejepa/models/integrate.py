"""Explicit Runge-Kutta methods for the latent ODE: a method is a table of numbers plus ten lines.

    k_i = F(q + h sum_{j<i} a_ij k_j, s + c_i h)        q(s + h) = q + h sum_i b_i k_i

Time s runs in frames: one frame is `n_substeps` steps of 1/n_substeps, or of given fractions.  The field
may be a derivative per frame or per unit of physical time; `frame_length` is then the physical time between two frames.
Letters: B rows, T frames, N tokens, S state width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

LatentField = Callable[[Tensor, Tensor], Tensor]  # (q (B,N,S), s (B,)) -> dq (B,N,S)


@dataclass(frozen=True)
class Tableau:
    """The numbers of one method; `a[i]` holds the weights of the stages before stage i."""

    order: int
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]

    @property
    def c(self) -> tuple[float, ...]:
        return tuple(sum(row) for row in self.a)


def _cooper_verner() -> Tableau:
    """Eleven stages, order eight (Cooper and Verner, SIAM J. Numer. Anal. 9, 1972)."""
    s = math.sqrt(21.0)
    a: tuple[tuple[float, ...], ...] = (
        (),
        (1 / 2,),
        (1 / 4, 1 / 4),
        (1 / 7, (-7 - 3 * s) / 98, (21 + 5 * s) / 49),
        ((11 + s) / 84, 0.0, (18 + 4 * s) / 63, (21 - s) / 252),
        ((5 + s) / 48, 0.0, (9 + s) / 36, (-231 + 14 * s) / 360, (63 - 7 * s) / 80),
        (
            (10 - s) / 42,
            0.0,
            (-432 + 92 * s) / 315,
            (633 - 145 * s) / 90,
            (-504 + 115 * s) / 70,
            (63 - 13 * s) / 35,
        ),
        (1 / 14, 0.0, 0.0, 0.0, (14 - 3 * s) / 126, (13 - 3 * s) / 63, 1 / 9),
        (1 / 32, 0.0, 0.0, 0.0, (91 - 21 * s) / 576, 11 / 72, (-385 - 75 * s) / 1152, (63 + 13 * s) / 128),
        (
            1 / 14,
            0.0,
            0.0,
            0.0,
            1 / 9,
            (-733 - 147 * s) / 2205,
            (515 + 111 * s) / 504,
            (-51 - 11 * s) / 56,
            (132 + 28 * s) / 245,
        ),
        (
            0.0,
            0.0,
            0.0,
            0.0,
            (-42 + 7 * s) / 18,
            (-18 + 28 * s) / 45,
            (-273 - 53 * s) / 72,
            (301 + 53 * s) / 72,
            (28 - 28 * s) / 45,
            (49 - 7 * s) / 18,
        ),
    )
    b = (9 / 180, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 49 / 180, 64 / 180, 49 / 180, 9 / 180)
    return Tableau(8, a, b)


METHODS: dict[str, Tableau] = {
    "euler": Tableau(1, ((),), (1.0,)),
    "rk2": Tableau(2, ((), (0.5,)), (0.0, 1.0)),
    "rk4": Tableau(4, ((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
    "rk8": _cooper_verner(),
}


def rk_step(field: LatentField, q: Tensor, s: Tensor, ds: float | Tensor, method: str, length: float = 1.0) -> Tensor:
    """One step over `ds` frames, (B,) if rows differ; the derivative is per `length`-th part of a frame."""
    tableau = METHODS[method]
    h = length * (ds[:, None, None] if isinstance(ds, Tensor) else ds)
    stages: list[Tensor] = []
    for row, c in zip(tableau.a, tableau.c, strict=True):
        stages.append(field(_plus(q, h, row, stages), s + c * ds))
    return _plus(q, h, tableau.b, stages)


def _plus(q: Tensor, h: float | Tensor, weights: tuple[float, ...], stages: list[Tensor]) -> Tensor:
    """q + h sum_i w_i k_i, without the zero weights."""
    for weight, k in zip(weights, stages, strict=True):
        if weight != 0.0:
            q = q + (h * weight) * k
    return q


def integrate(
    field: LatentField,
    q: Tensor,
    s: Tensor,
    n_frames: int,
    method: str = "rk4",
    n_substeps: int = 1,
    frame_length: float = 1.0,
    fractions: Tensor | None = None,
) -> Tensor:
    """States (B,n_frames,N,S) at the frames s+1 .. s+n_frames, from q (B,N,S) at the frame times s (B,).

    fractions: (B,n_substeps), of a frame, in place of equal steps; their sum is 1
    """
    frames = []
    for _ in range(n_frames):
        if fractions is None:
            for m in range(n_substeps):
                q = rk_step(field, q, s + m / n_substeps, 1.0 / n_substeps, method, frame_length)
        else:
            within = s
            for ds in fractions.unbind(1):
                q, within = rk_step(field, q, within, ds, method, frame_length), within + ds
        s = s + 1.0
        frames.append(q)
    return torch.stack(frames, 1)  # (B,n_frames,N,S)

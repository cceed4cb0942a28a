"""Fixed-step time integrators for batches, each a table of numbers and about ten lines.

    rk4_step     classical Runge-Kutta for u' = f(u), in two running arrays        order 4
    Etdrk4       exponential time differencing (Cox & Matthews 2002) for v' = L v + N(t, v), L diagonal, order 4

A row's step is a function of that row alone (never of its neighbours in the batch), so a trajectory has the
same values in every batch.  `stable_levels` sorts rows into groups that share a step dt / 2^level.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

MAX_LEVEL = 40


Stage = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]


def rk4_weights(h: float, like: Tensor) -> tuple[Tensor, ...]:
    """h/6, h/3, h/2 and h as 0-d tensors, so that a compiled stage does not depend on their values."""
    return tuple(torch.tensor(h * c, dtype=like.dtype, device=like.device) for c in (1 / 6, 1 / 3, 1 / 2, 1.0))


def rk4_step(stage: Stage, u: Tensor, weights: tuple[Tensor, ...]) -> Tensor:
    """One step of the classical fourth-order Runge-Kutta method for u' = f(u).

    `stage(v, u, total, w, a)` evaluates k = f(v) and returns (total + w k, u + a k): the running sum of the step
    and the argument of the next stage.  A system can compute both in one pass over memory; a is None in the last stage.
    """
    sixth, third, half, full = weights
    total, v = stage(u, u, u, sixth, half)
    total, v = stage(v, u, total, third, half)
    total, v = stage(v, u, total, third, full)
    return stage(v, u, total, sixth, None)[0]


@dataclass(frozen=True)
class Etdrk4:
    """ETDRK4 for v' = L v + N(t, v) with a diagonal symbol L, exact in L.

    a  = e^{Lh/2} v + Q N(t, v)                  b = e^{Lh/2} v + Q N(t+h/2, a)
    c  = e^{Lh/2} a + Q (2 N(t+h/2, b) - N(t, v))
    v' = e^{Lh} v + f1 N(t,v) + 2 f2 (N(t+h/2, a) + N(t+h/2, b)) + f3 N(t+h, c)

    The phi-like coefficients lose all digits for small Lh in their closed form; as Kassam & Trefethen (2005)
    do, they are means over a circle around Lh.
    """

    full: Tensor
    half: Tensor
    q: Tensor
    f1: Tensor
    f2: Tensor
    f3: Tensor
    h: float

    @classmethod
    def for_symbol(cls, symbol: Tensor, h: float, n_points: int = 32) -> Etdrk4:
        """Coefficients for L = symbol (complex or real, any shape), computed in double precision."""
        z = symbol.to(torch.complex128) * h
        q, f1, f2, f3 = (torch.zeros_like(z) for _ in range(4))
        for j in range(n_points):
            r = z + complex(math.cos(_angle(j, n_points)), math.sin(_angle(j, n_points)))
            exp, exp_half, r3 = torch.exp(r), torch.exp(r / 2), r**3
            q += (exp_half - 1) / r
            f1 += (-4 - r + exp * (4 - 3 * r + r**2)) / r3
            f2 += (2 + r + exp * (r - 2)) / r3
            f3 += (-4 - 3 * r - r**2 + exp * (4 - r)) / r3
        means = [h / n_points * value for value in (q, f1, f2, f3)]
        values = [torch.exp(z), torch.exp(z / 2), *means]
        full, half, q, f1, f2, f3 = (value if symbol.is_complex() else value.real for value in values)
        place = symbol.dtype
        return cls(full.to(place), half.to(place), q.to(place), f1.to(place), f2.to(place), f3.to(place), h)

    def step(self, nonlinear: Callable[[float, Tensor], Tensor], t: float, v: Tensor) -> Tensor:
        n_v = nonlinear(t, v)
        half_v = self.half * v
        a = half_v + self.q * n_v
        n_a = nonlinear(t + self.h / 2, a)
        b = half_v + self.q * n_a
        n_b = nonlinear(t + self.h / 2, b)
        c = self.half * a + self.q * (2 * n_b - n_v)
        n_c = nonlinear(t + self.h, c)
        return self.full * v + self.f1 * n_v + 2 * self.f2 * (n_a + n_b) + self.f3 * n_c


    def take(self, rows: Tensor) -> Etdrk4:
        """The same scheme for some rows of the batch."""
        return replace(self, **{name: getattr(self, name)[rows] for name in ("full", "half", "q", "f1", "f2", "f3")})


class EtdTable:
    """ETDRK4 schemes of one symbol by step size, each made once; `take` serves a group of rows from the same table."""

    def __init__(self, symbol: Tensor) -> None:
        self.make: Callable[[float], Etdrk4] = lambda h: Etdrk4.for_symbol(symbol, h)
        self.schemes: dict[float, Etdrk4] = {}

    def scheme(self, h: float) -> Etdrk4:
        key = round(h, 14)
        if key not in self.schemes:
            self.schemes[key] = self.make(h)
        return self.schemes[key]

    def take(self, rows: Tensor) -> EtdTable:
        part = EtdTable(torch.empty(0))
        part.make = lambda h: self.scheme(h).take(rows)
        return part


def _angle(j: int, n_points: int) -> float:
    return 2 * math.pi * (j + 0.5) / n_points


def stable_levels(dt: float, stable_dt: Tensor) -> Tensor:
    """Smallest level >= 0 with dt / 2^level <= stable_dt, for each row (B,) int64; 0 for rows that are NaN already."""
    ratio = torch.nan_to_num(dt / stable_dt.double(), nan=1.0, posinf=2.0**MAX_LEVEL).clamp(1.0, 2.0**MAX_LEVEL)
    return torch.ceil(torch.log2(ratio) - 1e-9).long()


def n_steps(gap: float, dt: float) -> int:
    """Steps of at most dt that fill a gap exactly."""
    return max(1, math.ceil(gap / dt - 1e-9)) if gap > 0 else 0

"""What a system declares about itself: its parameters, its splits, and the structure of its right-hand side.

    rhs(u, t; xi) = shared(u) + sum_j sign_j c_j(xi) operator_j(u) + forcing(t, x; xi)

The physics-structured predictor mirrors this sum in latent space, dq/dt = C(q) + sum_j r_j(xi) D_j(q), with
r_j = sign_j (c_j - centre_j) / scale_j.  Centre and scale follow from the term's rule and the parameters of the
train split; hence d rhs / d r_j = scale_j operator_j, and C = shared + sum_j sign_j centre_j operator_j.
Letters: B rows, P parameters, M terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pdejepa.systems.problem import Named, Rule, Term


@dataclass(frozen=True)
class Split:
    """A set of trajectories.  Trajectory i belongs to environment i mod n_environments (one xi per environment)."""

    name: str
    n: int
    n_environments: int
    meaning: str
    is_ood: bool = False
    is_ours: bool = False  # not part of the paper's data
    initial_from: str | None = None  # take initial condition i from trajectory i of that split
    is_broad: bool = False  # initial states of the law `broad`
    laptop: int = 0  # trajectories at size `laptop`; 0: the usual number

    def size(self, size: str) -> int:
        """Trajectories at a named data size."""
        if size == "paper":
            return self.n
        if size == "laptop":
            return min(self.n, self.laptop or LAPTOP.get(self.name, 240))
        train, other = {"tiny": (20, 10), "small": (480, 60)}[size]
        return train if self.name in ("train", "broad_train") else other


SIZES = ("tiny", "small", "laptop", "paper")
LAPTOP = {"train": 3_000, "broad_train": 3_000, "valid": 120, "broad_valid": 120, "valid_ood": 120}


@dataclass(frozen=True)
class Coefficients:
    """The normalisation of a structure, fitted on the parameters of one (train) split."""

    names: tuple[str, ...]
    sign: Tensor  # (M,)
    centre: Tensor  # (M,)
    scale: Tensor  # (M,)
    functions: tuple[Callable[[Named], Tensor], ...]

    def r(self, named: Named) -> Tensor:
        """Normalised, signed coefficients (B,M), float64."""
        values = torch.stack([function(named).double() for function in self.functions], 1)  # (B,M)
        place = [tensor.to(values.device) for tensor in (self.sign, self.centre, self.scale)]
        return place[0] * (values - place[1]) / place[2]


def fit_coefficients(terms: tuple[Term, ...], named: Named) -> Coefficients:
    """Centre and scale of every term from the train parameters `named`."""
    pairs = [_centre_and_scale(term.rule, term.coefficient(named).double().cpu()) for term in terms]
    return Coefficients(
        names=tuple(term.name for term in terms),
        sign=torch.tensor([float(term.sign) for term in terms], dtype=torch.float64),
        centre=torch.tensor([centre for centre, _ in pairs], dtype=torch.float64),
        scale=torch.tensor([scale for _, scale in pairs], dtype=torch.float64),
        functions=tuple(term.coefficient for term in terms),
    )


def _centre_and_scale(rule: Rule, values: Tensor) -> tuple[float, float]:
    if rule == "midrange":
        low, high = float(values.min()), float(values.max())
        return (low + high) / 2, (high - low) / 2 or 1.0
    if rule == "unit":
        return 0.0, 1.0
    scale = float((values**2).mean().sqrt()) if rule == "rms" else float(values.abs().mean())
    return 0.0, scale if scale > 0 and math.isfinite(scale) else 1.0


@dataclass(frozen=True)
class Check:
    """A property that stored fields must have: `value` is the worst violation found, in units of `bound`'s kind."""

    name: str
    value: float
    bound: float

    @property
    def passed(self) -> bool:
        return self.value <= self.bound


@dataclass(frozen=True)
class Reference:
    """How a system's stored values are checked against something finer or independent of the stepping code."""

    refined: str  # what is refined or exchanged, in words
    bound: float  # largest relative L2 discrepancy of a row over all frames

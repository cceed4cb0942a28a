"""What a model must know of a parametric PDE, apart from the solver that made its data.

    rhs(u, t; xi) = shared(u) + sum_j sign_j c_j(xi) operator_j(u) + forcing(t, x; xi)

A `Problem` names fields, axes with one boundary each, times, parameters and the structure of the right-hand side.  It
is plain data: config.json of a model holds it, so that a model opens where the class of its PDE is not known.
Letters: B rows, P parameters, M terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor

from pdejepa.core.errors import ConfigError, ParameterError

Boundary = Literal["periodic", "dirichlet", "neumann", "open"]
Padding = Literal["circular", "zeros", "reflect"]
Rule = Literal["rms", "mean_abs", "midrange", "unit"]
Switch = bool | int | float | str
Named = dict[str, Tensor]  # parameter name -> (B,) values
ForcingLaw = Callable[[float | Tensor, Tensor, Tensor], Tensor]  # (t, xi (B,P), like (B,C,*grid)) -> (B,C,*grid)

PADDING: dict[Boundary, Padding] = {
    "periodic": "circular",
    "dirichlet": "zeros",
    "neumann": "reflect",
    "open": "reflect",
}


# ---- parameters --------------------------------------------------------------------------------------------------
class Uniform(NamedTuple):
    """Values spread evenly over [low, high]."""

    low: float
    high: float

    @property
    def law(self) -> str:
        return "uniform"

    def draw(self, unit: Tensor) -> Tensor:
        """Values from uniform numbers in [0, 1)."""
        return self.low + (self.high - self.low) * unit

    def __str__(self) -> str:
        return f"[{self.low:g}, {self.high:g}]"


class LogUniform(NamedTuple):
    """Values whose logarithm is spread evenly over [ln low, ln high]."""

    low: float
    high: float

    @property
    def law(self) -> str:
        return "log-uniform"

    def draw(self, unit: Tensor) -> Tensor:
        """Values from uniform numbers in [0, 1)."""
        low, high = math.log(self.low), math.log(self.high)
        return torch.exp(low + (high - low) * unit)

    def __str__(self) -> str:
        return f"log-uniform [{self.low:g}, {self.high:g}]"


Range = Uniform | LogUniform


@dataclass(frozen=True)
class Parameter:
    """One named physical parameter.  Values outside `limits` make no physical or numerical sense and are refused.

    train: its law in the training data, `Uniform(0, 1)` or `LogUniform(1e-3, 5)`; a plain pair for other laws, which
    `law` then names.  ood: the law of the out-of-distribution split, or a text.
    """

    name: str
    symbol: str
    meaning: str
    train: tuple[float, float]
    limits: tuple[float, float]
    law: str = ""  # empty: that of `train`
    unit: str = "1"
    ood: str | tuple[float, float] = ""
    choices: tuple[float, ...] = ()
    default: float | None = None
    period: float = 0.0  # of an angle: values that differ by it are the same

    def __post_init__(self) -> None:
        if not self.law:
            object.__setattr__(self, "law", getattr(self.train, "law", "uniform"))

    @property
    def ood_text(self) -> str:
        return str(self.ood)


# ---- structure ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Coefficient:
    """c(xi) = prod_p xi_p^n_p, or 1 where all the named parameters have these values and 0 elsewhere."""

    powers: dict[str, float] = field(default_factory=dict)
    equals: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if bool(self.powers) == bool(self.equals):
            raise ConfigError("a coefficient is a product of powers or a one-hot: give `powers` or `equals`, not both")

    def __call__(self, named: Named) -> Tensor:
        """The values (B,) for parameters {name: (B,)}."""
        if self.equals:
            hits = [named[name] == value for name, value in self.equals.items()]
            return torch.stack(hits).all(0).double()
        factors = [named[name] if n == 1 else named[name] ** n for name, n in self.powers.items()]
        return math.prod(factors[1:], start=factors[0])


def power(name: str, n: float = 1) -> Coefficient:
    """c(xi) = xi_name^n."""
    return Coefficient(powers={name: float(n)})


def one_hot(**values: float) -> Coefficient:
    """1 where all parameters have these values, 0 elsewhere."""
    return Coefficient(equals=values)


@dataclass(frozen=True)
class Term:
    """One parameter term sign * c(xi) * operator(u).

    rule: how r is made from c with statistics of the train split
      rms       c / sqrt(mean c^2)      mean_abs  c / mean |c|
      midrange  (c - (min+max)/2) / ((max-min)/2)      unit  c itself (switches and one-hots)
    """

    name: str
    symbol: str
    coefficient: Coefficient
    rule: Rule
    operator: str  # the operator in words, e.g. "u_xx"
    sign: int = 1


@dataclass(frozen=True)
class Structure:
    """What the structured predictor mirrors: dq/dt = C(q) + sum_j r_j(xi) D_j(q) + response to the forcing."""

    terms: tuple[Term, ...]
    has_shared: bool  # whether the predictor has a parameter-free part C
    forcing: Literal["none", "constant", "time"] = "none"  # a known field f(x) or f(t,x) on the right-hand side
    time_order: Literal[1, 2] = 1  # 2: one stored frame is not the whole state
    boundary_codes: tuple[str, ...] = ()  # names of the boundary one-hots, in the order of their terms
    scaling: dict[str, int] | None = None  # powers: s u solves the equation with s^power p if u does with p
    wave: tuple[str, ...] = ()  # terms (c^2, k) of u_tt = c^2 L u - k u_t, stored as (u, u_t), L linear


# ---- problem -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Axis:
    """One spatial axis: the coordinates of its points, and what happens at its ends."""

    name: str
    points: tuple[float, ...]
    boundary: Boundary


@dataclass(frozen=True)
class Problem:
    """Fields on a grid at some times, under named parameters.

    edges: what convolutions do there; empty: what the boundaries say.
    switches: of the system of that name which made the data; empty if there is none.
    law: computes the forcing field f(t, xi) on the grid of a tensor, where the system is at hand; never stored.
    """

    name: str
    fields: tuple[str, ...]
    axes: tuple[Axis, ...]
    times: tuple[float, ...]
    parameters: tuple[Parameter, ...]
    structure: Structure
    title: str = ""
    equation: str = ""
    edges: Padding | Literal[""] = ""
    switches: dict[str, Switch] = field(default_factory=dict)
    law: ForcingLaw | None = field(default=None, init=False, compare=False, repr=False)

    def with_law(self, law: ForcingLaw | None) -> Self:
        """The same problem, with the function that computes its forcing field."""
        found = replace(self)
        object.__setattr__(found, "law", law)
        return found

    def forcing(self, t: float | Tensor, xi: Tensor, like: Tensor) -> Tensor:
        """The forcing field (B,C,*grid) at times t, one or (B,), on the grid of `like`."""
        if self.law is None:
            raise ParameterError(
                f"The forcing of {self.name} is computed by its system, which is not known here. "
                "Hand the field over: forecast(..., forcing=f)."
            )
        return self.law(t, xi, like)

    @property
    def ndim(self) -> int:
        return len(self.axes)

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(len(axis.points) for axis in self.axes)

    @property
    def axes_names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    @property
    def coordinates(self) -> dict[str, Tensor]:
        """{"x": (N,), ...}, float64."""
        return {axis.name: torch.tensor(axis.points, dtype=torch.float64) for axis in self.axes}

    @property
    def periodic_axes(self) -> tuple[bool, ...]:
        return tuple(axis.boundary == "periodic" for axis in self.axes)

    @property
    def padding(self) -> Padding:
        """What convolutions do at the edges: where axes differ, what suits the first that does not wrap around."""
        walls = [axis.boundary for axis in self.axes if axis.boundary != "periodic"]
        return self.edges or PADDING[walls[0] if walls else "periodic"]

    @cached_property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters)

    @property
    def frame_gap(self) -> float:
        return self.times[1] - self.times[0]

    def named(self, xi: Tensor) -> Named:
        """(B,P) -> {name: (B,)}."""
        return dict(zip(self.parameter_names, xi.unbind(1), strict=True))

"""Unit amplitude: where the size of a solution can be traded against parameters, one size is enough.

If u solves an equation with parameters xi, s u may solve it with parameters that are known powers of s times xi
(`Structure.scaling`): a wave twice as high under half the nonlinear transport is the same wave.  A model that always
sees fields of rms 1 need not learn that, and strong parameters on small fields become ordinary ones.
Letters: B rows, T frames, C channels, P parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from pdejepa.core.errors import ConfigError
from pdejepa.systems.problem import Problem

Amplitude = Literal["as_is", "unit"]  # of the fields that a model sees


def amplitude(fields: Tensor) -> Tensor:
    """Rms (B,) float64 of the first of the frames (B,T,C,*grid); 1 where that is zero or not finite."""
    size = fields[:, 0].double().square().flatten(1).mean(1).sqrt()
    return size.where(size.isfinite() & (size > 0), 1.0)


def at_unit_amplitude(problem: Problem, fields: Tensor, xi: Tensor) -> tuple[Tensor, Tensor]:
    """What to divide the fields by, (B,1,1,1..) in their dtype, and the parameters (B,P) of the divided fields."""
    size = amplitude(fields)
    divisor = size.to(fields.dtype).reshape(-1, *[1] * (fields.ndim - 1))
    return divisor, rescale(problem, xi, 1.0 / size)


def rescale(problem: Problem, xi: Tensor, s: Tensor) -> Tensor:
    """Parameters (B,P) under which s u solves the equation, if u does under xi; s (B,) is positive."""
    powers = check_scaling(problem)
    columns = [values * s.to(xi) ** powers.get(name, 0) for name, values in problem.named(xi).items()]
    return torch.stack(columns, 1)


def check_scaling(problem: Problem) -> Mapping[str, int]:
    """The powers of a rescaling; ConfigError if the equation allows none."""
    if problem.structure.scaling is None:
        raise ConfigError(
            f"amplitude=unit needs an equation whose solutions can be rescaled; {problem.name} has none. Use as_is."
        )
    return problem.structure.scaling

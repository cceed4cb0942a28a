"""Fields and parameters as a user hands them over, checked against a system.

Letters: B rows, T frames, C channels, *grid spatial axes, P parameters.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pdejepa.core.errors import DataError, ParameterError
from pdejepa.systems.arrays import as_tensor
from pdejepa.systems.base import System

Given = Any  # tensor, numpy array or nested lists


def trajectories(system: System, values: Given, must_be_finite: bool = True) -> Tensor:
    """Values as (B,T,C,*grid) float32, on the device they came on; DataError for wrong shapes and values."""
    u = as_floats(system, values, "trajectories")
    frame = (len(system.fields), *system.grid)
    if u.ndim != len(frame) + 2 or tuple(u.shape[2:]) != frame or u.numel() == 0:
        is_short = tuple(u.shape[1:]) == frame
        hint = " Give one trajectory as u[None], single frames as u[:, None]." if is_short else turned(u, frame)
        sizes = ", ".join(map(str, frame))
        raise DataError(
            f"{system.name} expects trajectories as (B, T, {sizes}), physical units; got {tuple(u.shape)}.{hint}"
        )
    return finite(system, u, "a frame") if must_be_finite else u


def as_floats(system: System, values: Given, what: str) -> Tensor:
    """Values in float32, on the device they came on; DataError for what are no numbers or too large."""
    try:
        tensor = as_tensor(values)
    except ValueError as error:
        raise DataError(f"{system.name} expects {what} as an array of real numbers; got {error}.") from None
    floats = tensor.to(torch.float32)
    if bool((floats.isinf() & tensor.isfinite()).any()):
        raise DataError(f"{system.name}: {what} must fit single precision, up to 3.4e38; a value is too large for it.")
    return floats


def as_floats64(system: System, xi: Given) -> Tensor:
    """Parameters in float64 on the CPU, one row of them as (1,P); ParameterError for what are no numbers."""
    try:
        rows = as_tensor(xi).to("cpu", torch.float64)
    except ValueError as error:
        raise ParameterError(f"{system.name}: parameters must be numbers; got {error}.") from None
    return rows[None] if rows.ndim == 1 and len(rows) == len(system.parameters) else rows


def finite(system: System, u: Tensor, what: str) -> Tensor:
    """u, if all of it is finite; else DataError."""
    if not bool(torch.isfinite(u).all()):
        raise DataError(f"{system.name}: {what} holds NaN or infinite values.")
    return u


def turned(u: Tensor, frame: tuple[int, ...]) -> str:
    """A hint for fields with their channels last."""
    last = (*frame[1:], frame[0])
    is_turned = tuple(u.shape[-len(last) :]) == last and last != frame
    return " Did you mean channels first?" if is_turned else ""

"""Fields and parameters as a user hands them over, checked against a problem, with a sentence for every mistake.

Letters: B rows, T frames, C channels, *grid spatial axes, P parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from pdejepa.core.arrays import as_tensor
from pdejepa.core.errors import DataError, ParameterError, did_you_mean
from pdejepa.systems.problem import Parameter, Problem

Given = Any  # tensor, numpy array or nested lists


class Described(Protocol):
    """What parameters are checked against: a problem, or a system."""

    @property
    def name(self) -> str: ...

    @property
    def parameters(self) -> tuple[Parameter, ...]: ...


# ---- fields ------------------------------------------------------------------------------------------------------
def trajectories(problem: Problem, values: Given, must_be_finite: bool = True) -> Tensor:
    """Values as (B,T,C,*grid) float32, on the device they came on; DataError for wrong shapes and values."""
    u = as_floats(problem, values, "trajectories")
    frame = (len(problem.fields), *problem.grid)
    if u.ndim != len(frame) + 2 or tuple(u.shape[2:]) != frame or u.numel() == 0:
        is_short = tuple(u.shape[1:]) == frame
        hint = " Give one trajectory as u[None], single frames as u[:, None]." if is_short else turned(u, frame)
        sizes = ", ".join(map(str, frame))
        raise DataError(
            f"{problem.name} expects trajectories as (B, T, {sizes}), physical units; got {tuple(u.shape)}.{hint}"
        )
    return finite(problem, u, "a frame") if must_be_finite else u


def as_trajectories(problem: Problem, values: Given) -> Tensor:
    """The same, where one frame (C,*grid) or one per row (B,C,*grid) will do as well."""
    u = as_floats(problem, values, "the observed state")
    missing = problem.ndim + 3 - u.ndim
    if missing == 2:
        u = u[None, None]
    elif missing == 1:
        u = u[:, None]
    return trajectories(problem, u, must_be_finite=False)


def as_floats(problem: Problem, values: Given, what: str) -> Tensor:
    """Values in float32, on the device they came on; DataError for what are no numbers or too large."""
    try:
        tensor = as_tensor(values)
    except ValueError as error:
        raise DataError(f"{problem.name} expects {what} as an array of real numbers; got {error}.") from None
    floats = tensor.to(torch.float32)
    if bool((floats.isinf() & tensor.isfinite()).any()):
        raise DataError(f"{problem.name}: {what} must fit single precision, up to 3.4e38; a value is too large for it.")
    return floats


def as_floats64(problem: Problem, xi: Given) -> Tensor:
    """Parameters in float64 on the CPU, one row of them as (1,P); ParameterError for what are no numbers."""
    try:
        rows = as_tensor(xi).to("cpu", torch.float64)
    except ValueError as error:
        raise ParameterError(f"{problem.name}: parameters must be numbers; got {error}.") from None
    return rows[None] if rows.ndim == 1 and len(rows) == len(problem.parameters) else rows


def with_channel(u: Tensor, n_channels: int, grid: tuple[int, ...]) -> Tensor:
    """(..., *grid) -> (...,1,*grid) where a system has one channel and its axis was left out."""
    k = len(grid)
    is_out = n_channels == 1 and u.ndim >= k and tuple(u.shape[u.ndim - k :]) == grid
    return u.unsqueeze(-k - 1) if is_out and (u.ndim == k or u.shape[-k - 1] != 1) else u


def finite(problem: Problem, u: Tensor, what: str) -> Tensor:
    """u, if all of it is finite; else DataError."""
    if not bool(torch.isfinite(u).all()):
        raise DataError(f"{problem.name}: {what} holds NaN or infinite values.")
    return u


def turned(u: Tensor, frame: tuple[int, ...]) -> str:
    """A hint for fields with their channels last."""
    last = (*frame[1:], frame[0])
    is_turned = tuple(u.shape[-len(last) :]) == last and last != frame
    return " Did you mean channels first?" if is_turned else ""


# ---- parameters --------------------------------------------------------------------------------------------------
def joined(system: str, values: Mapping[str, Any] | None, more: Mapping[str, Any], where: str) -> dict[str, Any]:
    """All named values; a name in both is an error that says where it stands."""
    if not isinstance(values, Mapping | None):
        raise ParameterError(f"{system} expects parameters as {{name: value}} here; got {type(values).__name__}.")
    values = values or {}
    for name in more:
        if name in values:
            raise ParameterError(f"{system}: {name} is given twice, {where}. Give it once.")
    return {**values, **more}


def build_xi(problem: Described, given: Mapping[str, Any], options: tuple[str, ...] = ()) -> Tensor:
    """Named values -> (B,P) float64 in declared order; single numbers broadcast against sequences.

    options: other names that a misspelt one may have meant.
    """
    system, parameters = problem.name, problem.parameters
    names = [parameter.name for parameter in parameters]
    unknown = [name for name in given if name not in names]
    missing = [p.name for p in parameters if p.default is None and p.name not in given]
    needs = ", ".join(p.name for p in parameters if p.default is None) or "no parameters"
    if unknown:
        by_symbol = next((p.name for p in parameters if p.symbol == unknown[0]), None)
        hint = f", did you mean {by_symbol} ({unknown[0]})?" if by_symbol else ""
        hint = hint or did_you_mean(unknown[0], (*(missing or names), *options)) or "."
        raise ParameterError(f"{system} has no parameter {repr(unknown[0])[:60]}{hint} It needs {needs}.")
    if missing:
        raise ParameterError(f"{system} needs {needs}; got {', '.join(given) or 'none'}.")
    if not parameters:
        return torch.zeros((1, 0), dtype=torch.float64)
    columns = [_column(system, parameter, given.get(parameter.name, parameter.default)) for parameter in parameters]
    lengths = {name: len(column) for name, column in zip(names, columns, strict=True) if len(column) != 1}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {n}" for name, n in lengths.items())
        raise ParameterError(f"{system}: give every parameter one value or the same number of values; got {told}.")
    return check_xi(problem, torch.stack(torch.broadcast_tensors(*columns), 1))


def _column(system: str, parameter: Parameter, value: Any) -> Tensor:
    try:
        column = as_tensor(value).to("cpu", torch.float64)
    except ValueError:
        raise ParameterError(f"{system}: {parameter.name} must be a number, got {repr(value)[:60]}.") from None
    if column.ndim > 1 or column.numel() == 0:
        raise ParameterError(f"{system}: {parameter.name} takes one number or one per row; got {tuple(column.shape)}.")
    return column.reshape(-1)  # (B,) or (1,)


def check_xi(problem: Described, xi: Tensor) -> Tensor:
    """xi as float64; refuse wrong shapes, NaN and values outside the physical limits, by name."""
    check_columns(problem, xi)
    xi = xi.double()
    for parameter, values in zip(problem.parameters, xi.unbind(1), strict=True):
        _check_limits(problem.name, parameter, values)
    return xi


def check_columns(problem: Described, xi: Tensor) -> None:
    """Refuse all shapes but (B,P), by name."""
    names = [parameter.name for parameter in problem.parameters]
    if xi.ndim != 2 or xi.shape[1] != len(names):
        raise ParameterError(
            f"{problem.name} expects parameters of shape (B, {len(names)}) in the order {', '.join(names)}; "
            f"got {tuple(xi.shape)}. Build them with system.xi({names[0]}=...)."
        )


def _check_limits(system: str, parameter: Parameter, values: Tensor) -> None:
    low, high = parameter.limits
    bad = ~((values >= low) & (values <= high))
    if parameter.choices:
        bad |= ~torch.isin(values, torch.tensor(parameter.choices, dtype=torch.float64, device=values.device))
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        what = f"one of {list(parameter.choices)}" if parameter.choices else f"in [{low:g}, {high:g}]"
        raise ParameterError(
            f"{system}: {parameter.name} must be {what}, got {float(values[row]):g} (row {row}). "
            f"The training range is [{parameter.train[0]:g}, {parameter.train[1]:g}]."
        )

"""Parameters by name: from what a user types to a checked tensor, with a sentence for every mistake.

Letters: B rows, P parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pdejepa.core.errors import ParameterError, did_you_mean
from pdejepa.systems.arrays import as_tensor
from pdejepa.systems.structure import Parameter


def joined(system: str, values: Mapping[str, Any] | None, more: Mapping[str, Any], where: str) -> dict[str, Any]:
    """All named values; a name in both is an error that says where it stands."""
    if not isinstance(values, Mapping | None):
        raise ParameterError(f"{system} expects parameters as {{name: value}} here; got {type(values).__name__}.")
    values = values or {}
    for name in more:
        if name in values:
            raise ParameterError(f"{system}: {name} is given twice, {where}. Give it once.")
    return {**values, **more}


def build_xi(
    system: str, parameters: tuple[Parameter, ...], given: Mapping[str, Any], options: tuple[str, ...] = ()
) -> Tensor:
    """Named values -> (B,P) float64 in declared order; single numbers broadcast against sequences.

    options: other names that a misspelt one may have meant.
    """
    names = [parameter.name for parameter in parameters]
    unknown = [name for name in given if name not in names]
    missing = [p.name for p in parameters if p.default is None and p.name not in given]
    needs = ", ".join(p.name for p in parameters if p.default is None) or "no parameters"
    if unknown:
        hint = did_you_mean(unknown[0], (*(missing or names), *options)) or "."
        raise ParameterError(f"{system} has no parameter {repr(unknown[0])[:60]}{hint} It needs {needs}.")
    if missing:
        raise ParameterError(f"{system} needs {needs}; got {', '.join(given) or 'none'}.")
    columns = [_column(system, parameter, given.get(parameter.name, parameter.default)) for parameter in parameters]
    lengths = {name: len(column) for name, column in zip(names, columns, strict=True) if len(column) != 1}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {n}" for name, n in lengths.items())
        raise ParameterError(f"{system}: give every parameter one value or the same number of values; got {told}.")
    return check_xi(system, parameters, torch.stack(torch.broadcast_tensors(*columns), 1))


def _column(system: str, parameter: Parameter, value: Any) -> Tensor:
    try:
        column = as_tensor(value).to("cpu", torch.float64)
    except ValueError:
        raise ParameterError(f"{system}: {parameter.name} must be a number, got {repr(value)[:60]}.") from None
    if column.ndim > 1 or column.numel() == 0:
        raise ParameterError(f"{system}: {parameter.name} takes one number or one per row; got {tuple(column.shape)}.")
    return column.reshape(-1)  # (B,) or (1,)


def check_xi(system: str, parameters: tuple[Parameter, ...], xi: Tensor) -> Tensor:
    """xi as float64; refuse wrong shapes, NaN and values outside the physical limits, by name."""
    check_columns(system, parameters, xi)
    xi = xi.double()
    for parameter, values in zip(parameters, xi.unbind(1), strict=True):
        _check_limits(system, parameter, values)
    return xi


def check_columns(system: str, parameters: tuple[Parameter, ...], xi: Tensor) -> None:
    """Refuse all shapes but (B,P), by name."""
    names = [parameter.name for parameter in parameters]
    if xi.ndim != 2 or xi.shape[1] != len(names):
        raise ParameterError(
            f"{system} expects parameters of shape (B, {len(names)}) in the order {', '.join(names)}; "
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

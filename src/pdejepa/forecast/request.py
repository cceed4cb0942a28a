"""What a user asks for, checked and brought into one shape: observed frames, parameters, forcing.

    u0        (C,*grid), (B,C,*grid), (B,H,C,*grid), or (H,C,*grid) for models with H = 2; one channel needs no axis
    xi        (B,P), {name: value} or name=value; one row serves all states, one state all rows
    forcing   {forcing_name: value}, a field, or f(t, x) / f(t, x, y)

Letters: B rows, H observed frames, C channels, *grid spatial axes, P parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from pdejepa.core.errors import DataError, ParameterError, did_you_mean
from pdejepa.forecast.support import FORCING
from pdejepa.models.condition import ForcingField
from pdejepa.systems.inputs import (
    Given,
    as_floats,
    as_floats64,
    build_xi,
    check_xi,
    finite,
    joined,
    turned,
    with_channel,
)
from pdejepa.systems.problem import Problem

OPTIONS = ("n_frames", "forcing", "t0", "gradients")  # of a forecast, beside the parameters


# ---- states ----------------------------------------------------------------------------------------------------
def observed_frames(problem: Problem, u0: Given, history: int) -> Tensor:
    """u0 as (B,H,C,*grid) float32, on the device it came on; DataError for wrong shapes and values."""
    given = as_floats(problem, u0, "the observed state")
    u = with_channel(given, len(problem.fields), problem.grid)
    frame = (len(problem.fields), *problem.grid)
    many = (1, 2) if problem.structure.time_order == 2 else (history,)
    k = u.ndim - len(frame)  # axes in front of a frame
    fits = k >= 0 and tuple(u.shape[k:]) == frame and u.numel() > 0
    if fits and k == 0 and history == 1:
        u = u[None, None]  # (1,1,C,*grid)
    elif fits and k == 1 and history == 1:
        u = u[:, None]  # (B,1,C,*grid)
    elif fits and k == 1 and u.shape[0] == history:
        u = u[None]  # (1,H,C,*grid)
    elif not (fits and k == 2 and u.shape[1] in many):
        raise DataError(_wrong_shape(problem, given, frame, history))
    return finite(problem, u, "the observed state")


def _wrong_shape(problem: Problem, u: Tensor, frame: tuple[int, ...], history: int) -> str:
    sizes = ", ".join(map(str, frame))
    lead = "" if history == 1 else f"{history}, "
    hint = turned(u, frame)
    if history == 2 and tuple(u.shape[-len(frame) :]) == frame:
        hint = f" This model observes two frames; single ones work as (B, 1, {sizes})."
    return (
        f"{problem.name} expects the observed state as ({lead}{sizes}) or (B, {lead}{sizes}), physical units; "
        f"got {tuple(u.shape)}.{hint}"
    )


# ---- parameters ------------------------------------------------------------------------------------------------
def parameters(
    problem: Problem, xi: Given | Mapping[str, Any] | None, named: Mapping[str, Any], forcing: Given
) -> Tensor:
    """Parameters (B,P) float64 from a tensor or from names; forcing coefficients replace or complete them."""
    _refuse_times(problem, named)
    coefficients = _coefficients(problem, forcing) if isinstance(forcing, Mapping) else {}
    if xi is None or isinstance(xi, Mapping):
        given = joined(problem.name, xi, named, "in a mapping and by keyword")
        given = joined(problem.name, given, coefficients, "as a parameter and in forcing")
        if forcing is not None and not coefficients:
            given = {**_idle_forcing(problem), **given}
        return build_xi(problem, given, OPTIONS)
    if named:
        extra = ", ".join(named)
        raise ParameterError(f"{problem.name}: give parameters as a tensor or by name, not both; got also {extra}.")
    rows = check_xi(problem, as_floats64(problem, xi))
    return _replaced(problem, rows, coefficients) if coefficients else rows


def _refuse_times(problem: Problem, named: Mapping[str, Any]) -> None:
    """Words of a solver that are no parameters of a forecast."""
    for word in ("dt", "times"):
        if word in named and word not in problem.parameter_names:
            raise ParameterError(
                f"{problem.name}: a forecast has no {word}: its frames lie as far apart as those of the training. "
                "Give n_frames=... for how many, t0=... for when they start."
            )


def _coefficients(problem: Problem, forcing: Mapping[str, Any]) -> dict[str, Any]:
    known = [name for name in problem.parameter_names if name.startswith(FORCING)]
    for name in forcing:
        if name not in known:
            hint = did_you_mean(str(name), known) or "."
            raise ParameterError(f"{problem.name} has no forcing coefficient {str(name)[:60]!r}{hint}")
    return dict(forcing)


def _idle_forcing(problem: Problem) -> dict[str, float]:
    """Values for forcing parameters that a forcing field makes meaningless, where the system has no default."""
    return {p.name: p.train[0] for p in problem.parameters if p.name.startswith(FORCING) and p.default is None}


def _replaced(problem: Problem, rows: Tensor, coefficients: Mapping[str, Any]) -> Tensor:
    return build_xi(problem, {**problem.named(rows), **coefficients})


def match_rows(problem: Problem, u: Tensor, xi: Tensor) -> tuple[Tensor, Tensor]:
    """As many states as parameter rows, by repeating whichever is one."""
    n = max(len(u), len(xi))
    if {len(u), len(xi)} - {1, n}:
        raise ParameterError(f"{problem.name}: {len(u)} observed states but {len(xi)} rows of parameters.")
    return u.expand(n, *u.shape[1:]), xi.expand(n, -1)


# ---- forcing ---------------------------------------------------------------------------------------------------
def forcing_field(
    problem: Problem, forcing: Given, n_rows: int, t0: float, device: torch.device
) -> Callable[[slice], ForcingField] | None:
    """For some of the rows: times (b,) -> f (b,C,*grid) in physical units; None if the parameters say it all."""
    if forcing is not None and problem.structure.forcing == "none":
        raise ParameterError(f"{problem.name} has no forcing term ({problem.equation}); leave forcing out.")
    if forcing is None or isinstance(forcing, Mapping):
        return None
    if callable(forcing):
        field_at = _moving(problem, forcing, n_rows, device)
        first = field_at(torch.tensor(t0, dtype=torch.float64, device=device))
    else:
        first = _spread(problem, as_floats(problem, forcing, "the forcing").to(device), n_rows)
        field_at = lambda _: first  # noqa: E731
    if not bool(torch.isfinite(first).all()):
        raise DataError(f"{problem.name}: the forcing holds NaN or infinite values at t = {t0:g}.")
    return lambda rows: lambda times: field_at(times[0])[rows]


def _moving(
    problem: Problem, function: Callable[..., Any], n_rows: int, device: torch.device
) -> Callable[[Tensor], Tensor]:
    """f(t, x) or f(t, x, y) as a function of time alone: t is one number, x (N,) or (N,1), y (1,M), float64."""
    k = problem.ndim
    places = [[-1 if i == j else 1 for i in range(k)] for j in range(k)]
    axes = [axis.to(device).reshape(place) for axis, place in zip(problem.coordinates.values(), places, strict=True)]

    def field_at(t: Tensor) -> Tensor:
        try:
            result = function(t, *axes)
        except Exception as error:  # whatever it is, it is the user's own
            call = f"f({', '.join(('t', *problem.axes_names))})"
            told = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(":. ")
            raise DataError(f"{problem.name}: the forcing function, called as {call}, ended with {told}.") from error
        values = as_floats(problem, result, "the result of the forcing function")
        return _spread(problem, values.to(device), n_rows)

    return field_at


def _spread(problem: Problem, field: Tensor, n_rows: int) -> Tensor:
    """(), (*grid), (C,*grid), (B,C,*grid), or (B,*grid) if there is one channel -> (B,C,*grid)."""
    frame = (len(problem.fields), *problem.grid)
    if field.ndim == len(frame) and frame[0] == 1 and field.shape[0] in (1, n_rows):
        field = field[:, None]  # (B,1,*grid)
    shape = (n_rows, *frame)
    try:
        if field.ndim not in (0, len(frame) - 1, len(frame), len(shape)):
            raise RuntimeError
        return field.expand(shape)
    except RuntimeError:
        sizes = ", ".join(map(str, frame))
        raise DataError(
            f"{problem.name} expects the forcing as ({sizes}) or ({n_rows}, {sizes}); got {tuple(field.shape)}."
        ) from None

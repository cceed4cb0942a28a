"""How well a forecast obeys its own equation, frame by frame, without knowing the truth.

    e_t = |S(u_hat_t) - u_hat_{t+1}| / |u_hat_{t+1}|        S: the solver over one frame gap, from forecast frame t

A forecast can be wrong and obey (an error made once is carried along), but one that does not obey is wrong.  The same
number of true frames, the floor, tells what rounding and stored grids alone amount to.

Letters: B rows, T frames, C channels, *grid spatial axes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pdejepa.core.errors import DataError
from pdejepa.forecast.interface import Forecast
from pdejepa.systems import System


def residuals(system: System, fields: Tensor, xi: Tensor, times: Tensor) -> Tensor:
    """e_t of fields (B,T,C,*grid) under xi (B,P), (B,T-1), mean over channels; NaN where a frame is not finite."""
    _check(system, fields)
    gaps, u = times.diff().tolist(), fields.detach().cpu()
    if system.structure.forcing == "time":
        after = [_solved(system, u[:, t], xi, float(times[t]), gap) for t, gap in enumerate(gaps)]
        solved = torch.stack(after, 1)
    else:
        rows = u[:, :-1].flatten(0, 1)
        solved = _solved(system, rows, xi.repeat_interleave(len(gaps), 0), 0.0, gaps[0]).unflatten(0, (len(u), -1))
    apart = (solved - u[:, 1:]).double().flatten(3).norm(dim=3) / u[:, 1:].double().flatten(3).norm(dim=3)
    return apart.mean(2)


def of_forecast(system: System, forecast: Forecast) -> Tensor:
    """e_t of the frames of a forecast, (B,T-1); the first is the step from the last observed frame."""
    if forecast.xi is None:
        raise DataError("A forecast without parameters cannot be compared with its equation.")
    first = forecast.n_observed - 1
    return residuals(system, forecast.fields[:, first:], forecast.xi.cpu(), forecast.times[first:])


def _check(system: System, fields: Tensor) -> None:
    if system.structure.time_order != 1 or system.n_state != fields.shape[2]:
        raise DataError(f"One frame of {system.name} is not a state that its solver could start from.")


def _solved(system: System, u: Tensor, xi: Tensor, t0: float, gap: float) -> Tensor:
    """One frame later, (B,C,*grid); NaN for rows that are not finite."""
    is_good = u.flatten(1).isfinite().all(1)
    result = torch.full_like(u, torch.nan)
    if bool(is_good.any()):
        made = system.solve(u[is_good], xi.cpu()[is_good], times=[t0 + gap], t0=t0)
        result[is_good] = made.as_subclass(Tensor)[:, 0].to(u.dtype)
    return result

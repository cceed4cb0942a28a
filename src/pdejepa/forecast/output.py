"""What a forecast can be turned into: a file of arrays, an xarray Dataset, a picture, an animation.

    forecast.save("f.npz")                    numpy.load("f.npz")["fields"], (B,H+n,C,*grid)
    forecast.plot("f.png", truth=solved)      beside the solver's frames
    forecast.to_xarray()

Letters: B rows, H observed frames, n new frames, C channels, *grid spatial axes, P parameters.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pdejepa.core.arrays import as_tensor
from pdejepa.core.atomic import write_aside
from pdejepa.core.errors import DataError, ParameterError, ResourceError, UsageError
from pdejepa.draw.trajectory import Trajectory

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

    from pdejepa.forecast.interface import Forecast

FORMAT = 1
SUFFIX = ".npz"


def arrays_of(forecast: Forecast) -> dict[str, np.ndarray]:
    """Everything a forecast holds, as arrays of numbers and words.

    fields (B,H+n,C,*grid), times (H+n,), one coordinate (N,) per axis, one array (B,) per parameter as
    parameter_NAME, n_observed = H, first_bad (B,): the first frame that is not sound, -1 if all are; half_width_90
    (B,H+n,C) of a calibrated model, or that of the level to which its calibration was large enough.
    """
    problem = forecast.problem
    bad = [-1 if row.first_bad is None else row.first_bad for row in forecast.outcome]
    half = forecast.half_width()
    level = 0.0 if forecast.bands is None else forecast.bands.usual_level
    band = {} if half is None else {f"half_width_{100 * level:.0f}": half.numpy()}
    found = {
        "format_version": np.array(FORMAT),
        "system": np.array(problem.name),
        "fields": forecast.fields.detach().cpu().numpy(),
        "times": forecast.times.numpy(),
        **{name: values.numpy() for name, values in problem.coordinates.items()},
        "field_names": np.array(problem.fields),
        "n_observed": np.array(forecast.n_observed),
        "first_bad": np.array(bad, dtype=np.int64),
        "support": np.array(str(forecast.support)),
    }
    return found | band | {f"parameter_{name}": values for name, values in _parameters(forecast).items()}


def save(forecast: Forecast, path: str | os.PathLike[str]) -> None:
    """Write FILE.npz: the arrays of `arrays_of`, which numpy.load reads without pickle."""
    if not os.fspath(path).endswith(SUFFIX):
        raise UsageError(f"Forecasts are saved as {SUFFIX}; got {os.fspath(path)!r}. Give it such a name.")
    with write_aside(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays_of(forecast))  # type: ignore[arg-type]


def to_xarray(forecast: Forecast) -> xarray.Dataset:
    """One variable per field with axes (row, time, *space); parameters are coordinates of the rows."""
    try:
        import xarray
    except ImportError:
        raise ResourceError("xarray is not installed. Get it with: pip install xarray") from None
    problem, fields = forecast.problem, forecast.fields.detach().cpu().numpy()
    axes = ("row", "time", *problem.axes_names)
    parameters = {name: ("row", values) for name, values in _parameters(forecast).items()}
    places = {name: values.numpy() for name, values in problem.coordinates.items()}
    return xarray.Dataset(
        {name: (axes, fields[:, :, number]) for number, name in enumerate(problem.fields)},
        {"time": forecast.times.numpy(), **places, **parameters},
        {"system": problem.name, "n_observed": forecast.n_observed, "support": str(forecast.support)},
    )


def trajectory(forecast: Forecast, row: int, fields: Any = None) -> Trajectory:
    """One row as it is drawn; with `fields` (T,C,*grid) or (B,T,C,*grid), those frames in place of the forecast's."""
    n_rows, problem, half = len(forecast.fields), forecast.problem, forecast.half_width()
    if not 0 <= row < n_rows:
        raise ParameterError(f"The forecast has {n_rows} rows, 0 to {n_rows - 1}; got row {row}.")
    values = forecast.fields[row] if fields is None else _frames(forecast, fields, row)
    return Trajectory(
        fields=values.detach().float().cpu().numpy(),
        xi={name: float(column[row]) for name, column in _parameters(forecast).items()},
        times=forecast.times.numpy(),
        axes={name: axis.numpy() for name, axis in problem.coordinates.items()},
        field_names=problem.fields,
        split="",
        index=row,
        system_name=problem.title or problem.name,
        n_observed=forecast.n_observed if fields is None else 0,
        band=half[row].detach().cpu().numpy() if fields is None and half is not None else None,
        is_promised=forecast.support.is_inside,
    )


def plot(forecast: Forecast, path: str | os.PathLike[str] | None, row: int, truth: Any, title: str | None) -> Figure:
    """The picture as a Matplotlib figure, written to `path` if there is one."""
    from pdejepa.draw import pictures, truth_and_forecast

    guess, title = trajectory(forecast, row), title or _title(forecast, row)
    if truth is None:
        figure = pictures.draw(guess, title)
    else:
        figure = truth_and_forecast.compare(trajectory(forecast, row, truth), guess, title)
    if path is not None:
        pictures.save(lambda: figure, path)
    return figure


def animate(forecast: Forecast, path: str | os.PathLike[str], row: int, truth: Any, title: str | None) -> None:
    """Write the film, gif or webp."""
    from pdejepa.draw.animation import animate_trajectory
    from pdejepa.draw.truth_and_forecast import animate_comparison

    guess, title = trajectory(forecast, row), title or _title(forecast, row)
    if truth is None:
        animate_trajectory(guess, path, title)
    else:
        animate_comparison(trajectory(forecast, row, truth), guess, path, title)


def _title(forecast: Forecast, row: int) -> str:
    name = forecast.problem.title or forecast.problem.name
    return f"{name}, forecast" if len(forecast.fields) == 1 else f"{name}, forecast of row {row}"


def _parameters(forecast: Forecast) -> dict[str, np.ndarray]:
    """{name: (B,)}; empty for solvers that were told none."""
    named = {} if forecast.xi is None else forecast.problem.named(forecast.xi)
    return {name: values.detach().cpu().numpy() for name, values in named.items()}


def _frames(forecast: Forecast, fields: Any, row: int) -> torch.Tensor:
    """The truth of one row, (T,C,*grid)."""
    values = as_tensor(fields).as_subclass(torch.Tensor)
    shape = tuple(forecast.fields.shape)
    if tuple(values.shape) == shape:
        return values[row]
    if tuple(values.shape) == shape[1:]:
        return values
    if tuple(values.shape) == (1, *shape[1:]):
        return values[0]
    raise DataError(
        f"truth must hold the frames of the forecast, {shape} or one row {shape[1:]}; got {tuple(values.shape)}. "
        "A solver gives them with system.solve(u0, times=forecast.times, ...)."
    )

"""Arrays in memory as trajectories to train on: splits, checks and problem as `pdejepa import` makes them.

    data = pdejepa.from_arrays(u, {"nu": nu}, dt=0.1, periodic="x")       u (n,T,X) or (n,T,X,Y), nu (n,)
    config = recipes.for_data(data, "tiny")
    train(config, "runs/mine", data=data)

Letters: n trajectories, T frames, C channels, P parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pdejepa.core.arrays import as_tensor
from pdejepa.core.errors import DataError, UsageError
from pdejepa.data.importing.import_plan import check_names
from pdejepa.data.importing.import_request import check_name
from pdejepa.data.importing.partition import partition
from pdejepa.data.importing.parts import SPACE
from pdejepa.data.importing.sniff import MIN_FRAMES, MIN_POINTS, MIN_TRAJECTORIES
from pdejepa.data.source import Arrays
from pdejepa.systems.given import given_problem
from pdejepa.systems.problem import Axis, Boundary


def from_arrays(
    fields: Any,
    parameters: Mapping[str, Any] | None = None,
    *,
    dt: float,
    periodic: str | Sequence[str] = (),
    box: Sequence[tuple[float, float]] | None = None,
    ends: Boundary = "open",
    name: str = "my_data",
    ood: str | Sequence[str] | None = None,
    seed: int = 0,
    title: str = "",
    equation: str = "",
) -> Arrays:
    """Trajectories of one field (n,T,X) or (n,T,X,Y), or of several {"u": ..., "v": ...}, with splits by parameters.

    parameters: {name: (n,)}, or none      dt: time between frames      periodic: axes that wrap around, "x" or "xy"
    box: (low, high) of each axis, (0, 1) if not given      ends: what happens at the ends of the other axes
    ood: conditions such as "nu<1e-3", or "none"; the upper tenth of a parameter if not given
    """
    check_name(name)
    channels = {"u": fields} if not isinstance(fields, Mapping) else dict(fields)
    values = np.stack([_array(one, key) for key, one in channels.items()], 2)  # (n,T,C,*grid)
    n, n_frames, grid = len(values), values.shape[1], values.shape[3:]
    columns = {key: _column(value, key, n) for key, value in (parameters or {}).items()}
    check_names(tuple(channels), tuple(columns))
    _check_values(values, dt)
    xi = np.stack(list(columns.values()), 1) if columns else np.zeros((n, 0))  # (n,P)
    conditions = (ood,) if isinstance(ood, str) else None if ood is None else tuple(ood)
    cut = partition(xi, tuple(columns), conditions, seed)
    rings, boxes = tuple(periodic), box or ((0.0, 1.0),) * len(grid)
    if set(rings) - set(SPACE[: len(grid)]) or len(boxes) != len(grid):
        raise UsageError(f"periodic and box are told of the axes {', '.join(SPACE[: len(grid)])}; got {rings}, {box}.")
    places = zip(SPACE[: len(grid)], grid, boxes, strict=True)
    axes = [_axis(axis, size, ends_of, axis in rings, ends) for axis, size, ends_of in places]
    inside = xi[list(cut.rows["train"])]
    ranges = {key: (float(inside[:, j].min()), float(inside[:, j].max())) for j, key in enumerate(columns)}
    times = (dt * np.arange(n_frames)).tolist()
    problem = given_problem(name, tuple(channels), axes, times, ranges, title, equation)
    chosen = {split: list(rows) for split, rows in cut.rows.items()}
    return Arrays(
        problem,
        {split: values[rows] for split, rows in chosen.items()},
        {split: xi[rows] for split, rows in chosen.items()},
    )


def _array(values: Any, name: str) -> np.ndarray:
    """One field (n,T,X) or (n,T,X,Y), float32."""
    try:
        found = as_tensor(values).cpu().numpy()
    except ValueError as error:
        raise DataError(f"The field {name} must be an array of real numbers; got {error}.") from None
    if found.ndim not in (3, 4) or 0 in found.shape:
        raise DataError(
            f"The field {name} must be (trajectory, time, x) or (trajectory, time, x, y); got shape {found.shape}. "
            'Several fields are given by name: {"u": ..., "v": ...}.'
        )
    with np.errstate(over="ignore"):
        return found.astype(np.float32)


def _column(values: Any, name: str, n: int) -> np.ndarray:
    try:
        found = as_tensor(values).cpu().numpy().astype(np.float64)
    except ValueError as error:
        raise DataError(f"The parameter {name} must be numbers; got {error}.") from None
    if found.shape not in ((), (n,)) or not np.isfinite(found).all():
        raise DataError(f"The parameter {name} must be {n} finite numbers, one per trajectory; got {found.shape}.")
    return np.broadcast_to(found, (n,))


def _check_values(values: np.ndarray, dt: float) -> None:
    n, n_frames, n_points = len(values), values.shape[1], min(values.shape[3:])
    if n < MIN_TRAJECTORIES or n_frames < MIN_FRAMES or n_points < MIN_POINTS:
        raise DataError(
            f"At least {MIN_TRAJECTORIES} trajectories of {MIN_FRAMES} frames on {MIN_POINTS} points are needed; got "
            f"{n} of {n_frames} frames on {n_points}. The axes are (trajectory, time, x[, y])."
        )
    bad = [row for row, one in enumerate(values) if not np.isfinite(one).all()]
    if bad:
        raise DataError(f"{len(bad):,} trajectories hold NaN or infinite values, e.g. {bad[:5]}. Leave them out.")
    if not (values[:, 1:] != values[:, :1]).any():
        raise DataError("All frames of a trajectory are the same; there is nothing to forecast.")
    if not 0 < dt < float("inf"):
        raise UsageError(f"dt must be a positive time between frames; got {dt}.")


def _axis(name: str, n: int, ends_of: tuple[float, float], is_ring: bool, ends: Boundary) -> Axis:
    points = np.linspace(*ends_of, n, endpoint=not is_ring)
    return Axis(name, tuple(points.tolist()), "periodic" if is_ring else ends)

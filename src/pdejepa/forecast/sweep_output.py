"""What a sweep can be turned into: arrays, a table of comma-separated values, plain JSON, a picture.

    FOLDER/
      sweep.npz    last (R,C,*grid), rms (R,n,C), distance, sensitivity_NAME, parameter_NAME (R,) and the rest
      sweep.csv    one row per forecast, as `Sweep.rows` has them
      sweep.png    see `draw.sweep_picture`
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pdejepa.core.atomic import write_aside, write_text
from pdejepa.forecast.least_squares import is_log

if TYPE_CHECKING:
    from pdejepa.draw.sweep_picture import SweepPicture
    from pdejepa.forecast.sweep import Sweep

FORMAT = 1
ARRAYS, TABLE, PICTURE = "sweep.npz", "sweep.csv", "sweep.png"


def write_sweep(found: Sweep, folder: Path) -> list[Path]:
    """Arrays, table and picture."""
    from pdejepa.draw.sweep_picture import draw_sweep

    with write_aside(folder / ARRAYS) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays_of(found))  # type: ignore[arg-type]
    write_text(folder / TABLE, csv_of(found))
    draw_sweep(picture_of(found), folder / PICTURE)
    return [folder / ARRAYS, folder / TABLE, folder / PICTURE]


def arrays_of(found: Sweep) -> dict[str, np.ndarray]:
    """Numbers and words only, which numpy.load reads without pickle; first_bad is -1 in stable rows."""
    problem = found.problem
    bad = [-1 if row.first_bad is None else row.first_bad for row in found.outcome]
    return {
        "format_version": np.array(FORMAT),
        "system": np.array(problem.name),
        "varied": np.array(list(found.varied)),
        "times": found.times.numpy(),
        **{name: values.numpy() for name, values in problem.coordinates.items()},
        "field_names": np.array(problem.fields),
        **{word: getattr(found, word).numpy() for word in ("last", "rms", "low", "high", "distance")},
        **{f"sensitivity_{name}": values.numpy() for name, values in found.sensitivity.items()},
        **{f"parameter_{name}": values.numpy() for name, values in problem.named(found.xi).items()},
        "n_observed": np.array(found.n_observed),
        "first_bad": np.array(bad, dtype=np.int64),
        "extrapolates": _extrapolates(found),
    }


def csv_of(found: Sweep) -> str:
    """Head and one line per row; numbers to nine digits, empty where there is none."""
    rows, stream = found.rows(), io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return stream.getvalue()


def json_of(found: Sweep) -> dict[str, Any]:
    """Plain numbers and words; numbers that are not finite are None."""
    rows = [{name: _plain(value) for name, value in row.items()} for row in found.rows()]
    told = [{**row, "told": list(sentences)} for row, sentences in zip(rows, found.outside, strict=True)]
    return {
        "system": found.problem.name,
        "varied": {name: values.tolist() for name, values in found.varied.items()},
        "fixed": {
            name: float(values[0])
            for name, values in found.problem.named(found.xi).items()
            if name not in found.varied
        },
        "times": found.times.tolist(),
        "n_observed": found.n_observed,
        "remarks": list(found.remarks),
        "rows": told,
    }


def picture_of(found: Sweep) -> SweepPicture:
    """What is drawn of a sweep: the first channel."""
    from pdejepa.draw.sweep_picture import SweepPicture, Swept

    problem = found.problem
    declared = {parameter.name: parameter for parameter in problem.parameters}
    varied = tuple(
        Swept(name, values.numpy(), declared[name].train, is_log(declared[name]) and bool((values > 0).all()))
        for name, values in found.varied.items()
    )
    return SweepPicture(
        varied=varied,
        last=found.last[:, 0].numpy(),
        rms=found.rms[:, -1, 0].numpy(),
        distance=found.distance.numpy(),
        extrapolates=_extrapolates(found),
        axes=tuple(axis.numpy() for axis in problem.coordinates.values()),
        names=problem.axes_names,
        field=problem.fields[0],
        time=float(found.times[-1]),
        title=f"{problem.title or problem.name}: {' and '.join(found.varied)}",
    )


def _extrapolates(found: Sweep) -> np.ndarray:
    return np.array([bool(sentences) for sentences in found.outside])


def _cell(value: float | str | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    return f"{value:.9g}" if math.isfinite(value) else ""


def _plain(value: float | str | bool) -> float | str | bool | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value

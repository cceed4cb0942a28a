"""The error of every forecast frame over time, one panel per system.

Colours tell the split (test, out of distribution), dashes the kind of model (four stages, polished, ...), so that a
panel can be read without colours too.  With several seeds the curve is their mean and a band reaches from the smallest
to the largest.  Errors of a frame are means over channels; their axis is logarithmic, in percent.
Letters: n forecast frames, S seeds.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from pdejepa.core.errors import DataError
from pdejepa.draw import pictures
from pdejepa.draw.panels import NORMAL, SMALL, label_axes, new_figure
from pdejepa.evaluate.board import Row

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")  # told apart by colour-blind people (Okabe and Ito, 2008)
MARKERS = ("o", "s", "^", "v")
DASHES = ("-", "--", "-.", ":")
N_COLUMNS = 3
MIN_RATIO = 4.0  # of the ends of an axis, so that it has ticks to read from


@dataclass(frozen=True)
class Curve:
    """The errors of one kind of model on one split."""

    label: str
    times: np.ndarray  # (n,)
    errors: np.ndarray  # (S,n), NaN where a record has none


def draw_errors(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """Write the picture; the format follows the suffix (png, pdf, svg, jpg, webp)."""
    pictures.save(lambda: error_picture(rows), path)


def error_picture(rows: Sequence[Row]) -> Figure:
    """The picture as a Matplotlib figure; DataError if no row tells errors frame by frame."""
    panels: dict[str, list[Row]] = {}
    for row in rows:
        if any(_curve(row, split) for split in row.splits):
            panels.setdefault(row.system.title, []).append(row)
    if not panels:
        raise DataError(
            "No record tells the errors of single frames, so there is nothing to plot; records that "
            "`pdejepa evaluate` writes to a file do, those inside a model's config.json do not."
        )
    n_columns = min(N_COLUMNS, len(panels))
    n_lines = -(-len(panels) // n_columns)
    figure = new_figure(max(4.4, 3.9 * n_columns), 0.2 + 3.1 * n_lines, "constrained")
    places = figure.subplots(n_lines, n_columns, squeeze=False).flatten()
    for place, (title, own) in zip(places, panels.items(), strict=False):
        _panel(place, title, own)
    for place in places[len(panels) :]:
        place.set_axis_off()
    return figure


def _panel(panel: Axes, title: str, rows: Sequence[Row]) -> None:
    splits = list(dict.fromkeys(split for row in rows for split in row.splits))
    for number, row in enumerate(rows):
        for split in row.splits:
            curve = _curve(row, split)
            if curve is not None:
                _draw(panel, curve, splits.index(split), number)
    channels = ", mean over channels" if len(rows[0].system.fields) > 1 else ""
    panel.set_title(f"{title}{channels}", fontsize=NORMAL, pad=3)
    panel.set_yscale("log")
    low, high = panel.get_ylim()
    if high < MIN_RATIO * low:
        middle, half = (low * high) ** 0.5, MIN_RATIO**0.5
        low, high = middle / half, middle * half
    panel.set_ylim(low, high * (high / low) ** (0.1 + 0.09 * len(panel.lines)))  # room for the legend
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.grid(color="#dddddd", linewidth=0.5)
    label_axes(panel, "time", "relative error, %")
    panel.legend(fontsize=SMALL, frameon=False, loc="upper left", handlelength=2.6)


def _draw(panel: Axes, curve: Curve, split: int, kind: int) -> None:
    colour, dash = COLOURS[split % len(COLOURS)], DASHES[kind % len(DASHES)]
    percent = 100 * curve.errors
    low, middle, high = (reduce(percent, axis=0) for reduce in (np.nanmin, np.nanmean, np.nanmax))
    marker = MARKERS[split % len(MARKERS)]
    style = {"color": colour, "linestyle": dash, "linewidth": 1.4, "marker": marker, "markersize": 3.0}
    panel.plot(curve.times, middle, label=curve.label, **style)  # type: ignore[arg-type]
    if len(percent) > 1:
        panel.fill_between(curve.times, low, high, color=colour, alpha=0.2, linewidth=0)


def _curve(row: Row, split: str) -> Curve | None:
    """None if no record of the row tells an error for each of the system's forecast frames."""
    known = [record for record in row.records if split in record.errors]
    if not known:
        return None
    times = row.system.times.numpy()[known[0].observed_frames :]
    lists = [record.errors[split].per_frame for record in known]
    errors = np.array([one for one in lists if len(one) == len(times)], dtype=np.float64)  # None becomes NaN
    if errors.size == 0 or np.isnan(errors).all(0).any():
        return None
    name = f"{split} (our split)" if row.is_ours(split) else split
    return Curve(f"{name}, {row.kind}", times, errors)

"""The error of every forecast frame over time, one panel per system.

Colours tell the split (test, out of distribution), dashes the kind of model (four stages, polished, ...), so that a
panel can be read without colours too; where there is one split only, colours tell the kind as well.  A title's further
lines are a remark.  With several seeds the curve is their mean and a band reaches from the smallest
to the largest.  Errors of a frame are means over channels; their axis is logarithmic, in percent.
Letters: n forecast frames, S seeds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from pdejepa.core.errors import DataError
from pdejepa.draw import pictures
from pdejepa.draw.panels import GREY, NORMAL, SMALL, label_axes, new_figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")  # told apart by colour-blind people (Okabe and Ito, 2008)
MARKERS = ("o", "s", "^", "v")
DASHES = ("-", "--", "-.", ":")
N_COLUMNS = 3
MIN_RATIO = 4.0  # of the ends of an axis, so that it has ticks to read from


@dataclass(frozen=True)
class Curve:
    """The errors of one kind of model on one split.

    split, kind: their numbers in the panel, which choose colour and dashes.
    """

    label: str
    times: np.ndarray  # (n,)
    errors: np.ndarray  # (S,n), NaN where a record has none
    split: int = 0
    kind: int = 0


Panels = Mapping[str, Sequence[Curve]]  # by their titles


def draw_errors(panels: Panels, path: str | os.PathLike[str]) -> None:
    """Write the picture; the format follows the suffix (png, pdf, svg, jpg, webp)."""
    pictures.save(lambda: error_picture(panels), path)


def error_picture(panels: Panels) -> Figure:
    """The picture as a Matplotlib figure; DataError if there is no curve."""
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


def _panel(panel: Axes, title: str, curves: Sequence[Curve]) -> None:
    by_kind = len({curve.split for curve in curves}) == 1
    for curve in curves:
        _draw(panel, curve, curve.kind if by_kind else curve.split)
    head, _, remark = title.partition("\n")
    panel.set_title(head, fontsize=NORMAL, pad=3 + 10 * len(remark.splitlines()))
    panel.text(0.5, 1.01, remark, fontsize=SMALL, color=GREY, ha="center", va="bottom", transform=panel.transAxes)
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


def _draw(panel: Axes, curve: Curve, number: int) -> None:
    """`number` of the colour and the marker."""
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[curve.kind % len(DASHES)]
    percent = 100 * curve.errors
    low, middle, high = (reduce(percent, axis=0) for reduce in (np.nanmin, np.nanmean, np.nanmax))
    marker = MARKERS[number % len(MARKERS)]
    style = {"color": colour, "linestyle": dash, "linewidth": 1.4, "marker": marker, "markersize": 3.0}
    panel.plot(curve.times, middle, label=curve.label, **style)  # type: ignore[arg-type]
    if len(percent) > 1:
        panel.fill_between(curve.times, low, high, color=colour, alpha=0.2, linewidth=0)

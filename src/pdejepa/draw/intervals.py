"""Parameters with their intervals, and how well the fitted forecast meets what was observed, as one picture.

    draw_intervals([Interval("viscosity", 0.01, 0.009, 0.011, (1e-3, 5.0), True)], fit, "inference.png")

Left: every parameter on its training range, the interval as a bar, the truth, where it is known, as a line.
Right: the last observed frame and the fit; curves for lines, images and their difference for planes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from pdejepa.draw import pictures
from pdejepa.draw.colours import scale_of, sequential
from pdejepa.draw.panels import GREY, LARGE, NORMAL, SMALL, draw_plane, label_axes, new_figure, span

BLUE, ORANGE = "#2b6cb0", "#c05621"


@dataclass(frozen=True)
class Interval:
    """One parameter; `note` is what is said about it, `truth` its true value if that is known."""

    name: str
    value: float
    low: float
    high: float
    train: tuple[float, float]
    is_log: bool
    note: str = ""
    truth: float | None = None


@dataclass(frozen=True)
class Fit:
    """One channel of one frame, observed (NaN where nothing was) and fitted, (N,) or (N,M)."""

    observed: np.ndarray
    fitted: np.ndarray
    axes: tuple[np.ndarray, ...]
    names: tuple[str, ...]
    field: str
    time: float


def draw_intervals(
    intervals: Sequence[Interval], fit: Fit, path: str | os.PathLike[str], title: str, level: float = 0.9
) -> None:
    """Write the picture; the format follows the suffix."""
    pictures.save(lambda: picture(intervals, fit, title, level), path)


def picture(intervals: Sequence[Interval], fit: Fit, title: str, level: float = 0.9) -> Figure:
    """The picture as a Matplotlib figure."""
    height = 0.7 + max(2.6, 0.85 * len(intervals))
    figure = new_figure(10.0, height, "constrained")
    figure.suptitle(title, fontsize=LARGE, fontweight="bold", x=0.01, ha="left")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1.0, 1.25))[0]
    panels = left.subplots(len(intervals), 1, squeeze=False)[:, 0]
    for panel, interval in zip(panels, intervals, strict=True):
        _interval(panel, interval)
    panels[-1].set_xlabel(f"dot: estimate   bar: {100 * level:.0f} % interval   frame: training range", fontsize=SMALL)
    _line(right, fit) if fit.observed.ndim == 1 else _plane(right, fit)
    return figure


def _interval(panel: Axes, interval: Interval) -> None:
    """One parameter on its training range."""
    low, high = interval.train
    if interval.is_log:
        panel.set_xscale("log")
    panel.set_xlim(low, high)
    panel.set_ylim(-1, 1)
    panel.set_yticks([])
    ends = [end if math.isfinite(end) else interval.value for end in (interval.low, interval.high)]
    panel.plot(np.clip(ends, low, high), [0, 0], color=BLUE, linewidth=5, alpha=0.45, solid_capstyle="butt")
    panel.plot([interval.value], [0], "o", color=BLUE, markersize=6, clip_on=False)
    if interval.truth is not None:
        panel.axvline(interval.truth, color=ORANGE, linewidth=1.4)
    told = f"{interval.name} = {interval.value:.4g}"
    told += f"  [{interval.low:.4g}, {interval.high:.4g}]" if math.isfinite(interval.low) else ""
    told += f"   truth {interval.truth:.4g}" if interval.truth is not None else ""
    panel.set_title(f"{told}   {interval.note}".rstrip(), fontsize=NORMAL, loc="left", pad=3)
    panel.tick_params(labelsize=SMALL, length=2, width=0.5)
    for side in ("left", "right", "top", "bottom"):
        panel.spines[side].set_color(GREY)
        panel.spines[side].set_linewidth(0.5)


def _line(figure: SubFigure, fit: Fit) -> None:
    panel = figure.subplots()
    x = fit.axes[0]
    panel.plot(x, fit.observed, ".", color=GREY, markersize=3, label="observed")
    panel.plot(x, fit.fitted, color=sequential()(0.1), linewidth=1.4, label="forecast under the estimate")
    span(panel, x)
    label_axes(panel, fit.names[0], fit.field)
    panel.set_title(f"t = {fit.time:.4g}", fontsize=NORMAL, loc="left", pad=3)
    panel.legend(fontsize=SMALL, frameon=False)


def _plane(figure: SubFigure, fit: Fit) -> None:
    panels = figure.subplots(1, 3)
    scale = scale_of(fit.observed)
    difference = fit.fitted - fit.observed
    shown = (("observed", fit.observed, scale), ("forecast", fit.fitted, scale), ("difference", difference, None))
    for panel, (name, values, own) in zip(panels, shown, strict=True):
        draw_plane(panel, fit.axes, values, own or scale_of(values))
        told = f"largest {np.nanmax(np.abs(values)):.2g}" if own is None else f"t = {fit.time:.4g}"
        panel.set_title(f"{name}\n{told}", fontsize=NORMAL, pad=3)

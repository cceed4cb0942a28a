"""What a sweep over one or two parameters found, as one picture.

One parameter: the last frames, and how far every forecast is from the first one.  Two: maps over both parameters.
Curves of forecasts that extrapolate are dashed; maps have the training ranges as a frame.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle

from pdejepa.draw import pictures
from pdejepa.draw.colours import scale_of, sequential
from pdejepa.draw.panels import (
    GREY,
    LARGE,
    NORMAL,
    SMALL,
    add_colour_bar,
    draw_mesh,
    draw_plane,
    edges,
    label_axes,
    new_figure,
    pick_frames,
    span,
)

N_PLANES, N_PROFILES = 4, 7


@dataclass(frozen=True)
class Swept:
    """One varied parameter: its values and its training range."""

    name: str
    values: np.ndarray
    train: tuple[float, float]
    is_log: bool

    @property
    def places(self) -> np.ndarray:
        """Where the values stand on an axis that is linear."""
        return np.log10(self.values) if self.is_log else self.values

    @property
    def ends(self) -> tuple[float, float]:
        """The training range there."""
        low, high = np.log10(np.maximum(self.train, 1e-300)) if self.is_log else self.train
        return float(low), float(high)

    @property
    def label(self) -> str:
        return f"log10 {self.name}" if self.is_log else self.name


@dataclass(frozen=True)
class SweepPicture:
    """Of all rows R: last frames of one channel (R,*grid); rms, distance from the first, who extrapolates, (R,)."""

    varied: tuple[Swept, ...]
    last: np.ndarray
    rms: np.ndarray
    distance: np.ndarray
    extrapolates: np.ndarray
    axes: tuple[np.ndarray, ...]
    names: tuple[str, ...]
    field: str
    time: float
    title: str


def draw_sweep(found: SweepPicture, path: str | os.PathLike[str]) -> None:
    """Write the picture; the format follows the suffix."""
    pictures.save(lambda: picture(found), path)


def picture(found: SweepPicture) -> Figure:
    """The picture as a Matplotlib figure."""
    figure = new_figure(10.0, 3.9, "constrained")
    figure.suptitle(found.title, fontsize=LARGE, fontweight="bold", x=0.01, ha="left")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1.25, 1.0))[0]
    if len(found.varied) == 2:
        rms = f"rms of {found.field} at t = {found.time:.4g}   dotted: training ranges"
        _map(left, found, found.rms, rms)
        _map(right, found, 100 * found.distance, "% from the first forecast")
        return figure
    if found.last.ndim == 2:
        _profiles(left.subplots(), found)
    else:
        _planes(left, found)
    _distance(right.subplots(), found)
    return figure


def _profiles(panel: Axes, found: SweepPicture) -> None:
    """Last frames of some rows as curves, from dark to light."""
    (swept,), x = found.varied, found.axes[0]
    rows = pick_frames(len(found.last), N_PROFILES)
    for order, row in enumerate(rows):
        colour = sequential()(0.9 * order / max(1, len(rows) - 1))
        style = "--" if found.extrapolates[row] else "-"
        panel.plot(x, found.last[row], style, color=colour, linewidth=1.2, label=f"{swept.values[row]:.3g}")
    span(panel, x)
    label_axes(panel, found.names[0], found.field)
    panel.set_title(f"t = {found.time:.4g}   dashed: extrapolating", fontsize=NORMAL, loc="left", pad=3)
    panel.legend(fontsize=SMALL, frameon=False, title=swept.name, title_fontsize=SMALL)


def _planes(figure: SubFigure, found: SweepPicture) -> None:
    (swept,), scale = found.varied, scale_of(found.last)
    rows = pick_frames(len(found.last), N_PLANES)
    panels = figure.subplots(2, (len(rows) + 1) // 2, squeeze=False).reshape(-1)
    for panel in panels[len(rows) :]:
        panel.set_axis_off()
    for panel, row in zip(panels, rows, strict=False):
        draw_plane(panel, found.axes, found.last[row], scale)
        note = ", extrapolating" if found.extrapolates[row] else ""
        panel.set_title(f"{swept.name} {swept.values[row]:.3g}{note}", fontsize=SMALL, pad=3)
    add_colour_bar(figure, list(panels), scale, found.field, shrink=0.6)
    figure.supxlabel(f"t = {found.time:.4g}", fontsize=NORMAL)


def _distance(panel: Axes, found: SweepPicture) -> None:
    (swept,) = found.varied
    low, high = swept.train
    if swept.is_log:
        panel.set_xscale("log")
    first, last = max(low, float(swept.values.min())), min(high, float(swept.values.max()))
    if first < last:
        panel.axvspan(first, last, color=GREY, alpha=0.1, lw=0)
    panel.plot(swept.values, 100 * found.distance, "o-", color=sequential()(0.1), markersize=3, linewidth=1.2)
    label_axes(panel, swept.name, "% from the first forecast")
    panel.set_title("distance from the first   grey: training range", fontsize=NORMAL, loc="left", pad=3)


def _map(figure: SubFigure, found: SweepPicture, values: np.ndarray, title: str) -> None:
    """Values over both parameters, the training ranges as a frame."""
    up, across = found.varied
    panel = figure.subplots()
    plane = values.reshape(len(up.values), len(across.values))
    scale = scale_of(plane)
    draw_mesh(panel, across.places, up.places, plane, scale)
    (left, right), (bottom, top) = across.ends, up.ends
    panel.add_patch(Rectangle((left, bottom), right - left, top - bottom, fill=False, linewidth=1.2, linestyle=":"))
    panel.set_xlim(*edges(across.places)[[0, -1]])
    panel.set_ylim(*edges(up.places)[[0, -1]])
    label_axes(panel, across.label, up.label)
    panel.set_title(title, fontsize=NORMAL, loc="left", pad=3)
    add_colour_bar(figure, [panel], scale, "")

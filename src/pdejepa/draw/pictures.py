"""Draw a trajectory as one picture.

    draw_trajectory(data.read("test", 0), "p.png")
    animate_trajectory(data.read("test", 0), "p.gif")

1-D: a space-time image and profiles at a few times.  2-D: frames in a row, one row per channel.  Every channel
has one colour scale for all its frames; grids are drawn at their true coordinates, non-uniform ones too.  Equal
data give equal bytes with the same version of Matplotlib.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pdejepa.core.errors import UsageError
from pdejepa.core.files import write_aside
from pdejepa.draw.animation import animate_trajectory
from pdejepa.draw.colours import scale_of, sequential
from pdejepa.draw.panels import (
    NORMAL,
    SMALL,
    add_colour_bar,
    add_titles,
    draw_mesh,
    draw_plane,
    flatten_to_plane,
    frame_label,
    label_axes,
    mark_observed,
    new_figure,
    pick_frames,
    span,
    time_label,
)

if TYPE_CHECKING:
    from pdejepa.draw.trajectory import Trajectory

__all__ = ["animate_trajectory", "draw", "draw_trajectory"]

N_PANELS, N_PROFILES = 7, 5
FORMATS = {".png": "png", ".pdf": "pdf", ".svg": "svg", ".jpg": "jpg", ".jpeg": "jpg", ".webp": "webp"}
# Nothing of the machine or the hour goes into the file.
METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    "svg": {"Date": None, "Creator": None},
}


def draw_trajectory(trajectory: Trajectory, path: str | os.PathLike[str], title: str | None = None) -> None:
    """Write a picture of the trajectory; the format follows the suffix (png, pdf, svg, jpg, webp)."""
    save(lambda: draw(trajectory, title), path)


def save(make: Callable[[], Figure], path: str | os.PathLike[str]) -> None:
    """Write the figure that `make` draws; a name of no known format is refused before anything is drawn."""
    kind = FORMATS.get(Path(path).suffix.lower())
    if kind is None:
        known = ", ".join(FORMATS)
        raise UsageError(f"Pictures are written as {known}; got {Path(path).name!r}. Give --out such a name.")
    figure = make()
    with write_aside(path) as temporary:
        figure.savefig(temporary, format=kind, metadata=METADATA.get(kind), bbox_inches="tight", pad_inches=0.06)


def draw(trajectory: Trajectory, title: str | None = None) -> Figure:
    """The picture as a Matplotlib figure."""
    fields, axes, names, note = flatten_to_plane(trajectory)
    make = _line_picture if len(axes) == 1 else _plane_picture
    figure = make(trajectory, fields, axes, names)
    add_titles(figure, trajectory, title, note)
    return figure


def _line_picture(trajectory: Trajectory, fields: np.ndarray, axes: list[np.ndarray], names: list[str]) -> Figure:
    """One row per channel: space-time image on the left, profiles on the right."""
    n_channels = fields.shape[1]
    figure = new_figure(9.0, 0.6 + 2.7 * n_channels, "constrained")
    panels = figure.subplots(n_channels, 2, squeeze=False, width_ratios=(1.15, 1.0))
    for channel, name in enumerate(trajectory.field_names):
        image, lines = panels[channel]
        values = fields[:, channel]  # (T,N)
        scale = scale_of(values)
        draw_mesh(image, axes[0], trajectory.times, values, scale)
        mark_observed(image, trajectory.times, trajectory.n_observed)
        label_axes(image, names[0], "time")
        add_colour_bar(figure, image, scale, name, pad=0.02, aspect=25)
        band = None if trajectory.band is None else trajectory.band[:, channel]
        _profiles(lines, trajectory.times, axes[0], values, band, trajectory.is_promised)
        label_axes(lines, names[0], name)
    return figure


def _profiles(
    panel: Axes, times: np.ndarray, x: np.ndarray, values: np.ndarray, band: np.ndarray | None, is_promised: bool
) -> None:
    """A few frames as curves, from dark (early) to light (late), and with different dashes for grey prints.

    A calibrated band is filled; where it promises nothing, only its edges are drawn, dashed.
    """
    dashes = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
    chosen = pick_frames(len(values), N_PROFILES)
    for number, i in enumerate(chosen):
        colour = sequential()(0.88 * number / max(len(chosen) - 1, 1))
        style = dashes[number % len(dashes)]
        label = time_label(times[i], times)
        panel.plot(x, values[i], color=colour, linestyle=style, linewidth=1.4, label=label)
        if band is not None and band[i] > 0:
            low, high = values[i] - band[i], values[i] + band[i]
            if is_promised:
                panel.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
            else:
                panel.plot(x, np.stack((low, high), 1), color=colour, linestyle="--", linewidth=0.6)
    span(panel, x)
    panel.grid(color="#dddddd", linewidth=0.5)
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "borderaxespad": 0.2}
    panel.legend(fontsize=SMALL, frameon=False, ncols=len(chosen), handlelength=1.8, columnspacing=1.0, **place)


def _plane_picture(trajectory: Trajectory, fields: np.ndarray, axes: list[np.ndarray], names: list[str]) -> Figure:
    """One row per channel: frames from left to right, one colour bar per row."""
    n_channels, chosen = fields.shape[1], pick_frames(len(fields), N_PANELS)
    figure = new_figure(1.45 * len(chosen) + 0.9, 0.9 + 1.42 * n_channels, "compressed")
    panels = figure.subplots(n_channels, len(chosen), squeeze=False)
    for channel, name in enumerate(trajectory.field_names):
        scale = scale_of(fields[:, channel])
        for place, i in enumerate(chosen):
            panel = panels[channel][place]
            draw_plane(panel, axes, fields[i, channel], scale)
            if channel == 0:
                told = frame_label(i, trajectory.times, trajectory.n_observed)
                panel.set_title(told.replace(", ", "\n"), fontsize=NORMAL, pad=3)
        panels[channel][0].set_ylabel(names[1], fontsize=NORMAL, rotation=0, labelpad=6)
        add_colour_bar(figure, list(panels[channel]), scale, name, pad=0.01, aspect=16)
    for panel in panels[-1]:
        panel.set_xlabel(names[0], fontsize=NORMAL, labelpad=1)
    return figure

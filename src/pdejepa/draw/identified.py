"""How far parameters are off that were found from frames: one panel per parameter, every case a dot.

Frames along, errors in per cent of the training range up, logarithmic; colours tell the noise, filled dots the cases
inside the training range, rings those outside.  Short lines are medians.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from pdejepa.draw import pictures
from pdejepa.draw.error_curves import COLOURS
from pdejepa.draw.panels import NORMAL, SMALL, label_axes, new_figure

N_COLUMNS = 4
LEAST = 1e-3  # per cent: smaller errors are drawn there


@dataclass(frozen=True)
class Dots:
    """Errors in per cent of one noise, number of frames and split."""

    noise: float
    frames: str
    is_ood: bool
    errors: tuple[float, ...]


def draw_identified(panels: Mapping[str, Sequence[Dots]], path: str | os.PathLike[str]) -> None:
    """Write the picture; the format follows the suffix."""
    pictures.save(lambda: identified_picture(panels), path)


def identified_picture(panels: Mapping[str, Sequence[Dots]]) -> Figure:
    """The picture as a Matplotlib figure."""
    n_columns = max(1, min(N_COLUMNS, len(panels)))
    n_lines = max(1, -(-len(panels) // n_columns))
    figure = new_figure(max(4.4, 3.0 * n_columns), 0.3 + 2.7 * n_lines, "constrained")
    places = figure.subplots(n_lines, n_columns, squeeze=False).flatten()
    noises = sorted({dots.noise for own in panels.values() for dots in own})
    for place, (title, own) in zip(places, panels.items(), strict=False):
        _panel(place, title, own, noises)
    for place in places[len(panels) :]:
        place.set_axis_off()
    return figure


def _panel(panel: Axes, title: str, own: Sequence[Dots], noises: Sequence[float]) -> None:
    frames = list(dict.fromkeys(dots.frames for dots in own))
    for dots in own:
        colour, step = COLOURS[noises.index(dots.noise) % len(COLOURS)], 0.22
        place = frames.index(dots.frames) + step * (noises.index(dots.noise) - (len(noises) - 1) / 2)
        place += 0.07 if dots.is_ood else -0.03
        values = np.maximum(dots.errors, LEAST)
        face = "none" if dots.is_ood else colour
        panel.plot(np.full(len(values), place), values, "o", color=colour, markerfacecolor=face, markersize=3.5)
        panel.plot([place - 0.06, place + 0.06], [np.median(values)] * 2, color=colour, linewidth=1.6)
    for number, noise in enumerate(noises):
        label = f"{100 * noise:g} % noise"
        panel.plot([], [], "o", color=COLOURS[number % len(COLOURS)], markersize=3.5, label=label)
    panel.set_yscale("log")
    low, high = np.log10(panel.get_ylim())
    panel.set_ylim(10.0 ** np.floor(low), 10.0 ** np.ceil(high))  # whole decades, so that there are numbers to read
    panel.set_xticks(range(len(frames)), frames)
    panel.set_xlim(-0.6, len(frames) - 0.4)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.grid(axis="y", color="#dddddd", linewidth=0.5)
    panel.set_title(title, fontsize=NORMAL, pad=3)
    label_axes(panel, "frames after the first", "error, % of the training range")
    panel.legend(fontsize=SMALL, frameon=False, loc="best", handletextpad=0.1)

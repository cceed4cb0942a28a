"""Truth, forecast and their difference, as one picture or an animation.

    draw_comparison(truth, forecast, "f.png")          animate_comparison(truth, forecast, "f.gif")

1-D: space-time images of truth, forecast and forecast - truth, and the relative error of every frame as a curve.
2-D: frames from left to right; rows truth, forecast and |difference|, with the error of each frame below it.
Truth and forecast share one scale per channel, that of the truth; the scale of differences is finer, and their title
says how many times.  Observed frames (`forecast.n_observed`) are marked.  Both are trajectories with equal frames.
Letters: T frames, C channels.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from pdejepa.draw import animation, pictures
from pdejepa.draw.animation import Update, scale_range
from pdejepa.draw.colours import Scale, scale_of, sequential
from pdejepa.draw.panels import (
    GREY,
    NORMAL,
    SMALL,
    add_colour_bar,
    add_titles,
    draw_mesh,
    draw_plane,
    flatten_to_plane,
    frame_label,
    label_axes,
    magnified,
    mark_observed,
    new_figure,
    pick_frames,
    span,
)

if TYPE_CHECKING:
    from pdejepa.draw.trajectory import Trajectory

N_COLUMNS = 7
ROWS = ("truth", "forecast", "|error|")


def draw_comparison(
    truth: Trajectory, forecast: Trajectory, path: str | os.PathLike[str], title: str | None = None
) -> None:
    """Write the picture; the format follows the suffix (png, pdf, svg, jpg, webp)."""
    pictures.save(lambda: compare(truth, forecast, title), path)


def compare(truth: Trajectory, forecast: Trajectory, title: str | None = None) -> Figure:
    """The picture as a Matplotlib figure."""
    true, axes, names, note = flatten_to_plane(truth)
    guess = flatten_to_plane(forecast)[0]
    make = _line_picture if len(axes) == 1 else _plane_picture
    figure = make(truth, true, guess, axes, names, forecast.n_observed)
    add_titles(figure, truth, title, note)
    return figure


def frame_errors(true: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """|guess - true| / |true| of every frame of one channel (T,*grid), (T,); NaN where the truth is zero."""
    flat, other = (values.reshape(len(values), -1).astype(np.float64) for values in (true, guess))
    norm = np.linalg.norm(flat, axis=1)
    return np.where(norm > 0, np.linalg.norm(other - flat, axis=1) / np.where(norm > 0, norm, 1.0), np.nan)


def _error_scale(error: np.ndarray) -> Scale:
    return scale_of(np.abs(error))


# ---- pictures ------------------------------------------------------------------------------------------------
def _line_picture(
    truth: Trajectory, true: np.ndarray, guess: np.ndarray, axes: list[np.ndarray], names: list[str], n_observed: int
) -> Figure:
    """One row per channel: truth, forecast, difference, error over time."""
    n_channels = true.shape[1]
    figure = new_figure(12.0, 0.6 + 2.6 * n_channels, "constrained")
    panels = figure.subplots(n_channels, 4, squeeze=False)
    for channel, name in enumerate(truth.field_names):
        scale = scale_of(true[:, channel])
        error = guess[:, channel] - true[:, channel]
        images = ((true[:, channel], scale), (guess[:, channel], scale), (error, scale_of(error)))
        titles = (f"truth, {name}", f"forecast, {name}", magnified("(forecast - truth)", scale_of(error), scale))
        for place, (values, colours) in enumerate(images):
            panel = panels[channel][place]
            draw_mesh(panel, axes[0], truth.times, values, colours)
            label_axes(panel, names[0], "time" if place == 0 else "")
            panel.set_title(titles[place], fontsize=NORMAL, pad=3)
            if place > 0:
                mark_observed(panel, truth.times, n_observed)
        add_colour_bar(figure, list(panels[channel][:2]), scale, "", pad=0.01, aspect=25)
        add_colour_bar(figure, panels[channel][2], scale_of(error), "", pad=0.02, aspect=25)
        _error_curve(panels[channel][3], truth.times, frame_errors(true[:, channel], guess[:, channel]))
    return figure


def _error_curve(panel: Any, times: np.ndarray, errors: np.ndarray) -> None:
    panel.plot(times, 100 * errors, color=sequential()(0.1), linewidth=1.6, marker=".", markersize=4)
    span(panel, times)
    panel.set_ylim(bottom=0)
    panel.grid(color="#dddddd", linewidth=0.5)
    panel.set_title("relative error of each frame, %", fontsize=NORMAL, pad=3)
    label_axes(panel, "time", "")


def _plane_picture(
    truth: Trajectory, true: np.ndarray, guess: np.ndarray, axes: list[np.ndarray], names: list[str], n_observed: int
) -> Figure:
    """Three rows per channel, a few frames from left to right."""
    n_channels, chosen = true.shape[1], pick_frames(len(true), N_COLUMNS)
    figure = new_figure(1.45 * len(chosen) + 1.2, 0.9 + 1.5 * 3 * n_channels, "compressed")
    panels = figure.subplots(3 * n_channels, len(chosen), squeeze=False)
    for channel, name in enumerate(truth.field_names):
        rows = panels[3 * channel : 3 * channel + 3]
        images, scales = _planes(true[:, channel], guess[:, channel])
        errors = frame_errors(true[:, channel], guess[:, channel])
        labels = (*ROWS[:2], magnified(ROWS[2], scales[2], scales[0]))
        for row, values, scale, label in zip(rows, images, scales, labels, strict=True):
            for place, i in enumerate(chosen):
                draw_plane(row[place], axes, values[i], scale)
            row[0].set_ylabel(label, fontsize=NORMAL)
        for place, i in enumerate(chosen):
            if channel == 0:
                told = frame_label(i, truth.times, n_observed)
                rows[0][place].set_title(told.replace(", ", "\n"), fontsize=NORMAL, pad=3)
            told = f"{100 * errors[i]:.3g}%" if np.isfinite(errors[i]) else "-"
            rows[2][place].set_xlabel(told, fontsize=SMALL, labelpad=2)
        add_colour_bar(figure, [*rows[0], *rows[1]], scales[0], name, pad=0.01, aspect=32)
        add_colour_bar(figure, list(rows[2]), scales[2], "error", pad=0.01, aspect=16)
    return figure


def _planes(true: np.ndarray, guess: np.ndarray) -> tuple[tuple[np.ndarray, ...], tuple[Scale, ...]]:
    """Truth, forecast and |difference| of one channel (T,N,M), each with its scale."""
    error = np.abs(guess - true)
    scale = scale_of(true)
    return (true, guess, error), (scale, scale, _error_scale(error))


# ---- animations ----------------------------------------------------------------------------------------------
def animate_comparison(
    truth: Trajectory, forecast: Trajectory, path: str | os.PathLike[str], title: str | None = None
) -> None:
    """Write an animation of at most about 3 MB; the suffix is .gif or .webp."""
    animation.save(lambda dpi, n_frames: film(truth, forecast, title, dpi, n_frames), path)


def film(
    truth: Trajectory, forecast: Trajectory, title: str | None, dpi: int, n_frames: int
) -> Iterator[Image.Image]:
    """At most n_frames frames as RGB images of equal size; the figure is laid out once and only its data change."""
    true, axes, names, note = flatten_to_plane(truth)
    guess = flatten_to_plane(forecast)[0]
    make = _line_film if len(axes) == 1 else _plane_film
    figure, update = make(truth, true, guess, axes, names, forecast.n_observed)
    figure.set_dpi(dpi)
    add_titles(figure, truth, title, note)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for i in pick_frames(len(true), n_frames):
        update(i)
        figure.canvas.draw()
        rgba = np.asarray(figure.canvas.buffer_rgba())  # type: ignore[attr-defined]
        yield Image.fromarray(rgba[..., :3].copy())


def _line_film(
    truth: Trajectory, true: np.ndarray, guess: np.ndarray, axes: list[np.ndarray], names: list[str], n_observed: int
) -> tuple[Figure, Update]:
    """One panel per channel: the truth as a broad grey curve, the forecast as a thin dark one over it."""
    n_channels = true.shape[1]
    figure = new_figure(5.6, 0.6 + 2.5 * n_channels, "constrained")
    panels = figure.subplots(n_channels, 1, squeeze=False)[:, 0]
    curves = []
    for channel, (panel, name) in enumerate(zip(panels, truth.field_names, strict=True)):
        grey = panel.plot(axes[0], true[0, channel], color="#b0b0b0", linewidth=3.5, label="truth")[0]
        dark = panel.plot(axes[0], guess[0, channel], color=sequential()(0.1), linewidth=1.4, label="forecast")[0]
        curves.append((grey, dark))
        span(panel, axes[0])
        low, high = scale_range(true[:, channel])
        margin = 0.15 * (high - low) or 0.5
        panel.set_ylim(low - margin, high + margin)
        panel.grid(color="#dddddd", linewidth=0.5)
        label_axes(panel, names[0], name)
    panels[0].legend(fontsize=SMALL, frameon=False, loc="upper right", ncols=2)
    clock = panels[0].set_title("t", fontsize=NORMAL, color=GREY, loc="right")

    def update(i: int) -> None:
        clock.set_text(frame_label(i, truth.times, n_observed))
        for channel, (grey, dark) in enumerate(curves):
            grey.set_ydata(true[i, channel])
            dark.set_ydata(guess[i, channel])

    return figure, update


def _plane_film(
    truth: Trajectory, true: np.ndarray, guess: np.ndarray, axes: list[np.ndarray], names: list[str], n_observed: int
) -> tuple[Figure, Update]:
    """Truth, forecast and |difference|, channels beside each other: two in a line of six panels."""
    n_channels = true.shape[1]
    across = min(2, n_channels)
    n_lines, (width, height) = -(-n_channels // across), (9.0, 3.0) if across == 1 else (11.5, 2.0)
    figure = new_figure(width, 0.5 + height * n_lines, "compressed")
    panels = figure.subplots(n_lines, 3 * across, squeeze=False).reshape(-1, 3)  # a line per channel
    meshes = []
    for channel, name in enumerate(truth.field_names):
        images, scales = _planes(true[:, channel], guess[:, channel])
        labels = (*ROWS[:2], magnified(ROWS[2], scales[2], scales[0]))
        for panel, values, scale, label in zip(panels[channel], images, scales, labels, strict=True):
            meshes.append((draw_plane(panel, axes, values[0], scale), values))
            panel.set_xlabel(f"{label}, {name}", fontsize=NORMAL, labelpad=2)
        add_colour_bar(figure, list(panels[channel][:2]), scales[0], "", n_ticks=3, pad=0.01, aspect=22)
        add_colour_bar(figure, panels[channel][2], scales[2], "", n_ticks=3, pad=0.02, aspect=22)
    clock = panels[0][0].set_title("t", fontsize=NORMAL, color=GREY, loc="left", pad=3)

    def update(i: int) -> None:
        clock.set_text(frame_label(i, truth.times, n_observed))
        for mesh, values in meshes:
            mesh.set_array(values[i].T)

    return figure, update

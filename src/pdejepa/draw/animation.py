"""Animate a trajectory as GIF or WebP, with Pillow alone.

1-D: the profile moves over the faint first frame, axes fixed.  2-D: one panel per channel.  Scales are those of the
whole trajectory, so colours mean the same in every frame.  A file that turns out too large is made again with fewer
pixels, then with fewer frames.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from pdejepa.core.errors import UsageError
from pdejepa.core.files import write_aside
from pdejepa.draw.colours import Scale, scale_of, sequential
from pdejepa.draw.panels import (
    GREY,
    NORMAL,
    add_colour_bar,
    add_titles,
    draw_plane,
    flatten_to_plane,
    frame_label,
    label_axes,
    new_figure,
    pick_frames,
    span,
)

if TYPE_CHECKING:
    from pdejepa.draw.trajectory import Trajectory

FORMATS = {".gif": "GIF", ".webp": "WEBP"}
MAX_FRAMES = 120
MAX_BYTES = 3_000_000
SECONDS = 5.0  # about how long a loop lasts
ATTEMPTS = ((110, MAX_FRAMES), (80, MAX_FRAMES), (80, 60), (60, 40), (45, 30))  # (dots per inch, frames)

Update = Callable[[int], None]  # show frame i


def animate_trajectory(trajectory: Trajectory, path: str | os.PathLike[str], title: str | None = None) -> None:
    """Write an animation of at most about 3 MB that repeats for ever; the suffix is .gif or .webp."""
    save(lambda dpi, n_frames: _frames(trajectory, title, dpi, n_frames), path)


def save(
    make: Callable[[int, int], Iterator[Image.Image]],
    path: str | os.PathLike[str],
    attempts: Sequence[tuple[int, int]] = ATTEMPTS,
) -> None:
    """Write the images that `make(dots per inch, frames)` yields, fewer and smaller ones until they fit."""
    kind = FORMATS.get(Path(path).suffix.lower())
    if kind is None:
        raise UsageError(f"Animations are written as .gif or .webp; got {Path(path).name!r}.")
    encoded = b""
    for dpi, n_frames in attempts:
        encoded = _encode(list(make(dpi, n_frames)), kind)
        if len(encoded) <= MAX_BYTES:
            break
    with write_aside(path) as temporary:
        temporary.write_bytes(encoded)


def _frames(trajectory: Trajectory, title: str | None, dpi: int, n_frames: int) -> Iterator[Image.Image]:
    """The frames as RGB images of equal size; the figure is laid out once and only its data change."""
    fields, axes, names, note = flatten_to_plane(trajectory)
    make = _line_figure if len(axes) == 1 else _plane_figure
    figure, update = make(trajectory, fields, axes, names)
    figure.set_dpi(dpi)
    add_titles(figure, trajectory, title, note)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # keep the layout of the first frame
    for i in pick_frames(len(fields), n_frames):
        update(i)
        figure.canvas.draw()
        rgba = np.asarray(figure.canvas.buffer_rgba())  # type: ignore[attr-defined]
        yield Image.fromarray(rgba[..., :3].copy())


def _line_figure(
    trajectory: Trajectory, fields: np.ndarray, axes: list[np.ndarray], names: list[str]
) -> tuple[Figure, Update]:
    n_channels = fields.shape[1]
    figure = new_figure(5.6, 0.6 + 2.4 * n_channels, "constrained")
    panels = figure.subplots(n_channels, 1, squeeze=False)[:, 0]
    curves = []
    for channel, (panel, name) in enumerate(zip(panels, trajectory.field_names, strict=True)):
        values = fields[:, channel]  # (T,N)
        panel.plot(axes[0], values[0], color="#bbbbbb", linewidth=1.0)
        curves += panel.plot(axes[0], values[0], color=sequential()(0.1), linewidth=1.8)
        span(panel, axes[0])
        panel.set_ylim(*_room(scale_range(values)))
        panel.grid(color="#dddddd", linewidth=0.5)
        label_axes(panel, names[0], name)
    clock = panels[0].set_title("t", fontsize=NORMAL, color=GREY, loc="right")

    def update(i: int) -> None:
        clock.set_text(frame_label(i, trajectory.times, trajectory.n_observed))
        for channel, curve in enumerate(curves):
            curve.set_ydata(fields[i, channel])

    return figure, update


def _plane_figure(
    trajectory: Trajectory, fields: np.ndarray, axes: list[np.ndarray], names: list[str]
) -> tuple[Figure, Update]:
    n_channels = fields.shape[1]
    figure = new_figure(3.7 * n_channels, 3.7, "compressed")
    panels = figure.subplots(1, n_channels, squeeze=False)[0]
    meshes = []
    for channel, (panel, name) in enumerate(zip(panels, trajectory.field_names, strict=True)):
        scale: Scale = scale_of(fields[:, channel])
        meshes.append(draw_plane(panel, axes, fields[0, channel], scale))
        panel.set_xlabel(names[0], fontsize=NORMAL, labelpad=1)
        panel.set_ylabel(names[1], fontsize=NORMAL, rotation=0, labelpad=6)
        add_colour_bar(figure, panel, scale, name, pad=0.02, aspect=22)
    clock = panels[0].set_title("t", fontsize=NORMAL, color=GREY, loc="left", pad=3)

    def update(i: int) -> None:
        clock.set_text(frame_label(i, trajectory.times, trajectory.n_observed))
        for channel, mesh in enumerate(meshes):
            mesh.set_array(fields[i, channel].T)

    return figure, update


def scale_range(values: np.ndarray) -> tuple[float, float]:
    """Smallest and largest finite value."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def _room(ends: tuple[float, float]) -> tuple[float, float]:
    margin = 0.06 * (ends[1] - ends[0]) or 0.5
    return ends[0] - margin, ends[1] + margin


def _encode(frames: list[Image.Image], kind: str) -> bytes:
    pause = int(np.clip(1000 * SECONDS / len(frames), 40, 250))
    pauses = [*[pause] * (len(frames) - 1), max(pause, 700)]  # rest a moment on the last frame
    stream = io.BytesIO()
    if kind == "GIF":
        palette = _common_palette(frames)
        frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
        options = {"optimize": False, "disposal": 1}
    else:
        options = {"quality": 85, "method": 4}
    frames[0].save(stream, kind, save_all=True, append_images=frames[1:], duration=pauses, loop=0, **options)
    return stream.getvalue()


def _common_palette(frames: list[Image.Image]) -> Image.Image:
    """One palette for all frames, so that a value keeps its colour: from a strip of first, middle and last frame."""
    chosen = [frames[i] for i in pick_frames(len(frames), 5)]
    width, height = chosen[0].size
    strip = Image.new("RGB", (width, height * len(chosen)))
    for place, frame in enumerate(chosen):
        strip.paste(frame, (0, place * height))
    return strip.quantize(256, method=Image.Quantize.MEDIANCUT)

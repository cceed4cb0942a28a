"""The pictures of `make_systems`: a trajectory of train and one of every out-of-distribution split.

1-D systems as space-time images beside each other, 2-D systems as rows of frames with one colour scale.  PNG with a
palette of the colour map and some greys, so that nine of them weigh little; all have the same width, and turbulence,
which has too much detail, gets fewer colours.
"""

from __future__ import annotations

import io

import numpy as np
import torch
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from PIL import Image

from pdejepa import systems
from pdejepa.draw.colours import scale_of
from pdejepa.draw.panels import (
    NORMAL,
    SMALL,
    add_colour_bar,
    draw_mesh,
    draw_plane,
    label_axes,
    new_figure,
    pick_frames,
    time_label,
)
from pdejepa.systems import System

N_COLUMNS, DPI = 6, 90
N_COLOURS, N_GREYS = (96, 48, 32, 24, 16, 12), 16
MAX_BYTES = 80_000  # of one picture
N_TOLD = 3  # parameters in a title
N_TIMES = 60  # of Wave-B, whose pulse crosses the domain many times
INDEX = {"combined": 2}  # trajectories that show what the system can do; 0 of the others


def shown(system: System) -> list[tuple[str, int]]:
    """Split and index of what is drawn; without an out-of-distribution split, two trajectories of train."""
    index = INDEX.get(system.name, 0)
    beyond = [(split.name, index) for split in system.splits if split.is_ood]
    return [("train", index), *(beyond or [("train", index + 3)])]


def drawn(name: str) -> System:
    """The system as it is simulated for the picture: flows on coarser grids."""
    return systems.get(name).at_size("tiny")


def picture(name: str) -> bytes:
    """The PNG of a system."""
    system = drawn(name)
    times = system.raw_times if system.ndim == 1 else system.times
    times = times[:N_TIMES] if name == "wave_b" else times
    rows = []
    for split, index in shown(system):
        u0, xi = system.sample(split, index)
        fields = system.solve(u0, xi, times=times).as_subclass(torch.Tensor)[0, :, 0].float().numpy()  # (T,*grid)
        values = [f"{p.symbol} = {value:.3g}" for p, value in zip(system.parameters, xi[0].tolist(), strict=True)]
        rows.append((f"{split} {index}: {', '.join(values[:N_TOLD])}", fields))
    figure, colours = (_lines if system.ndim == 1 else _planes)(system, times.numpy(), rows)
    return _png(figure, colours)


Rows = list[tuple[str, np.ndarray]]


def _lines(system: System, times: np.ndarray, rows: Rows) -> tuple[Figure, Colormap]:
    figure = new_figure(7.6, 2.5, "constrained")
    panels = figure.subplots(1, len(rows), sharey=True)
    is_signed = scale_of(np.stack([fields for _, fields in rows])).is_signed
    for panel, (title, fields) in zip(panels, rows, strict=True):
        scale = scale_of(np.stack((fields, -fields)) if is_signed else fields)  # one colour map for both panels
        draw_mesh(panel, system.axes["x"].numpy(), times, fields, scale)
        panel.set_title(_short(title), fontsize=NORMAL, loc="left", pad=3)
        label_axes(panel, "x", "t" if panel is panels[0] else "")
        add_colour_bar(figure, panel, scale, "", pad=0.02, aspect=22)
    return figure, scale.colours


def _planes(system: System, times: np.ndarray, rows: Rows) -> tuple[Figure, Colormap]:
    chosen = pick_frames(len(times), N_COLUMNS)
    axes = [axis.numpy() for axis in system.axes.values()]
    figure = new_figure(7.6, 0.2 + 1.42 * len(rows), "compressed")
    scale = scale_of(np.stack([fields for _, fields in rows]))
    panels = figure.subplots(len(rows), len(chosen), squeeze=False)
    for line, (title, fields) in zip(panels, rows, strict=True):
        for panel, i in zip(line, chosen, strict=True):
            draw_plane(panel, axes, fields[i], scale)
            panel.set_xlabel(time_label(times[i], times), fontsize=SMALL, labelpad=2)
        line[0].set_title(" ", fontsize=NORMAL, pad=3)  # keeps the place of a title that reaches over other panels
        line[0].text(0, 1.05, title, fontsize=NORMAL, transform=line[0].transAxes).set_in_layout(False)
    add_colour_bar(figure, list(panels.flat), scale, system.fields[0], pad=0.01, aspect=26)
    return figure, scale.colours


def _short(title: str, n_letters: int = 46) -> str:
    return title if len(title) <= n_letters else title[: title.rindex(",", 0, n_letters)] + ", ..."


def _png(figure: Figure, colours: Colormap) -> bytes:
    raw = io.BytesIO()
    figure.savefig(raw, format="png", dpi=DPI, metadata={"Software": None}, bbox_inches="tight", pad_inches=0.05)
    image = Image.open(raw).convert("RGB")
    for n_colours in N_COLOURS:
        packed = io.BytesIO()
        palette = _palette(colours, n_colours)
        image.quantize(palette=palette, dither=Image.Dither.NONE).save(packed, format="png", optimize=True)
        if len(packed.getvalue()) <= MAX_BYTES:
            return packed.getvalue()
    raise ValueError(f"the picture has {len(packed.getvalue()):,} bytes; {MAX_BYTES:,} are allowed")


def _palette(colours: Colormap, n_colours: int) -> Image.Image:
    """The colours of the map in equal steps, and greys for letters and lines."""
    levels = np.concatenate((colours(np.linspace(0, 1, n_colours))[:, :3], _greys()))
    image = Image.new("P", (1, 1))
    image.putpalette((255 * levels).round().astype(np.uint8).tobytes())
    return image


def _greys() -> np.ndarray:
    return np.repeat(np.linspace(0, 1, N_GREYS)[:, None], 3, 1)

"""The panels that pictures and animations are made of, drawn with Matplotlib's object interface.

No pyplot and no style sheet: every figure carries its own canvas, so drawing leaves no trace in the process.
Letters: T frames, C channels, *grid spatial axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from pdejepa.draw.colours import Scale

if TYPE_CHECKING:
    from pdejepa.draw.trajectory import Trajectory

DPI = 150
SMALL, NORMAL, LARGE = 7.5, 9.0, 10.5  # font sizes in points
GREY = "#555555"


def new_figure(width: float, height: float, layout: Literal["constrained", "compressed"] | None) -> Figure:
    figure = Figure(figsize=(width, height), dpi=DPI, layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def add_titles(figure: Figure, trajectory: Trajectory, title: str | None, note: str) -> None:
    """A head line and, below it, the parameters; the layout keeps clear of both."""
    head, parameters = titles(trajectory, title, int(13 * figure.get_size_inches()[0]))
    inch = 1 / figure.get_size_inches()[1]
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(rect=(0.0, 0.0, 1.0, 1 - (0.5 if parameters else 0.3) * inch))  # type: ignore[call-arg]
    place: dict[str, Any] = {"ha": "left", "va": "top"}
    figure.text(0.01, 1 - 0.06 * inch, head + note, fontsize=LARGE, fontweight="bold", **place)
    figure.text(0.01, 1 - 0.27 * inch, parameters, fontsize=NORMAL, color=GREY, **place)


def titles(trajectory: Trajectory, title: str | None, n_letters: int = 100) -> tuple[str, str]:
    """Head line and parameters, of many as many as fit into a line of n_letters."""
    head = title or f"{trajectory.system_name}, {trajectory.split} {trajectory.index}".strip(", ")
    told = [f"{name} = {value:.4g}" for name, value in trajectory.xi.items()]
    kept = len(told)
    while kept > 1 and len(",  ".join(told[:kept])) > n_letters - 12 * (kept < len(told)):
        kept -= 1
    listed = ",  ".join(told[:kept])
    return head, f"{listed}  and {len(told) - kept} more" if kept < len(told) else listed


def pick_frames(n_frames: int, n: int) -> list[int]:
    """At most n frames, equally spaced, the first and the last among them."""
    return [int(i) for i in np.unique(np.linspace(0, n_frames - 1, min(n, n_frames)).round().astype(int))]


def time_label(t: float, times: np.ndarray) -> str:
    """`t = 1.03` with as many digits as neighbouring frames need."""
    gap = float(np.min(np.diff(times))) if len(times) > 1 else abs(t) or 1.0
    digits = int(np.clip(np.ceil(-np.log10(max(gap, 1e-12)) + 0.7), 0, 8))
    return f"t = {t:.{digits}f}"


def frame_label(i: int, times: np.ndarray, n_observed: int) -> str:
    """`t = 0.0, observed` for a frame that the model was given, `t = 1.2` for one that it forecast."""
    return time_label(times[i], times) + (", observed" if i < n_observed else "")


def mark_observed(panel: Axes, times: np.ndarray, n_observed: int) -> None:
    """In a space-time image: a line above the observed frames, and the word."""
    if not 0 < n_observed < len(times):
        return
    end = float(edges(times)[n_observed])
    panel.axhline(end, color="black", linewidth=0.8, linestyle=":")
    place: dict[str, Any] = {"ha": "right", "va": "bottom", "textcoords": "offset points", "xytext": (-2, 1)}
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.8}
    panel.annotate("observed below", (1.0, end), xycoords=("axes fraction", "data"), fontsize=SMALL, bbox=box, **place)


def flatten_to_plane(trajectory: Trajectory) -> tuple[np.ndarray, list[np.ndarray], list[str], str]:
    """Fields (T,C,N) or (T,C,N,M), their axes and names; a volume is cut at the middle of its further axes."""
    fields, names = trajectory.fields, list(trajectory.axes)
    axes = [axis[0] if axis.ndim == 2 else axis for axis in trajectory.axes.values()]
    note = ""
    while fields.ndim > 4:
        middle = fields.shape[-1] // 2
        note += f", cut at {names[-1]} = {axes[-1][middle]:.3g}"
        fields, axes, names = fields[..., middle], axes[:-1], names[:-1]
    return fields, axes, names, note


def edges(points: np.ndarray) -> np.ndarray:
    """Cell edges half way between neighbouring points, so that a cell stands at its true coordinate."""
    points = np.asarray(points, dtype=np.float64)
    if len(points) == 1:
        return np.array([points[0] - 0.5, points[0] + 0.5])
    middle = (points[1:] + points[:-1]) / 2
    first, last = 2 * points[0] - middle[0], 2 * points[-1] - middle[-1]
    return np.concatenate(([first], middle, [last]))


def span(panel: Axes, points: np.ndarray) -> None:
    """Let a panel of curves reach from the first to the last point."""
    if len(points) > 1:
        panel.set_xlim(float(points.min()), float(points.max()))


def draw_mesh(panel: Axes, across: np.ndarray, up: np.ndarray, values: np.ndarray, scale: Scale) -> Any:
    """An image of values (len(up), len(across)) at the true coordinates."""
    return panel.pcolormesh(edges(across), edges(up), values, cmap=scale.colours, norm=scale.norm, rasterized=True)


def draw_plane(panel: Axes, axes: Sequence[np.ndarray], frame: np.ndarray, scale: Scale) -> Any:
    """One 2-D frame (N,M), first axis to the right, in true proportions without ticks."""
    mesh = draw_mesh(panel, axes[0], axes[1], frame.T, scale)
    width, height = (abs(float(axis[-1] - axis[0])) for axis in axes)
    ratio = height / width if width > 0 else 1.0
    panel.set_aspect("equal" if 0.2 <= ratio <= 5 else "auto")
    panel.set_xticks([])
    panel.set_yticks([])
    _quiet(panel)
    return mesh


def magnified(label: str, shown: Scale, base: Scale) -> str:
    """`label`, and how many times finer its colours are than those of the fields beside it."""
    sizes = [(scale.high - scale.low) / (2 if scale.is_signed else 1) for scale in (base, shown)]
    factor = sizes[0] / max(sizes[1], 1e-300)
    return f"{label} x {float(f'{factor:.1g}'):,.0f}" if 1.5 <= factor < 1e6 else label


def add_colour_bar(
    figure: Figure | SubFigure, panels: Any, scale: Scale, label: str, n_ticks: int = 0, **options: Any
) -> None:
    mappable = ScalarMappable(norm=scale.norm, cmap=scale.colours)
    bar = figure.colorbar(mappable, ax=panels, extend=scale.extend, **options)
    if n_ticks:
        bar.ax.yaxis.set_major_locator(MaxNLocator(n_ticks, min_n_ticks=2))
    bar.ax.tick_params(labelsize=SMALL, length=2, width=0.5)
    bar.ax.yaxis.offsetText.set_fontsize(SMALL)
    bar.formatter.set_powerlimits((-3, 4))  # type: ignore[attr-defined]
    bar.outline.set_linewidth(0.5)
    if len(label) <= 3:
        bar.set_label(label, size=NORMAL, rotation=0, labelpad=8, va="center")
    else:
        bar.set_label(label, size=NORMAL)


def label_axes(panel: Axes, across: str, up: str) -> None:
    panel.set_xlabel(across, fontsize=NORMAL)
    is_short = len(up) <= 3
    panel.set_ylabel(up, fontsize=NORMAL, rotation=0 if is_short else 90, labelpad=8 if is_short else 3)
    panel.tick_params(labelsize=SMALL, length=2, width=0.5)
    _quiet(panel)


def _quiet(panel: Axes) -> None:
    for spine in panel.spines.values():
        spine.set_linewidth(0.5)
        spine.set_color(GREY)

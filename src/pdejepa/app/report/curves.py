"""The curves of a run as small charts, narrow enough for a phone, drawn in the colours of `draw`.

    loss_chart       loss and scores of one stage on a logarithmic axis, the learning rate below
    health_charts    what `method.health` measured of the encoder, with the limits of its verdict
    angle_charts     how trajectories turn, in the field and in the latent space
    error_chart      errors of the latent ODE         frame_chart     error of every forecast frame, per split

Each returns charts, or none where there is nothing to draw; a chart becomes SVG without any trace of the machine.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from pdejepa.app.report.content import Plain, StageContent, number, series
from pdejepa.draw.colours import diverging, sequential
from pdejepa.draw.panels import GREY, NORMAL, SMALL, label_axes, new_figure
from pdejepa.method.health import HIGH_COSINE, HIGH_PLACE, LOW_READ, LOW_SPREAD, low_rank

WIDTH, HEIGHT = 4.3, 2.7  # inches
MAX_POINTS = 1500  # of one curve; of more, the extremes of equal pieces are drawn
SMALLEST = 1e-30  # that a logarithmic axis shows
LOWEST_R2 = -0.5  # read-outs below are drawn there, as triangles
DARK, WARM, PALE = sequential()(0.08), diverging()(0.86), sequential()(0.62)
Values = Sequence[float] | np.ndarray
Points = tuple[Values, Values]


@dataclass(frozen=True)
class Chart:
    """A figure, what it shows in words for those who cannot see it, and what to look for."""

    figure: Figure
    alt: str
    caption: str = ""


@dataclass(frozen=True)
class Curve:
    label: str
    points: Points
    colour: Any
    style: str = "-"
    marker: str = "o"


@dataclass(frozen=True)
class Limit:
    """A level that means something: where a verdict turns."""

    level: float
    label: str


def svg(figure: Figure) -> bytes:
    """The figure as SVG; equal figures give equal bytes."""
    stream = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "pdejepa", "svg.fonttype": "path"}):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return stream.getvalue()


# ---- stages ----------------------------------------------------------------------------------------------------
def loss_chart(stage: StageContent, score_label: str) -> Chart | None:
    """Loss and scores above, learning rate below; None if nothing was logged."""
    loss, scores, rate = series(stage.train, "loss"), series(stage.valid, "score"), series(stage.train, "lr")
    if not loss[0] and not scores[0]:
        return None
    figure = new_figure(WIDTH, HEIGHT + 0.6, "constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    above.plot(*_thinned(loss), color=DARK, linewidth=1.3, label="loss, train")
    if scores[0]:
        above.plot(*scores, color=WARM, linestyle="none", marker="o", markersize=5, label=score_label)
    kept = [value for step, value in zip(*scores, strict=True) if step == stage.selected]
    if kept:
        above.plot([stage.selected], kept[-1:], **_ring(), label="kept")
    below.plot(*_thinned(rate), color=GREY, linewidth=1.1)
    _finish(above, "", "", is_log=True)
    _finish(below, "steps", "learning\nrate")
    below.set_ylim(bottom=0)
    below.yaxis.set_major_locator(MaxNLocator(2))
    below.yaxis.label.set_fontsize(SMALL)
    below.yaxis.offsetText.set_fontsize(SMALL)
    below.ticklabel_format(axis="y", scilimits=(-2, 3))
    _legend(above)
    return Chart(figure, f"Loss and scores of {stage.name} over steps, with the learning rate below.")


def _ring() -> dict[str, Any]:
    return {"linestyle": "none", "marker": "o", "markersize": 10, "markerfacecolor": "none", "markeredgecolor": WARM}


# ---- health of the encoder -------------------------------------------------------------------------------------
SPREAD = "Near 1 and steady is good; towards 0 is a collapse."
RANK = "Directions that the features fill, of {}. Tens are good; near 1 is a collapse."
COSINE = "Between features. Well below 1 is good."
SHARES = "What tells features apart. A large share of the place alone is bad."
READ = (
    "What a linear map reads from the features; 1 is perfect, 0 guesses the mean. "
    f"Triangles: below {LOWEST_R2:g}."
)


def health_charts(valid: Sequence[Plain], width: int | None) -> list[Chart]:
    """Spread, rank, cosine, shares of the variance and read-outs over the training of the encoder."""
    of = lambda key: series(valid, key)  # noqa: E731
    spread = [Curve("channel spread", of("channel_std"), DARK)]
    rank = [Curve("rank", of("rank"), DARK), Curve("participation ratio", of("participation"), WARM, "--", "s")]
    cosine = [Curve("mean cosine", of("cosine"), DARK)]
    shares = [
        Curve("trajectory", of("share_trajectory"), DARK),
        Curve("place", of("share_place"), WARM, "--", "s"),
        Curve("time", of("share_time"), PALE, ":", "^"),
    ]
    fewest = [Limit(low_rank(width), "limit for rank")] if width else []
    charts = (
        _chart("channel spread", spread, SPREAD, bottom=0.0, limits=[Limit(LOW_SPREAD, "collapse below")]),
        _chart("directions used", rank, RANK.format(width or "all"), bottom=0.0, limits=fewest),
        _chart("mean cosine", cosine, COSINE, bottom=None, limits=[Limit(HIGH_COSINE, "collapse above")]),
        _chart("share of the variance", shares, SHARES, bottom=0.0, limits=[Limit(HIGH_PLACE, "limit for place")]),
        _chart("linear read-out, R²", _readouts(valid), READ, limits=[Limit(LOW_READ, "limit for the field")]),
    )
    return [chart for chart in charts if chart is not None]


def _readouts(valid: Sequence[Plain]) -> list[Curve]:
    """R^2 of field and parameters; of few trajectories it can be far below zero, which would hide everything else."""
    curves = []
    for key, label, colour, style in (("read_u", "field u", DARK, "-"), ("read_xi", "parameters xi", WARM, "--")):
        steps, values = series(valid, key)
        pairs = list(zip(steps, values, strict=True))
        good = [(step, value) for step, value in pairs if value >= LOWEST_R2]
        low = [step for step, value in pairs if value < LOWEST_R2]
        curves.append(Curve(label, (steps, [max(value, LOWEST_R2) for value in values]), colour, style, ""))
        curves.append(Curve("", ([step for step, _ in good], [value for _, value in good]), colour, "none"))
        curves.append(Curve("", (low, [LOWEST_R2] * len(low)), colour, "none", "v"))
    return curves


# ---- geometry, dynamics, errors --------------------------------------------------------------------------------
def angle_charts(valid: Sequence[Plain]) -> list[Chart]:
    """Turning angles of u, z and q, and how far those of z and q are from those of u."""
    of = lambda key: series(valid, key)  # noqa: E731
    angles = [
        Curve("physical u", of("angle_u"), GREY, ":", ""),
        Curve("z, before", of("angle_z"), WARM, "--", "s"),
        Curve("q, after", of("angle_q"), DARK),
    ]
    errors = [
        Curve("z, before", of("angle_error_z"), WARM, "--", "s"),
        Curve("q, after", of("angle_error_q"), DARK),
    ]
    charts = (
        _chart("turning angle, degrees", angles, "q nearer to the dotted line than z is good."),
        _chart("angle error, degrees", errors, "q below z is good.", bottom=0.0),
    )
    return [chart for chart in charts if chart is not None]


def error_chart(valid: Sequence[Plain]) -> Chart | None:
    """One-step and rollout error of the latent ODE."""
    curves = [
        Curve("whole rollout", series(valid, "rollout_error"), WARM, "--", "s"),
        Curve("one step", series(valid, "step_error"), DARK),
    ]
    return _chart("error / size of q", curves, "Both should fall.", is_log=True)


def frame_chart(errors: dict[str, Plain]) -> Chart | None:
    """Mean error of every forecast frame, for the splits whose record has it."""
    curves = []
    for place, (split, told) in enumerate(list(errors.items())[:6]):
        values = told.get("per_frame")
        found = [number(value) for value in values[:1000]] if isinstance(values, list) else []
        points = [(i + 1.0, 100 * value) for i, value in enumerate(found) if value is not None]
        across, up = [x for x, _ in points], [y for _, y in points]
        colour, style = (DARK, WARM, PALE)[place % 3], ("-", "--", ":")[place % 3]
        curves.append(Curve(_plain(split), (across, up), colour, style, "osv^"[place % 4]))
    return _chart("error of the frame, %", curves, "Mean over trajectories.", "forecast frame", bottom=0.0)


# ---- pieces ----------------------------------------------------------------------------------------------------
def _chart(
    label: str,
    curves: Sequence[Curve],
    caption: str = "",
    across: str = "steps",
    is_log: bool = False,
    bottom: float | None = None,
    limits: Sequence[Limit] = (),
) -> Chart | None:
    """Curves in one panel; None if none of them has a point."""
    drawn = [curve for curve in curves if len(curve.points[0])]
    if not drawn:
        return None
    figure = new_figure(WIDTH, HEIGHT, "constrained")
    panel = figure.subplots()
    for curve in drawn:
        look = {"color": curve.colour, "linestyle": curve.style, "marker": curve.marker, "markersize": 4}
        panel.plot(*_thinned(curve.points), linewidth=1.5, label=curve.label or "_nolegend_", **look)
    for limit in limits:
        panel.axhline(limit.level, color="#9aa3ad", linewidth=0.9, linestyle=(0, (2, 2)))
        place: dict[str, Any] = {"textcoords": "offset points", "xytext": (3, 2), "fontsize": SMALL, "color": GREY}
        panel.annotate(limit.label, (0.0, limit.level), xycoords=panel.get_yaxis_transform(), **place)
    _finish(panel, across, "", is_log)
    if bottom is not None:
        panel.set_ylim(bottom, 1.12 * max(panel.dataLim.y1, 1e-9))
    panel.set_title(label, fontsize=NORMAL, loc="left", pad=4 if len(drawn) == 1 else 18)
    if len(drawn) > 1:
        _legend(panel)
    told = ", ".join(curve.label for curve in drawn if curve.label)
    return Chart(figure, f"{label} over {across}: {told}.", caption)


def _finish(panel: Axes, across: str, up: str, is_log: bool = False) -> None:
    """Labels, a grid, room at the ends, and numbers that people write."""
    label_axes(panel, across, up)
    panel.grid(color="#e3e6ea", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.margins(y=0.12)
    panel.set_xlim(0.0, 1.04 * max(panel.dataLim.x1, 1.0))
    panel.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 2.5, 5, 10]))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    values = np.concatenate([np.asarray(line.get_ydata(), float) for line in panel.get_lines()])
    if is_log and values.size and values.min() > SMALLEST:
        _logarithmic(panel, float(np.log10(values.max() / values.min())))


def _logarithmic(panel: Axes, decades: float) -> None:
    panel.set_yscale("log")
    subs: tuple[float, ...] = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if decades < 1 else (1.0, 2.0, 5.0)
    panel.yaxis.set_major_locator(LogLocator(subs=subs if decades < 2.5 else (1.0,), numticks=8))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())


def _legend(panel: Axes) -> None:
    """Above the panel, where no curve is."""
    handles, labels = panel.get_legend_handles_labels()
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (-0.02, 0.99), "borderaxespad": 0.1}
    shape: dict[str, Any] = {"handlelength": 1.7, "columnspacing": 1.1, "handletextpad": 0.5}
    panel.legend(handles, labels, fontsize=SMALL + 0.5, frameon=False, ncols=4, **place, **shape)


def _thinned(points: Points) -> Points:
    """At most about MAX_POINTS points: of every piece of a longer curve its lowest and its highest."""
    steps, values = (np.asarray(part, float) for part in points)
    if len(steps) <= MAX_POINTS:
        return steps, values
    kept: set[int] = {0, len(steps) - 1}
    for piece in np.array_split(np.arange(len(steps)), MAX_POINTS // 2):
        kept |= {int(piece[values[piece].argmin()]), int(piece[values[piece].argmax()])}
    chosen = sorted(kept)
    return steps[chosen], values[chosen]


def _plain(name: str) -> str:
    """A name from a file as a label: what Matplotlib would read as a formula, hide or not find is replaced."""
    letters = (letter if letter.isascii() and letter.isalnum() else " " for letter in name)
    return " ".join("".join(letters).split())[:24] or "?"

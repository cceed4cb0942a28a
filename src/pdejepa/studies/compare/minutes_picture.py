"""Error against minutes of training: one line per solver, one panel per comparison.

    line        the error on valid along the way, as the solver scores itself while it trains
    dot         the error on test, when the training was done; dots of several budgets are joined
    diamond     a classical solver: the error on test, after its fit

Names of lines stand in a column at the right, in the order of their errors.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from pdejepa.core.files import write_aside
from pdejepa.draw.error_curves import COLOURS, DASHES, MIN_RATIO
from pdejepa.draw.panels import GREY, NORMAL, SMALL, new_figure
from pdejepa.evaluate.record import METHOD
from pdejepa.studies.compare.comparison_records import SolverRecord
from pdejepa.studies.compare.cost_picture import panels

ORANGE, BLACK = COLOURS[1], "#222222"
OTHERS = tuple(colour for colour in (*COLOURS, "#56b4e9", "#777777") if colour != ORANGE)
WIDTH, HEIGHT, COLUMN = 7.4, 4.9, 1.9  # inches of a panel with its column, and of the column
N_COLUMNS = 2  # panels in a line of the picture
GAP = 0.046  # between two names of the column, as a part of its height
LEAST = 1 / 60  # seconds of a fit that can be told from none on the axis
BESIDE = "beside"  # mark of names that stand beside their diamonds
PLACES = (((6, 0), "left"), ((-6, 0), "right"), ((0, 9), "center"), ((0, -9), "center"), ((0, 18), "center"))
WORSE = 20  # a name on a name, than a name on a point of a line
Row = list[SolverRecord]  # all records of one solver, seed and amplitude in a panel


def plot(records: Sequence[SolverRecord], path: Path) -> None:
    """Write the picture."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    found = panels(list(records))
    n_columns = min(N_COLUMNS, len(found))
    n_lines = -(-len(found) // n_columns)
    width, height = WIDTH * n_columns, HEIGHT * n_lines
    figure = new_figure(width, height, None)
    figure.subplots_adjust(
        left=0.6 / width, right=1 - COLUMN / width, bottom=0.5 / height, top=1 - 0.7 / height,
        wspace=(COLUMN + 0.6) / (WIDTH - COLUMN - 0.6), hspace=1.0 / (HEIGHT - 1.0),
    )  # fmt: skip
    figure.text(
        0.1 / width, 1 - 0.08 / height,
        "    ".join(_legend(records)),
        fontsize=SMALL + 0.5, color=GREY, va="top",
    )  # fmt: skip
    places = figure.subplots(n_lines, n_columns, squeeze=False).flatten()
    for axis, (heading, tables) in zip(places, found.items(), strict=False):
        axis.set(xscale="log", yscale="log", xlabel="minutes of training", ylabel="relative L2 error, %")
        axis.set_title(textwrap.fill(heading, 66), fontsize=NORMAL, loc="left")
        for at in (axis.xaxis, axis.yaxis):
            at.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            at.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            at.set_minor_formatter(NullFormatter())
        axis.tick_params(labelsize=SMALL)
        axis.grid(color="#dddddd", linewidth=0.5)
        axis.spines[["top", "right"]].set_visible(False)
        _panel(axis, [record for table in tables for record in table])
    for axis in places[len(found) :]:
        axis.set_axis_off()
    figure.draw_without_rendering()  # before it nobody knows where things are
    for axis in places[: len(found)]:
        _part(axis)
    with write_aside(path) as temporary:
        figure.savefig(temporary, format="png")


def _panel(axis: Any, records: Row) -> None:
    """Lines of those that are trained, diamonds of those that are fitted at once."""
    from matplotlib.patheffects import withStroke

    rows: dict[tuple[Any, ...], Row] = {}
    for record in sorted(records, key=lambda r: r.seconds):
        rows.setdefault((*record.row, record.seed), []).append(record)
    styles = cycle([(colour, dash) for dash in DASHES for colour in OTHERS])
    ends = []
    for row in rows.values():
        last = row[-1]
        label = f"{last.row_title}, seed {last.seed}" if _has_seeds(last, rows) else last.row_title
        if last.is_at_once:
            x, y = _minutes(last.seconds), _percent(last.error("test"))
            axis.plot(x, y, "D", color=BLACK, markersize=4.5, zorder=4)
            beside = axis.annotate(label, (x, y), (6, 0), textcoords="offset points", fontsize=SMALL, va="center")
            beside.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
            beside.set_gid(BESIDE)
            continue
        colour, dash = (ORANGE, "-") if last.solver == METHOD else next(styles)
        _line(axis, row, colour, dash)
        ends.append((_minutes(last.seconds), _percent(last.error("test")), label, colour))
    axis.margins(x=0.06, y=0.08)
    axis.autoscale_view()
    low, high = axis.get_xlim()
    if high < MIN_RATIO * low:
        axis.set_xlim(1.1 * high / MIN_RATIO, 1.1 * high)
    _names(axis, ends)


def _line(axis: Any, row: Row, colour: str, dash: str) -> None:
    """One solver: its scores along the way, and its dots."""
    style = {"color": colour, "linestyle": dash, "linewidth": 2.2 if colour == ORANGE else 1.2, "zorder": 3}
    for record in row:
        known = [one for one in record.curve if one.score]
        axis.plot([_minutes(one.seconds) for one in known], [_percent(one.score) for one in known], **style)
    dots = [(_minutes(r.seconds), _percent(r.error("test"))) for r in row]
    joined = "-" if len(dots) > 1 else ""
    mark = {"marker": "o", "markersize": 5, "color": colour, "linestyle": joined, "linewidth": 0.6, "zorder": 4}
    axis.plot(*zip(*dots, strict=True), **mark)


def _names(axis: Any, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Names of lines in a column, each as near to the height of its dot as the others allow."""
    ends = sorted(ends, key=lambda end: end[1])
    heights = [float(axis.transAxes.inverted().transform(axis.transData.transform(end[:2]))[1]) for end in ends]
    for (x, y, label, colour), height in zip(ends, spread(heights, GAP), strict=True):
        weight = "bold" if colour == ORANGE else "normal"
        leader = {"arrowstyle": "-", "color": "#bbbbbb", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
        axis.annotate("", (x, y), (1.025, height), textcoords="axes fraction", arrowprops=leader)
        style = {"fontsize": SMALL, "color": colour, "weight": weight, "va": "center"}
        axis.text(1.03, height, label, transform=axis.transAxes, **style)


def _part(axis: Any) -> None:
    """Names beside their diamonds, where they lie on as little else as possible."""
    from matplotlib.transforms import Bbox

    ends = [axis.transData.transform(line.get_xydata()) for line in axis.lines]  # (K,2) each
    marks = [Bbox.from_bounds(x - 3, y - 3, 6, 6) for line in ends for x, y in line]
    names = [name.get_window_extent() for name in axis.texts if name.get_text() and name.get_gid() != BESIDE]
    for name in (name for name in axis.texts if name.get_gid() == BESIDE):
        boxes = [_at(name, place) for place in PLACES]
        crowd = [sum(map(box.overlaps, marks)) + WORSE * sum(map(box.overlaps, names)) for box in boxes]
        names.append(_at(name, PLACES[crowd.index(min(crowd))]))


def _at(name: Any, place: tuple[tuple[float, float], str]) -> Any:
    """The box that a name fills at a place, where it is now."""
    name.set_position(place[0])
    name.set_horizontalalignment(place[1])
    return name.get_window_extent()


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Rising heights moved as little as it takes to stand `gap` apart.

    Names that would meet form a block around the mean of the heights that they want.
    """
    blocks: list[list[float]] = []
    for height in heights:
        blocks.append([height])
        while len(blocks) > 1 and _bottom(blocks[-1], gap) - _top(blocks[-2], gap) < gap:
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    return [_bottom(block, gap) + gap * k for block in blocks for k in range(len(block))]


def _bottom(block: Sequence[float], gap: float) -> float:
    return sum(block) / len(block) - gap * (len(block) - 1) / 2


def _top(block: Sequence[float], gap: float) -> float:
    return sum(block) / len(block) + gap * (len(block) - 1) / 2


def _legend(records: Sequence[SolverRecord]) -> list[str]:
    """What the marks mean that are in the picture."""
    marks = {
        "line: error on valid while it trains": any(record.curve for record in records if not record.is_at_once),
        "dot: error on test": not all(record.is_at_once for record in records),
        "diamond: a classical solver, error on test": any(record.is_at_once for record in records),
    }
    return [word for word, is_there in marks.items() if is_there]


def _has_seeds(record: SolverRecord, rows: dict[tuple[Any, ...], Row]) -> bool:
    return sum(key[:-1] == record.row for key in rows) > 1


def _minutes(seconds: float) -> float:
    return max(seconds, LEAST) / 60


def _percent(error: float | None) -> float:
    return 100 * (error or float("nan"))

"""Error against cost, one panel per comparison; tables that differ in their budgets only share it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from pdejepa.core.files import write_aside
from pdejepa.studies.compare.comparison_records import SolverRecord, named
from pdejepa.studies.compare.comparison_tables import groups, title
from pdejepa.studies.compare.paper_claims import METHOD

BESIDE = ((5, 4), (5, -10), (5, 13), (-36, -14), (5, -19), (-40, 6))  # where a name may stand, in points from its own
MARKERS = "oD^sv"  # of the first budget, the second, ..
RADIUS = 3.0  # of a point, in pixels of a figure before it is saved


def plot(records: list[SolverRecord], path: Path) -> None:
    """Error against the cost of a forecast, one panel per comparison; filled: test, hollow: ood."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    found = panels(records)
    figure, axes = plt.subplots(1, len(found), figsize=(7 * len(found), 5), squeeze=False, layout="constrained")
    for axis, (heading, tables) in zip(axes[0], found.items(), strict=True):
        for table, marker in zip(tables, cycle(MARKERS)):
            for r in table:
                _point(axis, r, table, marker)
            axis.loglog([], [], marker, color="k", label=table[0].budget.words() if len(tables) > 1 else "test")
        axis.loglog([], [], "o", color="k", fillstyle="none", label="hollow: ood" if len(tables) > 1 else "ood")
        axis.legend(fontsize=8)
        axis.margins(x=0.2, y=0.1)  # room for names
        axis.set_title(textwrap.fill(heading, 60), fontsize=10)
        axis.set(xlabel="milliseconds per forecast, with adaptation", ylabel="relative L2 error")
        axis.grid(alpha=0.3, which="both", lw=0.4)
    figure.draw_without_rendering()  # before it nobody knows where things are
    for axis in axes[0]:
        _part(axis.texts, _points(axis))
    with write_aside(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130)
    plt.close(figure)


def panels(records: list[SolverRecord]) -> dict[str, list[list[SolverRecord]]]:
    """Tables that belong into one panel, by its title."""
    found: dict[str, list[list[SolverRecord]]] = {}
    for table in groups(records).values():
        found.setdefault(title(table[0], ""), []).append(table)
    budgets = [" and ".join(table[0].budget.words() for table in tables) for tables in found.values()]
    return {title(tables[0][0], words): tables for tables, words in zip(found.values(), budgets, strict=True)}


def _points(axis: Any) -> list[Any]:
    """The boxes that the points of a panel fill."""
    from matplotlib.transforms import Bbox

    lines = [line for line in axis.lines if line.get_marker() in MARKERS and len(line.get_xdata())]
    places = [axis.transData.transform((line.get_xdata()[0], line.get_ydata()[0])) for line in lines]
    return [Bbox.from_bounds(x - RADIUS, y - RADIUS, 2 * RADIUS, 2 * RADIUS) for x, y in places]


def _part(names: Sequence[Any], points: Sequence[Any]) -> None:
    """Move names that lie on one another, or on points, to other places beside their own."""
    placed = list(points)
    for name in names:
        for place in BESIDE:
            name.set_position(place)
            box = name.get_window_extent()
            if not any(box.overlaps(other) for other in placed):
                break
        placed.append(box)


def _point(axis: Any, r: SolverRecord, table: list[SolverRecord], marker: str) -> None:
    """One record: its error inside, named, and a line to the one outside."""
    colour = "#D55E00" if r.solver == METHOD else "#0072B2"
    cost = r.ms_per_forecast + (r.ms_per_adaptation if r.adapts == "gradient" else 0.0)
    test, ood = r.error("test"), r.error("ood")
    axis.loglog(cost, test, marker, color=colour)
    axis.annotate(named(r, table), (cost, test), textcoords="offset points", xytext=BESIDE[0], fontsize=8)
    if ood is not None:
        axis.loglog([cost, cost], [test, ood], "-", color=colour, lw=0.7, alpha=0.5)
        axis.loglog(cost, ood, marker, color=colour, fillstyle="none")

"""The dataset card of imported data: what was imported, from where, how it was cut, and how to use it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pdejepa.core.tables import Code, Table
from pdejepa.core.text import escaped_markdown, human_bytes
from pdejepa.data.generate.stats import CLIP, clipped
from pdejepa.data.importing.import_plan import ImportPlan


def card_text(plan: ImportPlan, stats: Mapping[str, Mapping[str, float]], n_bytes: int) -> str:
    """README.md of the data set; equal plans give equal text."""
    parts = (_head(plan, n_bytes), _splits(plan), _parameters(plan), _grid(plan), _statistics(stats), _use())
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(plan: ImportPlan, n_bytes: int) -> str:
    problem = plan.problem
    rows = [(Code(one["name"]), human_bytes(one["bytes"]), Code(one["sha256"][:16])) for one in plan.sources]
    notes = [escaped_markdown(note) for note in plan.found.notes]
    if plan.left_out:
        notes.append(f"{len(plan.left_out):,} trajectories repeated an earlier one and were left out.")
    return (
        f"# {escaped_markdown(problem.title)}\n\n    {problem.equation}\n\n"
        f"![{escaped_markdown(problem.title)}: test 0](picture.png)\n\n"
        f"{sum(plan.partition.counts.values()):,} trajectories, {human_bytes(n_bytes)}, **imported, not solved**: the "
        "values are as their makers left them. `CERTIFICATE.md` says what was checked.\n\n"
        f"{Table(('source', 'size', 'SHA-256'), rows).markdown()}" + "".join(f"\n\n{note}" for note in notes)
    )


def _splits(plan: ImportPlan) -> str:
    environment = plan.partition.environment
    rows = [
        (Code(split), f"{len(own):,}", f"{len(np.unique(environment[list(own)])):,}")
        for split, own in plan.partition.rows.items()
    ]
    return (
        f"## Splits\n\n{Table(('split', 'trajectories', 'sets of parameters'), rows).markdown()}\n\n"
        f"Cut {plan.partition.how}. Out of distribution: {plan.partition.ood}."
    )


def _parameters(plan: ImportPlan) -> str:
    names = plan.problem.parameter_names
    if not names:
        return "## Parameters\n\nNone: all trajectories obey the same equation."
    rows = [
        (
            Code(name),
            *(f"{plan.xi[list(own), j].min():.6g} .. {plan.xi[list(own), j].max():.6g}"
              for own in plan.partition.rows.values()),
        )
        for j, name in enumerate(names)
    ]  # fmt: skip
    return f"## Parameters\n\n{Table(('name', *plan.partition.rows), rows).markdown()}"


def _grid(plan: ImportPlan) -> str:
    problem, times = plan.problem, plan.problem.times
    lines = [
        f"- `{a.name}`: {len(a.points)} points from {a.points[0]:.6g} to {a.points[-1]:.6g}, {a.boundary}"
        for a in problem.axes
    ]
    lines.append(f"- time: {len(times)} frames from {times[0]:.6g} to {times[-1]:.6g}, {problem.frame_gap:.6g} apart")
    lines.append(f"- fields: {', '.join(f'`{name}`' for name in problem.fields)}, float32, (trajectory, time, *grid)")
    return "## Grid and frames\n\n" + "\n".join(lines)


def _statistics(stats: Mapping[str, Mapping[str, float]]) -> str:
    rows = [(Code(name), *(f"{stats[kind][name]:.6g}" for kind in stats)) for name in stats["mean"]]
    text = f"## Statistics of train (`stats.yaml`)\n\n{Table(('field', *stats), rows).markdown()}"
    small = clipped(stats)
    if small:
        text += f"\n\nThe official normalisers never divide by less than {CLIP:g}: more than {', '.join(small)}."
    return text


def _use() -> str:
    return (
        "## Use\n\n```bash\npdejepa train . --recipe tiny --out RUN\npdejepa evaluate RUN\n"
        "pdejepa forecast RUN --from test:0 --compare\n```\n\n```python\n"
        "from pdejepa.data.well.reader import Dataset\n\n"
        'data = Dataset.open(".")\ndata.fields("test"), data.xi("test")   # (n, T, C, *grid), (n, P)\n```'
    )

"""Tables of what `pdejepa identify` found: one row per parameter, split and number of frames, noises side by side."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from pdejepa.core.tables import Table
from pdejepa.studies.identify.identification import Case, Cell, Identification, errors

HEAD = ("system", "parameter", "split", "frames", "cases")
NOTES = (
    "error: |estimate - truth| in per cent of the training range, on a logarithmic scale where the search has one: "
    "median (worst) of the cases. Noise: of every value, relative to the rms of its channel.",
    "solver: the median of the same optimiser, on the same frames, with the true solver in place of the forecast.",
    "in 50 %, in 90 %: how many of the true values lie in those intervals, all noises together. unsure: outcomes "
    '"not identifiable"; border: outcomes "at the border of the training range", of this or another parameter.',
    "seconds: of the processor for one call of `infer`, the calibration of its intervals included; median.",
)


def table(records: Sequence[Identification]) -> Table:
    """All records."""
    noises = sorted({cell.noise for record in records for cell in record.cells})
    told = [f"{100 * noise:g} % noise" for noise in noises]
    head = (*HEAD, *(f"error, {one}" for one in told), "solver", "in 50 %", "in 90 %", "unsure", "border", "seconds")
    rows = [row for record in records for row in _rows(record, noises)]
    machines = ", ".join(dict.fromkeys(record.machine for record in records))
    return Table(head, rows, (*NOTES, f"Measured on {machines}."))


def markdown(records: Sequence[Identification]) -> str:
    found = table(records)
    return "\n".join((Table(found.head, found.rows).markdown(), "", *(f"- {note}" for note in found.notes)))


def _rows(record: Identification, noises: Sequence[float]) -> Iterable[list[str]]:
    keys = dict.fromkeys((cell.split, cell.frames) for cell in record.cells if cell.cases)
    for name in record.ranges:
        for split, frames in sorted(keys, key=lambda key: (key[0] != "test", key[0], key[1] or 10**6)):
            cells = [record.cell(split, noise, frames) for noise in noises]
            yield [record.system, name, split, str(frames or "all"), *_cells(record, name, cells)]


def _cells(record: Identification, name: str, cells: Sequence[Cell]) -> list[str]:
    scale = record.ranges[name]
    cases = [case for cell in cells for case in cell.cases]
    counts = {str(len(cell.cases)) for cell in cells}
    solver = [_median(errors(cell, name, scale, with_solver=True)) for cell in cells]
    outcomes = [case.found[name].outcome for case in cases]
    return [
        next(iter(counts)) if len(counts) == 1 else " / ".join(str(len(cell.cases)) for cell in cells),
        *(_median_and_worst(errors(cell, name, scale)) for cell in cells),
        " / ".join(solver) if any(one != "-" for one in solver) else "-",
        _held(cases, name, 0),
        _held(cases, name, 1),
        f"{outcomes.count('not identifiable')} of {len(outcomes)}",
        f"{sum('border' in outcome for outcome in outcomes)} of {len(outcomes)}",
        _seconds(cases),
    ]


def _held(cases: Sequence[Case], name: str, level: int) -> str:
    """How many intervals hold the truth."""
    found = [case.found[name] for case in cases if case.found[name].low]
    held = sum(one.low[level] <= one.truth <= one.high[level] for one in found)
    return f"{held} of {len(found)}" if found else "-"


def _seconds(cases: Sequence[Case]) -> str:
    """Of calls that calibrated; parameters of certain values need none."""
    own = [case.seconds for case in cases if case.calibrated] or [case.seconds for case in cases]
    return f"{statistics.median(own):.2g}" if own else "-"


def _median(values: Sequence[float]) -> str:
    return _percent(statistics.median(values)) if values else "-"


def _median_and_worst(values: Sequence[float]) -> str:
    return f"{_median(values)} ({_percent(max(values))})" if values else "-"


def _percent(share: float) -> str:
    """Two digits, never with an exponent."""
    value = 100 * share
    return f"{value:.0f}" if value >= 10 or value == 0 else f"{value:.2g}" if value >= 1e-3 else "< 0.001"

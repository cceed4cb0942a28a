"""The error of every forecast frame, from records to the curves that `pdejepa.draw.error_curves` draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pdejepa.draw.error_curves import Curve
from pdejepa.evaluate.against_paper import Row

REMARKS = {
    "wave_b": "all boundary pairs are trained: test only\npeaks: a pulse cancels its reflection at a wall (t = 12, 60)"
}


def error_panels(rows: Sequence[Row]) -> dict[str, list[Curve]]:
    """One panel per system, by its title; systems without recorded errors per frame are left out.

    Where models were polished, only those are shown; where some were trained on the benchmark's own grid, only those.
    """
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        if any(_errors(row, split) is not None for split in row.splits):
            channels = ", mean over channels" if len(row.system.fields) > 1 else ""
            remark = f"\n{REMARKS[row.system.name]}" if row.system.name in REMARKS else ""
            grouped.setdefault(f"{row.system.title}{channels}{remark}", []).append(row)
    return {title: _curves(_shown(own)) for title, own in grouped.items()}


def _shown(rows: Sequence[Row]) -> Sequence[Row]:
    own_grid = [row for row in rows if not row.records[0].switches] or rows
    return [row for row in own_grid if row.records[0].polish] or own_grid


def _curves(rows: Sequence[Row]) -> list[Curve]:
    splits = list(dict.fromkeys(split for row in rows for split in row.splits))
    has_several = len({row.recipe for row in rows}) > 1
    found = []
    for number, row in enumerate(rows):
        for split in row.splits:
            errors = _errors(row, split)
            if errors is not None:
                name = f"{split} (our split)" if row.is_ours(split) else split
                label = f"{name}, {row.recipe}, {row.kind}" if has_several else f"{name}, {row.kind}"
                found.append(Curve(label, _times(row, split), errors, splits.index(split), number))
    return found


def _times(row: Row, split: str) -> np.ndarray:
    """Times of the forecast frames, (n,)."""
    observed = next(record.observed_frames for record in row.records if split in record.errors)
    return row.system.times.numpy()[observed:]


def _errors(row: Row, split: str) -> np.ndarray | None:
    """(S,n); None if no record of the row tells an error for each of the system's forecast frames."""
    known = [record for record in row.records if split in record.errors]
    if not known:
        return None
    n = len(_times(row, split))
    lists = [record.errors[split].per_frame for record in known]
    errors = np.array([one for one in lists if len(one) == n], dtype=np.float64)  # None becomes NaN
    return None if errors.size == 0 or np.isnan(errors).all(0).any() else errors

"""What an import would do, as text for a terminal: axes, values, parameters, splits, a picture made of letters."""

from __future__ import annotations

import numpy as np

from pdejepa.core.text import printable
from pdejepa.data.importing.import_plan import ImportPlan
from pdejepa.data.importing.parts import Found
from pdejepa.data.importing.sniff import looks_periodic

SHADES = " .:-=+*#%@"
WIDTH, HEIGHT = 64, 12  # letters of the picture
N_LOOKED_AT = 8  # trajectories whose values are told
WORDS = {"n": "trajectories", "t": "frames", "c": "fields", "x": "points", "y": "points"}


def preview_found(found: Found) -> str:
    """What the files hold, as far as it is known without being told."""
    part = found.parts[0]
    lines = [f"{printable(str(part.path))}: {_shape(part.shape)}{_more(found)}"]
    for at, axis in enumerate(part.axes):
        n = found.n if axis == "n" else part.shape[at]
        lines.append(f"  axis {at}  {axis}  {n:,} {WORDS[axis]}")
    if found.is_one_to_a_file:
        lines.append(f"  one trajectory each, {found.n:,} of them")
    values = np.stack([found.row(row) for row in _spread(found.n, N_LOOKED_AT)])  # (n,T,C,*grid)
    for channel, name in enumerate(found.fields):
        own = values[:, :, channel]
        good = own[np.isfinite(own)].astype(np.float64)
        told = f"{good.min():.4g} to {good.max():.4g}, mean {good.mean():.4g}" if good.size else "no finite value"
        bad = ", with values that are NaN or infinite" if good.size < own.size else ""
        lines.append(f"  field {name}: {told}{bad} ({len(own)} trajectories looked at)")
    for name, column in found.columns.items():
        lines.append(f"  parameter {printable(name)}: {_range(column)} (from the files)")
    lines += [f"  {note}" for note in found.notes]
    return "\n".join((*lines, *picture(found, values[0, :, 0])))


def preview_plan(plan: ImportPlan) -> str:
    """What the files were taken for, and how they would be cut."""
    problem, found = plan.problem, plan.found
    lines = [f"Data set {problem.name} in {plan.request.out}:"]
    for axis in problem.axes:
        lines.append(f"  {axis.name} from {axis.points[0]:.6g} to {axis.points[-1]:.6g}, {axis.boundary}")
    times = problem.times
    lines.append(f"  t from {times[0]:.6g} to {times[-1]:.6g}, frames {problem.frame_gap:.6g} apart")
    for j, name in enumerate(problem.parameter_names):
        lines.append(f"  parameter {name}: {_range(plan.xi[:, j])}")
    if not problem.parameters:
        lines.append("  no parameters")
    counts = ", ".join(f"{split} {n:,}" for split, n in plan.partition.counts.items())
    lines += [f"  splits: {counts}", f"  cut {plan.partition.how}", f"  out of distribution: {plan.partition.ood}"]
    fitting = looks_periodic(found)
    for axis in problem.axes:
        if axis.boundary == "periodic" and axis.name not in fitting:
            lines.append(f"  Note: {axis.name} was said to be periodic, but its ends do not meet in trajectory 0.")
    return "\n".join(lines)


def picture(found: Found, values: np.ndarray) -> list[str]:
    """Field 0 of trajectory 0 (T,*grid): x to the right and time upwards, or first and last frame side by side."""
    good = values[np.isfinite(values)]
    low, high = (float(good.min()), float(good.max())) if good.size else (0.0, 1.0)
    values = np.where(np.isfinite(values), values, low)
    if values.ndim == 2:
        told, panels = "trajectory 0, x to the right, time upwards", [values[::-1]]
    else:
        told, panels = "first and last frame of trajectory 0", [values[0].T[::-1], values[-1].T[::-1]]
    drawn = [_shaded(panel, low, high, WIDTH // len(panels)) for panel in panels]
    lines = ["   ".join(parts) for parts in zip(*drawn, strict=True)]
    return ["", *(f"  |{line}|" for line in lines), f"  {found.fields[0]} of {told}"]


def _shaded(values: np.ndarray, low: float, high: float, width: int) -> list[str]:
    """A plane (rows,columns) in letters, dark to light from low to high."""
    rows, columns = (_spread(n, most) for n, most in zip(values.shape, (HEIGHT, width), strict=True))
    part = values[np.ix_(rows, columns)].astype(np.float64)
    level = ((part - low) / ((high - low) or 1.0) * (len(SHADES) - 1)).round().astype(int).clip(0, len(SHADES) - 1)
    return ["".join(SHADES[k] for k in row) for row in level]


def _spread(n: int, most: int) -> list[int]:
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int)).tolist()


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{n:,}" for n in shape)


def _more(found: Found) -> str:
    return f", and {len(found.parts) - 1:,} more files like it" if len(found.parts) > 1 else ""


def _range(column: np.ndarray) -> str:
    return f"{column.min():.6g} to {column.max():.6g}, {len(np.unique(column)):,} different values"

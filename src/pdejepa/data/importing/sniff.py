"""Look into files and find out what each axis is, which arrays are fields, and what else they hold.

    found = sniff(request, scratch, say)
    found.rows[3]              one trajectory, (T,C,*grid) float32
    found.columns, found.times, found.points      parameters, times and coordinates, where the files hold them

Letters: n trajectories, T frames, C channels, *grid spatial axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pdejepa.core.errors import DataError, UsageError, did_you_mean
from pdejepa.data.importing.hdf5_arrays import MAGIC, close_all, mapped
from pdejepa.data.importing.import_request import ImportRequest
from pdejepa.data.importing.known_layouts import recognised
from pdejepa.data.importing.lazy_arrays import Say, open_arrays
from pdejepa.data.importing.parameter_table import Columns
from pdejepa.data.importing.parts import SPACE, ArrayPart, Found, Part, PartArray

TIMES, STEP = ("t", "time", "times"), "dt"
MAX_CHANNELS = 8  # of an axis that is guessed to be channels
BLOCK = 16  # entries of an axis that are looked at
MIN_TRAJECTORIES, MIN_FRAMES, MIN_POINTS = 5, 4, 8
UNEVEN = 1e-3  # of a frame gap


def sniff(request: ImportRequest, scratch: Path, say: Say) -> Found:
    """Open the files and arrange them; DataError for what cannot be trajectories."""
    close_all()
    is_hdf5 = _are_hdf5(request.files)
    if is_hdf5 and request.paths is None:
        found = recognised(request.files)
        _check_recognised(request, found)
        return found
    if request.paths is not None and not is_hdf5:
        raise UsageError("--map names arrays of HDF5 files; the files given are none.")
    opened: list[Mapping[str, PartArray]] = [
        mapped(path, dict(request.paths or {})) if is_hdf5 else open_arrays(path, scratch, say)
        for path in request.files
    ]
    names = [_field_arrays(request, found, path) for path, found in zip(request.files, opened, strict=True)]
    arrays = [tuple(found[name] for name in own) for found, own in zip(opened, names, strict=True)]
    axes = request.axes or guess_axes(arrays[0], len(arrays))
    parts = tuple(ArrayPart(own, axes) for own in arrays)
    check_arrays(parts)
    n_frames, notes = _common_length(parts, request)
    others = [{key: found[key] for key in found if key not in own} for found, own in zip(opened, names, strict=True)]
    columns, times, points = _extras(others, parts, n_frames)
    fields = _channel_names(request, names[0], parts[0])
    found = Found(parts, fields, axes, n_frames, columns, times, points, notes)
    _check_sizes(found)
    return found


def _are_hdf5(files: Sequence[Path]) -> bool:
    kinds = set()
    for path in files:
        try:
            with path.open("rb") as stream:
                kinds.add(stream.read(len(MAGIC)) == MAGIC)
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror}). Give the files that hold the fields.") from None
    if len(kinds) > 1:
        raise DataError("HDF5 files and others are imported apart from each other.")
    return kinds == {True}


def _check_recognised(request: ImportRequest, found: Found) -> None:
    """A recognised layout knows its axes and fields."""
    if request.axes is not None and request.axes != found.axes:
        raise UsageError(f"The axes of this layout are {','.join(found.axes)}; leave --axes out, or say --map.")
    if request.fields is not None and request.fields != found.fields:
        raise UsageError(f"The fields of this layout are {','.join(found.fields)}; leave --fields out, or say --map.")
    for part in found.parts:
        if (part.grid, part.n_channels, part.size("t")) != (found.grid, len(found.fields), found.n_frames):
            raise DataError(f"{part.path} has another grid, other fields or frames than {found.parts[0].path}.")
    if found.times is not None:
        check_times(found.times, found.n_frames, str(found.parts[0].path))
    _check_sizes(found)


# ---- fields ------------------------------------------------------------------------------------------------------
def _field_arrays(request: ImportRequest, found: Mapping[str, PartArray], path: Path) -> tuple[str, ...]:
    """The names of the arrays that are fields: those of --fields, or the only one that can be."""
    asked = request.fields or ()
    if asked and all(name in found for name in asked):
        return asked
    able = [name for name, array in found.items() if len(array.shape) >= 2]
    if request.paths is not None and not asked:
        most = max((len(array.shape) for array in found.values()), default=0)
        able = [name for name in able if len(found[name].shape) == most]
        return tuple(able)
    if len(able) == 1:
        return (able[0],)
    listed = ", ".join(f"{name} {array.shape}" for name, array in list(found.items())[:12])
    hint = did_you_mean(asked[0], found) if asked else ""
    example = f"--fields {able[0] if able else 'u'}{hint}."
    raise DataError(f"{path} holds the arrays {listed}; say which are fields: {example}")


def _channel_names(request: ImportRequest, names: tuple[str, ...], part: Part) -> tuple[str, ...]:
    n = part.n_channels
    if request.fields is not None:
        if len(request.fields) != n:
            raise UsageError(f"--fields names {len(request.fields)} fields; the data have {n} (axis c).")
        return request.fields
    if "c" not in part.axes and len(names) > 1:
        return names
    return ("u",) if n == 1 else tuple(f"u{i + 1}" for i in range(n))


# ---- axes --------------------------------------------------------------------------------------------------------
def guess_axes(arrays: Sequence[PartArray], n_files: int) -> tuple[str, ...]:
    """What the axes most likely are, from their number and sizes."""
    shape = arrays[0].shape
    head = ("t",) if n_files > 1 and len(shape) == 2 else ("n", "t")
    rest = shape[len(head) :]
    places: dict[int, tuple[str, ...]] = {1: ("x",), 2: ("x", "y"), 3: ("c", "x", "y")}
    axes = places.get(len(rest), ())
    if len(rest) == 2 and min(rest) <= MAX_CHANNELS < max(rest):
        axes = ("c", "x") if rest[0] < rest[1] else ("x", "c")
    if len(rest) == 3 and rest[2] <= MAX_CHANNELS < rest[0]:
        axes = ("x", "y", "c")
    if not axes:
        raise DataError(
            f"{arrays[0].path} has shape {shape}; expected (trajectory, time, x) or with channels and y. "
            "Say what the axes are: --axes n,t,x"
        )
    return (*head, *axes)


def check_arrays(parts: Sequence[ArrayPart]) -> None:
    """Refuse arrays that do not have the axes that they are said to have, or not the same."""
    first = parts[0]
    for part in parts:
        path, at = part.path, part.axes.index("c") if "c" in part.axes else None
        shapes = {tuple(n for j, n in enumerate(array.shape) if j != at) for array in part.arrays}
        if len(shapes) > 1:
            raise DataError(f"{path}: its fields have different shapes: {', '.join(map(str, sorted(shapes)))}.")
        if len(part.shape) != len(part.axes):
            raise DataError(
                f"{path} has shape {part.shape}, but --axes {','.join(part.axes)} names {len(part.axes)} axes."
            )
        if 0 in part.shape:
            raise DataError(f"{path} is empty: its shape is {part.shape}.")
        if (part.grid, part.n_channels) != (first.grid, first.n_channels):
            raise DataError(
                f"{path} has the grid {part.grid} and {part.n_channels} fields; {first.path} has "
                f"{first.grid} and {first.n_channels}. Import files of one kind together."
            )


def _common_length(parts: Sequence[Part], request: ImportRequest) -> tuple[int, tuple[str, ...]]:
    """Frames of every trajectory; those of files of other lengths are cut or refused."""
    sizes = [part.size("t") for part in parts]
    shortest, longest = min(sizes), max(sizes)
    if shortest == longest:
        return shortest, ()
    if request.lengths == "refuse":
        raise DataError(
            f"Trajectories have different lengths, {shortest} to {longest} frames "
            f"({parts[sizes.index(shortest)].path} is a short one). Use --lengths cut to keep the first "
            f"{shortest} of each."
        )
    return shortest, (f"Trajectories of up to {longest} frames were cut to the first {shortest}.",)


def _check_sizes(found: Found) -> None:
    what = {
        "trajectories": (found.n, MIN_TRAJECTORIES, "training, choosing and testing need some each"),
        "frames": (found.n_frames, MIN_FRAMES, "there is nothing to forecast in fewer"),
        "points": (min(found.grid), MIN_POINTS, "a coarser grid shows no structure"),
    }
    for word, (n, least, why) in what.items():
        if n < least:
            has = f"{n} {word if n != 1 else {'trajectories': 'trajectory'}.get(word, word[:-1])}"
            raise DataError(
                f"The data have {has}, at least {least} are needed: {why}. They were taken for axes "
                f"{','.join(found.axes)} of shape {found.parts[0].shape}."
            )


def roughness(found: Found) -> dict[str, float]:
    """How much the fields change from one entry of an axis to the next: 0 smooth, about 1 unrelated.

    mean (u_{i+1} - u_i)^2 / (2 var u) over the first entries of every axis; independent values give 1.
    """
    rows = [found.row(row)[:BLOCK] for row in range(min(found.n, BLOCK))]
    block = np.stack(rows)[(slice(None),) * 3 + (slice(0, 4 * BLOCK),) * len(found.grid)]  # (n,T,C,*grid)
    block = np.nan_to_num(block.astype(np.float64), posinf=0.0, neginf=0.0)
    spread = 2 * float(block.var())
    if not spread > 0:
        return {}
    places = {"n": 0, "t": 1, **{axis: 3 + at for at, axis in enumerate(found.space)}}
    return {
        axis: float(np.square(np.diff(block, axis=at)).mean()) / spread
        for axis, at in places.items()
        if block.shape[at] > 1
    }


def doubt_about_axes(found: Found) -> str:
    """A sentence if another axis than n is the one whose neighbours are unrelated; empty if all looks right."""
    rough = roughness(found)
    if "n" not in rough:
        return ""
    worst = max((axis for axis in rough if axis != "n"), key=rough.__getitem__, default="n")
    if worst == "n" or rough[worst] < 0.25 or rough["n"] > rough[worst] / 4:
        return ""
    turned = ["n" if axis == worst else worst if axis == "n" else axis for axis in found.axes]
    return (
        f"The axes look otherwise: fields hardly change from one trajectory to the next ({rough['n']:.2g} of what "
        f"unrelated values would), but strongly along {worst} ({rough[worst]:.2g}). Did you mean "
        f"--axes {','.join(turned)}?"
    )


def looks_periodic(found: Found) -> tuple[str, ...]:
    """Axes whose ends fit together: the step from the last point to the first is like those between."""
    values = np.nan_to_num(found.row(0).astype(np.float64), posinf=0.0, neginf=0.0)
    fits = []
    for at, axis in enumerate(found.space, start=2):
        inside = np.square(np.diff(values, axis=at)).mean()
        ends = np.square(np.take(values, 0, at) - np.take(values, -1, at)).mean()
        if ends <= 4 * inside:
            fits.append(axis)
    return tuple(fits)


# ---- what else the files hold ------------------------------------------------------------------------------------
def _extras(
    others: Sequence[Mapping[str, PartArray]], parts: Sequence[Part], n_frames: int
) -> tuple[Columns, np.ndarray | None, dict[str, np.ndarray]]:
    """Parameters, times and coordinates among the other arrays of npz files."""
    first, part = others[0], parts[0]
    times = next((_line(first[name])[:n_frames] for name in TIMES if name in first), None)
    if times is None and STEP in first:
        times = float(_line(first[STEP])[0]) * np.arange(n_frames)
    if times is not None:
        check_times(times, n_frames, str(parts[0].path))
    points = {axis: _line(first[axis]) for axis in SPACE if axis in first and axis in part.axes}
    for axis, values in points.items():
        if len(values) != part.size(axis) or not (np.diff(values) > 0).all():
            raise DataError(f"The coordinates {axis} must ascend and have {part.size(axis)} values; got {len(values)}.")
    known = {*TIMES, STEP, *SPACE}
    names = [name for name in first if name not in known and all(name in other for other in others)]
    columns = {}
    for name in names:
        pieces = [_line(other[name]) for other in others]
        if all(len(piece) in (1, own.size("n")) for piece, own in zip(pieces, parts, strict=True)):
            spread = [np.broadcast_to(piece, own.size("n")) for piece, own in zip(pieces, parts, strict=True)]
            columns[name] = np.concatenate(spread).astype(np.float64)
    return columns, times, points


def _line(array: PartArray) -> np.ndarray:
    return array.read().astype(np.float64).reshape(-1)


def check_times(times: np.ndarray, n_frames: int, where: str) -> None:
    """Refuse times that are not as many as frames, do not ascend, or are not evenly spaced."""
    if len(times) != n_frames:
        raise DataError(f"{where}: there are {len(times)} times for {n_frames} frames.")
    gaps = np.diff(times)
    if not (np.isfinite(times).all() and (gaps > 0).all()):
        raise DataError(f"{where}: the times must ascend; they go {', '.join(f'{t:g}' for t in times[:4])}, ...")
    if gaps.max() - gaps.min() > UNEVEN * gaps.mean():
        raise DataError(
            f"{where}: frames are not evenly spaced, the gaps go from {gaps.min():g} to {gaps.max():g}. Interpolate "
            "them to even times first, for example with scipy.interpolate.CubicSpline(times, u, axis=time_axis)."
        )

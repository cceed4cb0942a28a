"""HDF5 layouts that are recognised by what is in them: The Well's, and five that PDEBench uses.

    groups 0000, 0001, .. with `data`     one trajectory to a group, (T,X,C) or (T,X,Y,C); grid/t, grid/x, grid/y
    `tensor`                              one field (N,T,X); a leading axis of length one is left out
    `density`, `pressure`, `Vx`, ..       one array to a field, (N,T,X) or (N,T,X,Y)
    `velocity`, `particles`               channels last, (B,T,X,Y,2) and (B,T,X,Y,1)
    `tensor` with `nu`, one frame         steady: refused

Parameters are the same for all trajectories of such a file; they stand in attributes or in the file's name.  Times may
have one entry more than there are frames.  Coordinates are those of cell centres.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pdejepa.core.errors import DataError
from pdejepa.data.importing.hdf5_arrays import H5Array, check_array, list_arrays, listed, opened
from pdejepa.data.importing.parts import FIRST, SPACE, ArrayPart, Found, Part
from pdejepa.data.well.inspector import refuse_unreadable
from pdejepa.data.well.shard import ShardFile
from pdejepa.data.well.stored_problem import WORDS

WELL = ("dimensions", "t0_fields", "scalars", "boundary_conditions")
IN_NAME = re.compile(r"(beta|Nu|Rho|Eta|Zeta|M)(\d+(?:\.\d*)?(?:e-?\d+)?)(?=_|\.hdf5|\.h5|$)")
FLOW = ("density", "pressure", "Vx", "Vy")
PERIODIC = re.compile(r"advection|burgers|reacdiff|periodic", re.IGNORECASE)
OPEN = re.compile(r"trans|rdb", re.IGNORECASE)
WALLS = re.compile(r"diff-react", re.IGNORECASE)


@dataclass(frozen=True)
class WellPart:
    """The trajectories of one file in The Well's layout."""

    path: Path

    @cached_property
    def shard(self) -> ShardFile:
        return ShardFile(self.path)

    @property
    def axes(self) -> tuple[str, ...]:
        return ("n", "t", "c", *SPACE[: len(self.grid)])

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.shard.n, self.shard.n_frames, self.n_channels, *self.grid)

    @property
    def n_channels(self) -> int:
        return len(self.shard.field_names)

    @property
    def grid(self) -> tuple[int, ...]:
        return self.shard.grid

    def size(self, axis: str) -> int:
        return self.shape[self.axes.index(axis)] if axis in self.axes else 1

    def read(self, row: int, n_frames: int) -> np.ndarray:
        """(T,C,*grid) float32."""
        return self.shard.fields(row, row + 1)[0, :n_frames]


def recognised(files: Sequence[Path]) -> Found:
    """What files of a known layout hold; DataError that lists the arrays of other files."""
    if all(name in opened(files[0]) for name in WELL):
        return _well(files)
    parts: list[Part] = []
    columns: list[tuple[int, dict[str, float]]] = []
    for path in files:
        own = _parts(path)
        parts += own
        columns.append((sum(part.size("n") for part in own), _constants(path)))
    first = list_arrays(files[0])
    names = set.intersection(*(set(values) for _, values in columns))
    spread = {name: np.concatenate([np.full(n, values[name]) for n, values in columns]) for name in sorted(names)}
    n_frames = parts[0].size("t")
    return Found(
        parts=tuple(parts),
        fields=_field_names(first, parts[0]),
        axes=tuple(axis for axis in parts[0].axes if axis != FIRST),
        n_frames=n_frames,
        columns=spread,
        times=_times(first, n_frames),
        points=_points(first, parts[0]),
        notes=("The layout is one of PDEBench's.",),
        boundaries=_boundaries(files[0], len(parts[0].grid)),
        is_recognised=True,
    )


# ---- The Well ----------------------------------------------------------------------------------------------------
def _well(files: Sequence[Path]) -> Found:
    refuse_unreadable(files)
    parts = tuple(WellPart(path) for path in files)
    first = parts[0].shard
    for part in parts:
        same = (first.field_names, first.parameter_names, first.axes_names, first.grid, first.n_frames)
        shard = part.shard
        if (shard.field_names, shard.parameter_names, shard.axes_names, shard.grid, shard.n_frames) != same:
            raise DataError(f"{part.path} has other fields, parameters, axes or frames than {parts[0].path}.")
    if len(first.grid) > len(SPACE):
        raise DataError(f"{parts[0].path} has {len(first.grid)} spatial axes; models take one or two.")
    xi = np.concatenate([part.shard.xi for part in parts])  # (n,P)
    told = [f"Fields that do not change in time are left out: {name}." for spec in first.constant_specs
            for name in spec.channels]  # fmt: skip
    renamed = dict(zip(first.axes_names, SPACE, strict=False))
    return Found(
        parts=parts,
        fields=first.field_names,
        axes=parts[0].axes,
        n_frames=first.n_frames,
        columns={name: xi[:, j] for j, name in enumerate(first.parameter_names)},
        times=first.times(),
        points={renamed[name]: values for name, values in first.axes.items()},
        notes=("The layout is The Well's.", *told),
        boundaries={renamed[name]: WORDS.get(kind, "open") for name, kind in first.boundaries.items()},
        is_recognised=True,
    )


# ---- PDEBench ----------------------------------------------------------------------------------------------------
def _parts(path: Path) -> list[Part]:
    """The trajectories of one file; DataError if its layout is none of the known ones."""
    there = list_arrays(path)
    groups = sorted({name.split("/")[1] for name in there if re.fullmatch(r"/\d+/data", name)})
    if groups:
        arrays = [check_array(there[f"/{group}/data"]) for group in groups]
        axes = ("t", *SPACE[: len(arrays[0].shape) - 2], "c")
        return [ArrayPart((array,), axes) for array in arrays]
    if "/tensor" in there:
        return [_tensor(path, check_array(there["/tensor"]), "/nu" in there)]
    if "/density" in there:
        arrays = [check_array(there[f"/{name}"]) for name in FLOW if f"/{name}" in there]
        return [ArrayPart(tuple(arrays), ("n", "t", *_space(path, arrays[0], 2)))]
    if "/velocity" in there and "/particles" in there:
        arrays = [check_array(there[name]) for name in ("/velocity", "/particles")]
        return [ArrayPart(tuple(arrays), ("n", "t", "x", "y", "c"))]
    raise DataError(
        f"{path} has none of the layouts that are recognised. Say which arrays are what, for example "
        f"--map u=/u,nu=/nu. It has: {listed(there)}."
    )


def _tensor(path: Path, array: H5Array, has_coefficient: bool) -> ArrayPart:
    if has_coefficient and array.shape[1] == 1:
        raise DataError(f"{path} holds steady states, one frame each; there is nothing to forecast.")
    if len(array.shape) == 4 and array.shape[0] == 1:
        return ArrayPart((array,), (FIRST, "n", "t", "x"))
    return ArrayPart((array,), ("n", "t", *_space(path, array, 2)))


def _space(path: Path, array: H5Array, n_before: int) -> tuple[str, ...]:
    n = len(array.shape) - n_before
    if n not in (1, 2):
        raise DataError(f"{path}: {array.name} has shape {array.shape}; models take one or two spatial axes.")
    return SPACE[:n]


def _constants(path: Path) -> dict[str, float]:
    """Parameters of a whole file: numbers among its attributes, else those in its name."""
    told = {}
    for name, value in opened(path).attrs.items():
        if np.ndim(value) == 0 and np.issubdtype(np.asarray(value).dtype, np.number):
            told[name.lower()] = float(value)
    return told or {name.lower(): float(value) for name, value in IN_NAME.findall(path.name)}


def _field_names(there: dict[str, H5Array], part: Part) -> tuple[str, ...]:
    if "/density" in there:
        return tuple(name.lower() for name in FLOW if f"/{name}" in there)
    if "/velocity" in there:
        return ("velocity_x", "velocity_y", "particles")
    return ("u",) if part.n_channels == 1 else tuple(f"u{i + 1}" for i in range(part.n_channels))


def _times(there: dict[str, H5Array], n_frames: int) -> np.ndarray | None:
    name = next((name for name in there if name in ("/t-coordinate", "/t") or name.endswith("/grid/t")), None)
    if name is None:
        return None
    times = there[name].read().astype(np.float64)
    return (times[0] if times.ndim == 2 else times)[:n_frames]


def _points(there: dict[str, H5Array], part: Part) -> dict[str, np.ndarray]:
    found = {}
    for axis, n in zip(SPACE, part.grid, strict=False):
        name = next((name for name in there if name == f"/{axis}-coordinate" or name.endswith(f"/grid/{axis}")), None)
        if name is not None and there[name].shape == (n,):
            found[axis] = there[name].read().astype(np.float64)
    return found


def _boundaries(path: Path, ndim: int) -> dict[str, str]:
    """By the file's name; not told where it does not say."""
    kinds = ((PERIODIC, "periodic"), (WALLS, "neumann"), (OPEN, "open"))
    kind = next((kind for pattern, kind in kinds if pattern.search(path.name)), None)
    return {} if kind is None else dict.fromkeys(SPACE[:ndim], kind)

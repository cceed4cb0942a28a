"""Trajectories in parts: arrays of several files, read one trajectory at a time.

Letters: n trajectories, T frames, C channels, *grid spatial axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import numpy as np

from pdejepa.data.importing.lazy_arrays import Index
from pdejepa.data.importing.parameter_table import Columns

SPACE = ("x", "y")
FIRST = "0"  # an axis of which the first entry is taken


class PartArray(Protocol):
    """An array that is read in parts."""

    @property
    def path(self) -> Path: ...

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def read(self, index: Index = ()) -> np.ndarray: ...


class Part(Protocol):
    """Some of the trajectories."""

    @property
    def axes(self) -> tuple[str, ...]: ...

    @property
    def path(self) -> Path: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def n_channels(self) -> int: ...

    @property
    def grid(self) -> tuple[int, ...]: ...

    def size(self, axis: str) -> int: ...

    def read(self, row: int, n_frames: int) -> np.ndarray: ...


@dataclass(frozen=True)
class ArrayPart:
    """Trajectories of one file in one array, or in several that each hold one or more channels."""

    arrays: tuple[PartArray, ...]
    axes: tuple[str, ...]

    @property
    def path(self) -> Path:
        return self.arrays[0].path

    @property
    def shape(self) -> tuple[int, ...]:
        return self.arrays[0].shape

    def size(self, axis: str) -> int:
        return self.shape[self.axes.index(axis)] if axis in self.axes else 1

    @property
    def n_channels(self) -> int:
        at = self.axes.index("c") if "c" in self.axes else None
        return sum(1 if at is None else array.shape[at] for array in self.arrays)

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.size(axis) for axis in SPACE if axis in self.axes)

    def read(self, row: int, n_frames: int) -> np.ndarray:
        """(T,C,*grid) float32."""
        pick: dict[str, slice | int] = {"n": row, "t": slice(0, n_frames), FIRST: 0}
        index = tuple(pick.get(axis, slice(None)) for axis in self.axes)
        rest = [axis for axis in self.axes if axis not in ("n", FIRST)]
        order = [rest.index(axis) for axis in ("t", "c", *SPACE) if axis in rest]
        found = [array.read(index).transpose(order) for array in self.arrays]  # (T,*grid) or (T,C,*grid)
        values = np.concatenate(found, 1) if "c" in rest else np.stack(found, 1)
        with np.errstate(over="ignore"):  # too large for float32: infinite, which the scan finds
            return np.ascontiguousarray(values, dtype=np.float32)


@dataclass(frozen=True)
class Found:
    """What files hold; `rows` reads trajectories by their number."""

    parts: tuple[Part, ...]
    fields: tuple[str, ...]
    axes: tuple[str, ...]
    n_frames: int
    columns: Columns = field(default_factory=dict)
    times: np.ndarray | None = None
    points: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    boundaries: Mapping[str, str] = field(default_factory=dict)  # where the files tell them
    is_recognised: bool = False  # a layout that says what its axes are

    @cached_property
    def starts(self) -> tuple[int, ...]:
        return (0, *accumulate(part.size("n") for part in self.parts))

    @property
    def n(self) -> int:
        return self.starts[-1]

    @property
    def grid(self) -> tuple[int, ...]:
        return self.parts[0].grid

    @property
    def space(self) -> tuple[str, ...]:
        return tuple(axis for axis in SPACE if axis in self.axes)

    @property
    def is_one_to_a_file(self) -> bool:
        return "n" not in self.axes

    def row(self, number: int) -> np.ndarray:
        """Trajectory `number`, (T,C,*grid) float32."""
        at = int(np.searchsorted(self.starts, number, side="right")) - 1
        return self.parts[at].read(number - self.starts[at], self.n_frames)

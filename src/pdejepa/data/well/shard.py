"""One HDF5 file in The Well's layout, open for reading: ours or somebody else's.

A file is inspected before anything in it is followed or read (`hdf5_safety`), and everything that goes wrong is
a DataError that names the shard and says what to type.  Fields of all ranks become channels, as in the official
loader:

    t0_fields/p          (B)(T)(*grid)        -> channel p
    t1_fields/velocity   (B)(T)(*grid)(D)     -> channels velocity_x, velocity_y
    t2_fields/stress     (B)(T)(*grid)(D)(D)  -> channels stress_xx, stress_xy, ...

(B) is there if the field varies per sample, (T) if it varies in time.
Letters: B rows, T frames, C channels, D axes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pdejepa.core.errors import DataError
from pdejepa.data.well.safety import MAX_ATTRIBUTE_VALUES, Unreadable, open_hdf5, refusals

FORMAT_VERSION = 1
FIELD_GROUPS = ("t0_fields", "t1_fields", "t2_fields")


@dataclass(frozen=True)
class FieldSpec:
    """One stored field and the channels it becomes."""

    path: str
    channels: tuple[str, ...]
    per_sample: bool
    per_time: bool
    varies: tuple[bool, ...]  # per axis; a field may be constant along one


class ShardFile:
    """The content of one file: what is small is read at once, fields are read row by row."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._stack = contextlib.ExitStack()
        try:
            with self._explained():
                self._file: h5py.File = self._stack.enter_context(open_hdf5(self.path))
                found = refusals(self._file, f"Shard {self.path}")
                if found:
                    raise DataError(f"{found[0]}. {self._advice()}")
                self._read_declarations()
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        self._stack.close()

    # ---- what the file says about itself -----------------------------------------------------------------
    def _read_declarations(self) -> None:
        file = self._file
        self.dataset_name = str(_attribute(file, "dataset_name"))
        self.n = int(_attribute(file, "n_trajectories"))
        dimensions = file["dimensions"]
        self.axes_names = _texts(_attribute(dimensions, "spatial_dims"))
        self.axes = {name: _numbers(dimensions[name]) for name in self.axes_names}
        self.grid = tuple(axis.shape[-1] for axis in self.axes.values())
        self._times = _numbers(dimensions["time"])
        self.n_frames = self._times.shape[-1]
        self._items: dict[str, h5py.Dataset] = {}  # looking a dataset up costs more than reading a row of it
        specs = [spec for rank, group in enumerate(FIELD_GROUPS) if group in file for spec in self._specs(group, rank)]
        self.specs = tuple(spec for spec in specs if spec.per_time)
        self.constant_specs = tuple(spec for spec in specs if not spec.per_time)
        self.field_names = tuple(name for spec in self.specs for name in spec.channels)
        if not self.field_names:
            raise KeyError("it has no field that varies in time")
        self._read_parameters()

    def _specs(self, group: str, rank: int) -> Iterator[FieldSpec]:
        suffixes = ["_" + "".join(pair) for pair in itertools.product(self.axes_names, repeat=rank)] if rank else [""]
        for name in _texts(_attribute(self._file[group], "field_names")):
            item = self._file[group][name]
            varies = tuple(bool(flag) for flag in np.atleast_1d(_attribute(item, "dim_varying")))
            spec = FieldSpec(
                f"{group}/{name}",
                tuple(name + suffix for suffix in suffixes),
                bool(_attribute(item, "sample_varying")),
                bool(_attribute(item, "time_varying")),
                varies,
            )
            self._check_shape(item, spec, rank)
            self._items[spec.path] = item
            yield spec

    def _check_shape(self, item: h5py.Dataset, spec: FieldSpec, rank: int) -> None:
        front = (self.n,) * spec.per_sample + (self.n_frames,) * spec.per_time
        whole = (*front, *self.grid, *(len(self.grid),) * rank)
        squeezed = (
            *front,
            *(n for n, v in zip(self.grid, spec.varies, strict=True) if v),
            *(len(self.grid),) * rank,
        )
        kept = (
            *front,
            *(n if v else 1 for n, v in zip(self.grid, spec.varies, strict=True)),
            *(len(self.grid),) * rank,
        )
        if item.shape not in (whole, squeezed, kept):
            raise ValueError(f"{spec.path} has shape {item.shape}, expected {whole}")

    def _read_parameters(self) -> None:
        """Parameters of every row in float64: from our own group, or from the scalars of a foreign file."""
        self.provenance = self._file.get("provenance")
        scalars = self._file["scalars"]
        names = _texts(_attribute(scalars, "field_names"))
        if self.provenance is not None:
            self._check_version()
            self.parameter_names = _texts(_attribute(self.provenance, "parameter_names"))
            self.xi = _numbers(self.provenance["parameters"])  # (B,P)
            return
        self.parameter_names = tuple(name for name in names if not _attribute(scalars[name], "time_varying"))
        columns = [np.broadcast_to(_numbers(scalars[name]), (self.n,)) for name in self.parameter_names]
        self.xi = np.stack(columns, 1) if columns else np.zeros((self.n, 0))

    def _check_version(self) -> None:
        version = int(_attribute(self.provenance, "format_version"))
        if version > FORMAT_VERSION:
            raise DataError(
                f"Shard {self.path} has format {version}; this version of pdejepa reads up to "
                f"{FORMAT_VERSION}. Install a newer one."
            )

    @property
    def config(self) -> dict[str, Any] | None:
        """The configuration the shard was generated with, or None for a foreign file."""
        with self._explained():
            return None if self.provenance is None else dict(json.loads(_attribute(self.provenance, "config")))

    @property
    def is_solved(self) -> bool:
        """Whether a solver of ours made the values; False for imported and foreign files."""
        return self.provenance is not None and "solver_status" in self.provenance

    @property
    def boundaries(self) -> dict[str, str]:
        """What happens at the ends of each axis, as far as the file tells: ours in our words, else The Well's."""
        with self._explained():
            found = {}
            for group in self._file.get("boundary_conditions", {}).values():
                for axis in _texts(_attribute(group, "associated_dims")):
                    found[axis] = str(_attribute(group, "bc_type")).lower()
            own = (self.config or {}).get("boundaries", {})
            return {**found, **{str(axis): str(kind) for axis, kind in own.items()}}

    def column(self, name: str) -> np.ndarray:
        """One per-row dataset of our own group: environment_id, trajectory, solver_status, attempt."""
        with self._explained():
            if self.provenance is None:
                raise DataError(f"Shard {self.path} was not made by pdejepa: it has no {name}.")
            return np.asarray(self.provenance[name][...])

    def times(self, row: int = 0) -> np.ndarray:
        """Times (T,) float64 of one row; they are nearly always the same for all rows."""
        return self._times if self._times.ndim == 1 else np.asarray(self._times[row])

    # ---- values ------------------------------------------------------------------------------------------
    def fields(self, begin: int, end: int) -> np.ndarray:
        """Rows [begin, end) of all time-varying channels, (n,T,C,*grid) float32."""
        with self._explained():
            parts = [self._channels(spec, begin, end) for spec in self.specs]
            return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)

    def constant_fields(self, row: int) -> dict[str, np.ndarray]:
        """Fields without time axis of one row, {name: (*grid) float32}."""
        with self._explained():
            found: dict[str, np.ndarray] = {}
            for spec in self.constant_specs:
                channels = self._channels(spec, row, row + 1)[0]  # (C,*grid)
                found.update(zip(spec.channels, np.ascontiguousarray(channels), strict=True))
            return found

    def _channels(self, spec: FieldSpec, begin: int, end: int) -> np.ndarray:
        """Any stored field as (n,T,C,*grid), or (n,C,*grid) if it does not vary in time."""
        item, at = self._items[spec.path], 1 + spec.per_time
        values = item[begin:end] if spec.per_sample else np.repeat(item[...][None], end - begin, 0)
        if values.shape[at:] == self.grid:  # the usual case: one channel, nothing to move or to repeat
            return np.expand_dims(values.astype(np.float32, copy=False), at)
        front, n = values.shape[:at], len(spec.channels)
        grid = tuple(n if v else 1 for n, v in zip(self.grid, spec.varies, strict=True))
        if values.size == np.prod(front) * np.prod(self.grid) * n:
            grid = self.grid  # written out in full, whatever the flags say
        values = np.broadcast_to(values.reshape(*front, *grid, n), (*front, *self.grid, n))
        return np.ascontiguousarray(np.moveaxis(values, -1, at), dtype=np.float32)

    # ---- failures ----------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn whatever a broken file provokes into one sentence."""
        try:
            yield
        except DataError:
            raise
        except Unreadable as error:
            raise DataError(f"Shard {self.path} {error}. {self._advice()}") from error
        except KeyError as error:
            raise DataError(
                f"Shard {self.path} is not in The Well's layout: {_short(error)}. {self._advice()}"
            ) from error
        except (OSError, RuntimeError, ValueError, TypeError, AttributeError, MemoryError) as error:
            raise DataError(f"Shard {self.path} is damaged: {_short(error)}. {self._advice()}") from error

    def _advice(self) -> str:
        """What to type: our own data sets rebuild single shards, other people's files must be fetched again."""
        root = self.path.absolute().parent.parent.parent
        if (root / "config.json").is_file():
            return f"Run the `pdejepa generate` command that made {root} again: it rebuilds only damaged shards."
        return "Fetch or make this file again."


def _attribute(item: h5py.HLObject, name: str) -> Any:
    """An attribute whose declared size was looked at before its value."""
    if item.attrs.get_id(name).get_space().get_simple_extent_npoints() > MAX_ATTRIBUTE_VALUES:
        raise ValueError(f"the attribute {name} of {item.name} is too large")
    return item.attrs[name]


def _texts(value: Any) -> tuple[str, ...]:
    """A list of names, whether stored as text, bytes or one bare string."""
    items = [value] if isinstance(value, str | bytes) else list(value)
    return tuple(item.decode() if isinstance(item, bytes) else str(item) for item in items)


def _numbers(item: h5py.Dataset) -> np.ndarray:
    return np.asarray(item[...], dtype=np.float64)


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split()).strip("'\"") or type(error).__name__
    return text if len(text) <= 200 else f"{text[:197]}..."

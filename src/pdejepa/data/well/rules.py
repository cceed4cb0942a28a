"""The rules of The Well's HDF5 layout for one file, stated as code.

    root attributes   dataset_name, grid_type, n_spatial_dims, n_trajectories, simulation_parameters
    dimensions        spatial_dims; time (T,); one coordinate dataset per axis (N,)
    boundary_conditions/<b>    bc_type WALL, OPEN or PERIODIC; associated_dims; mask (N,) bool
    scalars           field_names; one number per sample (and frame): (B if sample_varying)(T if time_varying)
    t0_fields, t1_fields, t2_fields   field_names; (B)(T)(*grid), then (D,) for vectors and (D,D) for tensors

B, T and D are n_trajectories, the number of times and n_spatial_dims.  Flags are HDF5 booleans, names are
text, a list of one name is still a list.  `dim_varying` must be True for every axis: the loader and the
collection's own checker read a False differently, so no file with one satisfies both.
"""

from __future__ import annotations

import hashlib

import h5py
import numpy as np

from pdejepa.data.well.pieces import MAX_COORDINATE_VALUES, Pieces

GROUPS = ("dimensions", "boundary_conditions", "scalars", "t0_fields", "t1_fields", "t2_fields")
FIELD_GROUPS = ("t0_fields", "t1_fields", "t2_fields")
BOUNDARIES = ("WALL", "OPEN", "PERIODIC")
GRID_TYPES = ("cartesian", "spherical")
RESERVED = ("time_grid", "space_grid", "boundary_output")  # keys of the loader's per-file cache
MAX_LONG_TEXT = 1_000


class RuleBook(Pieces):
    """Applies the rules to one open file that has no refusals and collects what is wrong."""

    def apply(self) -> None:
        self._root()
        for name in GROUPS:
            if not isinstance(self.file.get(name), h5py.Group):
                self.say(name, "this group is missing; it must exist even when it is empty")
        self._dimensions()
        self._boundaries()
        self._scalars()
        for rank, name in enumerate(FIELD_GROUPS):
            self._fields(name, rank)
        if not any(is_varying for _, _, is_varying in self.layout.fields):
            self.say("", "no field varies in time; there is nothing to learn from")
        self._names_are_disjoint()

    # ---- groups -------------------------------------------------------------------------------------------
    def _root(self) -> None:
        file, layout = self.file, self.layout
        layout.dataset_name = self.text(file, "dataset_name")
        layout.grid_type = self.text(file, "grid_type")
        if layout.grid_type is not None and layout.grid_type not in GRID_TYPES:
            self.say("", f"grid_type must be {' or '.join(GRID_TYPES)}, got {layout.grid_type[:40]!r}")
        layout.n_spatial_dims = self.count(file, "n_spatial_dims", 1, 3)
        layout.n_trajectories = self.count(file, "n_trajectories", 1, 2**31)
        for name in self.names(file, "simulation_parameters") or ():
            if name not in file.attrs or f"scalars/{name}" not in file:
                self.say("", f"the simulation parameter {name!r} must be both a root attribute and a scalar")
        for name in file.attrs:
            value = self.attribute(file, name)
            if isinstance(value, str) and len(value) > MAX_LONG_TEXT:
                length = f"{len(value):,} characters long; exporters repeat it for every trajectory"
                self.say("", f"the root attribute {name!r} is {length}", is_warning=True)

    def _dimensions(self) -> None:
        group, layout = self.group("dimensions"), self.layout
        if group is None:
            return
        names = self.names(group, "spatial_dims")
        if names is not None and layout.n_spatial_dims not in (None, len(names)):
            wanted = layout.n_spatial_dims
            self.say("dimensions", f"spatial_dims names {len(names)} axes, n_spatial_dims says {wanted}")
            names = None
        layout.axes = names
        time = self._coordinate(group, "time", is_time=True)
        layout.n_frames = None if time is None else time.shape[-1]
        if time is not None and (np.diff(time, axis=-1) <= 0).any():
            self.say("dimensions/time", "the times must ascend strictly")
        found = [self._coordinate(group, name, is_time=False) for name in names or ()]
        axes = [axis.astype(np.float64) for axis in found if axis is not None]
        if names and len(axes) == len(names):
            layout.grid = tuple(axis.shape[-1] for axis in axes)
            layout.coordinates = hashlib.sha256(b"".join(axis.tobytes() for axis in axes)).hexdigest()

    def _coordinate(self, group: h5py.Group, name: str, is_time: bool) -> np.ndarray | None:
        where = f"dimensions/{name}"
        dataset = self.dataset(group, name, where)
        if dataset is None:
            return None
        per_sample, per_time = self.flags(dataset, where)
        if per_time is not None and per_time is not is_time:
            self.say(where, f"time_varying must be {is_time} here")
        if per_sample is None:
            return None
        if dataset.ndim != 1 + per_sample or 0 in dataset.shape:
            self.say(where, f"expected shape {'(B,N)' if per_sample else '(N,)'}, got {dataset.shape}")
            return None
        if per_sample and self.layout.n_trajectories not in (None, dataset.shape[0]):
            self.say(where, f"has {dataset.shape[0]} rows for {self.layout.n_trajectories} trajectories")
        return self.values(dataset, where)

    def _boundaries(self) -> None:
        group = self.group("boundary_conditions")
        found = []
        for name in () if group is None else group:
            where = f"boundary_conditions/{name}"
            boundary = group.get(name) if group is not None else None
            if not isinstance(boundary, h5py.Group):
                self.say(where, "must be a group")
                continue
            kind = self.text(boundary, "bc_type", where)
            if kind is not None and kind not in BOUNDARIES:
                self.say(where, f"bc_type must be one of {', '.join(BOUNDARIES)}, got {kind[:40]!r}")
            dims = self.names(boundary, "associated_dims", where)
            self.names(boundary, "associated_fields", where)
            for flag in ("sample_varying", "time_varying"):
                if self.flag(boundary, flag, where):
                    self.say(where, f"{flag} must be False: loaders read one mask per file; use scalars")
            if dims is not None and self.layout.axes is not None:
                found += self._boundary_dims(boundary, name, kind, dims, where)
        self.layout.boundaries = tuple(sorted(found))

    def _boundary_dims(
        self, boundary: h5py.Group, name: str, kind: str | None, dims: tuple[str, ...], where: str
    ) -> list[tuple[str, str]]:
        axes = self.layout.axes or ()
        unknown = [dim for dim in dims if dim not in axes]
        if unknown or not dims:
            self.say(where, f"associated_dims must name axes of {list(axes)}, got {list(dims)[:4]}")
            return []
        mask = self.dataset(boundary, "mask", f"{where}/mask")
        if mask is not None and self.layout.grid is not None:
            self._mask(mask, tuple(self.layout.grid[axes.index(dim)] for dim in dims), kind, f"{where}/mask")
        if kind is not None and not name.lower().startswith("_".join((*dims, kind)).lower()):
            self.say(where, f"is best named after axis and type: {'_'.join(dims)}_{kind.lower()[:20]}", True)
        return [(dim, kind or "") for dim in dims]

    def _mask(self, mask: h5py.Dataset, shape: tuple[int, ...], kind: str | None, where: str) -> None:
        if mask.dtype != np.bool_:
            self.say(where, f"must hold booleans, holds {mask.dtype}")
        elif mask.shape != shape:
            self.say(where, f"expected shape {shape}, got {mask.shape}")
        else:
            values = self.values(mask, where)
            if values is not None and not values.any():
                self.say(where, "is True nowhere: the boundary lies nowhere")
            elif values is not None and kind == "PERIODIC" and not (values.flat[0] and values.flat[-1]):
                self.say(where, "a periodic axis is True at its first and last point")

    def _scalars(self) -> None:
        group = self.group("scalars")
        found = []
        for name in () if group is None else self.names(group, "field_names", "scalars") or ():
            where = f"scalars/{name}"
            dataset = self.dataset(group, name, where)
            if dataset is None:
                continue
            per_sample, per_time = self.flags(dataset, where)
            if per_sample is None or per_time is None:
                continue
            self.shape(dataset, where, (per_sample, per_time), (), 0)
            found.append((name, per_sample, per_time))
            if per_sample and name in self.file.attrs:
                self.say(where, "varies per trajectory, so it must not be a root attribute: exporters mix them up")
            if dataset.size <= MAX_COORDINATE_VALUES and dataset.dtype.kind == "f":
                self.values(dataset, where)
        self.layout.scalars = tuple(found)

    def _fields(self, group_name: str, rank: int) -> None:
        group, layout = self.group(group_name), self.layout
        for name in () if group is None else self.names(group, "field_names", group_name) or ():
            where = f"{group_name}/{name}"
            dataset = self.dataset(group, name, where)
            if dataset is None:
                continue
            per_sample, per_time = self.flags(dataset, where)
            self._dim_varying(dataset, where)
            if dataset.dtype.kind != "f":
                self.say(where, f"fields are floating-point numbers, this holds {dataset.dtype}")
            if per_sample is None or per_time is None:
                continue
            if layout.grid is not None:
                self.shape(dataset, where, (per_sample, per_time), layout.grid, rank)
            layout.fields += ((group_name, name, per_time),)
            layout.dtypes += (dataset.dtype.str,)

    def _dim_varying(self, dataset: h5py.Dataset, where: str) -> None:
        value = self.attribute(dataset, "dim_varying", where)
        if value is None:
            return
        if not isinstance(value, np.ndarray) or value.dtype != np.bool_ or value.ndim != 1:
            self.say(where, "dim_varying must be a list of booleans, one per axis")
        elif self.layout.n_spatial_dims not in (None, len(value)):
            self.say(where, f"dim_varying has {len(value)} entries for {self.layout.n_spatial_dims} axes")
        elif not value.all():
            self.say(where, "dim_varying must be True for every axis; write the field out on the whole grid")

    def _names_are_disjoint(self) -> None:
        names = [name for _, name, _ in self.layout.fields] + [name for name, _, _ in self.layout.scalars]
        for name in sorted({name for name in names if names.count(name) > 1}):
            self.say("", f"the name {name!r} is used twice among fields and scalars")
        for name in sorted(set(names) & set(RESERVED)):
            self.say("", f"the name {name!r} is reserved by the loader")

    def shape(
        self, dataset: h5py.Dataset, where: str, flags: tuple[bool, bool], grid: tuple[int, ...], rank: int
    ) -> None:
        """The shape rule: (B if sample_varying)(T if time_varying)(*grid)(D,)*rank."""
        layout = self.layout
        front = zip(flags, (layout.n_trajectories, layout.n_frames), strict=True)
        sizes = [size for is_there, size in front if is_there]
        if None in sizes or (rank and layout.n_spatial_dims is None):
            return
        expected = (*sizes, *grid, *(layout.n_spatial_dims,) * rank)
        if dataset.shape != expected:
            self.say(where, f"expected shape {expected}, got {dataset.shape}")

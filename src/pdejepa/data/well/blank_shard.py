"""The parts of a file in The Well's layout that do not depend on where its trajectories come from.

    write_head(file, problem, n, times)      attributes, dimensions, boundary conditions, empty vector and tensor groups
    create_fields(file, problem, n, T)       one dataset per channel, one chunk per trajectory, to be filled row by row
    write_scalars(file, names, xi)           one number per trajectory and parameter

Letters: B rows, P parameters, T frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import h5py
import numpy as np

from pdejepa.systems.problem import Problem

BOUNDARIES = {"periodic": "PERIODIC", "dirichlet": "WALL", "neumann": "WALL", "open": "OPEN"}  # as The Well says


def write_head(file: h5py.File, problem: Problem, n: int, times: Any) -> None:
    """What a file of n trajectories says about itself."""
    file.attrs.update(
        dataset_name=problem.name,
        grid_type="cartesian",
        n_spatial_dims=problem.ndim,
        n_trajectories=n,
        simulation_parameters=[],
    )
    dimensions = file.create_group("dimensions")
    dimensions.attrs["spatial_dims"] = list(problem.axes_names)
    put(dimensions, "time", times, per_sample=False, per_time=True)
    walls = file.create_group("boundary_conditions")
    for axis in problem.axes:
        put(dimensions, axis.name, axis.points, per_sample=False, per_time=False)
        _put_boundary(walls, axis.name, len(axis.points), BOUNDARIES[axis.boundary])
    for name in ("t1_fields", "t2_fields"):
        file.create_group(name).attrs["field_names"] = []


def create_fields(
    file: h5py.File, problem: Problem, n: int, n_frames: int, constant: Sequence[str] = (), is_compressed: bool = False
) -> None:
    """Empty float32 datasets, (n,T,*grid) for the fields of the problem and (n,*grid) for those constant in time."""
    group = file.create_group("t0_fields")
    group.attrs["field_names"] = [*problem.fields, *constant]
    for name in (*problem.fields, *constant):
        shape = problem.grid if name in constant else (n_frames, *problem.grid)
        item = group.create_dataset(
            name, shape=(n, *shape), dtype="<f4", chunks=(1, *shape), compression="gzip" if is_compressed else None
        )
        _flag(item, per_sample=True, per_time=name not in constant)
        item.attrs["dim_varying"] = [True] * problem.ndim


def write_scalars(
    file: h5py.File,
    names: Sequence[str],
    xi: np.ndarray,
    constants: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Parameters xi (B,P) by name, and numbers that are the same for all trajectories."""
    group = file.create_group("scalars")
    group.attrs["field_names"] = [*names, *constants]
    for name, values in zip(names, xi.T, strict=True):
        put(group, name, values, per_sample=True, per_time=False)
    for name, value in constants.items():
        put(group, name, value, per_sample=False, per_time=False)


def put(group: h5py.Group, name: str, values: Any, *, per_sample: bool, per_time: bool) -> None:
    """A small float32 dataset with the flags that every loader looks for."""
    _flag(
        group.create_dataset(name, data=np.asarray(values, dtype="<f4")),
        per_sample=per_sample,
        per_time=per_time,
    )


def _flag(item: h5py.Dataset, *, per_sample: bool, per_time: bool) -> None:
    item.attrs["sample_varying"] = per_sample
    item.attrs["time_varying"] = per_time


def _put_boundary(walls: h5py.Group, axis: str, n: int, kind: str) -> None:
    """One boundary entry for both ends of an axis; what differs per trajectory stands in the scalars."""
    group = walls.create_group(f"{axis}_{kind.lower()}")
    group.attrs.update(
        bc_type=kind, associated_dims=[axis], associated_fields=[], sample_varying=False, time_varying=False
    )
    mask = np.zeros(n, dtype=bool)
    mask[[0, -1]] = True
    group.create_dataset("mask", data=mask)
    group.create_dataset("values", data=np.zeros(2, dtype="<f4"))

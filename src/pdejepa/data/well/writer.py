"""Write one shard: rows [start, stop) of a split as an HDF5 file in The Well's layout.

    combined_train_0000.hdf5
      (attributes)               dataset_name, grid_type, n_spatial_dims, n_trajectories,
                                 simulation_parameters = []
      t0_fields/u                (B,T,X) float32, one chunk per trajectory
      t0_fields/forcing          (B,X,Y) float32, only where a system has a forcing that is constant in time
      t1_fields/  t2_fields/     empty, but they must exist
      scalars/advection ...      (B,) float32, one per parameter;  0-d: constants of the equation
      dimensions/time  x  y      (T,), (X,), (Y,) float32
      boundary_conditions/x_periodic/mask      True at the two ends
      provenance/                ours; other loaders ignore it
        (attributes)             format_version, code_version, system, split, seed, size, config (JSON),
                                 chunk, parameter_names, parameter_symbols
        parameters               (B,P) float64: solving again exactly needs more digits than the scalars have
        trajectory               (B,) number of the trajectory within its split
        environment_id  solver_status  attempt      (B,)

`simulation_parameters` stays empty because parameters vary per trajectory and exporters would overwrite them by
root attributes.  Nothing in the file tells when, where or on which device it was made: equal trajectories give
equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from pdejepa import __version__
from pdejepa.core.errors import NumericalError
from pdejepa.core.files import write_aside
from pdejepa.data.generate.layout import Piece, Plan
from pdejepa.data.well.reserve import drop_reserve, reserve
from pdejepa.data.well.shard import FORMAT_VERSION
from pdejepa.solve.outcome import Outcome
from pdejepa.systems import Generated

Report = Callable[[int], None]
MAX_ROWS_TOLD = 10
BOUNDARIES = {"periodic": "PERIODIC", "dirichlet": "WALL", "neumann": "WALL", "open": "OPEN"}  # as The Well says


def write_shard(plan: Plan, piece: Piece, path: Path, device: torch.device, report: Report | None = None) -> None:
    """Solve and write one piece; memory is bounded by one solver chunk per core, and `path` appears only when complete.

    NumericalError, and no file, if a row could not be solved with any of its initial conditions.
    """
    with write_aside(path) as temporary:
        with h5py.File(temporary, "w", locking=False) as file:
            _Writer(plan, piece, file).run(device, report)
        drop_reserve(temporary)


@dataclass
class _Writer:
    plan: Plan
    piece: Piece
    file: h5py.File

    def run(self, device: torch.device, report: Report | None) -> None:
        reserve(self.file, 0)
        self._write_head()
        self._create_fields()
        small = []
        for begin, end in self._chunks(device):
            part = self._solve(begin, end, device)
            self._fill(part, begin - self.piece.start)
            small.append((part.xi.cpu(), part.environment, part.status, part.attempt))
            if report:
                report(end - begin)
        xi, environment, status, attempt = (torch.cat(column).numpy() for column in zip(*small, strict=True))
        reserve(self.file, 2 * xi.nbytes + 32 * len(xi))
        self._write_scalars(xi)
        self._write_provenance(xi, environment, status, attempt, device)

    # ---- solving -----------------------------------------------------------------------------------------
    def _chunks(self, device: torch.device) -> Iterator[tuple[int, int]]:
        """The rows of the piece, cut at multiples of the solver chunk: one chunk, or one per core on a CPU."""
        at_once = torch.get_num_threads() if device.type == "cpu" else 1
        size, at = self.plan.system.chunk_size(device) * at_once, self.piece.start
        while at < self.piece.stop:
            end = min((at // size + 1) * size, self.piece.stop)
            yield at, end
            at = end

    def _solve(self, begin: int, end: int, device: torch.device) -> Generated:
        config = self.plan.config
        part = self.plan.system.generate(
            self.piece.split,
            n=end - begin,
            device=device,
            start=begin,
            seed=config.seed,
            raw_frames=config.raw_frames,
        )
        finite = torch.isfinite(part.fields).flatten(1).all(1).cpu()
        bad = [
            (begin + row, Outcome(code).label if not Outcome(code).usable else "not finite in float32")
            for row, code in enumerate(part.status.tolist())
            if not Outcome(code).usable or not finite[row]
        ]
        if bad:
            raise NumericalError(self._failure(bad))
        return part

    def _failure(self, bad: list[tuple[int, str]]) -> str:
        told = ", ".join(f"{row} ({why})" for row, why in bad[:MAX_ROWS_TOLD])
        more = f" and {len(bad) - MAX_ROWS_TOLD} more" if len(bad) > MAX_ROWS_TOLD else ""
        return (
            f"{self.plan.system.name}: {self.piece.split} trajectories {told}{more} could not be solved with any "
            f"of their initial conditions. Shard {self.piece.label} was not written; finished shards are intact. "
            "Try a smaller step (switches.dt=...) or another --seed."
        )

    # ---- writing -----------------------------------------------------------------------------------------
    def _write_head(self) -> None:
        system = self.plan.system
        self.file.attrs.update(
            dataset_name=system.name,
            grid_type="cartesian",
            n_spatial_dims=system.ndim,
            n_trajectories=self.piece.n,
            simulation_parameters=[],
        )
        dimensions = self.file.create_group("dimensions")
        dimensions.attrs["spatial_dims"] = list(system.axes)
        times = system.raw_times if self.plan.config.raw_frames else system.times
        _put(dimensions, "time", times, per_sample=False, per_time=True)
        walls = self.file.create_group("boundary_conditions")
        for axis, nodes in zip(system.problem.axes, system.axes.values(), strict=True):
            _put(dimensions, axis.name, nodes, per_sample=False, per_time=False)
            _put_boundary(walls, axis.name, len(nodes), BOUNDARIES[axis.boundary])
        for name in ("t1_fields", "t2_fields"):
            self.file.create_group(name).attrs["field_names"] = []

    def _create_fields(self) -> None:
        system, constant = self.plan.system, self.plan.constant_fields
        group = self.file.create_group("t0_fields")
        group.attrs["field_names"] = [*system.fields, *constant]
        for name in (*system.fields, *constant):
            shape = system.grid if name in constant else (self.plan.n_frames, *system.grid)
            item = group.create_dataset(
                name,
                shape=(self.piece.n, *shape),
                dtype="<f4",
                chunks=(1, *shape),
                compression=None if self.plan.config.compression == "none" else "gzip",
            )
            _flag(item, per_sample=True, per_time=name not in constant)
            item.attrs["dim_varying"] = [True] * system.ndim

    def _fill(self, part: Generated, at: int) -> None:
        system, group = self.plan.system, self.file["t0_fields"]
        values = part.fields.cpu().numpy()  # (n,T,C,*grid)
        n_fields = len(system.fields) + len(self.plan.constant_fields)
        reserve(self.file, values.nbytes * n_fields // len(system.fields), len(values) * n_fields)
        for channel, name in enumerate(system.fields):
            group[name][at : at + len(values)] = values[:, :, channel]
        if self.plan.constant_fields:
            like = torch.empty((len(values), len(system.fields), *system.grid), dtype=torch.float64)
            forcing = system.forcing(0.0, part.xi.cpu(), like).float().numpy()  # (n,C,*grid)
            for channel, name in enumerate(self.plan.constant_fields):
                group[name][at : at + len(values)] = forcing[:, channel]

    def _write_scalars(self, xi: np.ndarray) -> None:
        system, group = self.plan.system, self.file.create_group("scalars")
        group.attrs["field_names"] = [*system.parameter_names, *system.constants]
        for name, values in zip(system.parameter_names, xi.T, strict=True):
            _put(group, name, values, per_sample=True, per_time=False)
        for name, value in system.constants.items():
            _put(group, name, value, per_sample=False, per_time=False)

    def _write_provenance(
        self,
        xi: np.ndarray,
        environment: np.ndarray,
        status: np.ndarray,
        attempt: np.ndarray,
        device: torch.device,
    ) -> None:
        system, config = self.plan.system, self.plan.config
        group = self.file.create_group("provenance")
        group.attrs.update(
            format_version=FORMAT_VERSION,
            code_version=__version__,
            system=system.name,
            split=self.piece.split,
            seed=config.seed,
            size=config.size,
            config=json.dumps(self.plan.shard_config(), sort_keys=True),
            chunk=min(system.chunk_size(device), self.plan.rows_per_file),
            parameter_names=list(system.parameter_names),
            parameter_symbols=[parameter.symbol for parameter in system.parameters],
        )
        group.create_dataset("parameters", data=xi, dtype="<f8")
        group.create_dataset("trajectory", data=np.arange(self.piece.start, self.piece.stop), dtype="<i8")
        group.create_dataset("environment_id", data=environment, dtype="<i8")
        group.create_dataset("solver_status", data=status, dtype="i1")
        group.create_dataset("attempt", data=attempt, dtype="<i8")


def _put(group: h5py.Group, name: str, values: Any, *, per_sample: bool, per_time: bool) -> None:
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

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

import h5py
import numpy as np
import torch

from pdejepa import __version__
from pdejepa.core.errors import NumericalError
from pdejepa.core.files import write_aside
from pdejepa.data.generate.layout import Piece, Plan
from pdejepa.data.well.blank_shard import create_fields, write_head, write_scalars
from pdejepa.data.well.reserve import drop_reserve, reserve
from pdejepa.data.well.shard import FORMAT_VERSION
from pdejepa.solve.outcome import Outcome
from pdejepa.systems import Generated

Report = Callable[[int], None]
MAX_ROWS_TOLD = 10


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
        times = system.raw_times if self.plan.config.raw_frames else system.times
        write_head(self.file, system.problem, self.piece.n, times)

    def _create_fields(self) -> None:
        plan = self.plan
        is_compressed = plan.config.compression != "none"
        problem, constant = plan.system.problem, plan.constant_fields
        create_fields(self.file, problem, self.piece.n, plan.n_frames, constant, is_compressed)

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
        system = self.plan.system
        write_scalars(self.file, system.parameter_names, xi, system.constants)

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

"""The part of an audit that solves again: a random sample of rows of every split.

Reproduction: the stored float32 values against a fresh solve from the same draw; the difference should be rounding.
Reference: the stored values against something finer or independent, as the system declares, within its bound.
Parameters: every parameter, moved by a few per cent of its range, must change the solution by far more than rounding.

Rows of all splits are solved together.  How many depends on the cost: flows on fine grids take minutes per row on a
CPU, so fewer are taken there, and the report says so.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pdejepa.core.progress import Progress, progress
from pdejepa.data.audit.content_checks import ContentChecks
from pdejepa.data.audit.findings import Report, counted, show
from pdejepa.data.well.reader import Dataset
from pdejepa.solve.outcome import Outcome
from pdejepa.systems.base import SteppedSystem, relative_l2
from pdejepa.systems.problem import Parameter

if TYPE_CHECKING:
    from pdejepa.data.audit.auditor import AuditConfig

REPRODUCTION = {torch.float64: 5e-7, torch.float32: 5e-4}  # flows in float32 amplify rounding
RATIO = 100.0  # a parameter must change the solution by this many reproduction errors
FLOAT32_ROUNDING = 6e-8
STEP_SHARE = 0.05  # by how much of its training range a parameter is moved
MODERATE, HEAVY = 1e6, 3e7  # grid points times steps of one row, on a CPU

Say = Callable[[str], object]


@dataclass(frozen=True)
class Sample:
    """Rows picked for solving again, with what is stored of them."""

    split: tuple[str, ...]
    row: tuple[int, ...]
    stored: Tensor  # (n,T,C,*grid) float64
    u0: Tensor  # (n,C,*solver grid)
    xi: Tensor  # (n,P)
    status: Tensor  # (n,) as recorded

    def rows(self, split: str) -> list[int]:
        return [i for i, name in enumerate(self.split) if name == split]


@dataclass
class PhysicsChecks:
    """The solving part of one audit."""

    data: Dataset
    content: ContentChecks
    report: Report
    config: AuditConfig
    device: torch.device
    reproduction_error: float = 0.0

    def run(self, say: Say) -> None:
        plan, is_reduced = self._plan()
        self.report.settings["device"] = self.device.type
        if is_reduced:
            say(f"{self._cost()} Checking {counted(sum(plan.values()), 'row')}; --samples asks for more.")
        left_out = [split for split in self.data.splits if split not in plan]
        if left_out:
            self.report.add("reproduction", "skipped", f"{', '.join(left_out)}: not solved again. {self._cost()}")
        sample = self._draw(plan)
        if sample is None:
            self.report.add("reproduction", "skipped", "no row holds a usable solution")
            return
        n, n_moved = len(sample.row), len(self.content.system.parameters) * len(sample.rows(sample.split[0]))
        with progress((2 if self._is_heavy() else 3) * n + n_moved, "solving again", "rows") as bar:
            fresh = self._check_reproduction(sample, bar)
            self._check_reference(sample, bar)
            self._check_parameters(sample, fresh, bar)
            if self._is_heavy():
                self.report.add("reference", "skipped", f"error in space: not measured. {self._cost()}")
            else:
                self._tell_refinement(sample)
                bar.advance(n)

    # ---- how much ----------------------------------------------------------------------------------------
    def _work(self) -> float:
        """Grid points times steps of one row; closed forms count as nothing."""
        system = self.content.system
        if not isinstance(system, SteppedSystem):
            return 0.0
        points = math.prod((getattr(system, "solver_grid", system.grid[0]),) * system.ndim)
        return points * float(system.times[-1]) / system.dt

    def _is_heavy(self) -> bool:
        return self.config.samples is None and self.device.type == "cpu" and self._work() > HEAVY

    def _plan(self) -> tuple[dict[str, int], bool]:
        """Rows per split, and whether they are fewer than usual because of their cost."""
        splits, asked = self.data.splits, self.config.samples
        if asked is not None:
            return {split: min(asked, self.data.n(split)) for split in splits}, False
        if self.device.type == "cpu" and self._work() > HEAVY:
            return {splits[0]: 1}, True
        n, is_reduced = (1, True) if self.device.type == "cpu" and self._work() > MODERATE else (3, False)
        return {split: min(n, self.data.n(split)) for split in splits}, is_reduced

    def _cost(self) -> str:
        grid = getattr(self.content.system, "solver_grid", self.content.system.grid[0])
        return f"{self.content.system.name} is simulated on {grid} points per axis, which is slow on a CPU."

    def _draw(self, plan: dict[str, int]) -> Sample | None:
        """Random rows, the same for the same seed; their initial states are drawn as they were for the data."""
        splits, rows, parts = [], [], []
        for split, n in plan.items():
            status = self.data.column(split, "solver_status")
            usable = np.flatnonzero([Outcome(int(code)).usable for code in status])
            generator = np.random.default_rng([self.config.seed, zlib.crc32(split.encode())])
            chosen = np.sort(generator.permutation(usable)[:n])
            if not len(chosen):
                continue
            attempt = torch.from_numpy(self.data.column(split, "attempt")[chosen])
            u0, _ = self.content.system.sample(
                split, chosen.tolist(), seed=self.content.seed, attempt=attempt, device=self.device
            )
            xi = torch.from_numpy(self.data.xi(split)[chosen]).to(self.device)
            fields = torch.from_numpy(self.data.fields(split, chosen)).double()
            parts.append((fields, u0, xi, torch.from_numpy(status[chosen])))
            splits += [split] * len(chosen)
            rows += chosen.tolist()
        self.report.settings["rows_solved_again"] = {split: rows_of(splits, rows, split) for split in plan}
        columns = [torch.cat(column) for column in zip(*parts, strict=True)]
        return Sample(tuple(splits), tuple(rows), *columns) if parts else None

    def _in_chunks(self, n: int, bar: Progress) -> Iterator[slice]:
        """Slices of n rows, as many as the system solves together: memory stays bounded however many are asked for."""
        size = self.content.system.chunk_size(self.device)
        for begin in range(0, n, size):
            yield slice(begin, min(begin + size, n))
            bar.advance(min(begin + size, n) - begin)

    def _solve(self, u0: Tensor, xi: Tensor, bar: Progress) -> tuple[Tensor, Tensor]:
        """Fields and status on the host."""
        solved = [
            self.content.system.solve(u0[part], xi[part], times=self.content.times)
            for part in self._in_chunks(len(u0), bar)
        ]
        return torch.cat([one.as_subclass(Tensor).cpu() for one in solved]), torch.cat([one.status for one in solved])

    # ---- checks ------------------------------------------------------------------------------------------
    def _check_reproduction(self, sample: Sample, bar: Progress) -> Tensor:
        bound = REPRODUCTION[self.content.system.dtype]
        fresh, status = self._solve(sample.u0, sample.xi, bar)
        error = channel_error(sample.stored, fresh)
        for split in dict.fromkeys(sample.split):
            rows = sample.rows(split)
            told = f"{split}: stored values against solving {counted(len(rows), 'row')} again"
            self.report.judge("reproduction", told, float(error[rows].max()), bound)
        changed = [i for i in range(len(error)) if int(status[i]) != int(sample.status[i])]
        if changed:
            told = ", ".join(f"{sample.split[i]} {sample.row[i]}" for i in changed)
            self.report.add("reproduction", "reported", f"rows that now end with another outcome than recorded: {told}")
        self.reproduction_error = float(error.max())
        return fresh

    def _check_reference(self, sample: Sample, bar: Progress) -> None:
        """Rows marked under-resolved are values of the discretisation: they are told, not judged."""
        system = self.content.system
        stored = self._default_frames(sample.stored)
        parts = self._in_chunks(len(stored), bar)
        error = torch.cat(
            [channel_error(stored[p], system.solve_reference(sample.u0[p], sample.xi[p]).cpu()) for p in parts]
        )
        is_marked = sample.status == int(Outcome.UNDER_RESOLVED)
        for split in dict.fromkeys(sample.split):
            rows = [i for i in sample.rows(split) if not is_marked[i]]
            if rows:
                told = f"{split}: {counted(len(rows), 'row')} against: {system.reference.refined}"
                self.report.judge("reference", told, float(error[rows].max()), system.reference.bound)
        marked = is_marked.nonzero().flatten().tolist()
        if marked:
            told = f"{counted(len(marked), 'row')} marked under-resolved, against: {system.reference.refined}"
            self.report.add("reference", "reported", told, float(error[marked].max()))

    def _tell_refinement(self, sample: Sample) -> None:
        stored = self._default_frames(sample.stored).to(self.device)
        told = self.content.system.refinement_report(sample.u0, sample.xi, stored)
        for what, value in told.items():
            self.report.add("reference", "reported", what, value)

    def _check_parameters(self, sample: Sample, fresh: Tensor, bar: Progress) -> None:
        """Move one parameter at a time on the rows of the first split; the largest change of its rows counts."""
        system, rows = self.content.system, sample.rows(sample.split[0])
        moved = [(j, i, _moved(p, float(sample.xi[i, j]))) for j, p in enumerate(system.parameters) for i in rows]
        xi = torch.stack([sample.xi[i] for _, i, _ in moved])
        for place, (j, _, value) in enumerate(moved):
            xi[place, j] = value
        index = torch.tensor([i for _, i, _ in moved])
        solved, _ = self._solve(sample.u0[index.to(self.device)], xi, bar)
        change = torch.nan_to_num(channel_error(solved, fresh[index]), nan=0.0)
        floor = RATIO * max(self.reproduction_error, FLOAT32_ROUNDING)
        weakest, dead = math.inf, []
        for j, parameter in enumerate(system.parameters):
            largest = float(change[[place for place, item in enumerate(moved) if item[0] == j]].max())
            weakest = min(weakest, largest)
            if not largest > floor:
                dead.append(
                    f"{parameter.name} (changes the solution by {show(largest)}, rounding is {show(floor / RATIO)})"
                )
        for told in dead:
            self.report.add("parameters", "failed", f"a parameter without effect: {told}.", kind="physics")
        if not dead:
            told = (
                f"{counted(len(system.parameters), 'parameter')}, each moved a little, change the solution by at least"
            )
            self.report.add("parameters", "ok", told, weakest)

    def _default_frames(self, fields: Tensor) -> Tensor:
        return fields[:, self.content.system.frame_idx] if self.content.raw_frames else fields


def channel_error(u: Tensor, v: Tensor) -> Tensor:
    """Relative L2 of each row over frames and grid, the largest of its channels, (B,).

    Channels are judged apart because they may differ in size by orders of magnitude (u and u_t of a wave).
    """
    return torch.stack([relative_l2(u[:, :, c], v[:, :, c]) for c in range(u.shape[2])]).amax(0)


def rows_of(splits: list[str], rows: list[int], split: str) -> list[int]:
    return [row for name, row in zip(splits, rows, strict=True) if name == split]


def _moved(parameter: Parameter, value: float) -> float:
    """Another value of the parameter nearby: the next choice, or a few per cent of its range up or down."""
    if parameter.choices:
        inside = [one for one in parameter.choices if parameter.train[0] <= one <= parameter.train[1] and one != value]
        return min(inside, key=lambda one: abs(one - value))
    low, high = parameter.train
    step = STEP_SHARE * (high - low)
    return value + step if value + step <= parameter.limits[1] else value - step

"""The part of an audit that reads every row once: declarations, frames, splits, invariants.

Letters: n rows of a block, T frames, C channels, P parameters.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from pdejepa.core.errors import DataError, ParameterError
from pdejepa.core.progress import Progress, progress
from pdejepa.core.seeds import Draws
from pdejepa.data.audit.findings import Report, counted
from pdejepa.data.audit.frame_faults import FrameFaults, blocks, rows_in_words, tell_frames
from pdejepa.data.well.reader import Dataset
from pdejepa.data.well.safety import open_hdf5
from pdejepa.data.well.shard import ShardFile
from pdejepa.solve.outcome import Outcome, count_outcomes
from pdejepa.systems import System, build_system, is_known
from pdejepa.systems.base import MAX_ATTEMPTS
from pdejepa.systems.problem import Parameter
from pdejepa.systems.structure import Check, Split

ROUNDING = 1e-6  # coordinates, times and scalars are stored in float32
SHARD_KEYS = ("system", "size", "seed", "raw_frames", "switches")
LAW_ROUNDING = 1e-12  # exp and log may differ in the last bits from machine to machine


@dataclass
class ContentChecks:
    """One data set of ours, with the system that made it."""

    data: Dataset
    report: Report
    system: System
    counts: dict[str, int]
    shard_config: dict[str, Any]  # what every file must say about how it was made
    worst: dict[str, Check] = field(default_factory=dict)  # invariants over all rows, by name
    seen: dict[bytes, tuple[str, int]] = field(default_factory=dict)  # (u0, xi) -> where it was met

    @classmethod
    def of(cls, data: Dataset, report: Report) -> ContentChecks | None:
        """None, and a finding, if the files do not say how they were made or the system is not known here."""
        shard_config = data.config
        if shard_config is None or not is_known(shard_config.get("system")):
            report.is_foreign = True
            report.add("physics", "skipped", f"the system {data.system_name[:60]!r} is not known to this version")
            return None
        stored = _read_config(report)
        system = build_system(stored["system"], stored["size"], stored["switches"])
        report.about = {
            "system": system.name,
            "equation": system.equation,
            "size": stored["size"],
            "seed": stored["seed"],
            "trajectories": {split: data.n(split) for split in data.splits},
        }
        return cls(data, report, system, stored["counts"], {key: stored[key] for key in SHARD_KEYS})

    @property
    def seed(self) -> int:
        return int(self.shard_config["seed"])

    @property
    def raw_frames(self) -> bool:
        return bool(self.shard_config["raw_frames"])

    @property
    def times(self) -> torch.Tensor:
        return self.system.raw_times if self.raw_frames else self.system.times

    # ---- declarations ------------------------------------------------------------------------------------
    def check_declarations(self) -> bool:
        """Names, grid, times and numbers of rows are those that the system and the configuration say."""
        wrong = self._wrong_splits()
        for split in self.data.splits:
            for path in self.data.shards(split):
                name = path.relative_to(self.report.root).as_posix()
                wrong += [f"{name}: {sentence}" for sentence in self._wrong_shard(self.data.shard(path))]
        if not wrong:
            wrong = [sentence for split in self.data.splits for sentence in self._wrong_rows(split)]
        for sentence in wrong:
            self.report.add("declarations", "failed", f"{sentence}.")
        if not wrong:
            sentence = f"fields, parameters, grid, times and counts are those of {self.system.name}"
            self.report.add("declarations", "ok", sentence)
        return not wrong

    def _wrong_splits(self) -> list[str]:
        known = {split.name for split in self.system.all_splits}
        got, wanted = set(self.data.splits), set(self.counts) & known
        return [] if got == wanted else [f"the splits are {sorted(got)}, the configuration says {sorted(wanted)}"]

    def _wrong_shard(self, shard: ShardFile) -> list[str]:
        """One file against the system: names, how it says it was made, coordinates."""
        system = self.system
        pairs = {
            "fields": (shard.field_names, system.fields),
            "parameters": (shard.parameter_names, system.parameter_names),
            "axes": (shard.axes_names, tuple(system.axes)),
            "settings in its provenance": (shard.config, self.shard_config),
        }
        found = [f"the {what} are {got}, expected {wanted}" for what, (got, wanted) in pairs.items() if got != wanted]
        if found:
            return found
        wanted = {"time": self.times, **system.axes}
        for name, expected in wanted.items():
            got, nodes = shard.times() if name == "time" else shard.axes[name], expected.numpy()
            size = float(np.abs(nodes).max()) or 1.0
            if got.shape != nodes.shape or np.abs(got - nodes).max() > ROUNDING * size:
                found.append(f"the stored {name} coordinates are not those of {system.name}")
        return found

    def _wrong_rows(self, split: str) -> list[str]:
        data, n = self.data, self.data.n(split)
        if n != self.counts.get(split):
            return [f"{split} has {n} trajectories, its configuration says {self.counts.get(split)}"]
        if data.xi(split).shape != (n, len(self.system.parameters)):
            return [f"{split}: the parameters have shape {data.xi(split).shape} for {n} trajectories"]
        if not np.array_equal(data.column(split, "trajectory"), np.arange(n)):
            return [f"the trajectories of {split} are not numbered 0 to {n - 1}"]
        wanted = self.system.environment_of(split, range(n)).numpy()
        if not np.array_equal(data.column(split, "environment_id"), wanted):
            return [f"{split}: environment numbers are not those of the trajectories"]
        status, attempt = data.column(split, "solver_status"), data.column(split, "attempt")
        if status.shape != (n,) or not np.isin(status, [int(outcome) for outcome in Outcome]).all():
            return [f"{split}: the recorded outcomes are not known outcomes of {n} solves"]
        if attempt.shape != (n,) or attempt.min() < 0 or attempt.max() >= MAX_ATTEMPTS:
            return [f"{split}: the recorded attempts are not from 0 to {MAX_ATTEMPTS - 1}"]
        return []

    # ---- rows --------------------------------------------------------------------------------------------
    def check_rows(self) -> bool:
        """One pass over all values, in blocks of bounded memory; whether the parameters are fit for solving again."""
        with progress(sum(self.data.n(split) for split in self.data.splits), "rows") as bar:
            for split in self.data.splits:
                self._check_split(split, bar)
        is_fit = True
        for name in self.data.splits:
            is_fit = self._check_parameters(self.system.split(name)) and is_fit
        if not any(finding.part == "splits" for finding in self.report.failures):
            told = f"no (u0, xi) pair occurs twice among {len(self.seen):,} trajectories"
            self.report.add("splits", "ok", told)
            told = f"all parameters are those that seed {self.seed} draws, inside their limits"
            self.report.add("splits", "ok", f"{told}, and inside or outside the training range as the split says")
        for check in self.worst.values():
            self.report.judge("invariants", check.name, check.value, check.bound)
        return is_fit

    def _check_split(self, split: str, bar: Progress) -> None:
        faults, twice = FrameFaults(), []
        for path in self.data.shards(split):
            shard = self.data.shard(path)
            first = faults.n_rows
            for start, fields in blocks(shard):
                xi = shard.xi[start : start + len(fields)]
                twice += self._repeated_pairs(split, first + start, fields, xi)
                faults.add(fields, first + start)
                self._add_invariants(fields, xi, [first + start + i not in faults.not_finite for i in range(len(xi))])
                bar.advance(len(fields))
        tell_frames(self.report, split, faults, must_move=not self.system.comes_to_rest)
        for row, (other, at) in twice[:3]:
            told = f"trajectory {row} of {split} has the first frame and the parameters of {other} {at}"
            self.report.add("splits", "failed", f"{told} ({counted(len(twice), 'such pair')}).")
        self._tell_outcomes(split)

    def _repeated_pairs(
        self, split: str, start: int, fields: np.ndarray, xi: np.ndarray
    ) -> list[tuple[int, tuple[str, int]]]:
        found = []
        for i in range(len(fields)):
            content = np.ascontiguousarray(fields[i, 0]).tobytes() + np.ascontiguousarray(xi[i]).tobytes()
            key = hashlib.blake2b(content, digest_size=16).digest()
            if key in self.seen:
                found.append((start + i, self.seen[key]))
            else:
                self.seen[key] = (split, start + i)
        return found

    def _add_invariants(self, fields: np.ndarray, xi: np.ndarray, is_finite: list[bool]) -> None:
        rows = np.flatnonzero(is_finite)
        if not len(rows):
            return
        with torch.no_grad():
            values = torch.from_numpy(fields[rows]).double()
            checks = self.system.invariants(values, torch.from_numpy(xi[rows]), self.times)
        for check in checks:
            old = self.worst.get(check.name)
            if old is None or not check.value <= old.value:
                self.worst[check.name] = check

    def _tell_outcomes(self, split: str) -> None:
        status = self.data.column(split, "solver_status")
        counts = count_outcomes(status.tolist())
        for outcome in Outcome:
            n = counts.get(outcome.label, 0)
            if outcome is Outcome.OK or not n:
                continue
            rows = rows_in_words(np.flatnonzero(status == int(outcome)).tolist())
            told = f"{split}: {n} of {len(status):,} solves ended {outcome.label} ({rows}): {outcome.sentence}"
            self.report.add("frames", "reported" if outcome.usable else "failed", told)

    # ---- parameters --------------------------------------------------------------------------------------
    def _check_parameters(self, split: Split) -> bool:
        xi = self.data.xi(split.name)
        try:
            self.system.check_xi(torch.from_numpy(xi))
        except ParameterError as error:
            self.report.add("splits", "failed", f"{split.name}: {error}")
            return False
        self._check_law(split, xi)
        self._check_range(split, xi)
        self._check_scalars(split)
        return True

    def _check_law(self, split: Split, xi: np.ndarray) -> None:
        """Every stored parameter is what the seed draws."""
        unique, inverse = self.system.environment_of(split.name, range(len(xi))).unique(return_inverse=True)
        draws = Draws(self.system.name, split.name, "environment", self.seed, unique)
        expected = self.system.environment(split, draws)[inverse].numpy()
        size = np.maximum(np.abs(expected), 1e-300)
        wrong = np.flatnonzero((np.abs(xi - expected) > LAW_ROUNDING * size).any(1)).tolist()
        if wrong:
            told = f"other parameters than seed {self.seed} draws in {counted(len(wrong), 'trajectory')}"
            self.report.add("splits", "failed", f"{split.name}: {told} ({rows_in_words(wrong)}).")

    def _check_range(self, split: Split, xi: np.ndarray) -> None:
        """In distribution: inside the training box.  Out of it: beyond or on its border, or a value train has not."""
        inside = [_inside(parameter, xi[:, j]) for j, parameter in enumerate(self.system.parameters)]
        if not split.is_ood:
            wrong = np.flatnonzero(~np.all(inside, axis=0)).tolist()
            if wrong:
                told = f"outside the training range: {counted(len(wrong), 'trajectory')}"
                self.report.add("splits", "failed", f"{split.name}: {told} ({rows_in_words(wrong)}).")
            return
        is_new = [self._is_new(j, parameter, xi[:, j]) for j, parameter in enumerate(self.system.parameters)]
        wrong = np.flatnonzero(~np.any(is_new, axis=0)).tolist()
        if wrong:
            told = f"out of distribution by name, but inside the training range: {counted(len(wrong), 'trajectory')}"
            self.report.add("splits", "failed", f"{split.name}: {told} ({rows_in_words(wrong)}).")

    def _is_new(self, j: int, parameter: Parameter, values: np.ndarray) -> np.ndarray:
        low, high = parameter.train
        beyond = (values <= low) | (values >= high)
        if parameter.law.startswith("one of") and "train" in self.data.splits:
            return ~np.isin(values, self.data.xi("train")[:, j])
        return beyond

    def _check_scalars(self, split: Split) -> None:
        """The float32 scalars that other loaders see are the parameters we solved with."""
        for path in self.data.shards(split.name):
            xi = self.data.shard(path).xi.astype(np.float32)
            with open_hdf5(path) as file:
                stored = np.stack([file["scalars"][name][()] for name in self.system.parameter_names], 1)
            if not np.array_equal(stored, xi):
                name = path.relative_to(self.report.root).as_posix()
                self.report.add("splits", "failed", f"{name}: the scalars are not the parameters in its provenance.")


def _inside(parameter: Parameter, values: np.ndarray) -> np.ndarray:
    low, high = parameter.train
    room = 1e-9 * max(abs(low), abs(high))
    return np.asarray((values >= low - room) & (values <= high + room))


def _read_config(report: Report) -> dict[str, Any]:
    path = report.root / "config.json"
    try:
        stored = dict(json.loads(path.read_bytes()))
        missing = {*SHARD_KEYS, "counts"} - set(stored)
        if missing:
            raise ValueError(f"{sorted(missing)[0]} is missing")
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path} cannot be used ({error}); the data set cannot be audited without it.") from error
    return stored

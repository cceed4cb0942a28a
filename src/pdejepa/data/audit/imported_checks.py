"""What can be checked of data that somebody else made: values, times, splits, parameters.  The equation is not known.

Letters: n rows of a block, T frames, C channels, P parameters.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

import numpy as np

from pdejepa.core.progress import Progress, progress
from pdejepa.data.audit.findings import Report, counted
from pdejepa.data.audit.frame_faults import FrameFaults, blocks, tell_frames
from pdejepa.data.well.reader import Dataset

EVEN = 1e-3  # of a frame gap; times are stored in float32
MATTERS = 1e-6  # relative distance from which on two trajectories differ
N_KEPT = 200  # starts whose last frames are kept for comparison


@dataclass
class ImportedChecks:
    """One imported data set; see the table in `auditor`."""

    data: Dataset
    report: Report
    seen: dict[bytes, tuple[str, int]] = field(default_factory=dict)  # whole start and parameters -> where
    starts: dict[bytes, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)  # start -> (xi, last frame)
    distances: list[float] = field(default_factory=list)  # between ends of equal starts, relative

    def run(self) -> None:
        """All findings; the verdict says that nothing was solved."""
        data, report = self.data, self.report
        report.is_imported = True
        counts = {split: data.n(split) for split in data.splits}
        report.about = {"system": data.system_name, "origin": "imported, not solved", "trajectories": counts}
        self._tell_sources()
        with progress(sum(counts.values()), "rows") as bar:
            for split in data.splits:
                self._check_split(split, bar)
        self._check_times()
        if not any(finding.part == "splits" for finding in report.failures):
            told = f"no start with equal parameters occurs in two splits, among {len(self.seen):,}"
            report.add("splits", "ok", told)
        self._check_environments()
        self._check_parameters()
        report.add("physics", "skipped", "the data were imported, not solved; their equation is not known here")

    def _tell_sources(self) -> None:
        """What config.json, which the manifest vouches for, says of the origin."""
        stored = dict(json.loads((self.report.root / "config.json").read_bytes()))
        for one in stored.get("sources", []):
            told = f"{str(one.get('name'))[:100]}, {one.get('bytes', 0):,} bytes, SHA-256 {str(one.get('sha256'))[:64]}"
            self.report.add("sources", "reported", told)
        if stored.get("left_out"):
            told = f"{counted(len(stored['left_out']), 'trajectory')} of the sources repeated another one: left out"
            self.report.add("sources", "reported", told)
        self.report.add("splits", "reported", f"cut {stored.get('splits_are_cut')}; ood: {stored.get('ood')}")

    def _check_split(self, split: str, bar: Progress) -> None:
        faults = FrameFaults()
        for path in self.data.shards(split):
            shard = self.data.shard(path)
            first = faults.n_rows
            for start, fields in blocks(shard):
                faults.add(fields, first + start)
                for i, row in enumerate(fields):
                    self._look(split, first + start + i, row, shard.xi[start + i])
                bar.advance(len(fields))
        tell_frames(self.report, split, faults, must_move=False)

    def _look(self, split: str, row: int, fields: np.ndarray, xi: np.ndarray) -> None:
        """Note one trajectory (T,C,*grid), and compare its end with that of an equal start."""
        start = hashlib.blake2b(np.ascontiguousarray(fields[0]).tobytes(), digest_size=16).digest()
        other, at = self.seen.setdefault(start + xi.tobytes(), (split, row))
        if (other, at) != (split, row):
            told = f"trajectory {row} of {split} has the first frame and the parameters of {other} {at}"
            self.report.add("splits", "reported" if other == split else "failed", f"{told}.")
        if start not in self.starts and len(self.starts) < N_KEPT:
            self.starts[start] = (xi, fields[-1].copy())
        elif start in self.starts and not np.array_equal(self.starts[start][0], xi):
            last = self.starts[start][1].astype(np.float64)
            size = float(np.linalg.norm(last)) or 1.0
            self.distances.append(float(np.linalg.norm(fields[-1] - last)) / size)

    def _check_times(self) -> None:
        gaps = np.diff(self.data.times)
        uneven = float((gaps.max() - gaps.min()) / gaps.mean()) if len(gaps) else 0.0
        self.report.judge("frames", "frames are evenly spaced: spread of the gaps", uneven, EVEN, kind="data")

    def _check_environments(self) -> None:
        """Whether parameters of valid and test were trained on."""
        if "train" not in self.data.splits or not self.data.parameter_names:
            return
        known = {row.tobytes() for row in self.data.xi("train")}
        for split in (name for name in ("valid", "test", "ood") if name in self.data.splits):
            shared = sum(row.tobytes() in known for row in self.data.xi(split))
            state = "failed" if shared and split == "ood" else "reported" if shared else "ok"
            told = f"{split}: {shared:,} of {self.data.n(split):,} trajectories have parameters that train has too"
            self.report.add("splits", state, told)  # type: ignore[arg-type]

    def _check_parameters(self) -> None:
        xi = np.concatenate([self.data.xi(split) for split in self.data.splits])
        for j, name in enumerate(self.data.parameter_names):
            low, high = xi[:, j].min(), xi[:, j].max()
            told = f"{name} goes from {low:.6g} to {high:.6g}" if high > low else f"{name} is always {low:.6g}"
            self.report.add("parameters", "ok" if high > low else "reported", told)
        if not self.distances:
            told = "whether parameters matter was not measured: no two trajectories start alike with others"
            self.report.add("parameters", "reported", told)
            return
        smallest = min(self.distances)
        told = f"of {len(self.distances):,} pairs that start alike with other parameters, the closest end apart by"
        self.report.add("parameters", "ok" if smallest > MATTERS else "reported", told, smallest)

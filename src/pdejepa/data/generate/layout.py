"""What a data set will consist of, decided before anything is computed.

A configuration fixes the system with all its switches, the splits with their numbers of trajectories, and how
these are cut into files.  Nothing here depends on the device or on the number of processes, so that any of them
can continue what another began.

A file holds a whole number of CPU solver chunks: its trajectories then meet the same neighbours as in
`system.generate`, and the values are equal bit for bit.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from pdejepa.core.errors import ConfigError, did_you_mean
from pdejepa.systems import System, build_system, switch_values
from pdejepa.systems.structure import Split

MAX_FILE_BYTES = 2_000_000_000
MAX_SEED = 2**63 - 1
# Where it runs and how the work is shared changes nothing in the result.
NOT_STORED = ("out", "device", "shard", "wait", "scheduler")

Switch = bool | int | float | str


@dataclass(frozen=True)
class GenerateConfig:
    """What to generate.

    splits: empty means those of the benchmark      counts: trajectories per split where other than the size says
    shard: "i/n", slice i of n of the work, i from 0      rows_per_file: 0 means as the system declares
    scheduler: address of a dask scheduler whose workers make the shards; empty: this process does
    switches: settings of the system, e.g. {"flux": "alpha u^2"}; they win over what the size implies
    """

    system: str
    out: str
    size: Literal["tiny", "small", "laptop", "paper"] = "tiny"
    splits: tuple[str, ...] = ()
    device: str = "auto"
    seed: int = 0
    shard: str = "0/1"
    raw_frames: bool = False
    compression: Literal["none", "gzip"] = "none"
    switches: dict[str, Switch] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    rows_per_file: int = 0
    wait: bool = True
    scheduler: str = ""

    def __post_init__(self) -> None:
        problems = [*self._number_problems(), *self._name_problems()]
        if problems:
            raise ConfigError("; ".join(problems), problems)

    def _number_problems(self) -> list[str]:
        found = []
        if not 0 <= self.seed <= MAX_SEED:
            found.append(f"seed must be from 0 to 2^63-1, got {self.seed}")
        if self.rows_per_file < 0:
            found.append(f"rows_per_file must be 0 (automatic) or more, got {self.rows_per_file}")
        found += [
            f"counts.{name} must be from 1 to 2^31-1, got {n}" for name, n in self.counts.items() if not 0 < n < 2**31
        ]
        try:
            parse_slice(self.shard)
        except ConfigError as error:
            found.append(str(error))
        if self.scheduler and self.shard.strip() != "0/1":
            found.append("a scheduler shares the work out by itself; leave out either scheduler or shard")
        if not self.out.strip():
            found.append("out must name a folder")
        return found

    def _name_problems(self) -> list[str]:
        try:
            system = build_system(self.system, self.size, self.switches)
        except ConfigError as error:
            return [str(error)]
        known = [split.name for split in system.all_splits]
        given = [*self.splits, *self.counts]
        listed = f"; its splits: {', '.join(known)}"
        unknown = [
            f"{system.name} has no split {name!r}{did_you_mean(name, known) or listed}"
            for name in dict.fromkeys(given)
            if name not in known
        ]
        extra = {split.name for split in system.extra_splits} & set(self.counts) - set(self.splits)
        return unknown + [f"counts.{name} is given, but {name} is made only where --splits names it" for name in extra]


@dataclass(frozen=True)
class Piece:
    """One file to be: rows [start, stop) of a split."""

    system: str
    split: str
    number: int
    start: int
    stop: int

    @property
    def label(self) -> str:
        return f"{self.split}/{self.number:04d}"

    @property
    def path(self) -> str:
        """Relative to the root of the data set."""
        return f"data/{self.split}/{self.system}_{self.split}_{self.number:04d}.hdf5"

    @property
    def n(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Plan:
    """A configuration with its system built and its work cut up."""

    config: GenerateConfig
    system: System

    @classmethod
    def of(cls, config: GenerateConfig) -> Plan:
        return cls(config, build_system(config.system, config.size, config.switches))

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits to make, in the system's order."""
        wanted = self.config.splits or tuple(split.name for split in self.system.splits)
        return tuple(split for split in self.system.all_splits if split.name in wanted)

    def count(self, split: Split) -> int:
        """Trajectories of a split."""
        return self.config.counts.get(split.name, split.size(self.config.size))

    @property
    def n_frames(self) -> int:
        return len(self.system.raw_times if self.config.raw_frames else self.system.times)

    @property
    def constant_fields(self) -> tuple[str, ...]:
        """Names of the fields that are stored once per trajectory: a forcing that does not change in time."""
        if self.system.structure.forcing != "constant":
            return ()
        names = self.system.fields
        return ("forcing",) if len(names) == 1 else tuple(f"forcing_{name}" for name in names)

    @property
    def row_bytes(self) -> int:
        """Disk space of one trajectory, apart from what HDF5 adds."""
        frames = self.n_frames * len(self.system.fields) + len(self.constant_fields)
        return 4 * frames * math.prod(self.system.grid) + 12 * len(self.system.parameters) + 32

    @property
    def rows_per_file(self) -> int:
        chunk, most = self.system.chunk[0], max(1, MAX_FILE_BYTES // self.row_bytes)
        if self.config.rows_per_file:
            return min(self.config.rows_per_file, most)
        rows = min(self.system.shard, most)
        return rows // chunk * chunk if rows >= chunk else rows

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """All files, in a fixed order."""
        found = []
        for split in self.splits:
            total, step = self.count(split), self.rows_per_file
            for number, start in enumerate(range(0, total, step)):
                found.append(Piece(self.system.name, split.name, number, start, min(start + step, total)))
        return tuple(found)

    def slice(self, number: int, of: int) -> tuple[Piece, ...]:
        """Slice `number` of `of`: every of-th piece, so that long and short splits are shared alike."""
        return self.pieces[number::of]

    def estimate_bytes(self, pieces: tuple[Piece, ...]) -> int:
        """Disk space of some files; compression is not counted on."""
        return sum(piece.n * self.row_bytes + 100_000 for piece in pieces)

    # ---- what is stored of the configuration ---------------------------------------------------------------
    def stored(self) -> dict[str, Any]:
        """The resolved configuration as plain data, for config.json: equal plans give equal content."""
        config = {f.name: getattr(self.config, f.name) for f in dataclasses.fields(self.config)}
        resolved = {
            "system": self.system.name,
            "splits": [split.name for split in self.splits],
            "counts": {split.name: self.count(split) for split in self.splits},
            "rows_per_file": self.rows_per_file,
            "switches": switch_values(self.system),
        }
        return {name: resolved.get(name, value) for name, value in config.items() if name not in NOT_STORED}

    def stored_text(self) -> str:
        return json.dumps(self.stored(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def stored_sha256(self) -> str:
        return hashlib.sha256(self.stored_text().encode()).hexdigest()

    def shard_config(self) -> dict[str, Any]:
        """The part that decides what a trajectory is; which other trajectories exist is not part of it."""
        keys = ("system", "size", "seed", "raw_frames", "switches")
        return {key: self.stored()[key] for key in keys}


def parse_slice(text: str) -> tuple[int, int]:
    """`2/8` -> (2, 8)."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    number, of = (int(match[1]), int(match[2])) if match else (0, 0)
    if match is None or not 0 <= number < of:
        raise ConfigError(f"shard must be i/n with i from 0 to n-1, for example 0/4; got {text[:40]!r}")
    return number, of

"""Where trajectories come from: one call, whether a system makes them, files hold them, or they are in memory.

    source = Generated(system)                 pure functions of (split, number, seed)
    source = Stored(Dataset.open("data"))      a data set in The Well's layout
    source = Arrays(problem, fields, xi)       somebody's own, in memory
    for block in source.blocks("test", 100, 32, device):
        block.fields, block.xi, block.environment

Letters: n trajectories, T frames, C channels, *grid spatial axes, P parameters.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pdejepa.core.errors import DataError
from pdejepa.core.files import MANIFEST_NAME, sha256_file
from pdejepa.data.well.reader import Dataset
from pdejepa.systems import System
from pdejepa.systems.problem import Problem

CPU = torch.device("cpu")
N_HASHED = 64  # trajectories of every split whose values go into a hash
Report = Callable[[int], object]


class Block(NamedTuple):
    """Some trajectories of a split, one after the other."""

    fields: Tensor  # (n,T,C,*grid) float32, physical units
    xi: Tensor  # (n,P) float64
    environment: Tensor  # (n,) int64: equal numbers, equal parameters


class Trajectories(ABC):
    """A source of trajectories.  Training, comparisons, evaluation and studies read from one and from nothing else."""

    problem: Problem
    system: System | None = None  # with its solver and equation, where it is known

    @property
    @abstractmethod
    def name(self) -> str:
        """Where the values come from, for records: "generated", or a path."""

    @abstractmethod
    def n(self, split: str) -> int:
        """How many trajectories the split has."""

    @abstractmethod
    def block(
        self, split: str, start: int, stop: int, device: torch.device = CPU, report: Report | None = None
    ) -> Block:
        """The trajectories start..stop-1; `report` is told how many are done."""

    @abstractmethod
    def digest(self, blocks: Mapping[str, Block]) -> str:
        """A hash that stands for these trajectories."""

    def granule(self, device: torch.device) -> int:
        """Blocks begin at multiples of it, so that values do not depend on how they are cut."""
        return 1

    def blocks(self, split: str, n: int, size: int, device: torch.device = CPU) -> Iterator[Block]:
        """The first n trajectories in blocks of about `size`."""
        granule = self.granule(device)
        step = max(1, size // granule) * granule
        for start in range(0, n, step):
            yield self.block(split, start, min(start + step, n), device)

    def check(self, split: str, n: int) -> None:
        """Refuse to be asked for more trajectories than there are."""
        if n > self.n(split):
            raise DataError(f"{self.name} has {self.n(split)} trajectories in {split}; {n} were asked for.")


@dataclass
class Generated(Trajectories):
    """Made when they are asked for; a split has no end, `size` says how many the benchmark counts."""

    system: System
    size: str = "paper"
    seed: int = 0

    @property
    def problem(self) -> Problem:  # type: ignore[override]
        return self.system.problem

    @property
    def name(self) -> str:
        return "generated"

    def n(self, split: str) -> int:
        return self.system.split(split).size(self.size)

    def granule(self, device: torch.device) -> int:
        return self.system.chunk_size(device)

    def block(
        self, split: str, start: int, stop: int, device: torch.device = CPU, report: Report | None = None
    ) -> Block:
        made = self.system.generate(split, stop - start, device, start=start, seed=self.seed, report=report)  # type: ignore[arg-type]
        return Block(made.fields, made.xi, made.environment)

    def digest(self, blocks: Mapping[str, Block]) -> str:
        counts = {split: len(block.fields) for split, block in blocks.items()}
        return _hash({"system": self.system.name, "counts": counts, **asdict(self.system)}, blocks)


@dataclass
class Stored(Trajectories):
    """A data set on disk."""

    dataset: Dataset
    system: System = field(init=False)

    def __post_init__(self) -> None:
        self.system = self.dataset.build_system()

    @property
    def problem(self) -> Problem:  # type: ignore[override]
        return self.system.problem

    @property
    def name(self) -> str:
        return str(self.dataset.root)

    def n(self, split: str) -> int:
        return self.dataset.n(split)

    def block(
        self, split: str, start: int, stop: int, device: torch.device = CPU, report: Report | None = None
    ) -> Block:
        fields = torch.from_numpy(self.dataset.fields(split, range(start, stop)))
        xi = torch.from_numpy(self.dataset.xi(split)[start:stop])
        if report:
            report(stop - start)
        return Block(fields.to(device), xi.to(device), environments_of(xi))

    def digest(self, blocks: Mapping[str, Block]) -> str:
        """That of the manifest, which knows the hash of every file."""
        manifest = Path(self.dataset.root) / MANIFEST_NAME
        if not manifest.exists():
            raise DataError(f"{self.name} has no {MANIFEST_NAME}: it is not finished. Run `pdejepa generate` again.")
        return sha256_file(manifest)


@dataclass
class Arrays(Trajectories):
    """Fields {split: (n,T,C,*grid)} and parameters {split: (n,P)} in memory, physical units."""

    problem: Problem
    fields: Mapping[str, Tensor | np.ndarray]
    xi: Mapping[str, Tensor | np.ndarray]

    def __post_init__(self) -> None:
        frame = (len(self.problem.times), len(self.problem.fields), *self.problem.grid)
        for split, values in self.fields.items():
            if tuple(values.shape[1:]) != frame or len(values) != len(self.xi.get(split, ())):
                raise DataError(
                    f"{self.problem.name}: {split} must be fields (n, {', '.join(map(str, frame))}) with one row of "
                    f"{len(self.problem.parameters)} parameters each; got {tuple(values.shape)} and "
                    f"{tuple(self.xi[split].shape) if split in self.xi else 'no parameters'}."
                )

    @property
    def name(self) -> str:
        return "arrays in memory"

    def n(self, split: str) -> int:
        if split not in self.fields:
            raise DataError(f"{self.name} have no split {split!r}; their splits: {', '.join(self.fields)}.")
        return len(self.fields[split])

    def block(
        self, split: str, start: int, stop: int, device: torch.device = CPU, report: Report | None = None
    ) -> Block:
        self.check(split, stop)
        fields = torch.as_tensor(self.fields[split][start:stop], dtype=torch.float32)
        xi = torch.as_tensor(self.xi[split][start:stop], dtype=torch.float64)
        if report:
            report(stop - start)
        return Block(fields.to(device).clone(), xi.to(device), environments_of(xi))

    def digest(self, blocks: Mapping[str, Block]) -> str:
        return _hash({"problem": self.problem.name, "grid": list(self.problem.grid)}, blocks)


def environments_of(xi: Tensor) -> Tensor:
    """Numbers (n,) of environments: rows with equal parameters (n,P) share one, in the order of their first row."""
    inverse = xi.cpu().unique(dim=0, return_inverse=True)[1]
    first: dict[int, int] = {}
    return torch.tensor([first.setdefault(int(number), len(first)) for number in inverse], dtype=torch.int64)


def _hash(settings: Mapping[str, object], blocks: Mapping[str, Block]) -> str:
    """A hash of the settings, all parameters, and some trajectories of every split."""
    result = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for block in blocks.values():
        result.update(block.xi.cpu().contiguous().numpy().tobytes())
        every = max(1, len(block.fields) // N_HASHED)
        result.update(block.fields[::every].cpu().contiguous().numpy().tobytes())
    return result.hexdigest()

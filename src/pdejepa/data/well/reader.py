"""Read a data set: `Dataset.open(root)`, then whole trajectories or blocks of fields.

    data = Dataset.open("data/combined")
    data.splits                      ("train", "valid", "test", "ood")
    data.read("test", 0)             one Trajectory: fields, parameters, times, axes
    data.fields("train", range(64))  (64,T,C,*grid) float32
    data.xi("train")                 (n,P) float64, columns as data.parameter_names

Files stay open between calls (re-opening costs a hundred times the read), at most MAX_OPEN of them.  Other
people's folders in The Well's layout work too; they only lack what our files add (`config`, `column`).
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from pdejepa.core.errors import DataError, did_you_mean
from pdejepa.data.well.shard import ShardFile
from pdejepa.data.well.validate import find_splits
from pdejepa.draw.trajectory import Trajectory

if TYPE_CHECKING:
    from pdejepa.systems import System

MAX_OPEN = 64
_ORDER = ("train", "valid", "test")


class Dataset:
    """A folder `root/data/<split>/*.hdf5`, read lazily.  Worker processes may use it: each opens its own files."""

    def __init__(self, root: Path, files: dict[str, list[Path]]) -> None:
        self.root = root
        self._files = files
        self._starts: dict[str, np.ndarray] = {}  # first row of each file, and the total
        self._open: OrderedDict[Path, ShardFile] = OrderedDict()
        self._pid = os.getpid()

    @classmethod
    def open(cls, root: str | os.PathLike[str]) -> Self:
        """Find the splits; DataError if there are none.  Files are opened when they are first needed."""
        root = Path(root)
        found = {split: files for split, files in find_splits(root).items() if files}
        if not found:
            raise DataError(
                f"{root} holds no data set: there is no data/<split>/*.hdf5 in it. "
                f"Make one with: pdejepa generate NAME --out {root}"
            )
        splits = sorted(found, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))
        return cls(root, {split: found[split] for split in splits})

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": OrderedDict()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what there is ----------------------------------------------------------------------------------
    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self._files)

    def shards(self, split: str) -> list[Path]:
        """The files of a split, in row order."""
        if split not in self._files:
            hint = did_you_mean(split, self.splits) or "."
            raise DataError(f"{self.root} has no split {split!r}{hint} Its splits: {', '.join(self.splits)}.")
        return list(self._files[split])

    def shard(self, path: Path) -> ShardFile:
        """One file, open; the least recently used one is closed when there are too many."""
        if self._pid != os.getpid():  # a forked worker must not share handles with its parent
            self._open, self._pid = OrderedDict(), os.getpid()
        if path not in self._open:
            self._open[path] = ShardFile(path)
            if len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(path)
        return self._open[path]

    def n(self, split: str) -> int:
        """Trajectories in a split."""
        return int(self._rows(split)[-1])

    @property
    def _first(self) -> ShardFile:
        return self.shard(next(iter(self._files.values()))[0])

    @property
    def system_name(self) -> str:
        return self._first.dataset_name

    @property
    def field_names(self) -> tuple[str, ...]:
        return self._first.field_names

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return self._first.parameter_names

    @property
    def axes(self) -> dict[str, np.ndarray]:
        return self._first.axes

    @property
    def times(self) -> np.ndarray:
        return self._first.times()

    @property
    def config(self) -> dict[str, Any] | None:
        """What the data were generated with (system, size, seed, switches, ...), or that they were imported; None for
        foreign data."""
        return self._first.config

    @property
    def is_imported(self) -> bool:
        """Whether `pdejepa import` wrote it: readable like data of ours, but nobody here solved anything."""
        return (self.config or {}).get("origin") == "imported"

    @property
    def is_solved(self) -> bool:
        """Whether a system of ours made it, with settings that can be built again."""
        return "system" in (self.config or {})

    def build_system(self) -> System:
        """The system with the very settings that generated this data set."""
        from pdejepa.systems import build_system

        config = self.config
        if config is None or "system" not in config:
            raise DataError(f"{self.root} was not made by pdejepa; its system is not known here.")
        return build_system(config["system"], config["size"], config["switches"])

    # ---- values ------------------------------------------------------------------------------------------
    def read(self, split: str, index: int) -> Trajectory:
        """Trajectory `index` of a split."""
        path, row = self._locate(split, index)
        shard = self.shard(path)
        return Trajectory(
            fields=shard.fields(row, row + 1)[0],
            xi=dict(zip(shard.parameter_names, shard.xi[row].tolist(), strict=True)),
            times=shard.times(row),
            axes=shard.axes,
            field_names=shard.field_names,
            split=split,
            index=int(index),
            constant_fields=shard.constant_fields(row),
            system_name=shard.dataset_name,
        )

    def fields(self, split: str, rows: Sequence[int] | range | np.ndarray | None = None) -> np.ndarray:
        """Fields (n,T,C,*grid) float32 of some rows in the order given, or of all; runs are read at once."""
        chosen = np.arange(self.n(split)) if rows is None else np.asarray(rows, dtype=np.int64).reshape(-1)
        first = self.shard(self._locate(split, 0)[0])
        out = np.empty((len(chosen), first.n_frames, len(first.field_names), *first.grid), np.float32)
        at = 0
        while at < len(chosen):
            path, row = self._locate(split, int(chosen[at]))
            shard, length = self.shard(path), 1
            while at + length < len(chosen) and row + length < shard.n and chosen[at + length] == chosen[at] + length:
                length += 1
            part = shard.fields(row, row + length)
            if part.shape[1:] != out.shape[1:]:
                raise DataError(
                    f"Shard {path} holds fields {part.shape[1:]}, the first one {out.shape[1:]} (T,C,*grid)."
                )
            out[at : at + length] = part
            at += length
        return out

    def xi(self, split: str) -> np.ndarray:
        """Parameters (n,P) float64 of a whole split."""
        return np.concatenate([self.shard(path).xi for path in self.shards(split)])

    def column(self, split: str, name: str) -> np.ndarray:
        """environment_id, trajectory, solver_status or attempt of a whole split (our own data only)."""
        return np.concatenate([self.shard(path).column(name) for path in self.shards(split)])

    def _rows(self, split: str) -> np.ndarray:
        if split not in self._starts:
            self._starts[split] = np.cumsum([0, *(self.shard(path).n for path in self.shards(split))])
        return self._starts[split]

    def _locate(self, split: str, index: int) -> tuple[Path, int]:
        starts = self._rows(split)
        if not 0 <= index < starts[-1]:
            raise DataError(f"{self.root}: {split} has trajectories 0 to {starts[-1] - 1}; there is no {index}.")
        number = int(np.searchsorted(starts, index, side="right")) - 1
        return self._files[split][number], int(index - starts[number])

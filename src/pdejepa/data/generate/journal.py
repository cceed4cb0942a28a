"""What is known of finished shards, kept beside the data until and after the data set is complete.

    OUT/.journal/
      .lock                  held for the moment in which a folder is prepared
      train_0000.json        written after the shard was renamed: hash, size, outcomes, moments, by whom

A shard without such a record is unfinished business and is made again.  Records hold nothing that could not be
computed from the shard, except who made it; if the folder is lost, the manifest and the shards are enough to
write it anew.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from pdejepa import __version__
from pdejepa.core.device import device_name
from pdejepa.core.files import Damage, Entry, Manifest, sha256_file, write_json
from pdejepa.data.generate.layout import Piece
from pdejepa.data.generate.stats import FieldMoments, moments_from_plain, moments_to_plain, shard_moments
from pdejepa.data.well.shard import ShardFile
from pdejepa.solve.outcome import count_outcomes

FOLDER = ".journal"


@dataclass(frozen=True)
class PieceRecord:
    """One finished shard."""

    sha256: str
    bytes: int
    outcomes: dict[str, int]
    redrawn: dict[int, int]  # trajectory -> how often its initial condition was drawn again
    moments: dict[str, FieldMoments] | None = None  # train only
    made: dict[str, Any] = field(default_factory=dict)  # device, seconds, library versions

    @property
    def entry(self) -> Entry:
        return Entry(self.sha256, self.bytes)

    @classmethod
    def of_file(cls, path: Path, piece: Piece, made: dict[str, Any] | None = None) -> PieceRecord:
        """Read a shard back and describe it."""
        shard = ShardFile(path)
        try:
            attempt = shard.column("attempt") if shard.is_solved else np.zeros(shard.n, dtype=np.int64)
            again = np.flatnonzero(attempt)
            outcomes = count_outcomes(shard.column("solver_status").tolist()) if shard.is_solved else {}
            return cls(
                sha256=sha256_file(path),
                bytes=path.stat().st_size,
                outcomes=outcomes,
                redrawn={int(shard.column("trajectory")[row]): int(attempt[row]) for row in again},
                moments=shard_moments(shard) if piece.split == "train" else None,
                made=made or {},
            )
        finally:
            shard.close()

    def to_plain(self) -> dict[str, Any]:
        return {
            "sha256": self.sha256,
            "bytes": self.bytes,
            "outcomes": self.outcomes,
            "redrawn": {str(row): n for row, n in self.redrawn.items()},
            "moments": None if self.moments is None else moments_to_plain(self.moments),
            "made": self.made,
        }

    @classmethod
    def from_plain(cls, data: dict[str, Any]) -> PieceRecord:
        return cls(
            sha256=str(data["sha256"]),
            bytes=int(data["bytes"]),
            outcomes={str(label): int(n) for label, n in data["outcomes"].items()},
            redrawn={int(row): int(n) for row, n in data["redrawn"].items()},
            moments=None if data["moments"] is None else moments_from_plain(data["moments"]),
            made=dict(data["made"]),
        )


@dataclass(frozen=True)
class Journal:
    """The records of one data set folder."""

    root: Path

    @property
    def folder(self) -> Path:
        return self.root / FOLDER

    def read(self, piece: Piece) -> PieceRecord | None:
        """The record of a piece; None if there is none or it cannot be used."""
        try:
            return PieceRecord.from_plain(json.loads(self._path(piece).read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def write(self, piece: Piece, record: PieceRecord) -> None:
        write_json(self._path(piece), record.to_plain())

    def is_finished(self, piece: Piece) -> bool:
        """Recorded, and a file of the recorded size is there; hashes are left to whoever owns the piece."""
        record = self.read(piece)
        try:
            return record is not None and (self.root / piece.path).stat().st_size == record.bytes
        except OSError:
            return False

    def unfinished(self, pieces: Iterable[Piece]) -> tuple[Piece, ...]:
        return tuple(piece for piece in pieces if not self.is_finished(piece))

    def damage(self, piece: Piece, manifest: Manifest) -> Damage | None:
        """What is wrong with a shard, or None if it is what its record or the manifest says.

        A shard that only the manifest knows (its record was lost or is older) gets a new record.
        """
        record, known = self.read(piece), manifest.files.get(piece.path)
        found = Damage(piece.path, "unfinished")
        for entry in dict.fromkeys((record.entry if record else None, known)):
            if entry is None:
                continue
            problems = Manifest({piece.path: entry}).verify(self.root, [piece.path])
            if not problems:
                if record is None or record.entry != entry:
                    self.write(piece, PieceRecord.of_file(self.root / piece.path, piece))
                return None
            found = problems[0]
        return found

    def _path(self, piece: Piece) -> Path:
        return self.folder / f"{piece.split}_{piece.number:04d}.json"


def describe_maker(device: torch.device, seconds: float) -> dict[str, Any]:
    """Which stack made a shard: equal bytes are promised only on an equal one."""
    return {
        "device": device_name(device),
        "seconds": round(seconds, 3),
        "pdejepa": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "h5py": h5py.__version__,
        "hdf5": h5py.version.hdf5_version,
    }

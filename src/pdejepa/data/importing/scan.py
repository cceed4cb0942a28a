"""One pass over all sources before anything is written: their hashes, and trajectories that cannot be used."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pdejepa.core.errors import DataError
from pdejepa.core.files import sha256_file
from pdejepa.data.audit.frame_faults import FrameFaults, rows_in_words
from pdejepa.data.importing.parts import Found

Signature = tuple[int, int, int]
BLOCK_BYTES = 32_000_000
SEVERAL = 100  # files from which on their hashes are told as one


def signatures(files: Sequence[Path]) -> dict[Path, Signature]:
    """Size, time of the last change and number of each file, by which a change is noticed."""
    found = {}
    for path in files:
        status = os.stat(path)
        found[path] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return found


def check_unchanged(before: dict[Path, Signature]) -> None:
    """Refuse sources that somebody writes to while they are read."""
    for path, signature in before.items():
        try:
            now = signatures([path])[path]
        except OSError:
            now = (0, 0, 0)
        if now != signature:
            raise DataError(f"{path} changed while it was read. Import it again when nobody writes to it any more.")


def hash_sources(files: Sequence[Path], report: Callable[[int], None]) -> list[dict[str, Any]]:
    """Name, size and SHA-256 of every file; of very many files one hash of all."""
    told: list[dict[str, Any]] = []
    for path in files:
        told.append({"name": path.name, "bytes": path.stat().st_size, "sha256": sha256_file(path)})
        report(1)
    if len(told) <= SEVERAL:
        return told
    total = hashlib.sha256("".join(f"{one['name']} {one['sha256']}\n" for one in told).encode()).hexdigest()
    n_bytes = sum(one["bytes"] for one in told)
    return [{"name": f"{told[0]['name']} and {len(told) - 1:,} more", "bytes": n_bytes, "sha256": total}]


@dataclass
class Scan:
    """What all trajectories are like; `duplicates`: {row: the earlier row that it repeats}."""

    faults: FrameFaults = field(default_factory=FrameFaults)
    duplicates: dict[int, int] = field(default_factory=dict)
    lowest: np.ndarray = field(default_factory=lambda: np.array(np.inf))  # of every channel
    highest: np.ndarray = field(default_factory=lambda: np.array(-np.inf))
    moves: bool = False  # whether any two frames of a trajectory differ

    def refuse(self, names: Sequence[str], n: int) -> None:
        """DataError for data that nothing can be learned from."""
        bad = self.faults.not_finite
        if bad:
            told = rows_in_words(bad)
            raise DataError(
                f"{len(bad):,} of {n:,} trajectories hold NaN or infinite values (trajectories {told}; first in frame "
                f"{min(bad.values())}). Leave them out of the files, with their rows of the table, and import again."
            )
        for name, low, high in zip(names, self.lowest, self.highest, strict=True):
            if float(low) == float(high):
                raise DataError(f"The field {name} is {low:g} everywhere; there is nothing to learn from.")
        if not self.moves:
            raise DataError("All frames of a trajectory are the same; there is nothing to forecast.")


def scan(found: Found, xi: np.ndarray, report: Callable[[int], None]) -> Scan:
    """Read every trajectory once, a block at a time."""
    result, seen = Scan(), dict[bytes, int]()
    row_bytes = 4 * found.n_frames * len(found.fields) * int(np.prod(found.grid))
    step = max(1, BLOCK_BYTES // row_bytes)
    for start in range(0, found.n, step):
        block = np.stack([found.row(row) for row in range(start, min(start + step, found.n))])  # (n,T,C,*grid)
        result.faults.add(block, start)
        result.moves = result.moves or bool((block[:, 1:] != block[:, :1]).any())
        over = (0, 1, *range(3, block.ndim))
        result.lowest = np.fmin(result.lowest, np.fmin.reduce(block, over))
        result.highest = np.fmax(result.highest, np.fmax.reduce(block, over))
        for row, fields in enumerate(block, start=start):
            key = hashlib.blake2b(fields.tobytes() + xi[row].tobytes(), digest_size=16).digest()
            first = seen.setdefault(key, row)
            if first != row:
                result.duplicates[row] = first
        report(len(block))
    return result

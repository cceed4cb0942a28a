"""Look through stored frames: values that are not finite, frames without structure, frames that repeat.

Letters: n rows, T frames, C channels, *grid spatial axes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from pdejepa.data.audit.findings import Report, counted
from pdejepa.data.well.shard import ShardFile

BLOCK_BYTES = 32_000_000  # float32 values held at once
MAX_ROWS_TOLD = 8


@dataclass
class FrameFaults:
    """Rows with a fault, each with the first frame that shows it: {row: frame}."""

    n_rows: int = 0
    not_finite: dict[int, int] = field(default_factory=dict)
    constant: dict[int, int] = field(default_factory=dict)  # all channels constant in space
    repeated: dict[int, int] = field(default_factory=dict)  # bit for bit the frame before

    def add(self, fields: np.ndarray, start: int) -> None:
        """Judge rows start, start+1, ... with the values `fields` (n,T,C,*grid)."""
        n, n_frames, n_channels = fields.shape[:3]
        flat = fields.reshape(n, n_frames, n_channels, -1)
        is_bad = ~np.isfinite(flat).all((2, 3))  # (n,T)
        is_constant = (flat.max(3) == flat.min(3)).all(2) & ~is_bad
        is_repeated = np.zeros_like(is_bad)
        is_repeated[:, 1:] = (flat[:, 1:] == flat[:, :-1]).all((2, 3))
        for faults, marks in (
            (self.not_finite, is_bad),
            (self.constant, is_constant),
            (self.repeated, is_repeated),
        ):
            rows = np.flatnonzero(marks.any(1))
            faults.update({int(start + row): int(marks[row].argmax()) for row in rows})
        self.n_rows += n

    def merge(self, other: FrameFaults, start: int) -> None:
        """Append the rows of `other`, which come after `start` rows."""
        for name in ("not_finite", "constant", "repeated"):
            getattr(self, name).update({row + start: frame for row, frame in getattr(other, name).items()})
        self.n_rows += other.n_rows


def blocks(shard: ShardFile) -> Iterator[tuple[int, np.ndarray]]:
    """(first row, fields (n,T,C,*grid)) through a whole file, in pieces of bounded memory."""
    row_bytes = 4 * shard.n_frames * len(shard.field_names) * int(np.prod(shard.grid))
    step = max(1, BLOCK_BYTES // max(row_bytes, 1))
    for begin in range(0, shard.n, step):
        yield begin, shard.fields(begin, min(begin + step, shard.n))


def rows_in_words(rows: dict[int, int] | list[int]) -> str:
    """`17, 44, 90`, with the number of further ones if there are many."""
    told = ", ".join(str(row) for row in sorted(rows)[:MAX_ROWS_TOLD])
    more = len(rows) - MAX_ROWS_TOLD
    return f"{told} and {more:,} more" if more > 0 else told


def tell_frames(report: Report, split: str, faults: FrameFaults, must_move: bool) -> None:
    """Frames of one split; an unmoving frame is a fault if the system never comes to rest, else it is reported."""
    kinds = (
        (faults.not_finite, "non-finite values", True),
        (faults.constant, "frames that are constant in space", must_move),
        (faults.repeated, "frames equal to the one before", must_move),
    )
    for rows, what, is_fault in kinds:
        if rows:
            who = f"{counted(len(rows), 'trajectory')} contain{'s' if len(rows) == 1 else ''}"
            where = f"({split}: {rows_in_words(rows)}), first at frame {min(rows.values())}"
            report.add("frames", "failed" if is_fault else "reported", f"{who} {what} {where}.")
    if not any(rows for rows, _, _ in kinds):
        told = f"{counted(faults.n_rows, 'trajectory')}, all finite, no frame constant or repeated"
        report.add("frames", "ok", f"{split}: {told}")

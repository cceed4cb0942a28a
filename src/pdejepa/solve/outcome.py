"""How a solve ended, row by row.  An outcome is a value with a sentence, never an exception.

One bad row must not cost the other rows of a batch, so a solver returns every row together with its outcome;
rows that could not be computed hold NaN from the frame where they failed.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import torch
from torch import Tensor


class Outcome(enum.IntEnum):
    """Result of one row of a batched solve; the number is what data files store as `solver_status`."""

    OK = 0
    DIVERGED = 1
    STEP_LIMIT = 2
    UNDER_RESOLVED = 3

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")

    @property
    def usable(self) -> bool:
        """Whether the row holds finite numbers.  An under-resolved row does; it is marked, not removed."""
        return self in (Outcome.OK, Outcome.UNDER_RESOLVED)

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Outcome.OK: "solved",
    Outcome.DIVERGED: "the solution became infinite or left every plausible bound; later frames are NaN",
    Outcome.STEP_LIMIT: "a stable time step would need more steps than max_steps allows; later frames are NaN",
    Outcome.UNDER_RESOLVED: "energy piled up at the grid scale; the values are the discretisation's, not the PDE's",
}


class Fields(Tensor):
    """Solved fields (B,T,C,*grid): a tensor that also remembers `times` (T,) and the outcome of each row.

    Any operation on it returns a plain tensor; only the object that `solve` returns carries the outcomes.
    """

    times: Tensor
    status: Tensor  # (B,) int8

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @property
    def outcome(self) -> tuple[Outcome, ...]:
        return tuple(Outcome(int(code)) for code in self.status.tolist())

    def failures(self) -> dict[int, Outcome]:
        """Rows that hold no usable numbers, with the reason."""
        return {row: outcome for row, outcome in enumerate(self.outcome) if not outcome.usable}


def as_fields(values: Tensor, times: Tensor, status: Tensor) -> Fields:
    fields = values.as_subclass(Fields)
    fields.times = times
    fields.status = status
    return fields


def count_outcomes(status: Tensor | Sequence[int]) -> dict[str, int]:
    """{"ok": 118, "under-resolved": 2}: outcomes that occurred, by label."""
    codes = status.tolist() if isinstance(status, Tensor) else list(status)
    return {outcome.label: codes.count(outcome) for outcome in Outcome if codes.count(outcome)}

"""The error in space, told by ranges of a parameter.

For a stepped system the solver's grid defines the benchmark, so halving the step says nothing about the distance to the
PDE.  `System.refinement_report` compares stored fields with a finer or spectral solution; that distance is a property
of the benchmark, and is told, never judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor


def by_range(what: str, word: str, values: Tensor, error: Tensor, edges: Sequence[float]) -> dict[str, float]:
    """Mean `error` (B,) of the rows whose `values` (B,) lie in [low, high): {"WHAT, WORD in [low, high)": mean}."""
    values, error = values.cpu(), error.cpu()
    report = {}
    for low, high in pairwise(edges):
        rows = (values >= low) & (values < high)
        if bool(rows.any()):
            report[f"{what}, {word} in [{low:g}, {high:g})"] = float(error[rows].mean())
    return report

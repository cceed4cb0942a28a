"""Records of comparisons that nobody has made."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pdejepa import systems
from pdejepa.evaluate.record import parse
from pdejepa.forecast.interface import Forecast, Outcome
from pdejepa.forecast.support import Support
from pdejepa.studies.compare.comparison_records import SolverRecord


def record(solver: str, test: float, system: str = "combined", **changes: Any) -> dict[str, Any]:
    """The record of a solver with a given error, as plain data; `changes` replace what else it tells."""
    errors = {"rel_l2": test, "rel_l2_joint": test / 2, "tail": test, "n": 3}
    return {
        "system": system,
        "solver": solver,
        "title": solver.upper(),
        "recipe": "tiny" if solver == "lns" else "fast",
        "budget_seconds": 180.0,
        "weights": "scratch",
        "size": "paper",
        "seed": 0,
        "device": "cpu",
        "errors": {"test": errors, "ood": {**errors, "rel_l2": 2 * test}},
        "true_frames": 1,
        "parameters": 1_500_000 if solver == "fno" else 2_500,
        "peak_memory_bytes": 2e9,
        "ms_per_forecast": 1.5,
        "ms_per_adaptation": 3.0,
        "adapts": "none",
        "steps": {"fit": 1000},
        "seconds": 181.2,
        "learning_rate_factor": 3.0,
        "commit": "1" * 40,
        "data_hash": "a" * 64,
        **changes,
    }


def answer(
    fields: Tensor, first_bad: dict[int, int] | None = None, seconds: float = 0.0, adapt: float = 0.0
) -> Forecast:
    """A forecast of fields (B,T,C,*grid); rows of `first_bad` became unstable at that frame."""
    bad, T = first_bad or {}, fields.shape[1]
    return Forecast(
        problem=systems.get("combined").problem,
        fields=fields,
        times=torch.arange(T, dtype=torch.float64),
        xi=None,
        n_observed=1,
        support=Support((), T, T),
        outcome=tuple(Outcome.of(bad.get(row, T), T) for row in range(len(fields))),
        seconds=seconds,
        adapt_seconds=adapt,
    )


def made(solver: str, test: float, system: str = "combined", **changes: Any) -> SolverRecord:
    """The same as it is read."""
    return read(record(solver, test, system, **changes))


def read(plain: dict[str, Any]) -> SolverRecord:
    return parse(SolverRecord, plain)

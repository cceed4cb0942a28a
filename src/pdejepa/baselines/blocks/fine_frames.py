"""Trajectories of train with more frames than are stored: solved for, from the first frame on.

Methods that differentiate in time need a frame gap that resolves the motion, which benchmarks do not store.  Whoever
has the solver has finer frames for little; records of such rows say that they were used.
Letters: B rows, T frames, C channels, *grid spatial axes, P parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from pdejepa.core.errors import ConfigError
from pdejepa.systems import System
from pdejepa.training.training_data import TrainingData

ROWS = 60  # solved for together: a system's own chunk on a CPU, or about that


def trajectories(
    data: TrainingData, refine: int, n: int, title: str, rows: int = ROWS
) -> Iterator[tuple[Tensor, Tensor]]:
    """Standardised fields (B,(T-1)*refine+1,C,*grid) and xi (B,P) of the first n trajectories of train, in blocks.

    refine: frames in a gap; 1: the stored ones.  A row that the solver loses on the way is left out.
    """
    fields, xi = data.fields["train"], data.xi["train"]
    n = min(n, len(xi)) if n else len(xi)
    system = checked_system(data, title) if refine > 1 else None
    for start in range(0, n, rows):
        part = torch.arange(start, min(start + rows, n), device=xi.device)
        u = fields[part]
        if system is not None:
            u = _solved(data, system, u, xi[part], refine)
        is_good = u.flatten(1).isfinite().all(1)
        yield u[is_good], xi[part][is_good]


def checked_system(data: TrainingData, title: str) -> System:
    """The system that made the data, if its stored frame is a whole state that it can go on from."""
    system = data.system
    if system is None:
        raise ConfigError(
            f"{title} solves for finer frames, but the system that made these {data.problem.name} data is not known. "
            "Use the solver of that name without _fine."
        )
    if not system.stores_states:
        raise ConfigError(
            f"{title} solves for finer frames from the first stored one, but a stored frame of {system.name} is not "
            "its whole state. Use the solver of that name without _fine."
        )
    return system


def _solved(data: TrainingData, system: System, u: Tensor, xi: Tensor, refine: int) -> Tensor:
    """The same trajectories on `refine` times as many frames, (B,(T-1)*refine+1,C,*grid)."""
    mean, std = data.statistics.moments(data.problem.ndim, u.device)
    times = fine_times(data.problem.times, refine)
    with torch.no_grad():
        start = (u[:, 0] * std + mean).to(system.dtype)
        solved = system.solve(start, xi, times=times, t0=times[0])
    return ((solved.as_subclass(Tensor) - mean) / std).float()


def fine_times(times: tuple[float, ...], refine: int) -> list[float]:
    """Every gap cut into `refine` equal ones."""
    return [a + (b - a) * k / refine for a, b in pairwise(times) for k in range(refine)] + [times[-1]]

"""The same judgement for every competitor.

    from frame 1     one true frame is given (missing history is filled by repeating it); error of the frames 1 .. T-1
    common tail      the solver is given as many true frames as it can use, one for most; error of the frames after the
                     longest history of any solver

Errors are relative L2 in physical units, mean over channels, then trajectories (the tail as the headline of the system
is: one norm over the channels of Gray-Scott); a diverged forecast counts as 100 %.  At unit amplitude truth and
forecast are divided by the same number, so no error changes.
Also measured: milliseconds per forecast (a batch, after a warm-up), the cost of adapting, parameters, memory.
Letters: B rows, T frames, H observed frames, C channels, *grid spatial axes.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

import torch
from torch import Tensor

from pdejepa.baselines.pool import Pool
from pdejepa.evaluate import metrics
from pdejepa.evaluate.protocol import UNSTABLE
from pdejepa.evaluate.published import metric_of
from pdejepa.forecast.interface import Card, Forecast
from pdejepa.studies.compare.competitors import Entry
from pdejepa.training.batches import in_pieces

BLOCK = 32  # trajectories forecast together when speed is measured, and the fewest when errors are
# Small grids: more together, since a GPU adapts and forecasts hundreds in hardly more time.  Attention takes at most
# 65,535 sequences at once, and MPP makes up to 256 of a trajectory.
LARGEST_BLOCK, BLOCK_POINTS = 240, 2**18
N_REPEATS = 3
SLOW = 5.0  # seconds of a forecast that need not be repeated: what warms up is a small part of it


def judge(entry: Entry, pool: Pool, split: str) -> dict[str, Any]:
    """Errors of a competitor on a split of the pool."""
    n, order = pool.data.n(split), pool.environment[split].argsort(stable=True)  # adapts once for its rows
    start, tail, joint, repeated, bad = [], [], [], [], 0
    headline = getattr(metrics, metric_of(pool.task.problem.name))
    for part in in_pieces(n, _block(pool.task.grid)):
        u, xi, support = _inputs(entry, pool, split, order[part])
        answer = entry.forecast(u[:, :1], xi, u.shape[1] - 1, support)
        start.append(_counted(metrics.rel_l2(answer.fields, u, 1)))
        joint.append(_counted(metrics.rel_l2_joint(answer.fields, u, 1)))
        repeated.append(_counted(headline(u[:, :1].expand_as(u), u, 1)))
        bad += sum(outcome.label != "ok" for outcome in answer.outcome)
        observed = true_frames(entry, pool)
        if observed > 1:
            answer = entry.forecast(u[:, :observed], xi, u.shape[1] - observed, support)
        tail.append(_counted(headline(answer.fields, u, pool.tail_from)))
    errors = torch.cat(start)[order.argsort().cpu()]
    return {
        "rel_l2": float(errors.mean()),
        "rel_l2_joint": float(torch.cat(joint).mean()),
        "median": float(errors.median()),
        "tail": float(torch.cat(tail).mean()),
        "tail_from": pool.tail_from,
        "repeat_first": float(torch.cat(repeated).mean()),
        "blind": pool.floors.get(split),
        "n": n,
        "n_diverged": bad,
        "trajectories": [float(value) for value in errors],
    }


def speed(entry: Entry, pool: Pool, split: str) -> dict[str, float]:
    """Milliseconds per trajectory of a batch: the forecast, and the adaptation before it."""
    rows = torch.arange(min(BLOCK, pool.data.n(split)), device=pool.data.fields[split].device)
    u, xi, support = _inputs(entry, pool, split, rows)
    answers: list[Forecast] = []
    for _ in range(N_REPEATS + 1):
        answers.append(entry.forecast(u[:, : entry.history], xi, u.shape[1] - entry.history, support))
        if answers[-1].seconds > SLOW:
            break
    timed = answers[1:] or answers  # the first of several warms up
    per = 1e3 / len(rows)
    return {
        "ms_per_forecast": per * statistics.median(answer.rollout_seconds for answer in timed),
        "ms_per_adaptation": per * statistics.median(answer.adapt_seconds for answer in timed),
    }


def _block(grid: tuple[int, ...]) -> int:
    """How many trajectories are judged together."""
    return max(BLOCK, min(LARGEST_BLOCK, BLOCK_POINTS // math.prod(grid)))


def is_blind(card: Card) -> bool:
    """Whether the frames that it sees are all that a solver is told about the equation."""
    return not card.reads


def true_frames(entry: Entry, pool: Pool) -> int:
    """True frames that are given for the common tail: what the solver was made for, as far as the tail allows."""
    return max(entry.history, min(entry.card.looks_at, pool.tail_from))


def _inputs(entry: Entry, pool: Pool, split: str, rows: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """True fields (B,T,C,*grid) in physical units, parameters, and a support trajectory for those who need one."""
    data = pool.data
    mean, std = data.statistics.moments(data.problem.ndim, rows.device)
    u = data.fields[split][rows] * std + mean
    support = None
    if "support" in entry.card.reads:
        first = torch.zeros((len(rows), 1), device=rows.device)
        support = pool.support_fields(split, rows, 1, first) * std + mean
    return u, data.xi[split][rows], support


def _counted(errors: Tensor) -> Tensor:
    """Errors (B,) on the CPU; one that is not a number counts as a failure."""
    return torch.where(errors.isfinite(), errors, UNSTABLE).cpu()

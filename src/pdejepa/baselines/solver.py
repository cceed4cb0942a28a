"""A fitted solver in use: physical units in and out, and an outcome for every row; divergence is no exception.

Letters: B rows, H observed frames, n new frames, K support trajectories, C channels, *grid spatial axes, P parameters.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from pdejepa.baselines.base import Baseline
from pdejepa.core.device import full_precision, without_new_code
from pdejepa.core.errors import ConfigError, DataError

FIELD_SPREADS = 100.0  # a value this many standard deviations from the mean of train counts as divergence


@dataclass(frozen=True)
class Answer:
    """fields (B,H+n,C,*grid) with the observed frames first; first_bad (B,): the frame where a row diverged, or -1.

    Diverged rows hold NaN from that frame on.  Seconds are of the adaptation and of the rollout.
    """

    fields: Tensor
    first_bad: Tensor
    adapt_seconds: float
    rollout_seconds: float

    @property
    def outcome(self) -> list[str]:
        return ["ok" if frame < 0 else f"diverged at frame {frame}" for frame in self.first_bad.tolist()]


def forecast(
    solver: Baseline,
    u: Tensor,
    xi: Tensor | None,
    n_frames: int,
    support: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Answer:
    """Forecast n new frames from u (B,H,C,*grid) under xi (B,P), with support (B,K,T,C,*grid); physical units."""
    _check(solver, u, xi, support)
    mean, std = solver.task.statistics.moments(solver.task.ndim, u.device)
    begun = _now(u.device)
    with full_precision(u.device), without_new_code(u.device):
        support = None if support is None else (support - mean) / std
        state = solver.adapt(support, xi, generator)  # may need gradients
        adapted = _now(u.device)
        with torch.no_grad():
            new = solver.rollout((u - mean) / std, state, n_frames, generator)
    done = _now(u.device)
    first_bad = _first_bad(new)
    frames = torch.arange(n_frames, device=u.device)
    is_lost = (first_bad[:, None] >= 0) & (frames >= first_bad[:, None])  # (B,n)
    lost = is_lost.reshape(*is_lost.shape, *[1] * (new.ndim - 2))
    fields = torch.cat((u, (new * std + mean).masked_fill(lost, torch.nan)), 1)
    counted = torch.where(first_bad >= 0, first_bad + u.shape[1], first_bad)
    return Answer(fields, counted.cpu(), adapted - begun, done - adapted)


def _first_bad(new: Tensor) -> Tensor:
    """The first frame (B,) of standardised fields (B,n,...) that is not finite or beyond every bound, or -1."""
    is_bad = ~(new.flatten(2).abs().amax(-1) < FIELD_SPREADS) if new.shape[1] else new.new_zeros(len(new), 1).bool()
    return torch.where(is_bad.any(1), is_bad.int().argmax(1), -1)


def _check(solver: Baseline, u: Tensor, xi: Tensor | None, support: Tensor | None) -> None:
    card, task = solver.card, solver.task
    if not card.is_forecaster:
        raise ConfigError(f"{card.title} makes representations only; it does not forecast.")
    if tuple(u.shape[2:]) != (task.n_channels, *task.grid):
        raise DataError(f"{card.title} expects frames (B, H, {task.n_channels}, {task.grid}); got {tuple(u.shape)}.")
    for need, given in (("xi", xi), ("support", support)):
        if need in card.needs and given is None:
            what = {"xi": "the parameters of the equation", "support": "another trajectory of the same environment"}
            raise DataError(f"{card.title} needs {what[need]} for a forecast; none was given.")


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()

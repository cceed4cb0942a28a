"""About how far a forecaster can get that sees one frame and is not told the parameters.

    u_blind(u_0) = mean over parameters xi of train of  u(t; u_0, xi)

One frame does not say which equation it follows, so a good answer to it is the mean of all that may follow: the best
one in the mean square, nearly so in relative L2, and here from a sample of trajectories and parameters.  Solvers that
learn from a history of frames can hardly be better "from frame 1", however long they train; with this number beside
theirs, it is seen what is theirs and what is the question's.
Letters: B trajectories, K parameters, T frames, C channels, *grid spatial axes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pdejepa.baselines.pool import Pool
from pdejepa.core.progress import progress
from pdejepa.evaluate import metrics
from pdejepa.evaluate.published import metric_of
from pdejepa.systems import System
from pdejepa.training.batches import in_pieces

N_TRAJECTORIES, N_PARAMETERS = 32, 64
LARGEST = 2**28  # values that are solved for together


def blind_error(pool: Pool, split: str) -> float | None:
    """The headline error of u_blind; None without a solver that starts from a frame, or where none is finite."""
    system, data = pool.data.system, pool.data
    if system is None or system.n_state != len(system.fields):
        return None
    mean, std = data.statistics.moments(system.ndim, data.fields[split].device)
    u = data.fields[split][:N_TRAJECTORIES] * std + mean  # (B,T,C,*grid)
    n = len(data.xi["train"])
    xi = data.xi["train"][torch.linspace(0, n - 1, min(N_PARAMETERS, n), device=u.device).long()]  # (K,P)
    together = max(1, LARGEST // (len(xi) * u[0].numel())) if u.is_cuda else 1  # a CPU is busy with one
    means = []
    with progress(len(u), f"{system.name}, {split}", "trajectories") as bar:
        for part in in_pieces(len(u), together):
            means.append(_mean(system, u[part, 0], xi))
            bar.advance(part.stop - part.start)
    u_blind = torch.cat(means)
    error = getattr(metrics, metric_of(system.name))(u_blind, u, 1)
    finite = error[error.isfinite()]
    return float(finite.mean()) if len(finite) else None


def _mean(system: System, u0: Tensor, xi: Tensor) -> Tensor:
    """(B,T,C,*grid): the mean over xi (K,P) of what follows u0 (B,C,*grid), where the solver finds it."""
    B, K = len(u0), len(xi)
    rows = (u0.repeat_interleave(K, 0), xi.repeat(B, 1))
    fields = system.solve(*rows, times=system.times, t0=float(system.times[0])).as_subclass(Tensor)  # (BK,T,C,*grid)
    return fields.unflatten(0, (B, K)).nanmean(1)

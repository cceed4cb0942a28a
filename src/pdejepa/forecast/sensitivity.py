"""Forecasts with their exact derivatives with respect to parameters, in forward mode: one more row per parameter.

    u_hat(xi),   d u_hat / d xi_p        all rows in one pass, no graph is kept

The number of integrator steps follows from the parameters and is held fixed within a linearisation.
Letters: B rows, H observed frames, n new frames, C channels, *grid spatial axes, P parameters, K of them varied.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad

from pdejepa.core.device import few_threads, full_precision, map_chunks, without_new_code
from pdejepa.forecast.forecaster import Forecaster


def frames(model: Forecaster, u: Tensor, xi: Tensor, n_frames: int) -> Tensor:
    """New frames (B,n,C,*grid) after u (B,H,C,*grid) under xi (B,P) float64, physical units."""
    parts = model.pieces(len(xi), u.shape[1] + n_frames)
    with full_precision(model.device), without_new_code(model.device), torch.no_grad():
        made = map_chunks(lambda part: _new(model, u[part], xi[part], n_frames), parts, model.device)
    return torch.cat(made)


def derivatives(
    model: Forecaster, u: Tensor, xi: Tensor, n_frames: int, varied: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """The same, and its derivatives (B,K,n,C,*grid) with respect to the parameters number `varied`."""
    n_varied = len(varied)
    rows = torch.arange(len(xi)).repeat_interleave(n_varied)  # row b for parameter 1, .. K, then row b + 1
    tangents = torch.zeros(len(rows), xi.shape[1], dtype=torch.float64)
    tangents[torch.arange(len(rows)), torch.tensor(varied).repeat(len(xi))] = 1.0

    def run(part: slice) -> tuple[Tensor, Tensor]:
        dual = forward_ad.make_dual(xi[rows[part]].to(model.device), tangents[part].to(model.device))
        with few_threads():
            value, slope = forward_ad.unpack_dual(_new(model, u[rows[part]], dual, n_frames))
        return value, torch.zeros_like(value) if slope is None else slope

    parts = model.pieces(len(rows), 2 * (u.shape[1] + n_frames))
    with full_precision(model.device), without_new_code(model.device), torch.no_grad(), forward_ad.dual_level():
        made = map_chunks(run, parts, model.device)
    values, slopes = zip(*made, strict=True)
    shape = (len(xi), n_varied)
    return torch.cat(values).unflatten(0, shape)[:, 0], torch.cat(slopes).unflatten(0, shape)


def _new(model: Forecaster, u: Tensor, xi: Tensor, n_frames: int) -> Tensor:
    """Differentiable in xi; nothing is checked and nothing is cut off."""
    surrogate = model.surrogate
    u, xi = u.to(model.device), xi.to(model.device)
    size, xi = surrogate.sized(u, xi)
    steps = surrogate.finer_steps(forward_ad.unpack_dual(xi).primal) if model.takes_finer_steps else None
    q = surrogate.rollout(surrogate.encode(surrogate.normalise(u / size)), surrogate.drive(xi), n_frames, steps)
    return size * surrogate.denormalise(surrogate.decode(q[:, u.shape[1] :]))

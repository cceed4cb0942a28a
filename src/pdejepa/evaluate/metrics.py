"""Relative L2 errors in physical units, one number per trajectory.

    e_bc = sqrt( sum_{t,x} (u_hat - u)^2 / sum_{t,x} u^2 )        frames first..T-1, all points, one channel
    rel_l2_b = mean_c e_bc                                        channels count alike, whatever their units
    rel_l2_joint_b = the same quotient with both sums over the channels too

Others that are relative L2 errors, on purpose: `operators.norms.relative_error` (float32, of each channel, for losses
and scores of trainings), `baselines.baseline.mean_frame_error` (of single frames, a loss), `systems.base.relative_l2`
(of whole rows, all channels together, for solvers), `latent_error` of the ablation (the same of latents).

A channel whose true values are all zero has no relative error and is left out of the mean over channels (u_t of
Wave-2D in its first frame, for example).  A trajectory without any such channel gets NaN, and so does every
trajectory whose forecast holds NaN.
Letters: B trajectories, T frames, C channels, *grid spatial axes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pdejepa.core.errors import DataError


def rel_l2(u_hat: Tensor, u: Tensor, first: int = 1) -> Tensor:
    """Error of each trajectory over the frames first..T-1, mean over channels, (B,)."""
    return _channel_mean(*_sums(u_hat, u, first, over_frames=True))


def rel_l2_joint(u_hat: Tensor, u: Tensor, first: int = 1) -> Tensor:
    """The same with one norm over all channels, (B,): the channel with the largest numbers dominates."""
    error, norm = _sums(u_hat, u, first, over_frames=True)
    return (error.sum(1) / norm.sum(1)).sqrt()  # 0/0 is NaN, as it should be


def per_channel(u_hat: Tensor, u: Tensor, first: int = 1) -> Tensor:
    """Error of every channel, (B,C); NaN where the channel is zero."""
    error, norm = _sums(u_hat, u, first, over_frames=True)
    return (error / norm).sqrt().masked_fill(norm == 0, torch.nan)


def per_frame(u_hat: Tensor, u: Tensor, first: int = 1) -> Tensor:
    """Error of every frame for itself, mean over channels, (B,T-first)."""
    return _channel_mean(*_sums(u_hat, u, first, over_frames=False))


def last_frame(u_hat: Tensor, u: Tensor) -> Tensor:
    """Error of the last frame, mean over channels, (B,)."""
    return per_frame(u_hat, u, u.shape[1] - 1)[:, 0]


def repeat_first(u: Tensor, observed: int = 1) -> Tensor:
    """The forecast of somebody who knows nothing of dynamics: the last observed frame for ever, shape of u."""
    return torch.cat((u[:, :observed], u[:, observed - 1 : observed].expand_as(u)[:, observed:]), 1)


def _sums(u_hat: Tensor, u: Tensor, first: int, over_frames: bool) -> tuple[Tensor, Tensor]:
    """Sums of squares of the error and of the truth, float64, (B,C) or, frame by frame, (B,T-first,C)."""
    if u_hat.shape != u.shape or u.ndim < 4:
        raise DataError(
            f"Forecast and truth must have one shape (B,T,C,*grid); got {tuple(u_hat.shape)} and {tuple(u.shape)}."
        )
    if not 0 <= first < u.shape[1]:
        raise DataError(f"The first counted frame must be from 0 to {u.shape[1] - 1}; got {first}.")
    space = tuple(range(3, u.ndim))
    axes = (1, *space) if over_frames else space
    truth = u[:, first:].double()
    difference = u_hat[:, first:].double() - truth
    return difference.square().sum(axes), truth.square().sum(axes)


def _channel_mean(error: Tensor, norm: Tensor) -> Tensor:
    """Mean over the last axis of sqrt(error / norm) where norm is not zero; NaN if it is zero everywhere."""
    counts = norm != 0
    ratio = (error / norm).sqrt().masked_fill(~counts, 0.0)
    return ratio.sum(-1) / counts.sum(-1)

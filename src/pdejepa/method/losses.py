"""The losses of the stages, as pure functions that read like their equations.

Ratio losses are pooled: mean square of the error over mean square of the reference, both over the whole global batch,
the reference detached (and averaged over ranks when there are several).  A ratio per sample or token would explode
wherever nothing happens.
Letters: B rows, T frames, N tokens, D width, K tokens of a list, C channels, G grid points.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pdejepa.operators.norms import relative_error
from pdejepa.training.distributed import mean_over_ranks

EPS = 1e-8


def pooled_ratio(error: Tensor, reference: Tensor) -> Tensor:
    """<|error|^2> / <|reference|^2>, the denominator without gradient and over all ranks."""
    scale = mean_over_ranks(reference.detach().float().square().mean()).clamp(min=EPS)
    return error.float().square().mean() / scale


# ---- stage 1 -----------------------------------------------------------------------------------------------------
def layer_normed(z: Tensor, width: int) -> Tensor:
    """Every group of `width` channels with zero mean and unit spread, without learned scales, in float32."""
    groups = z.float().unflatten(-1, (-1, width))
    return nn.functional.layer_norm(groups, (width,)).flatten(-2)


def loss_jepa(predicted: Tensor, target: Tensor) -> Tensor:
    """L_JEPA = 1/|M| sum_{i in M} |P(E(x_C), m)_i - sg(E-bar(x)_i)|_1, mean over channels; (B,K,D) both."""
    return (predicted.float() - target.detach()).abs().mean()


def loss_context(predicted: Tensor, target: Tensor, distance: Tensor) -> Tensor:
    """The same for visible tokens, each weighted by distance^(-1/2) to the nearest masked place; distance (B,K)."""
    error = (predicted.float() - target.detach()).abs().mean(-1)  # (B,K)
    return (error * distance.rsqrt()).mean()


# ---- stage 2 -----------------------------------------------------------------------------------------------------
def directions(x: Tensor, eps: float = 1e-6) -> Tensor:
    """d_t = (x_{t+1} - x_t) / |x_{t+1} - x_t| of flattened states (B,T,...) -> (B,T-1,features)."""
    change = x.float().flatten(2).diff(dim=1)
    return change / change.norm(dim=-1, keepdim=True).clamp(min=eps)


def turning(direction: Tensor, lag: int) -> Tensor:
    """s_{t,lag} = <d_t, d_{t+lag}>, (B,T-1-lag)."""
    return (direction[:, :-lag] * direction[:, lag:]).sum(-1)


def loss_geo(u: Tensor, q: Tensor, lags: tuple[int, ...], weights: tuple[float, ...]) -> Tensor:
    """L_geo = sum_l w_l SmoothL1(s^q_l, sg(s^u_l)); u (B,T,C,*grid) and q (B,T,N,D)."""
    dir_u, dir_q = directions(u).detach(), directions(q)
    total = q.new_zeros(())
    for lag, weight in zip(lags, weights, strict=True):
        if lag < dir_q.shape[1]:
            total = total + weight * nn.functional.smooth_l1_loss(turning(dir_q, lag), turning(dir_u, lag))
    return total


def loss_anchor(q: Tensor, z: Tensor) -> Tensor:
    """L_anchor = |q - z|^2 / |z|^2."""
    return pooled_ratio(q - z, z)


def loss_dyn(dq_hat: Tensor, q: Tensor) -> Tensor:
    """L_dyn = |dq_hat_t - sg(dq_t)|^2 / |dq_t|^2, dq_t = q_{t+1} - q_t; dq_hat (B,T-1,N,D), q (B,T,N,D)."""
    dq = q.diff(dim=1).detach()
    return pooled_ratio(dq_hat.float() - dq, dq)


# ---- stage 3 -----------------------------------------------------------------------------------------------------
def loss_step(q_hat: Tensor, q: Tensor, weight: Tensor | None = None) -> Tensor:
    """|q_hat_{t+k} - q_{t+k}|^2 / |q_{t+1} - q_t|^2, mean over k = 1..K; q_hat (B,K,N,S), q (B,K+1,N,S).

    `weight` (B,K) replaces the pooled denominator: one over the mean square increment at that frame.
    """
    error, change = q_hat.float() - q[:, 1:], q.diff(dim=1)
    if weight is None:
        return pooled_ratio(error, change)
    return (error.square().mean((2, 3)) * weight).mean()


# ---- stage 4 -----------------------------------------------------------------------------------------------------
def loss_dec(u_hat: Tensor, u: Tensor) -> Tensor:
    """Relative L2 error of whole trajectories, mean over channels and rows."""
    return relative_error(u_hat, u).mean()


# ---- polish ------------------------------------------------------------------------------------------------------
def loss_rollout(q_hat: Tensor, q: Tensor) -> Tensor:
    """|q_hat - q| / |q| of whole trajectories (B,K,N,D), mean over rows."""
    error, size = ((x.float()).flatten(1).norm(dim=1) for x in (q_hat - q, q))
    return (error / size.clamp(min=EPS)).mean()


# ---- measures, not losses ----------------------------------------------------------------------------------------
@torch.no_grad()
def turning_angle(x: Tensor) -> Tensor:
    """Mean angle in degrees between successive changes of a trajectory, (B,)."""
    return torch.rad2deg(torch.acos(turning(directions(x), 1).clamp(-1.0, 1.0))).mean(1)


@torch.no_grad()
def angle_error(u: Tensor, q: Tensor) -> Tensor:
    """Mean absolute difference of turning angles of q and u, in degrees; a scalar."""
    angles = [torch.rad2deg(torch.acos(turning(directions(x), 1).clamp(-1.0, 1.0))) for x in (u, q)]
    return (angles[0] - angles[1]).abs().mean()

"""Norms of fields over points and frames."""

from __future__ import annotations

from torch import Tensor

EPS = 1e-8


def relative_error(u_hat: Tensor, u: Tensor) -> Tensor:
    """|u_hat - u| / |u| over frames and space, per row and channel: (B,T,C,*grid) -> (B,C)."""
    u_hat, u = (x.float().transpose(1, 2).flatten(2) for x in (u_hat, u))  # (B,C,T*G)
    return (u_hat - u).norm(dim=-1) / (u.norm(dim=-1) + EPS)

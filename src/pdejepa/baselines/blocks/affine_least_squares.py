"""Least squares for dq/dt = sum_m r_m W_m^T phi(q), phi(q) = (1, q_i, q_i q_j with i <= j), r_0 = 1 if there is a C.

All trajectories of one parameter share r, so the normal equations are sums of Kronecker products,

    G = sum_i (r_i r_i^T) x (Phi_i^T Phi_i),        R = sum_i r_i x (Phi_i^T dq_i),

and neither the features of all frames nor their products with the parameters are ever in memory at once.
`energy_preserving` adds the constraint q . H_m(q, q) = 0 for all q: the coefficients h_ijk of dq_i ~ q_j q_k that
belong to one monomial q_i q_j q_k of the energy's rate add up to zero.  These groups are disjoint, so projecting on the
constraint is one subtraction per group, and projected conjugate gradients find the constrained optimum.
Letters: B trajectories, T frames, r modes, M operators, p features of one operator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor

N_ITERATIONS, TOLERANCE = 200, 1e-7  # of conjugate gradients

# Fourth-order differences: at the first two frames, inside, at the last two.
EDGE = torch.tensor([[-25, 48, -36, 16, -3], [-3, -10, 18, -6, 1]], dtype=torch.float64) / 12
INSIDE = torch.tensor([1, -8, 0, 8, -1], dtype=torch.float64) / 12


def rate(q: Tensor, gap: float) -> Tensor:
    """dq/dt (B,T,r) of states (B,T,r), T >= 5, whose frames are `gap` apart; fourth order everywhere."""
    middle = torch.einsum("k,bktr->btr", INSIDE.to(q), q.unfold(1, q.shape[1] - 4, 1).movedim(-1, 2))
    first = torch.einsum("ek,bkr->ber", EDGE.to(q), q[:, :5])
    last = -torch.einsum("ek,bkr->ber", EDGE.to(q), q[:, -5:].flip(1)).flip(1)
    return torch.cat((first, middle, last), 1) / gap


@cache
def pairs(r: int) -> tuple[Tensor, Tensor]:
    """i and j of the products q_i q_j, i <= j."""
    i, j = torch.triu_indices(r, r)
    return i, j


def features(q: Tensor, degree: int) -> Tensor:
    """phi(q) (...,p) of states (...,r)."""
    parts = [torch.ones_like(q[..., :1]), q]
    if degree == 2:
        i, j = pairs(q.shape[-1])
        parts.append(q[..., i] * q[..., j])
    return torch.cat(parts, -1)


def n_features(r: int, degree: int) -> int:
    return 1 + r + (r * (r + 1) // 2 if degree == 2 else 0)


def chosen(r: int, largest: int, degree: int) -> Tensor:
    """The features of the first r modes among those of the `largest`."""
    found = [torch.arange(1 + r)]
    if degree == 2:
        i, j = pairs(largest)
        found.append(1 + largest + ((i < r) & (j < r)).nonzero().flatten())
    return torch.cat(found)


@dataclass
class NormalEquations:
    """G (M,p,M,p) and R (M,p,r), means over frames."""

    degree: int
    n_frames: int = 0
    gram: Tensor = field(default_factory=lambda: torch.zeros(()))
    right: Tensor = field(default_factory=lambda: torch.zeros(()))

    def add(self, q: Tensor, dq: Tensor, r: Tensor) -> None:
        """Trajectories q, dq (B,T,r) with coefficients (B,M)."""
        phi = features(q, self.degree)  # (B,T,p)
        own = torch.einsum("bm,bn->mnb", r, r).flatten(0, 1) @ (phi.mT @ phi).flatten(1)  # (M*M,p*p)
        M, p = r.shape[1], phi.shape[-1]
        self.gram = self.gram + own.reshape(M, M, p, p).transpose(1, 2)
        self.right = self.right + torch.einsum("bm,bpr->mpr", r, phi.mT @ dq)
        self.n_frames += q.shape[0] * q.shape[1]

    def of_modes(self, r: int) -> tuple[Tensor, Tensor]:
        """G (M,p,M,p) and R (M,p,r) of the first r modes: those of fewer modes are a part of those of more."""
        keep = chosen(r, self.right.shape[-1], self.degree).to(self.gram.device)
        gram = self.gram[:, keep][:, :, :, keep]
        return gram / self.n_frames, self.right[:, keep, :r] / self.n_frames


def ridge_solution(gram: Tensor, right: Tensor, ridge: float) -> Tensor:
    """W (M,p,r) that minimises |dq - W phi|^2 + ridge |scaled W|^2, features scaled to rms 1."""
    M, p, r = right.shape
    matrix = _penalised(gram, ridge)
    scale = matrix.diagonal().sqrt()
    found = torch.linalg.solve(matrix / (scale[:, None] * scale), right.reshape(M * p, r) / scale[:, None])
    return (found / scale[:, None]).reshape(M, p, r)


def _penalised(gram: Tensor, ridge: float) -> Tensor:
    """The matrix (M*p,M*p) of the normal equations with their penalty; a feature that is always zero gets weight 0."""
    matrix = gram.reshape(gram.shape[0] * gram.shape[1], -1)
    diagonal = matrix.diagonal()
    return matrix + torch.diag(ridge * diagonal + 1e-20 * diagonal.max())


# ---- quadratic terms that preserve energy ------------------------------------------------------------------------
@cache
def energy_groups(r: int) -> Tensor:
    """(r(r+1)/2, r) int64: the monomial q_i q_j q_k, i <= j <= k, to which q_j q_k in dq_i contributes."""
    j, k = pairs(r)
    triple = torch.stack((torch.arange(r).expand(len(j), r), j[:, None].expand(-1, r), k[:, None].expand(-1, r)), -1)
    a, b, c = triple.sort(-1).values.unbind(-1)
    return ((a * r + b) * r + c).flatten().unique(return_inverse=True)[1].reshape(len(j), r)


def projected(w: Tensor, weight: Tensor, r: int) -> Tensor:
    """W (M,p,r) with q . H_m(q,q) = 0, the nearest in the norm sum w^2 / weight, weight (M,p)."""
    groups = energy_groups(r).to(w.device).flatten()
    h = w[:, 1 + r :].flatten(1)  # (M, pairs*r)
    own = weight[:, 1 + r :, None].expand(-1, -1, r).flatten(1)
    n = int(groups.max()) + 1
    total = h.new_zeros((len(h), n)).index_add_(1, groups, h)
    weights = h.new_zeros((len(h), n)).index_add_(1, groups, own.contiguous())
    h = h - own * (total / weights)[:, groups]
    return torch.cat((w[:, : 1 + r], h.reshape(len(w), -1, r)), 1)


def energy_preserving(gram: Tensor, right: Tensor, ridge: float) -> Tensor:
    """As `ridge_solution`, among the W whose quadratic parts preserve energy; projected conjugate gradients."""
    M, p, r = right.shape
    matrix = _penalised(gram, ridge)
    weight = (1 / matrix.diagonal()).reshape(M, p)

    def product(w: Tensor) -> Tensor:
        return (matrix @ w.reshape(M * p, r)).reshape(M, p, r)

    def conditioned(residual: Tensor) -> Tensor:
        return projected(weight[..., None] * residual, weight, r)

    w = projected(ridge_solution(gram, right, ridge), weight, r)
    residual = right - product(w)
    direction = z = conditioned(residual)
    rho = first = float((residual * z).sum())
    for _ in range(N_ITERATIONS):
        if not rho > TOLERANCE**2 * first or not math.isfinite(rho):
            break
        image = product(direction)
        step = rho / float((direction * image).sum())
        w, residual = w + step * direction, residual - step * image
        z = conditioned(residual)
        rho, before = float((residual * z).sum()), rho
        direction = z + rho / before * direction
    return w

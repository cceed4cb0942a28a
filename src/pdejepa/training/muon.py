"""Muon (momentum, orthogonalised) for all matrices at once.

    M <- mu M + (1 - mu) G          N = (1 - mu) G + mu M          O ~ U V^T of N = U S V^T
    W <- (1 - lr wd) W - lr 0.2 sqrt(max(rows, columns)) O

The factor gives the update the root mean square size that AdamW would give it.  O comes from five steps of a quintic
Newton-Schulz iteration on N / |N|.  PyTorch's own `torch.optim.Muon` does the same one matrix after the other, some
thirty small operations each; here matrices of equal shape are stacked and handled together, which for networks of
many small blocks is several times faster.  The state of a parameter is the same: `momentum_buffer`.
Letters: K matrices of one shape, r x c their shape with r <= c after turning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
N_ITERATIONS = 5
EPS = 1e-7


class Muon(torch.optim.Optimizer):
    """For matrices, and kernels seen as matrices (out, all else); the others belong to another optimiser."""

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float, weight_decay: float = 0.0, momentum: float = 0.95
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for params in by_shape(group["params"]):
                self._update(list(params), group["lr"], group["weight_decay"], group["momentum"])

    def _update(self, params: list[Tensor], lr: float, weight_decay: float, momentum: float) -> None:
        gradients = [p.grad for p in params if p.grad is not None]  # all of them: see `by_shape`
        buffers = [self.state[p].setdefault("momentum_buffer", torch.zeros_like(p)) for p in params]
        torch._foreach_lerp_(buffers, gradients, 1 - momentum)
        nesterov = torch._foreach_lerp(gradients, buffers, momentum)
        stacked = torch.stack(nesterov).flatten(2)  # (K,r,c)
        turned = orthogonalised(stacked).to(params[0].dtype)
        torch._foreach_mul_(params, 1 - lr * weight_decay)
        factor = 0.2 * math.sqrt(max(stacked.shape[1:]))
        torch._foreach_add_(params, turned.view(-1, *params[0].shape).unbind(0), alpha=-lr * factor)


def by_shape(params: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Parameters that have gradients, in lists of equal shape, in a fixed order."""
    groups: dict[torch.Size, list[nn.Parameter]] = {}
    for p in params:
        if p.grad is not None:
            groups.setdefault(p.shape, []).append(p)
    return list(groups.values())


def orthogonalised(matrices: Tensor) -> Tensor:
    """U V^T, roughly, of every matrix (K,rows,columns): its singular values all move to about one.

    In bfloat16 on a GPU, where the iteration needs no more; a CPU is faster in float32.
    """
    a, b, c = COEFFICIENTS
    x = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    is_tall = x.shape[1] > x.shape[2]
    x = x.mT if is_tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=EPS)
    for _ in range(N_ITERATIONS):
        gram = x @ x.mT  # (K,r,r)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x

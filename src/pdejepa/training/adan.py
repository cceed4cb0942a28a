"""Adan with D-Adaptation (Xie et al., 2022; Defazio and Mishchenko, 2023): an optimiser that finds its own step size.

One number d, shared by all parameters, estimates the distance to the solution and only grows.  With the gradient g,
its change D = g - g_before (zero in the first step) and a = d lr:

    m <- b1 m + (1-b1) a g      v <- b2 v + (1-b2) a D      n <- b3 n + (1-b3) (g + b2 D)^2      s <- b3 s + (1-b3) a g
    G <- b3 G + (1-b3) a^2 sum(g^2 / w),       w = sqrt(n) + eps
    d_hat = (sum(s^2 / w) / (1-b3) - G) / sum|s|
    x <- (x - (m + b2 v) / w) / (1 + a weight_decay)
    d <- max(d, min(d_hat, growth d))

Sums run over all parameters of all groups; x moves with the a from before d grew.  `lr` is a factor of the step size,
1 unless a schedule says otherwise.  d begins at 1e-6 and grows by 5 % per step at most, so that the first two hundred
steps or so are a warm-up of its own.
All sums stay on the device: a step never waits for a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

BETAS = (0.98, 0.92, 0.99)
EPS = 1e-8
START = 1e-6  # d before the first step
GROWTH = 1.05

Shared = dict[str, Tensor]


class Adan(torch.optim.Optimizer):
    """Groups may differ in their weight decay; they share one learning rate and one d.

    The state exists from the start: per parameter `momentum` m, `momentum_change` v, `square` n, `weighted_sum` s and
    `gradient` g_before, and in `shared` the numbers `d`, `numerator` G and `step`.
    """

    def __init__(self, groups: list[dict[str, Any]], lr: float = 1.0, growth: float = GROWTH) -> None:
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})
        self.growth = growth
        device = self.param_groups[0]["params"][0].device
        self.shared: Shared = {
            "d": torch.full((), START, dtype=torch.float64, device=device),
            "numerator": torch.zeros((), dtype=torch.float64, device=device),
            "step": torch.zeros((), dtype=torch.float32, device=device),
        }
        names = ("momentum", "momentum_change", "square", "weighted_sum", "gradient")
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p] = {name: torch.zeros_like(p) for name in names}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        rate = self.param_groups[0]["lr"]
        a = self.shared["d"] * rate
        sums = []
        for group in self.param_groups:
            if group["lr"] != rate:
                raise RuntimeError(f"all groups of Adan share one learning rate; got {rate} and {group['lr']}")
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                sums.append(self._move(params, a, group["weight_decay"]))
        if sums:
            self._grow(torch.stack(sums).sum(0), a)
        self.shared["step"].add_(1)

    def _move(self, params: list[Tensor], a: Tensor, weight_decay: float) -> Tensor:
        """Update averages and parameters; return the sums (3,) of g^2/w, s^2/w and |s|."""
        b1, b2, b3 = BETAS
        g = [p.grad for p in params if p.grad is not None]
        m, v, n, s, before = (
            [self.state[p][name] for p in params]
            for name in ("momentum", "momentum_change", "square", "weighted_sum", "gradient")
        )
        a = a.to(g[0].dtype)
        change = torch._foreach_sub(g, before)
        torch._foreach_mul_(change, (self.shared["step"] > 0).to(a.dtype))
        torch._foreach_copy_(before, g)
        ahead, moved = torch._foreach_add(g, change, alpha=b2), torch._foreach_mul(g, a)
        torch._foreach_lerp_(m, moved, 1 - b1)
        torch._foreach_lerp_(s, moved, 1 - b3)
        torch._foreach_lerp_(v, torch._foreach_mul(change, a), 1 - b2)
        torch._foreach_mul_(n, b3)
        torch._foreach_addcmul_(n, ahead, ahead, 1 - b3)
        w = torch._foreach_sqrt(n)
        torch._foreach_add_(w, EPS)
        torch._foreach_addcdiv_(params, torch._foreach_add(m, v, alpha=b2), w, -1.0)
        torch._foreach_mul_(params, 1.0 / (1.0 + a * weight_decay))
        squares = (torch._foreach_div(torch._foreach_mul(x, x), w) for x in (g, s))
        return torch.stack([_total(x) for x in (*squares, s)])

    def _grow(self, sums: Tensor, a: Tensor) -> None:
        """The estimate d_hat, and d after it; d stays where no gradient has come yet."""
        b3, d, numerator = BETAS[2], self.shared["d"], self.shared["numerator"]
        numerator.mul_(b3).add_((1 - b3) * a * a * sums[0])
        d_hat = (sums[1] / (1 - b3) - numerator) / sums[2]
        d_hat = torch.where(sums[2] > 0, d_hat, d)
        d.copy_(torch.maximum(d, torch.minimum(d_hat, self.growth * d)))


def _total(tensors: Any) -> Tensor:
    """The sum of all absolute values, float64."""
    return torch.stack(torch._foreach_norm(tensors, 1)).double().sum()


def adan_groups(parameters: dict[str, nn.Parameter], weight_decay: float, decay_all: bool) -> list[dict[str, Any]]:
    """Two groups: what decays, and biases and tensors with one axis longer than one, which do not."""
    groups: dict[float, list[nn.Parameter]] = {}
    for name, p in parameters.items():
        decays = decay_all or (p.squeeze().ndim >= 2 and not name.endswith("bias"))
        groups.setdefault(weight_decay if decays else 0.0, []).append(p)
    return [{"params": params, "weight_decay": decay} for decay, params in groups.items()]

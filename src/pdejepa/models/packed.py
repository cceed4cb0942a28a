"""Linear layers for forecasts on a CPU: weights packed once, the nonlinearity or a sum done inside the product.

    y = x W^T + b        y = GELU(x W^T + b)        y = z + x W^T + b

They run on oneDNN's kernels, through the operator that PyTorch's own compiler uses for frozen weights.  On an AMD EPYC
these do 160 to 240 GFLOP/s on one core where `nn.Linear` does 100; where they are missing, the usual ones are used.
Without gradients.
Letters: n tokens, K features in, D features out.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn
from torch.nn import functional


class Packed:
    """A linear layer with weight (D,K) and bias (D,) or none."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.bias, self.is_packed = bias, can_pack()
        weight = weight.contiguous()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, None) if self.is_packed else weight

    def __call__(self, x: Tensor) -> Tensor:
        """x (...,K) -> (...,D)."""
        if not self.is_packed:
            return functional.linear(x, self.weight, self.bias)
        return _linear(x, self.weight, self.bias, "none", [], "")

    def gelu(self, x: Tensor) -> Tensor:
        if not self.is_packed:
            return functional.gelu(functional.linear(x, self.weight, self.bias))
        return _linear(x, self.weight, self.bias, "gelu", [], "none")

    def plus(self, x: Tensor, z: Tensor) -> Tensor:
        """z + x W^T + b."""
        if not self.is_packed:
            return z + functional.linear(x, self.weight, self.bias)
        total: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, z, self.weight, self.bias, "add")
        return total


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None, name: str, numbers: list[float], how: str) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, name, numbers, how)
    return y


@functools.cache
def can_pack() -> bool:
    """Whether this PyTorch has the operators, and they do what they should."""
    x, z, weight, bias = (torch.linspace(-1, 1, n).reshape(shape) for n, shape in _SHAPES)
    expected = functional.linear(x, weight, bias)
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        found = _linear(x, packed, bias, "gelu", [], "none")
        total = torch.ops.mkldnn._linear_pointwise.binary(x, z, packed, bias, "add")
        return bool(torch.allclose(found, functional.gelu(expected)) and torch.allclose(total, z + expected))
    except (AttributeError, RuntimeError, NotImplementedError):
        return False


_SHAPES = ((12, (3, 4)), (15, (3, 5)), (20, (5, 4)), (5, (5,)))  # of x, z, weight and bias


def after_norm(norm: nn.LayerNorm, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Weight (D,K) and bias (D,) of the same layer on normalised features before `norm` scales and shifts them.

    W (g * x + s) + b = (W diag g) x + (W s + b)
    """
    shift = weight @ norm.bias
    return weight * norm.weight, shift if bias is None else shift + bias

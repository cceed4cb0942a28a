"""Transformer blocks, pre-norm, with rotary positions.

    x <- x + Attention(LayerNorm(x))
    x <- x + Mlp(LayerNorm(x))              Mlp(x) = W_out GELU(W_in x + b_in) + b_out

Weights start normal with standard deviation 0.02; what block l adds to the residual stream is divided by sqrt(2 l),
so that the stream keeps its size with depth.
Letters: B rows, n tokens, H heads, d head width.
"""

from __future__ import annotations

import math
import os

import torch
from torch import Tensor, nn

from pdejepa.core.device import may_fuse_attention, without_autocast
from pdejepa.models.rope import rotate

INIT_STD = 0.02
SHORT = 512  # tokens; longer rows of scores leave the cache
RECOMPILE_LIMIT = 64  # one per sequence length, precision and network; past it code runs uncompiled


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(
        self, x: Tensor, cos: Tensor | None = None, sin: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """x (B,n,width); cos and sin (B or 1,1,n,d/2); mask (n,n) is True where a row may look at a column."""
        B, n, width = x.shape
        qkv = self.qkv(x).view(B, n, 3, self.heads, width // self.heads)  # (B,n,3,H,d)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # (B,H,n,d) each
        if cos is not None and sin is not None:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = attend(q, k, v, mask)  # (B,H,n,d)
        return self.out(y.transpose(1, 2).reshape(B, n, width))  # (B,n,width)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(q k^T / sqrt(d)) v of (B,H,n,d) each.

    On a CPU in bfloat16 the backward pass of PyTorch's fused attention takes up to 15 times as long as these products;
    and the fused kernel has no derivative in forward mode.
    """
    is_short = q.device.type == "cpu" and q.dtype == torch.bfloat16 and q.shape[2] <= SHORT
    if not is_short and may_fuse_attention():
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return attend_by_products(q, k, v, mask)


def attend_by_products(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """The same without a fused kernel."""
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5  # (B,H,n,n)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(-1).to(v.dtype) @ v


class Mlp(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, hidden)
        self.out = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(nn.functional.gelu(self.hidden(x)))


class Block(nn.Module):
    compiles = True  # repeated often enough to be worth it; see `compile_blocks`

    def __init__(self, width: int, heads: int, mlp_hidden: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=eps)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=eps)
        self.mlp = Mlp(width, mlp_hidden)

    def forward(
        self, x: Tensor, cos: Tensor | None = None, sin: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        x = x + self.attention(self.norm1(x), cos, sin, mask)
        return x + self.mlp(self.norm2(x))


class Trunk(nn.Module):
    """A stack of blocks."""

    def __init__(self, depth: int, width: int, heads: int, mlp_ratio: float, eps: float = 1e-6) -> None:
        super().__init__()
        hidden = round(width * mlp_ratio)
        self.blocks = nn.ModuleList(Block(width, heads, hidden, eps) for _ in range(depth))

    def forward(
        self,
        x: Tensor,
        cos: Tensor | None = None,
        sin: Tensor | None = None,
        mask: Tensor | None = None,
        levels: tuple[int, ...] = (),
    ) -> Tensor | list[Tensor]:
        """The output (B,n,width), or the outputs of the blocks numbered `levels` (from 1)."""
        kept = []
        for number, block in enumerate(self.blocks, start=1):
            x = block(x, cos, sin, mask)
            if number in levels:
                kept.append(x)
        return kept if levels else x


def in_float32(module: nn.Module, x: Tensor) -> Tensor:
    """The module of x without autocast: parameters of an equation lose too much in eight bits."""
    with without_autocast(x.device):
        result: Tensor = module(x.float())
    return result


def init_weights(module: nn.Module) -> None:
    """Normal weights, zero biases, LayerNorm 1 and 0; smaller weights where deep blocks write to the stream."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d):
            nn.init.normal_(part.weight, std=INIT_STD)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.LayerNorm) and part.elementwise_affine:
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
    for trunk in (part for part in module.modules() if isinstance(part, Trunk)):
        _shrink_with_depth(trunk)


@torch.no_grad()
def _shrink_with_depth(trunk: Trunk) -> None:
    for number, block in enumerate(trunk.blocks, start=1):
        for layer in block.modules():
            if isinstance(layer, Attention | Mlp):
                layer.out.weight.div_(math.sqrt(2 * number))


def compile_blocks(module: nn.Module) -> None:
    """Compile the parts of a network that say `compiles`, for every shape they meet; for GPUs, where it pays.

    A part that cannot be compiled runs uncompiled, with a warning.  `PDEJEPA_COMPILE=0` switches it off.
    """
    if os.environ.get("PDEJEPA_COMPILE") == "0":
        return
    torch._dynamo.config.recompile_limit = RECOMPILE_LIMIT
    torch._dynamo.config.suppress_errors = True
    for part in module.modules():
        if getattr(part, "compiles", False):
            part.compile(dynamic=False)

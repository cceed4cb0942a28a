"""Blocks of convolutional autoencoders on lines and planes, and the grid they work on.

    ResBlock   x + conv(act(norm(conv(act(norm x)))))          Down   half the points          Up   twice the points
    FullAttention    between all sites of a map                AxisAttention   along one axis, then along the other

Padding is the system's: circular, zeros or reflect.
Letters: B rows, T frames, C channels, *grid spatial axes, w width, N sites, h heads, d head width.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from pdejepa.baselines.blocks.lift import Resize
from pdejepa.baselines.task import Task
from pdejepa.models.decoder import MAX_VALUES, wrap
from pdejepa.systems.problem import Padding


def pad(x: Tensor, n: int, padding: Padding, first: int = 2) -> Tensor:
    """n more points at both ends of the axes from `first` on.

    Rings are joined from slices, which is a third of the kernels of PyTorch's own padding, forth and back.
    """
    if n == 0:
        return x
    if padding != "circular":
        return nn.functional.pad(x, (n, n) * (x.ndim - first) + (0, 0) * (first - 2), _mode(padding))
    for axis in range(first, x.ndim):
        x = wrap(x, axis, n)
    return x


def _mode(padding: Padding) -> str:
    return "constant" if padding == "zeros" else padding


class RingConv1d(nn.Conv1d):
    """A convolution of a ring, which has `margin` more points at both ends."""

    margin = 0

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(pad(x, self.margin, "circular"))


class RingConv2d(nn.Conv2d):
    """The same on two axes."""

    margin = 0

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(pad(x, self.margin, "circular"))


def conv(
    ndim: int,
    n_in: int,
    n_out: int,
    kernel: int = 3,
    padding: Padding = "zeros",
    stride: int = 1,
    dilation: int = 1,
    bias: bool = True,
) -> nn.Module:
    """A convolution that keeps the grid, or halves it with stride 2 and kernel 4."""
    margin = dilation * ((kernel - 1) // 2)
    if padding == "circular":
        ring = (RingConv1d if ndim == 1 else RingConv2d)(n_in, n_out, kernel, stride, 0, dilation, bias=bias)
        ring.margin = margin
        return ring
    make = nn.Conv1d if ndim == 1 else nn.Conv2d
    return make(n_in, n_out, kernel, stride, margin, dilation, bias=bias, padding_mode=padding)


class ResBlock(nn.Module):
    """x + conv(SiLU(GN(conv(SiLU(GN(x)))))); a 1x1 map carries x where the width changes."""

    def __init__(
        self, ndim: int, n_in: int, n_out: int, groups: int, padding: Padding, kernels: tuple[int, int] = (3, 3)
    ) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(groups, n_in), nn.GroupNorm(groups, n_out)
        self.conv1 = conv(ndim, n_in, n_out, kernels[0], padding)
        self.conv2 = conv(ndim, n_out, n_out, kernels[1], padding)
        self.skip = nn.Identity() if n_in == n_out else conv(ndim, n_in, n_out, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(nn.functional.silu(self.norm1(x)))
        return self.skip(x) + self.conv2(nn.functional.silu(self.norm2(y)))


class Down(nn.Module):
    """Half the points by a stride of 2, kernel 3; padded on both sides of a ring, else at the far ends only."""

    def __init__(self, ndim: int, width: int, padding: Padding) -> None:
        super().__init__()
        make = nn.Conv1d if ndim == 1 else nn.Conv2d
        self.conv = make(width, width, 3, 2)
        self.padding = padding

    def forward(self, x: Tensor) -> Tensor:
        if self.padding == "circular":
            return self.conv(pad(x, 1, "circular"))
        return self.conv(nn.functional.pad(x, (0, 1) * (x.ndim - 2), _mode(self.padding)))


class Up(nn.Module):
    """Twice the points by repetition, then a convolution."""

    def __init__(self, ndim: int, n_in: int, n_out: int, padding: Padding) -> None:
        super().__init__()
        self.conv = conv(ndim, n_in, n_out, 3, padding)

    def forward(self, x: Tensor) -> Tensor:
        for axis in range(2, x.ndim):
            x = x.repeat_interleave(2, axis)
        return self.conv(x)


# ---- attention on maps ------------------------------------------------------------------------------------------
class FullAttention(nn.Module):
    """Every site looks at every site of a map (B,w,*sites), with learned positions if their number is given."""

    def __init__(self, width: int, heads: int, head_width: int, groups: int, sites: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(groups, width)
        self.qkv = nn.Linear(width, 3 * heads * head_width, bias=False)
        self.out = nn.Linear(heads * head_width, width)
        self.positions = nn.Parameter(0.02 * torch.randn(math.prod(sites), width)) if sites else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x).flatten(2).transpose(1, 2)  # (B,N,w)
        if self.positions is not None:
            y = y + self.positions
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)  # (B,h,N,d)
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)  # (B,N,h*d)
        return x + self.out(y).transpose(1, 2).reshape(x.shape)


class AxisFeatures(nn.Module):
    """One feature vector per place of an axis: the mean over the other axis, then a small network; (B,n,w)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.start = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, other: int) -> Tensor:
        return self.mlp(self.norm(self.start(x).mean(other)))


class AxisAttention(nn.Module):
    """x + out(A_y A_x V x) on a plane: A_x, A_y are softmax matrices between the places of one axis."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, inner = heads, heads * width
        self.norm = nn.GroupNorm(groups, width)
        self.start = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, inner, bias=False)
        self.features = nn.ModuleList(AxisFeatures(width) for _ in range(2))
        self.queries = nn.ModuleList(nn.Linear(width, 2 * inner, bias=False) for _ in range(2))
        self.out = nn.Sequential(nn.Linear(inner, width, bias=False), nn.GELU(), nn.Linear(width, width, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        y = self.start(self.norm(x).movedim(1, -1))  # (B,X,Y,w)
        v = self.value(y).unflatten(-1, (self.heads, -1))  # (B,X,Y,h,d)
        v = torch.einsum("bhik,bkyhd->biyhd", self._weights(0, y), v)
        v = torch.einsum("bhik,bxkhd->bxihd", self._weights(1, y), v)
        return x + self.out(v.flatten(3)).movedim(-1, 1)

    def _weights(self, axis: int, y: Tensor) -> Tensor:
        features = self.features[axis](y, 2 - axis)  # (B,n,w): the mean runs over the other axis
        q, k = self.queries[axis](features).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)  # (B,h,n,n)


# ---- frames ------------------------------------------------------------------------------------------------------
def per_frame(network: nn.Module, u: Tensor, grid: tuple[int, ...]) -> Tensor:
    """Apply a network (n,C,...) -> (n,...) to every frame of (B,T,C,...)."""
    return in_parts(network, u.flatten(0, 1), grid).unflatten(0, u.shape[:2])


def in_parts(network: nn.Module, x: Tensor, grid: tuple[int, ...], width: int = 64) -> Tensor:
    """A network on frames or latents (n,...) of fields on a grid, a moderate number of points at a time.

    Beyond MAX_VALUES in a map a convolution gave wrong ones, and attention along axes would need tens of gigabytes.
    width: channels of its largest map, if that had as many points as the grid.
    """
    parts = [network(part) for part in x.split(max(1, MAX_VALUES // (width * math.prod(grid))))]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def working_grid(task: Task, largest: int) -> tuple[tuple[int, ...], Resize]:
    """The grid a solver works on, the data's or a coarser one where the published settings have one, and the way."""
    grid = tuple(min(n, largest) for n in task.grid)
    return grid, Resize(task.grid, grid, "spectral" if task.is_periodic else "linear")


# ---- causal in time ------------------------------------------------------------------------------------------------
class CausalConv(nn.Module):
    """(B,C,T,*grid): a frame sees itself and the frames before it (zeros before the first), space is padded."""

    def __init__(
        self, ndim: int, n_in: int, n_out: int, kernel: int, padding: Padding, stride: int = 1, reach: int = 3
    ) -> None:
        super().__init__()
        make: Any = nn.Conv2d if ndim == 1 else nn.Conv3d  # time is one more axis
        self.conv: nn.Module = make(n_in, n_out, (reach, *[kernel] * ndim), (1, *[stride] * ndim))
        self.margin, self.padding = kernel // 2, padding
        self.past = (0,) * (2 * ndim) + (reach - 1, 0)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(nn.functional.pad(pad(x, self.margin, self.padding, first=3), self.past))


class ChannelNorm(nn.LayerNorm):
    """Mean and spread over the channels of every place and time alone: nothing leaks from the future."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class CausalBlock(nn.Module):
    """x + y g,  y = linear(SiLU(conv(norm x))),  g = sigmoid(small network of a weighted mean of y over space)."""

    def __init__(self, ndim: int, width: int, padding: Padding) -> None:
        super().__init__()
        self.norm = ChannelNorm(width)
        self.conv = CausalConv(ndim, width, width, 3, padding)
        self.linear = nn.Linear(width, width)
        self.weight = nn.Linear(width, 1, bias=False)
        hidden = max(width // 2, 1)
        self.gate = nn.Sequential(nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(nn.functional.silu(self.conv(self.norm(x))).movedim(1, -1))  # (B,T,*grid,w)
        flat = y.flatten(2, -2)  # (B,T,N,w)
        mean = (flat * self.weight(flat).softmax(2)).sum(2)  # (B,T,w)
        gate = self.gate(mean).sigmoid().reshape(*mean.shape[:2], *[1] * (y.ndim - 3), -1)
        return x + (y * gate).movedim(-1, 1)


class CausalEncoder(nn.Sequential):
    """(B,C,T,*grid) -> (B,n_out,T,*sites); the width doubles at every halving."""

    def __init__(self, ndim: int, n_in: int, n_out: int, width: int, n_halvings: int, padding: Padding) -> None:
        layers: list[nn.Module] = [CausalConv(ndim, n_in, width, 7, padding), CausalBlock(ndim, width, padding)]
        for _ in range(n_halvings):
            layers += [CausalConv(ndim, width, 2 * width, 3, padding, stride=2), CausalBlock(ndim, 2 * width, padding)]
            width *= 2
        super().__init__(*layers, ChannelNorm(width), nn.SiLU(), CausalConv(ndim, width, n_out, 1, padding, reach=1))


class CausalDecoder(nn.Module):
    """(B,n_in,T,*sites) -> (B,n_out,T,*grid)."""

    def __init__(self, ndim: int, n_in: int, n_out: int, width: int, n_halvings: int, padding: Padding) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(n_halvings, -1, -1)]
        self.start = nn.Sequential(CausalConv(ndim, n_in, widths[0], 3, padding), CausalBlock(ndim, widths[0], padding))
        self.levels = nn.ModuleList(
            nn.Sequential(CausalConv(ndim, b, a, 3, padding), CausalBlock(ndim, a, padding))
            for b, a in pairwise(widths)
        )
        self.end = nn.Sequential(ChannelNorm(width), nn.SiLU(), CausalConv(ndim, width, n_out, 7, padding))

    def forward(self, z: Tensor) -> Tensor:
        x = self.start(z)
        for level in self.levels:
            for axis in range(3, x.ndim):
                x = x.repeat_interleave(2, axis)
            x = level(x)
        return self.end(x)

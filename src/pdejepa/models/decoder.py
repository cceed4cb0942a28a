"""Decoder: latent tokens of one frame back to its fields, by convolutions on a map that grows to the full grid.

    residual   LayerNorm, Linear, residual blocks, then for each scale: upsample, residual blocks; conv3 to the channels
    plain      conv3 GELU, then for each scale: upsample, conv3 GELU; further conv3 GELU; conv3 to the channels
    patches    LayerNorm, Linear from a token to its patch, residual blocks on the full grid; conv3 to the channels
    linear     Linear from a token to its patch, for latents that are linear in the fields

Except in `linear`, tokens are first scaled to mean 0 and variance 1 over D.  Residual block:

    GELU( skip(x) + GroupNorm(conv3(GELU(GroupNorm(conv3(x))))) ),     skip = conv1 if the width changes

Upsampling by 2 is linear between cell centres: the two halves of cell i are

    (u_{i-1} + 3 u_i) / 4   and   (3 u_i + u_{i+1}) / 4                on each axis in turn.

At the edges everything is wrapped (circular), mirrored (reflect) or zero (zeros), except that upsampling repeats the
edge value where it does not wrap.  Padding is done by joining slices: its backward pass adds in a fixed order on GPUs.
1-D maps are carried as one row (B,w,1,X) with 1 x 3 kernels; maps are channels-last in memory, the fast layout of GPUs.
Letters: B rows, N tokens, D latent width, C channels, w width of a map, X and Y its points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from pdejepa.core.device import in_forward_mode, without_autocast
from pdejepa.core.errors import ConfigError, DataError
from pdejepa.models.blocks import init_weights
from pdejepa.models.patches import PatchGrid
from pdejepa.models.sizes import choice_faults, refuse, size_faults
from pdejepa.systems.problem import Padding

EPS = 1e-5
MAX_GROUPS = 8
# Values of one map in 1-D.  Beyond them a convolution of 96 to 64 channels gave wrong values for the last images on an
# H200 (float32, channels last, cuDNN 9.19 with torch 2.11).
MAX_VALUES = 2**24
WHOLE_PATCHES = ("patches", "linear")  # styles in which a token becomes its patch at once
MAX_SCALE = 2  # the upsampling stencil doubles a grid; larger factors are several doublings


@dataclass(frozen=True)
class DecoderConfig:
    """`widths` of the maps, finest last; `scales` are the upsampling factors between them, with product `patch`.

    The style `patches` has no scales: a token becomes its patch at once, and all maps are as fine as the grid.  The
    style `linear` has neither scales nor widths.
    """

    widths: tuple[int, ...] = (192, 128, 96)
    n_blocks: int = 1
    style: Literal["residual", "plain", "patches", "linear"] = "residual"
    scales: tuple[int, ...] = (2, 2)

    def __post_init__(self) -> None:
        problems = [*size_faults(self, "n_blocks"), *choice_faults(self)]
        if not self.widths or any(width < 1 for width in self.widths):
            problems.append(f"widths must be 1 or more each, got {self.widths}.")
        if any(scale not in range(1, MAX_SCALE + 1) for scale in self.scales):
            problems.append(f"scales must be 1 or 2 each, got {self.scales}.")
        n_maps = len(self.scales) + 1
        if self.style == "residual" and len(self.widths) != n_maps:
            problems.append(f"widths must hold {n_maps} values for {n_maps - 1} scales, got {len(self.widths)}.")
        if self.style == "plain" and len(self.widths) < n_maps:
            problems.append(f"widths must hold {n_maps} values or more for these scales, got {len(self.widths)}.")
        refuse(problems)


class Decoder(nn.Module):
    def __init__(
        self, config: DecoderConfig, patches: PatchGrid, width: int, n_channels: int, padding: Padding
    ) -> None:
        super().__init__()
        _check(config, patches, padding)
        self.patches, self.n_channels, self.width = patches, n_channels, width
        self.to_map = nn.Sequential()  # on tokens, before they become a map
        self.has_whole_patches, self.is_linear = config.style in WHOLE_PATCHES, config.style == "linear"
        if self.is_linear:
            self.to_map = nn.Sequential(nn.Linear(width, n_channels * patches.patch_points))
            init_weights(self)
            return
        axes = (2, 3)[-patches.ndim :]
        if config.style == "plain":
            layers = _plain_layers(config, padding, axes, width)
        else:
            n_points = patches.patch**patches.ndim if self.has_whole_patches else 1
            self.to_map = nn.Sequential(nn.LayerNorm(width, eps=EPS), nn.Linear(width, config.widths[0] * n_points))
            layers = _residual_layers(config, padding, axes)
        self.layers = nn.Sequential(*layers, ReadOut(config.widths[-1], n_channels, padding, axes))
        self.largest_map = max(config.widths[-2:]) * math.prod(n + 2 for n in patches.grid)  # values per row
        if config.style != "plain":
            init_weights(self)

    def forward(self, q: Tensor) -> Tensor:
        """q (...,N,D) -> normalised fields (...,C,*grid); in float32 on a CPU, where such convolutions are faster."""
        if q.device.type != "cpu":
            return self._decode(q)
        with without_autocast(q.device):
            return self._decode(q.float())

    def _decode(self, q: Tensor) -> Tensor:
        patches = self.patches
        if self.is_linear:
            with without_autocast(q.device):
                return patches.join(self.to_map(q.float()))
        if tuple(q.shape[-2:]) != (patches.n_tokens, self.width):
            raise DataError(f"The decoder expects (..., {patches.n_tokens}, {self.width}); got {tuple(q.shape)}.")
        x = q.reshape(-1, *q.shape[-2:])  # (B,N,D)
        x = self.to_map(nn.functional.layer_norm(x, (self.width,), eps=EPS))  # (B,N,w)
        u = torch.cat([self.layers(self._map(part)) for part in self._parts(x)])  # (B,C,X,Y) or (B,C,1,X)
        return u.reshape(*q.shape[:-2], self.n_channels, *patches.grid)

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        """As many rows at once as are computed right; all of them in a graph that is written for other programs."""
        if self.patches.ndim > 1 or torch.compiler.is_exporting():
            return (x,)
        return x.split(max(1, MAX_VALUES // self.largest_map))

    def _map(self, x: Tensor) -> Tensor:
        """Tokens (B,N,w) as a map (B,w,X,Y) or (B,w,1,X), channels last in memory."""
        patches, rows = self.patches, (1,) * (2 - self.patches.ndim)
        if self.has_whole_patches:
            x = patches.join(x)  # (B,w,*grid), w now counts the features of a point
            return x.reshape(*x.shape[:2], *rows, *patches.grid).contiguous(memory_format=torch.channels_last)
        x = x.reshape(x.shape[0], *rows, *patches.tokens, x.shape[-1])  # (B,X,Y,w) or (B,1,X,w)
        return x.permute(0, 3, 1, 2)


class Conv3(nn.Conv2d):
    """A convolution three points wide on the given axes, with the same number of points out as in."""

    def __init__(self, n_in: int, n_out: int, padding: Padding, axes: Sequence[int]) -> None:
        kernel = (3 if 2 in axes else 1, 3)
        border = (kernel[0] // 2, 1) if padding == "zeros" else (0, 0)
        super().__init__(n_in, n_out, kernel, padding=border)
        self.edges, self.axes = padding, tuple(axes)

    def forward(self, x: Tensor) -> Tensor:
        if self.edges != "zeros":
            for axis in self.axes:
                x = extend(x, axis, self.edges)
        return super().forward(x)


class ReadOut(Conv3):
    """The last convolution, in float32 also where autocast runs: eight bits of a field are an error of .2 %."""

    def forward(self, x: Tensor) -> Tensor:
        with without_autocast(x.device):
            return super().forward(x.float())


class Upsample(nn.Module):
    """Twice the points on each of the given axes."""

    def __init__(self, padding: Padding, axes: Sequence[int]) -> None:
        super().__init__()
        self.edges = "circular" if padding == "circular" else "repeat"
        self.axes = tuple(axes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)  # (B,X,Y,w), so that interleaving keeps the channels last in memory
        for axis in self.axes:
            x = self._double(x, axis - 1)
        return x.permute(0, 3, 1, 2)  # (B,w,2X,2Y)

    def _double(self, x: Tensor, axis: int) -> Tensor:
        n = x.shape[axis]
        wide = extend(x, axis, self.edges)
        before, after = wide.narrow(axis, 0, n), wide.narrow(axis, 2, n)
        halves = (0.75 * x + 0.25 * before, 0.75 * x + 0.25 * after)
        return torch.stack(halves, dim=axis + 1).flatten(axis, axis + 1)  # (...,2n,...)


class ResidualBlock(nn.Module):
    def __init__(self, n_in: int, n_out: int, padding: Padding, axes: Sequence[int]) -> None:
        super().__init__()
        n_groups = max(g for g in range(1, MAX_GROUPS + 1) if n_out % g == 0)
        self.conv1 = Conv3(n_in, n_out, padding, axes)
        self.norm1 = nn.GroupNorm(n_groups, n_out)
        self.conv2 = Conv3(n_out, n_out, padding, axes)
        self.norm2 = nn.GroupNorm(n_groups, n_out)
        self.skip = nn.Conv2d(n_in, n_out, 1) if n_in != n_out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.gelu(self.norm1(_in_order(self.conv1(x))))
        y = self.norm2(_in_order(self.conv2(y)))
        return nn.functional.gelu(self.skip(x) + y)


def _in_order(x: Tensor) -> Tensor:
    """Derivatives of GroupNorm in forward mode need channels first in memory."""
    return x.contiguous() if in_forward_mode() else x


def extend(x: Tensor, axis: int, edges: str) -> Tensor:
    """One more point at both ends of an axis: wrapped (circular), mirrored (reflect) or repeated (repeat)."""
    if edges == "circular":
        return wrap(x, axis, 1)
    n = x.shape[axis]
    left, right = {"reflect": (1, n - 2), "repeat": (0, n - 1)}[edges]
    return torch.cat((x.narrow(axis, left, 1), x, x.narrow(axis, right, 1)), dim=axis)


def wrap(x: Tensor, axis: int, n: int) -> Tensor:
    """n more points at both ends of a ring."""
    return torch.cat((x.narrow(axis, x.shape[axis] - n, n), x, x.narrow(axis, 0, n)), dim=axis)


def _residual_layers(config: DecoderConfig, padding: Padding, axes: Sequence[int]) -> list[nn.Module]:
    widths = config.widths
    scales = (1,) * (len(widths) - 1) if config.style == "patches" else config.scales
    layers: list[nn.Module] = [ResidualBlock(widths[0], widths[0], padding, axes) for _ in range(config.n_blocks)]
    for n_in, n_out, scale in zip(widths[:-1], widths[1:], scales, strict=True):
        layers += [Upsample(padding, axes)] if scale == 2 else []
        layers.append(ResidualBlock(n_in, n_out, padding, axes))
        layers += [ResidualBlock(n_out, n_out, padding, axes) for _ in range(config.n_blocks - 1)]
    return layers


def _plain_layers(config: DecoderConfig, padding: Padding, axes: Sequence[int], width: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for number, (n_in, n_out) in enumerate(zip((width, *config.widths[:-1]), config.widths, strict=True)):
        if 1 <= number <= len(config.scales) and config.scales[number - 1] == 2:
            layers.append(Upsample(padding, axes))
        layers += [Conv3(n_in, n_out, padding, axes), nn.GELU()]
    return layers


def _check(config: DecoderConfig, patches: PatchGrid, padding: str) -> None:
    if patches.ndim not in (1, 2):
        raise ConfigError(f"The decoder works on one or two axes of space; got the grid {patches.grid}.")
    if padding not in ("circular", "zeros", "reflect"):
        raise ConfigError(f"padding must be 'circular', 'zeros' or 'reflect'; got {padding!r}.")
    if config.style not in WHOLE_PATCHES and math.prod(config.scales) != patches.patch:
        raise ConfigError(f"The product of scales must be the patch of {patches.patch} points; got {config.scales}.")
    if padding == "reflect" and min(patches.tokens) < 2:
        raise ConfigError(f"Mirrored edges need two tokens per axis or more; got {patches.tokens}.")

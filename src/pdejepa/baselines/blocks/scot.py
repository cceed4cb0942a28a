"""ScOT, the multiscale Swin-v2 transformer of Poseidon.

    x = CN(patches of 4 x 4, t)                                        CN: layer norm conditioned on the lead time t
    encoder, four stages:   y = blocks(x),   x <- Merge(y + x)         2 x 2 tokens become one, twice as wide
    decoder, four stages:   x = blocks(x + skip(y)),   x <- Unmerge(x)
    u = conv5x5( patches back )

    block   x <- x + CN(A(x), t)        x <- x + CN(Mlp(x), t)
    A       attention inside windows, see `swin`; every other block shifts them by half
    skip    ConvNeXt: x + g W2 GELU(W1 CN(conv7x7(x), t)), twice; the deepest stage has none and begins the decoder
    CN      (W t + w) * (x - mean) / sqrt(var + 1e-5) + (V t + v)

A grid that is not larger than the window is one window, and nothing shifts.  Tokens are stored as maps (B,h,v,c).
Ours differs: norms begin as plain ones (w = 1, W = V = v = 0); public code begins with weights of 0.02 and no constant.
Letters: B rows, C channels, X and Y points, h and v tokens down and across, c width, K heads, d head width, n window.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pdejepa.baselines.blocks.swin import Pair, WindowAttention
from pdejepa.core.errors import ConfigError

INIT_STD = 0.02


@dataclass(frozen=True)
class ScotConfig:
    """plane: points that the network works on; heads: of the first stage, doubled with the width in every other.

    longest_jump: frames between the two of a pair in training.
    """

    plane: Pair = (64, 64)
    width: int = 48
    heads: int = 3
    n_stages: int = 4
    depth: int = 4
    n_skip: int = 2
    window: int = 16
    patch: int = 4
    bias_hidden: int = 512
    longest_jump: int = 4

    def __post_init__(self) -> None:
        for n in self.plane:
            tokens = [n / self.patch / 2**stage for stage in range(self.n_stages)]
            if tokens[-1] != int(tokens[-1]) or any(m % min(m, self.window) for m in tokens):
                raise ConfigError(
                    f"{self.n_stages} stages of windows of {self.window} tokens need a plane of {self.patch} times a "
                    f"power of two on every axis; got {self.plane}"
                )


class ConditionedNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Linear(1, width), nn.Linear(1, width)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """x (B,h,v,c), time (B,1)."""
        gain, shift = self.weight(time)[:, None, None], self.bias(time)[:, None, None]  # (B,1,1,c)
        return nn.functional.layer_norm(x, x.shape[-1:], eps=1e-5) * gain + shift


class _Dense(nn.Module):
    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.dense = nn.Linear(n_in, n_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(x)


class _Attention(nn.Module):
    def __init__(self, attention: WindowAttention, width: int) -> None:
        super().__init__()
        self.self = attention
        self.output = _Dense(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.self(x))


class Block(nn.Module):
    compiles = True

    def __init__(self, attention: WindowAttention, width: int) -> None:
        super().__init__()
        self.attention = _Attention(attention, width)
        self.layernorm_before, self.layernorm_after = ConditionedNorm(width), ConditionedNorm(width)
        self.intermediate, self.output = _Dense(width, 4 * width), _Dense(4 * width, width)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        x = x + self.layernorm_before(self.attention(x), time)
        return x + self.layernorm_after(self.output(nn.functional.gelu(self.intermediate(x))), time)


class Merge(nn.Module):
    """(B,h,v,c) -> (B,h/2,v/2,2c); the four of a square in the order (0,0), (1,0), (0,1), (1,1), row first."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.reduction = nn.Linear(4 * width, 2 * width, bias=False)
        self.norm = ConditionedNorm(2 * width)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        x = x.unflatten(2, (-1, 2)).unflatten(1, (-1, 2))  # (B,h/2,2,v/2,2,c)
        return self.norm(self.reduction(x.permute(0, 1, 3, 4, 2, 5).flatten(3)), time)


class Unmerge(nn.Module):
    """(B,h,v,c) -> (B,2h,2v,c/2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.upsample = nn.Linear(width, 2 * width, bias=False)
        self.mixup = nn.Linear(width // 2, width // 2, bias=False)
        self.norm = ConditionedNorm(width // 2)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        x = self.upsample(x).unflatten(-1, (2, 2, -1)).permute(0, 1, 3, 2, 4, 5)  # (B,h,2,v,2,c/2)
        return self.mixup(self.norm(x.flatten(3, 4).flatten(1, 2), time))


class Skip(nn.Module):
    """One ConvNeXt block on the way from the encoder to the decoder."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = ConditionedNorm(width)
        self.pwconv1, self.pwconv2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.weight = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.norm(self.dwconv(x.movedim(-1, 1)).movedim(1, -1), time)
        return x + self.weight * self.pwconv2(nn.functional.gelu(self.pwconv1(y)))


class SkipPath(nn.ModuleList):
    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        for block in self:
            x = block(x, time)
        return x


class Stage(nn.Module):
    """Blocks at one resolution, and the way to the next one."""

    downsample: Merge | None
    upsample: Unmerge | None

    def __init__(self, config: ScotConfig, number: int, is_encoder: bool) -> None:
        super().__init__()
        width, heads = config.width * 2**number, config.heads * 2**number
        grid = (config.plane[0] // config.patch // 2**number, config.plane[1] // config.patch // 2**number)
        window = (min(config.window, grid[0]), min(config.window, grid[1]))
        half = tuple(n // 2 if m > n else 0 for m, n in zip(grid, window, strict=True))
        blocks = []
        for position in range(config.depth):
            shift = (half[0], half[1]) if (position % 2 == 1) == is_encoder else (0, 0)
            blocks.append(Block(WindowAttention(width, heads, grid, window, shift, config.bias_hidden), width))
        self.blocks = nn.ModuleList(blocks)
        self.downsample = Merge(width) if is_encoder and number < config.n_stages - 1 else None
        self.upsample = Unmerge(width) if not is_encoder and number > 0 else None

    def forward(self, x: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """The map after the blocks, and the one that the next stage begins with."""
        y = x
        for block in self.blocks:
            y = block(y, time)
        if self.downsample is not None:
            return y, self.downsample(y + x, time)
        return y, y if self.upsample is None else self.upsample(y, time)


class _Layers(nn.Module):
    def __init__(self, layers: list[Stage]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)


class _Patches(nn.Module):
    def __init__(self, n_in: int, width: int, patch: int) -> None:
        super().__init__()
        self.projection = nn.Conv2d(n_in, width, patch, patch)


class _Embeddings(nn.Module):
    def __init__(self, n_in: int, width: int, patch: int) -> None:
        super().__init__()
        self.patch_embeddings = _Patches(n_in, width, patch)
        self.norm = ConditionedNorm(width)

    def forward(self, u: Tensor, time: Tensor) -> Tensor:
        return self.norm(self.patch_embeddings.projection(u).movedim(1, -1), time)


class _Recovery(nn.Module):
    def __init__(self, width: int, n_out: int, patch: int) -> None:
        super().__init__()
        self.projection = nn.ConvTranspose2d(width, n_out, patch, patch)
        self.mixup = nn.Conv2d(n_out, n_out, 5, padding=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.mixup(self.projection(x.movedim(-1, 1)))


class Scot(nn.Module):
    """(B,C_in,X,Y) and lead times (B,1) -> (B,C_out,X,Y)."""

    def __init__(self, config: ScotConfig, n_in: int, n_out: int) -> None:
        super().__init__()
        numbers = range(config.n_stages)
        self.embeddings = _Embeddings(n_in, config.width, config.patch)
        self.encoder = _Layers([Stage(config, number, True) for number in numbers])
        self.decoder = _Layers([Stage(config, number, False) for number in reversed(numbers)])
        paths = (SkipPath(Skip(config.width * 2**number) for _ in range(config.n_skip)) for number in numbers[:-1])
        self.residual_blocks = nn.ModuleList(paths)
        self.patch_recovery = _Recovery(config.width, n_out, config.patch)
        self.apply(_begin)

    def forward(self, u: Tensor, time: Tensor) -> Tensor:
        with torch.autocast(u.device.type, enabled=False):  # fields and what reads them: bfloat16 has two digits
            x, skips = self.embeddings(u, time), []  # (B,h,v,c)
        for stage in self.encoder.layers:
            y, x = stage(x, time)
            skips.append(y)
        for depth, stage in enumerate(self.decoder.layers):
            if depth > 0:
                number = len(skips) - 1 - depth
                x = x + self.residual_blocks[number](skips[number], time)
            _, x = stage(x, time)
        with torch.autocast(u.device.type, enabled=False):
            return self.patch_recovery(x.to(u.dtype))


def _begin(module: nn.Module) -> None:
    """Normal weights and no biases; norms that do not depend on the lead time yet."""
    if isinstance(module, ConditionedNorm):
        for part, constant in ((module.weight, 1.0), (module.bias, 0.0)):
            nn.init.zeros_(part.weight)
            nn.init.constant_(part.bias, constant)
    elif isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, std=INIT_STD)
        if module.bias is not None:
            nn.init.zeros_(module.bias)

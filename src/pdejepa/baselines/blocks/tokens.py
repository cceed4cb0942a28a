"""Tokens for the transformers among the solvers: clips cut into patches, positions, masks, and one block with switches.

    x <- x + g1 Attention( s1 Norm(x) + b1 )                 s = 1 + scale, b = shift, g = gate: adaptive norms
    x <- x + g2 Ffn( s2 Norm(x) + b2 )                       (Peebles & Xie, 2023), or s = g = 1, b = 0 without

    Norm     layer (mean and spread) or rms (spread only)
    Ffn      gelu: W_out GELU(W_in x), with biases       swiglu: W_out (SiLU(W_gate x) * W_in x), without
    q, k     as they are, or normalised per head (rms or layer) before the product

A token is seen by another if its number is not larger: numbered by frames, every frame sees all earlier ones and
itself.
Letters: B rows, T frames, t frames of a tubelet, N tokens of a frame, n tokens, K heads, d head width, C channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from pdejepa.core.errors import ConfigError
from pdejepa.models.blocks import Mlp
from pdejepa.models.patches import PatchGrid
from pdejepa.models.rope import rotate

Norm = Literal["layer", "rms"]
Ffn = Literal["gelu", "swiglu"]
QkNorm = Literal["none", "rms", "layer"]
QkvBias = Literal["all", "none", "query_value"]
BASE = 10_000.0  # longest wavelength of sinusoidal positions, in units of 2 pi


# ---- patches and positions -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Tubelets:
    """Clips cut into patches that are `depth` frames long; tokens are numbered time first, then row-major."""

    patches: PatchGrid
    depth: int = 1

    def split(self, u: Tensor) -> Tensor:
        """(B,T,C,*grid) -> (B, T/t N, t C p^k); inside a token: frame, channel, point."""
        if u.shape[1] % self.depth:
            raise ConfigError(f"Tubelets of {self.depth} frames must divide the clip; got {u.shape[1]} frames.")
        x = self.patches.split(u).unflatten(1, (-1, self.depth))  # (B,T/t,t,N,C p^k)
        return x.transpose(2, 3).flatten(3).flatten(1, 2)

    def join(self, x: Tensor) -> Tensor:
        """(B, T/t N, t C p^k) -> (B,T,C,*grid), the inverse of `split`."""
        x = x.unflatten(2, (self.depth, -1)).unflatten(1, (-1, self.patches.n_tokens))  # (B,T/t,N,t,C p^k)
        return self.patches.join(x.transpose(2, 3).flatten(1, 2))


def sinusoids(index: Tensor, width: int) -> Tensor:
    """Positions (n,) -> (n,width): sin and cos in turn, of index BASE^(-2i/width), i = 0 .. width/2 - 1."""
    i = torch.arange(width, device=index.device, dtype=torch.float64)
    angle = index.double()[:, None] * BASE ** (-2 * torch.floor(i / 2) / width)  # (n,width)
    return torch.where(i % 2 == 0, angle.sin(), angle.cos()).float()


def grid_sinusoids(lengths: tuple[int, ...], width: int) -> Tensor:
    """(n,width) of all tokens of a grid, row-major: every axis owns an equal, even part of the width; the rest is 0."""
    share = width // (2 * len(lengths)) * 2
    axes = torch.meshgrid(*[torch.arange(n) for n in lengths], indexing="ij")
    columns = [sinusoids(axis.flatten(), share) for axis in axes]
    return nn.functional.pad(torch.cat(columns, 1), (0, width - share * len(lengths)))


# ---- masks ---------------------------------------------------------------------------------------------------------
def causal_mask(number: Tensor) -> Tensor:
    """(n,n) from token numbers (n,): True where the row may look at the column."""
    return number[:, None] >= number[None, :]


def choose(noise: Tensor, n_visible: int) -> tuple[Tensor, Tensor]:
    """Token numbers that stay (B,n_visible) and that are masked (B,rest), by the order of noise (B,n)."""
    order = noise.argsort(dim=1)
    return order[:, :n_visible], order[:, n_visible:]


def tubes(sites: Tensor, n_times: int, n_sites: int) -> Tensor:
    """The same sites (B,m) at all times as token numbers (B, n_times m)."""
    first = n_sites * torch.arange(n_times, device=sites.device)[:, None]  # (n_times,1)
    return (first + sites[:, None]).flatten(1)


def pick(x: Tensor, idx: Tensor) -> Tensor:
    """Tokens idx (B,m) of x (B or 1,n,width) -> (B,m,width)."""
    return x.expand(len(idx), -1, -1).gather(1, idx[..., None].expand(-1, -1, x.shape[-1]))


# ---- blocks --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class BlockConfig:
    """hidden: width inside the feed-forward part     head_width: 0 means width / heads"""

    width: int
    heads: int
    hidden: int
    norm: Norm = "layer"
    ffn: Ffn = "gelu"
    qk_norm: QkNorm = "none"
    qkv_bias: QkvBias = "all"
    out_bias: bool = True
    head_width: int = 0
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if not self.head_width and self.width % self.heads:
            raise ConfigError(f"heads must divide the width; got {self.heads} heads for a width of {self.width}.")


class Cache:
    """Keys and values (B,K,n,d) of earlier tokens, for every block, which reads and extends its own."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def extended(self, block: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of a block with new ones behind the known ones; they are kept."""
        if block == len(self.keys):
            self.keys.append(k)
            self.values.append(v)
        else:
            self.keys[block] = torch.cat((self.keys[block], k), 2)
            self.values[block] = torch.cat((self.values[block], v), 2)
        return self.keys[block], self.values[block]


class TokenAttention(nn.Module):
    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.head_width = config.head_width or config.width // config.heads
        inner = self.heads * self.head_width
        self.qkv = nn.Linear(config.width, 3 * inner, bias=config.qkv_bias == "all")
        self.out = nn.Linear(inner, config.width, bias=config.out_bias)
        self.q_bias = self.v_bias = None  # a bias of keys moves all products of a query alike: it changes nothing
        if config.qkv_bias == "query_value":
            self.q_bias, self.v_bias = nn.Parameter(torch.zeros(inner)), nn.Parameter(torch.zeros(inner))
        self.q_norm, self.k_norm = _qk_norm(config.qk_norm, self.head_width), _qk_norm(config.qk_norm, self.head_width)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        rotary: tuple[Tensor, Tensor] | None = None,
        cache: Cache | None = None,
        number: int = 0,
        is_causal: bool = False,
    ) -> Tensor:
        """x (B,n,width); mask (n, n or all with the cached) True where to look; rotary cos and sin (1,1,n,d/2).

        is_causal: the mask of a text that begins here, which need not be written down, and takes half of the work.
        """
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.q_bias is not None and self.v_bias is not None:
            q, v = q + self.q_bias, v + self.v_bias
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))  # (B,K,n,d)
        q, k = self.q_norm(q), self.k_norm(k)
        if rotary is not None:
            q, k = rotate(q, *rotary), rotate(k, *rotary)
        if cache is not None:
            k, v = cache.extended(number, k, v)
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal)
        return self.out(y.transpose(1, 2).flatten(2))  # (B,n,width)


class SwiGlu(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.hidden = nn.Linear(width, hidden, bias=False)
        self.out = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(nn.functional.silu(self.gate(x)) * self.hidden(x))


class TokenBlock(nn.Module):
    """One block; `modulation` is six tensors (B, n or 1, width): shift, scale and gate of both halves."""

    compiles = True

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.norm1, self.norm2 = make_norm(config), make_norm(config)
        self.attention = TokenAttention(config)
        self.ffn = (Mlp if config.ffn == "gelu" else SwiGlu)(config.width, config.hidden)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        modulation: tuple[Tensor, ...] | None = None,
        rotary: tuple[Tensor, Tensor] | None = None,
        cache: Cache | None = None,
        number: int = 0,
        is_causal: bool = False,
    ) -> Tensor:
        if modulation is None:
            x = x + self.attention(self.norm1(x), mask, rotary, cache, number, is_causal)
            return x + self.ffn(self.norm2(x))
        shift1, scale1, gate1, shift2, scale2, gate2 = modulation
        x = x + gate1 * self.attention(modulate(self.norm1(x), shift1, scale1), mask, rotary, cache, number, is_causal)
        return x + gate2 * self.ffn(modulate(self.norm2(x), shift2, scale2))


class Modulation(nn.Module):
    """Shifts, scales and gates from conditions, zero at the start, so that a gated block begins as the identity.

    Each condition i (B, n or 1, c_i) owns widths[i] of the channels of every vector.
    """

    def __init__(self, n_vectors: int, conditions: tuple[int, ...], widths: tuple[int, ...]) -> None:
        super().__init__()
        self.n_vectors = n_vectors
        sizes = zip(conditions, widths, strict=True)
        self.maps = nn.ModuleList(nn.Linear(c, n_vectors * width) for c, width in sizes)
        self.reset()

    def reset(self) -> None:
        for linear in self.maps:
            nn.init.zeros_(linear.weight)  # type: ignore[arg-type]
            nn.init.zeros_(linear.bias)  # type: ignore[arg-type]

    def forward(self, *conditions: Tensor) -> tuple[Tensor, ...]:
        """`n_vectors` tensors (B, n or 1, sum of widths)."""
        parts = [
            linear(nn.functional.silu(c)).unflatten(-1, (self.n_vectors, -1))
            for linear, c in zip(self.maps, conditions, strict=True)
        ]  # (B, n or 1, n_vectors, width_i)
        n = max(part.shape[1] for part in parts)
        joined = torch.cat([part.expand(-1, n, -1, -1) for part in parts], -1)
        return joined.unbind(2)


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return x * (1 + scale) + shift


def make_norm(config: BlockConfig) -> nn.Module:
    kind = nn.LayerNorm if config.norm == "layer" else nn.RMSNorm
    return kind(config.width, eps=config.eps)


def _qk_norm(kind: QkNorm, width: int) -> nn.Module:
    return {"none": nn.Identity(), "rms": nn.RMSNorm(width, eps=1e-6), "layer": nn.LayerNorm(width, eps=1e-6)}[kind]


def run_blocks(blocks: nn.ModuleList, x: Tensor, mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
    """x through unmodulated blocks, which may read and extend a cache."""
    for number, block in enumerate(blocks):
        x = block(x, mask=mask, cache=cache, number=number)
    return x


def init_tokens(module: nn.Module) -> None:
    """Matrices uniform with the spread of Glorot & Bengio (2010), biases zero, modulations zero."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    for part in module.modules():
        if isinstance(part, Modulation):
            part.reset()

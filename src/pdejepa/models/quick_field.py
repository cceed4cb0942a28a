"""The structured field for forecasts on a CPU: the same function in a fraction of the operations.

    dq/ds = W(r) n(h) + b(r) + E(q) f        W(r) = W_C + sum_j r_j W_j        n: LayerNorm without scale and shift

What depends on weights and parameters only is made once per forecast: scales and shifts of every LayerNorm go into the
layer behind it, all heads into one matrix per row, pairs of features that rotary positions turn stand side by side
(queries and keys alike, so no score changes), and layers are packed (`models.packed`).  Values differ from those of
`StructuredField` by rounding.
Letters: B rows, N tokens, D latent width, S state width, w width of the trunk, H heads, d head width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pdejepa.core.device import in_forward_mode
from pdejepa.models.blocks import Attention
from pdejepa.models.condition import Drive
from pdejepa.models.forcing import ForcingResponse
from pdejepa.models.integrate import LatentField
from pdejepa.models.packed import Packed, after_norm
from pdejepa.models.vector_field import SecondOrder, StructuredField

Norm = Callable[[Tensor], Tensor]


def quick_field(field: nn.Module, drive: Drive, like: Tensor) -> LatentField | None:
    """The field under `drive` for states like (B,N,S), or None where only the field itself will do.

    That is: on a GPU, in other precisions, with gradients, and for networks with other heads or positions.
    """
    inner = field.acceleration if isinstance(field, SecondOrder) else field
    is_plain = like.device.type == "cpu" and like.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    if torch.is_grad_enabled() or in_forward_mode() or not is_plain or not isinstance(inner, StructuredField):
        return None
    has_usual_heads = inner.film is None and all(len(head) == 2 for head in inner.heads())
    if inner.backbone.rotary is None or not has_usual_heads:
        return None
    quick = _QuickField(inner, drive)
    if not isinstance(field, SecondOrder):
        return quick
    scale, half = field.velocity_scale, like.shape[-1] // 2
    return lambda state, s: torch.cat((scale * state[..., half:], quick(state, s)), -1)


class _QuickField:
    """(state (B,N,S), s (B,)) -> (B,N,D)."""

    def __init__(self, field: StructuredField, drive: Drive) -> None:
        backbone, self.drive = field.backbone, drive
        turn = _turn(*backbone.places_of_tokens())
        self.norm = _norm(backbone.norm)
        embed = backbone.embed
        self.embed = Packed(*after_norm(backbone.norm, *_weights(embed, backbone.norm)))
        self.blocks = [_QuickBlock(block, turn) for block in backbone.trunk.blocks]
        self.head_norm = _norm(field.heads()[0][0])
        self.weight, self.bias = _heads(field, drive.r.float())  # (B,D,w), (B,D)
        self.head = Packed(self.weight[0], self.bias[0]) if len(self.weight) == 1 else None
        has_forcing = field.forced is not None and drive.forcing is not None
        self.forced = _QuickForcing(field.forced, turn) if has_forcing else None  # type: ignore[arg-type]
        self.patches: tuple[Tensor, Tensor] | None = None  # of the forcing, and their times

    def __call__(self, state: Tensor, s: Tensor) -> Tensor:
        h = self.embed(self.norm(state))  # (B,N,w)
        for block in self.blocks:
            h = block(h)
        n = self.head_norm(h)
        total = torch.baddbmm(self.bias[:, None], n, self.weight.mT) if self.head is None else self.head(n)  # (B,N,D)
        return total if self.forced is None else self.forced(total, h, self._forcing(s))

    def _forcing(self, s: Tensor) -> Tensor:
        """Patches (B,N,n) at the frame times s (B,); stages of a Runge-Kutta step share them."""
        assert self.drive.forcing is not None
        if self.patches is None or not torch.equal(self.patches[0], s):
            self.patches = s, self.drive.forcing(s)
        return self.patches[1]


class _QuickBlock:
    """A block of `models.blocks`; x (B,N,w)."""

    def __init__(self, block: Any, turn: Tensor) -> None:
        attention, mlp = block.attention, block.mlp
        self.norm1, self.norm2 = _norm(block.norm1), _norm(block.norm2)
        self.heads, self.turn = attention.heads, turn
        self.qkv = Packed(*after_norm(block.norm1, *_paired(attention)))
        self.out = Packed(attention.out.weight, attention.out.bias)
        self.hidden = Packed(*after_norm(block.norm2, mlp.hidden.weight, mlp.hidden.bias))
        self.mlp_out = Packed(mlp.out.weight, mlp.out.bias)

    def __call__(self, x: Tensor) -> Tensor:
        H = self.heads
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (3 * H, -1))  # (B,N,3H,d)
        turned = rotate_pairs(qkv[:, :, : 2 * H], self.turn).transpose(1, 2)  # (B,2H,N,d)
        y = functional.scaled_dot_product_attention(turned[:, :H], turned[:, H:], qkv[:, :, 2 * H :].transpose(1, 2))
        x = self.out.plus(y.transpose(1, 2).flatten(2), x)  # (B,N,w)
        return self.mlp_out.plus(self.hidden.gelu(self.norm2(x)), x)


class _QuickForcing:
    """total + E(q) f: the response to patches f (B,N,n) of the forcing under features h (B,N,w)."""

    def __init__(self, response: ForcingResponse, turn: Tensor) -> None:
        self.embed, self.out = Packed(response.embed.weight), Packed(response.out.weight)
        self.layers = [_QuickForcingLayer(layer, turn) for layer in response.layers]
        self.known: tuple[Tensor, Tensor] | None = None  # the last patches, and what is embedded of them

    def __call__(self, total: Tensor, h: Tensor, f: Tensor) -> Tensor:
        if self.known is None or self.known[0] is not f:
            self.known = f, self.embed(f)
        e = self.known[1]
        for layer in self.layers:
            e = layer(e, h)
        return self.out.plus(e, total)


class _QuickForcingLayer:
    """A layer of `models.forcing`; e and h (B,N,w)."""

    def __init__(self, layer: Any, turn: Tensor) -> None:
        self.heads, self.turn, self.norm = layer.heads, turn, _norm(layer.norm)
        look, bias = (_in_pairs(part, 2, self.heads) for part in (layer.look.weight, layer.look.bias))
        self.look = Packed(*after_norm(layer.norm, look, bias))
        self.gate = Packed(*after_norm(layer.norm, layer.gate.weight, layer.gate.bias))
        self.value, self.mix, self.up, self.down = (
            Packed(part.weight) for part in (layer.value, layer.mix, layer.up, layer.down)
        )

    def __call__(self, e: Tensor, h: Tensor) -> Tensor:
        n, H = self.norm(h), self.heads
        turned = rotate_pairs(self.look(n).unflatten(-1, (2 * H, -1)), self.turn).transpose(1, 2)  # (B,2H,N,d)
        value = self.value(e).unflatten(-1, (H, -1)).transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(turned[:, :H], turned[:, H:], value)
        e = self.mix.plus(mixed.transpose(1, 2).flatten(2), e)
        return self.down.plus(self.up(e) * self.gate.gelu(n), e)


# ---- what is made once -------------------------------------------------------------------------------------------
def _norm(norm: nn.LayerNorm) -> Norm:
    """LayerNorm without scale and shift."""
    shape, eps = tuple(norm.normalized_shape), norm.eps
    return lambda x: functional.layer_norm(x, shape, None, None, eps)


def _weights(embed: nn.Module, norm: nn.LayerNorm) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a Linear, or of an Identity on features of `norm`."""
    if isinstance(embed, nn.Linear):
        return embed.weight, embed.bias
    return torch.eye(norm.normalized_shape[0]), None


def _heads(field: StructuredField, r: Tensor) -> tuple[Tensor, Tensor]:
    """All heads of every row as one: weight (B,D,w) and bias (B,D) on normalised features, for r (B,M).

    Sums of one row at a time: a product of matrices may round a row differently with others beside it.
    """
    if field.C_head is not None:
        r = torch.cat((r.new_ones(len(r), 1), r), 1)
    total_weight, total_bias = r.new_zeros(()), r.new_zeros(())
    for head, factor in zip(field.heads(), r.unbind(1), strict=True):
        weight, bias = after_norm(head[0], head[1].weight, head[1].bias)
        total_weight = total_weight + factor[:, None, None] * weight
        total_bias = total_bias + factor[:, None] * bias
    return total_weight, total_bias


def _turn(cos: Tensor | None, sin: Tensor | None) -> Tensor:
    """Rotary tables (1,1,N,d/2) as complex numbers (N,1,d/2)."""
    assert cos is not None
    assert sin is not None
    return torch.complex(cos, sin)[0, 0][:, None]


def rotate_pairs(x: Tensor, turn: Tensor) -> Tensor:
    """Neighbouring features of x (B,N,H,d) turned by the angles of `turn` (N,1,d/2)."""
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turn).flatten(-2)


def _paired(attention: Attention) -> tuple[Tensor, Tensor]:
    """Weight and bias of queries, keys and values, pairs that are turned together side by side."""
    width = len(attention.out.bias)
    looks = [_in_pairs(part[: 2 * width], 2, attention.heads) for part in (attention.qkv.weight, attention.qkv.bias)]
    values = [part[2 * width :] for part in (attention.qkv.weight, attention.qkv.bias)]
    weight, bias = (torch.cat(parts) for parts in zip(looks, values, strict=True))
    return weight, bias


def _in_pairs(rows: Tensor, n: int, heads: int) -> Tensor:
    """Rows (n H d,...) of queries and keys, feature i of a head next to feature i + d/2."""
    cut = rows.reshape(n * heads, 2, -1, *rows.shape[1:])  # (nH,2,d/2,...)
    return cut.transpose(1, 2).reshape(rows.shape)

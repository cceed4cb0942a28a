"""How a known forcing field acts on the latent state: E(q) f, linear in f, with weights that depend on q.

The encoder's derivative maps a change f of the field to J(u) f in latent space: linear in f, dependent on the state,
and not local, since attention mixes places.  The response has just these properties:

    e = W f                                    patches of the forcing, no bias
    e <- e + A(h) e                            attention weights come from the features h
    e <- e + W2 ((W1 e) * gelu(Wg LN(h)))      a gate decided by h
    E(q) f = W_out e

Letters: B rows, N tokens, w width, D latent width, K heads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pdejepa.core.device import may_fuse_attention
from pdejepa.models.blocks import attend_by_products
from pdejepa.models.field_config import FieldConfig
from pdejepa.models.rope import rotate


class _Layer(nn.Module):
    """One mixing and one gating step, both linear in e."""

    compiles = True

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, eps=1e-5)
        self.look = nn.Linear(width, 2 * width)  # queries and keys, from the features
        self.value = nn.Linear(width, width, bias=False)
        self.mix = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, width)
        self.up = nn.Linear(width, width, bias=False)
        self.down = nn.Linear(width, width, bias=False)

    def forward(self, e: Tensor, h: Tensor, cos: Tensor | None, sin: Tensor | None) -> Tensor:
        h = self.norm(h)
        query, key = (self._split(part) for part in self.look(h).chunk(2, -1))  # (B,K,N,d) each
        if cos is not None and sin is not None:
            query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        value = self._split(self.value(e)).to(query.dtype)
        attention = nn.functional.scaled_dot_product_attention if may_fuse_attention() else attend_by_products
        mixed = attention(query, key, value)
        e = e + self.mix(mixed.transpose(1, 2).flatten(2))  # (B,N,w)
        return e + self.down(self.up(e) * nn.functional.gelu(self.gate(h)))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B,K,N,d)


class ForcingResponse(nn.Module):
    """(features (B,N,w), forcing patches (B,N,n_forcing)) -> latent change (B,N,D); zero for zero forcing."""

    def __init__(self, config: FieldConfig, width: int, n_forcing: int) -> None:
        super().__init__()
        self.embed = nn.Linear(n_forcing, config.width, bias=False)
        self.layers = nn.ModuleList(_Layer(config.width, config.heads) for _ in range(config.forcing_layers))
        self.out = nn.Linear(config.width, width, bias=False)

    def forward(self, h: Tensor, f: Tensor, cos: Tensor | None = None, sin: Tensor | None = None) -> Tensor:
        """cos and sin: the rotary tables of the trunk, by which a place knows its left neighbour from its right."""
        e = self.embed(f)
        for layer in self.layers:
            e = layer(e, h, cos, sin)
        return self.out(e)

    def start_near_zero(self) -> None:
        """Small output weights; the input embedding keeps unit gain, because its inputs are of order one or less."""
        with torch.no_grad():
            nn.init.normal_(self.embed.weight, std=self.embed.in_features**-0.5)
            nn.init.normal_(self.out.weight, std=1e-3)

"""The physics-structured vector field of the latent state, and the free conditional field it is compared with.

    structured     dq/ds = C(q) + sum_j r_j(xi) D_j(q) + E(q) f(s)
    conditional    dq/ds = F(q, token of r(xi), f(s))

All parts read the same features h = trunk(embed(LN(q))).  C and D_j are one head each; C exists only where the
system has a parameter-free part.  The forcing response E(q) is a linear map of the forcing patches f whose weights
depend on h: zero forcing does nothing, and twice the forcing does twice as much, as in the PDE.

Second-order systems (one frame is not a state) carry (q, v): dq/ds = s_v v, and the field above is dv/ds.
Letters: B rows, N tokens, D latent width, S state width (D or 2D), M terms, w width of the trunk.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pdejepa.models.blocks import Trunk, in_float32, init_weights
from pdejepa.models.condition import Drive
from pdejepa.models.field_config import FieldConfig
from pdejepa.models.forcing import ForcingResponse
from pdejepa.models.patches import PatchGrid
from pdejepa.models.rope import Rotary, token_axes

EPS = 1e-5


class _Backbone(nn.Module):
    """State (B,N,S) -> features (B,N,w): LayerNorm, Linear (left out if S = w), positions, blocks."""

    def __init__(self, config: FieldConfig, patches: PatchGrid, state_width: int, depth: int) -> None:
        super().__init__()
        width = config.width
        self.norm = nn.LayerNorm(state_width, eps=EPS)
        self.embed = nn.Linear(state_width, width) if state_width != width else nn.Identity()
        self.trunk = Trunk(depth, width, config.heads, config.mlp_ratio, eps=EPS)
        self.rotary = None
        if config.positions == "sincos":
            self.register_buffer("places", sincos_table(patches.tokens, width), persistent=False)
        else:
            self.rotary = Rotary(token_axes(patches, config.positions), width // config.heads)

    def forward(self, state: Tensor, added: Tensor | None = None, extra: Tensor | None = None) -> Tensor:
        """`added` (B,N,w) is added to the tokens; `extra` tokens (B,n,w) stand before them and have no place."""
        x = self.embed(self.norm(state))  # (B,N,w)
        x = x if added is None else x + added
        x = x if self.rotary is not None else x + self.places
        cos, sin = self.places_of_tokens()
        if extra is not None:
            x = torch.cat((extra, x), 1)  # (B,n+N,w)
            cos, sin = _without_place(cos, sin, extra.shape[1])
        return self.trunk(x, cos, sin)

    def places_of_tokens(self) -> tuple[Tensor | None, Tensor | None]:
        """Rotary tables (1,1,N,d/2), or two None if positions are added to the tokens."""
        return (None, None) if self.rotary is None else self.rotary()


def _without_place(cos: Tensor | None, sin: Tensor | None, n: int) -> tuple[Tensor | None, Tensor | None]:
    """Tables with n unrotated tokens in front; on a ring that costs the exact symmetry, as such tokens sit at 0."""
    if cos is None or sin is None:
        return None, None
    shape = (*cos.shape[:2], n, cos.shape[3])
    return torch.cat((cos.new_ones(shape), cos), 2), torch.cat((sin.new_zeros(shape), sin), 2)


def sincos_table(tokens: tuple[int, ...], width: int) -> Tensor:
    """Fixed positions (N,w): an equal share of the channels per axis, half sine, half cosine, base 10000."""
    share = width // len(tokens) // 2
    rates = 10000.0 ** (-torch.arange(share, dtype=torch.float64) / share)
    parts = []
    for index in torch.meshgrid(*[torch.arange(n, dtype=torch.float64) for n in tokens], indexing="ij"):
        angle = index.reshape(-1, 1) * rates  # (N,share)
        parts += [angle.sin(), angle.cos()]
    table = torch.cat(parts, 1)
    return nn.functional.pad(table, (0, width - table.shape[1])).float()


@torch.no_grad()
def start(linear: nn.Module, std: float) -> None:
    """Normal weights of this spread, zero bias."""
    for name, parameter in linear.named_parameters():
        nn.init.normal_(parameter, std=std if name == "weight" else 0.0)


class Head(nn.Sequential):
    """Features -> latent change: LayerNorm and Linear, or with one hidden layer; starts near zero."""

    compiles = True

    def __init__(self, width: int, out: int, hidden: int = 0, bias: bool = True, hidden_bias: bool = True) -> None:
        layers: list[nn.Module] = [nn.LayerNorm(width, eps=EPS)]
        if hidden:
            layers += [nn.Linear(width, hidden, bias=hidden_bias), nn.GELU()]
        super().__init__(*layers, nn.Linear(hidden or width, out, bias=bias))

    def start_near_zero(self) -> None:
        start(self[-1], 1e-3)


class Film(nn.Module):
    """An unrestricted extra term R(q, r): features scaled and shifted by a network of r.  Absent at the start."""

    def __init__(self, width: int, n_terms: int, out: int) -> None:
        super().__init__()
        self.condition = nn.Sequential(nn.Linear(n_terms, width), nn.SiLU(), nn.Linear(width, 2 * width))
        self.norm = nn.LayerNorm(width, eps=EPS)
        self.head = nn.Sequential(nn.Linear(width, out), nn.GELU(), nn.Linear(out, out))

    def forward(self, h: Tensor, r: Tensor) -> Tensor:
        gamma, beta = in_float32(self.condition, r)[:, None].chunk(2, -1)  # (B,1,w) each
        return self.head(self.norm(h) * (1 + gamma) + beta)  # (B,N,D)

    def start_at_zero(self) -> None:
        start(self.head[-1], 0.0)


class StructuredField(nn.Module):
    """C(q) + sum_j r_j D_j(q) + E(q) f, exactly linear in every r_j and in f (unless `film` adds its free term)."""

    def __init__(
        self,
        config: FieldConfig,
        patches: PatchGrid,
        width: int,
        n_terms: int,
        has_shared: bool,
        n_forcing: int = 0,
        state_width: int | None = None,
        depth: int | None = None,
    ) -> None:
        super().__init__()
        self.backbone = _Backbone(config, patches, state_width or width, config.depth if depth is None else depth)
        free = config.head_bias == "all"
        make = lambda bias: Head(config.width, width, config.head_hidden, bias, free)  # noqa: E731
        self.C_head = make(True) if has_shared else None
        self.D_heads = nn.ModuleList(make(free) for _ in range(n_terms))
        self.forced = ForcingResponse(config, width, n_forcing) if n_forcing else None
        self.film = Film(config.width, n_terms, width) if config.film else None
        _start(self)

    def heads(self) -> list[Any]:
        """C, if there is one, and all D_j: each a `Head`."""
        return [head for head in (self.C_head, *self.D_heads) if head is not None]

    def parts(self, state: Tensor, s: Tensor, drive: Drive) -> tuple[Tensor | None, Tensor, Tensor | None]:
        """shared (B,N,D) or None, responses (B,M,N,D), and what is neither (forcing and FiLM) or None."""
        h = self.backbone(state)  # (B,N,w)
        shared = self.C_head(h).float() if self.C_head is not None else None
        found = [head(h).float() for head in self.D_heads]
        assert found or shared is not None
        responses = torch.stack(found, 1) if found else shared[:, None][:, :0]  # type: ignore[index]
        rest = None
        if self.forced is not None and drive.forcing is not None:
            rest = self.forced(h, drive.forcing(s), *self.backbone.places_of_tokens()).float()
        if self.film is not None:
            extra = self.film(h, drive.r).float()
            rest = extra if rest is None else rest + extra
        return shared, responses, rest

    def forward(self, state: Tensor, s: Tensor, drive: Drive) -> Tensor:
        shared, responses, rest = self.parts(state, s, drive)
        total = (drive.r.float()[:, :, None, None] * responses).sum(1)  # (B,N,D)
        for part in (shared, rest):
            total = total if part is None else total + part
        return total


class ConditionalField(nn.Module):
    """F(q, r, f): the parameters are a token that everything may attend to, the forcing is added to the tokens."""

    def __init__(
        self,
        config: FieldConfig,
        patches: PatchGrid,
        width: int,
        n_terms: int,
        n_forcing: int = 0,
        state_width: int | None = None,
        n_parameters: int = 0,
    ) -> None:
        """`n_parameters`: the size to match with the hidden layer of the head (0: a plain linear head)."""
        super().__init__()
        self.backbone = _Backbone(config, patches, state_width or width, config.depth)
        self.condition = nn.Linear(max(1, n_terms), config.width)  # without parameters: a constant
        self.forced = nn.Linear(n_forcing, config.width) if n_forcing else None
        spare = n_parameters - sum(p.numel() for p in self.parameters()) - 2 * config.width - width
        hidden = max(1, round(spare / (config.width + 1 + width))) if n_parameters else 0
        self.head = Head(config.width, width, hidden)
        _start(self)

    def forward(self, state: Tensor, s: Tensor, drive: Drive) -> Tensor:
        added = None
        if self.forced is not None and drive.forcing is not None:
            added = self.forced(drive.forcing(s))  # (B,N,w)
        r = drive.r if drive.r.shape[1] else drive.r.new_zeros(len(drive.r), 1)
        token = in_float32(self.condition, r)[:, None]  # (B,1,w)
        return self.head(self.backbone(state, added, token)[:, 1:]).float()  # (B,N,D)


class SecondOrder(nn.Module):
    """dq/ds = s_v v, dv/ds = acceleration(q, v): the state is (q, v), 2D channels."""

    def __init__(self, acceleration: nn.Module, velocity_scale: float) -> None:
        super().__init__()
        self.acceleration = acceleration
        self.velocity_scale = velocity_scale

    def forward(self, state: Tensor, s: Tensor, drive: Drive) -> Tensor:
        velocity = state[..., state.shape[-1] // 2 :]  # (B,N,D)
        return torch.cat((self.velocity_scale * velocity, self.acceleration(state, s, drive)), -1)


def _start(field: nn.Module) -> None:
    """Initial weights: the trunk as everywhere, every head close to zero so that the field starts near 0."""
    init_weights(field)
    for module in field.modules():
        if isinstance(module, Head):
            module.start_near_zero()
        elif isinstance(module, Film):
            module.start_at_zero()
        elif isinstance(module, ForcingResponse):
            module.start_near_zero()

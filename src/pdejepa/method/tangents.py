"""How the latent state moves when the field moves: Jacobian-vector products of q = project(encode(u)).

    dq/ds = J(u) du/ds,   du/ds = rhs(u; xi) (frame gap) / std        per frame, in normalised units

`rhs` gives the velocity of the trajectory, `responses` the change of that velocity per unit of every r_j.
Letters: B states, M terms, C channels, N tokens, D width.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from pdejepa.models.surrogate import Surrogate
from pdejepa.systems import System


@torch.no_grad()
def latent_tangents(
    model: Surrogate, system: System, u: Tensor, xi: Tensor, frame: Tensor, which: Literal["rhs", "responses"]
) -> Tensor:
    """Tangents (B,1,N,D) or (B,M,N,D) at normalised states u (B,C,*grid) of the frames `frame` (B,)."""
    directions = field_tangents(model, system, u, xi, frame, which)  # (B,M,C,*grid)
    encode = lambda x: model.encode(x[:, None])[:, 0]  # noqa: E731  (B,C,*grid) -> (B,N,D)
    place = u.device.type
    # The fused attention kernels have no forward-mode derivative; the plain formula has.
    with sdpa_kernel(SDPBackend.MATH), torch.autocast(place, enabled=False):
        parts = [torch.func.jvp(encode, (u,), (direction,))[1] for direction in directions.unbind(1)]
    return torch.stack(parts, 1)


def field_tangents(
    model: Surrogate, system: System, u: Tensor, xi: Tensor, frame: Tensor, which: Literal["rhs", "responses"]
) -> Tensor:
    """The same tangents before encoding, (B,M,C,*grid) in normalised units per frame."""
    gap = model.conditioner.frame_gap
    physical = model.denormalise(u).double()
    if which == "rhs":
        times = model.conditioner.first_time + frame.double() * gap  # (B,)
        tangents = system.rhs(physical, times, xi)[:, None]  # (B,1,C,*grid)
    else:
        scales = [model.statistics.coefficients[term.name][1] for term in system.structure.terms]
        shape = (1, -1, *[1] * physical.ndim)[: physical.ndim + 1]
        tangents = system.operators(physical) * torch.tensor(scales, device=u.device).reshape(shape)
    return (tangents * gap / model.std).float()

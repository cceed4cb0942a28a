"""Projector: nothing at the start, the written formula after it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from pdejepa.models.projector import Projector, ProjectorConfig


def test_the_coordinates_are_the_features_at_the_start() -> None:
    projector, z = Projector(12, ProjectorConfig(20)), torch.randn(2, 3, 5, 12)
    assert torch.equal(z + projector(z), z)
    assert torch.equal(projector.mlp.out.bias, torch.zeros(12))
    assert projector.mlp.hidden.weight.abs().min() > 0


def test_the_residual_is_an_mlp_of_normalised_features(perturb: Callable, lazy_parameters: Callable) -> None:
    projector, z = perturb(Projector(12, ProjectorConfig(20))), 3 + 5 * torch.randn(2, 7, 12)
    centred = z - z.mean(dim=-1, keepdim=True)
    scaled = centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    x = scaled * projector.norm.weight + projector.norm.bias
    expected = projector.mlp.out(nn.functional.gelu(projector.mlp.hidden(x)))
    torch.testing.assert_close(projector(z), expected)
    assert lazy_parameters(projector, projector(z)) == []


def test_only_the_last_layer_learns_at_the_start() -> None:
    projector = Projector(12, ProjectorConfig(20))
    (projector(torch.randn(4, 12)) * torch.randn(4, 12)).sum().backward()
    moved = {name for name, p in projector.named_parameters() if p.grad.abs().max() > 0}
    assert moved == {"mlp.out.weight", "mlp.out.bias"}

"""Weights as products in bfloat16 see them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pdejepa.stages.rounding import round_layers, rounded


class Net(nn.Module):
    """A layer of each kind, one of them used twice, a norm and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Linear(3, 3), nn.Conv1d(2, 2, 3), nn.Conv2d(2, 2, 3)]
        layers += [nn.ConvTranspose1d(2, 2, 2), nn.ConvTranspose2d(2, 2, 2)]
        self.layers = nn.ModuleList([*layers, layers[0]])
        self.norm = nn.LayerNorm(3)
        self.token = nn.Parameter(torch.randn(3))
        with torch.no_grad():
            self.norm.weight.copy_(torch.randn(3))


def weights(net: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def test_layers_are_rounded_and_nothing_else() -> None:
    torch.manual_seed(0)
    net = Net()
    before = weights(net)
    round_layers([net])
    for name, value in weights(net).items():
        expected = before[name].bfloat16().float() if name.startswith("layers.") else before[name]
        assert torch.equal(value, expected), name
        assert value.dtype == torch.float32
    assert not torch.equal(net.layers[0].weight, before["layers.0.weight"])


def test_what_products_see_is_not_changed_by_rounding() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 64), torch.randn(8, 64)
    with torch.autocast("cpu", torch.bfloat16):
        before = layer(x)
        round_layers([layer])
        assert torch.equal(layer(x), before)


def test_afterwards_they_are_what_they_were() -> None:
    torch.manual_seed(0)
    net = Net()
    before = weights(net)
    with pytest.raises(KeyError), rounded([net]):
        assert not torch.equal(net.layers[0].weight, before["layers.0.weight"])
        raise KeyError
    assert all(torch.equal(value, before[name]) for name, value in weights(net).items())

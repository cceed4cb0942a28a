"""Moving average of weights."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from pdejepa.core.errors import ConfigError
from pdejepa.models.ema import update_ema


def test_every_parameter_moves_by_the_formula() -> None:
    online = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    target = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    nn.init.normal_(online[1].weight)
    before, kept = copy.deepcopy(target), copy.deepcopy(online)
    update_ema(target, online, 0.9)
    for new, old, latest in zip(target.parameters(), before.parameters(), online.parameters(), strict=True):
        torch.testing.assert_close(new, 0.9 * old + 0.1 * latest)
        assert new.grad_fn is None
    assert all(torch.equal(a, b) for a, b in zip(online.parameters(), kept.parameters(), strict=True))


@pytest.mark.parametrize(("momentum", "source"), [(1.0, 0), (0.0, 1)])
def test_the_ends_keep_and_copy(momentum: float, source: int) -> None:
    target, online = nn.Linear(3, 4), nn.Linear(3, 4)
    expected = (target, online)[source].weight.detach().clone()
    update_ema(target, online, momentum)
    assert torch.equal(target.weight, expected)


def test_the_average_of_a_constant_converges_to_it() -> None:
    target, online = nn.Linear(3, 4), nn.Linear(3, 4)
    gap = (target.weight - online.weight).detach().clone()
    for _ in range(10):
        update_ema(target, online, 0.5)
    torch.testing.assert_close(target.weight - online.weight, gap / 1024, atol=1e-6, rtol=0)


def test_other_networks_are_refused() -> None:
    with pytest.raises(ConfigError, match="same parameters"):
        update_ema(nn.Linear(3, 4), nn.Linear(3, 5), 0.9)

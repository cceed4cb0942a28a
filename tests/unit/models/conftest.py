"""Small grids and two questions that are asked of every network."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from pdejepa.models.blocks import Attention, Mlp
from pdejepa.models.patches import PatchGrid

GRIDS = {
    "1-D": PatchGrid((16,), 2, (True,)),
    "2-D": PatchGrid((8, 12), 2, (True, True)),
}


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture(params=list(GRIDS))
def patches(request: pytest.FixtureRequest) -> PatchGrid:
    """A periodic grid of 8 tokens, and one of 4 x 6 tokens."""
    return GRIDS[request.param]


@pytest.fixture
def perturb() -> Callable[[nn.Module], nn.Module]:
    """Move all parameters away from their start, so that nothing is hidden behind a zero."""

    @torch.no_grad()
    def move(module: nn.Module, size: float = 0.2) -> nn.Module:
        for parameter in module.parameters():
            parameter.add_(size * torch.randn_like(parameter))
        return module

    return move


@pytest.fixture
def lazy_parameters() -> Callable[[nn.Module, Tensor], list[str]]:
    """Names of the parameters of which a large part does not influence a (random) function of the output."""

    def names(module: nn.Module, output: Tensor) -> list[str]:
        (output * torch.randn_like(output)).sum().backward()
        used = {
            name: 0.0 if p.grad is None else p.grad.ne(0).float().mean().item()
            for name, p in module.named_parameters()
        }
        return [name for name, share in used.items() if share < 0.6]

    return names


@pytest.fixture
def idle_parts() -> Callable[[nn.Module, Callable[[], Tensor]], list[str]]:
    """Names of the attentions and MLPs that can be silenced without changing the output."""

    @torch.no_grad()
    def names(module: nn.Module, run: Callable[[], Tensor]) -> list[str]:
        whole, idle = run(), []
        for name, part in module.named_modules():
            if isinstance(part, Attention | Mlp):
                kept = part.out.weight.clone(), part.out.bias.clone()
                part.out.weight.zero_()
                part.out.bias.zero_()
                if torch.allclose(run(), whole, atol=1e-4):
                    idle.append(name)
                part.out.weight.copy_(kept[0])
                part.out.bias.copy_(kept[1])
        return idle

    return names

"""Weights as products in bfloat16 see them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from pdejepa import baselines, systems
from pdejepa.baselines.fit import FitStage, build
from pdejepa.baselines.pool import build_pool
from pdejepa.method.decode import Decode
from pdejepa.method.dynamics import Dynamics
from pdejepa.method.polish import Polish
from pdejepa.method.save_model import rounded_layers
from pdejepa.training.rounding import round_all, rounded, seen_rounded
from pdejepa.training.stage import Context
from tests.unit.method import small_run

CPU = torch.device("cpu")


class Net(nn.Module):
    """A layer, one used through a view, a norm, a parameter that is added, and a layer that stays exact."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.viewed, self.exact = nn.Linear(3, 3), nn.Conv1d(3, 3, 1), nn.Linear(3, 3)
        self.norm, self.token = nn.LayerNorm(3), nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.layer(x)) + self.token
        x = nn.functional.linear(x, self.viewed.weight[:, :, 0], self.viewed.bias)
        with torch.autocast("cpu", enabled=False):
            return self.exact(x.float())


def seen(net: nn.Module, compute: object) -> set[str]:
    found = {id(p) for p in seen_rounded(net.parameters(), compute)}  # type: ignore[arg-type]
    return {name for name, p in net.named_parameters() if id(p) in found}


def mixed(net: nn.Module, x: object) -> object:
    def compute() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            net(x)

    return compute


def test_only_what_products_round_is_seen() -> None:
    net = Net()
    expected = {"layer.weight", "layer.bias", "viewed.weight", "viewed.bias"}
    assert seen(net, mixed(net, torch.randn(2, 3))) == expected
    assert seen(net, lambda: net(torch.randn(2, 3))) == set()


def test_what_products_see_is_not_changed_by_rounding() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 64), torch.randn(8, 64)
    with torch.autocast("cpu", torch.bfloat16):
        before, weight = layer(x), layer.weight.clone()
        round_all(layer.parameters())
        assert torch.equal(layer(x), before)
    assert layer.weight.dtype == torch.float32
    assert not torch.equal(layer.weight, weight)


def test_afterwards_they_are_what_they_were() -> None:
    layer = nn.Linear(3, 3)
    before = layer.weight.clone()
    with pytest.raises(KeyError), rounded([layer.weight]):
        assert torch.equal(layer.weight, before.bfloat16().float())
        raise KeyError
    assert torch.equal(layer.weight, before)


@pytest.mark.parametrize("kind", [Dynamics, Decode, Polish])
@pytest.mark.parametrize(
    ("system", "variant"), [("combined", "physics"), ("wave_b", "physics"), ("heat", "physics"), ("combined", "geo")]
)
def test_cards_know_what_is_rounded(kind: type, system: str, variant: str) -> None:
    stage = small_run.build(kind, system, f"variant={variant}")
    net = nn.ModuleDict(stage.trained())
    layers = {f"{name}.{own}" for name, part in rounded_layers(net).items() for own, _ in part.named_parameters()}
    assert layers
    with torch.no_grad():
        batch = stage.batch(0, 10)
    on_cpu = {name for name in layers if not name.startswith("decoder.")}  # which decodes in float32
    assert seen(net, mixed(stage, batch)) == on_cpu


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("enma", ("encoder.", "decoder.", "dynamics.head.")),
        ("zebra", ("encoder.", "decoder.")),
        ("unisolver", ("last.",)),
    ],
)
def test_what_solvers_compute_in_float32_is_not_rounded(name: str, exact: tuple[str, ...]) -> None:
    kind, pool = baselines.get(name), build_pool(systems.get("combined"), {"train": 12, "valid": 4}, CPU)
    recipe = kind.recipe("tiny", pool.task)
    solver = build(kind, recipe, pool)
    part = recipe.stages[-1]
    stage = FitStage(solver, part, pool, Context(CPU), 0)
    found = seen(solver, mixed(stage, stage.batch(0, 10)))
    assert found
    assert not [word for word in found if word.startswith(exact)]

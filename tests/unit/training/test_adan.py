"""Adan with D-Adaptation follows its formulas, agrees with the authors' package, and resumes exactly."""

from __future__ import annotations

import copy
import itertools
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pdejepa.core.errors import Interrupted
from pdejepa.core.weights import read_weights, write_weights
from pdejepa.training.adan import Adan, adan_groups
from pdejepa.training.metrics_log import read_lines
from pdejepa.training.optim import Optimiser, build_optimiser
from pdejepa.training.settings import OptimiserConfig
from tests.faults.training import Toy, result, settings, train

CONFIG = OptimiserConfig(kind="adan", lr=1.0, weight_decay=1e-3)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 1)).double()


def loss_of(net: nn.Module, step: int) -> Tensor:
    x = torch.randn((16, 3), generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    return (net(x) - x.sin().sum(1, keepdim=True)).square().mean()


def run(net: nn.Module, optimiser: Optimiser | torch.optim.Optimizer, steps: range) -> list[float]:
    losses = []
    for step in steps:
        net.zero_grad()
        loss = loss_of(net, step)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def by_hand(net: nn.Module, n_steps: int, weight_decay: float) -> tuple[list[Tensor], float]:
    """The formulas once more, with plain numbers and one tensor after the other; everything decays."""
    b1, b2, b3, eps, growth = 0.98, 0.92, 0.99, 1e-8, 1.05
    d, numerator, state = 1e-6, 0.0, {}
    params = list(net.parameters())
    for step in range(n_steps):
        net.zero_grad()
        loss_of(net, step).backward()
        top = bottom = gradient_sum = 0.0
        for i, p in enumerate(params):
            assert p.grad is not None
            g = p.grad.clone()
            m, v, n, s, before = state.get(i, (0 * g, 0 * g, 0 * g, 0 * g, g))
            change = g - before
            m, v = b1 * m + (1 - b1) * d * g, b2 * v + (1 - b2) * d * change
            n, s = b3 * n + (1 - b3) * (g + b2 * change) ** 2, b3 * s + (1 - b3) * d * g
            w = n.sqrt() + eps
            p.data = (p.data - (m + b2 * v) / w) / (1 + d * weight_decay)
            state[i] = (m, v, n, s, g)
            gradient_sum += float((g * g / w).sum())
            top, bottom = top + float((s * s / w).sum()), bottom + float(s.abs().sum())
        numerator = b3 * numerator + (1 - b3) * d * d * gradient_sum
        d = max(d, min((top / (1 - b3) - numerator) / bottom, growth * d))
    return [p.detach() for p in params], d


def test_it_follows_the_formulas() -> None:
    mine, theirs = network(), network()
    optimiser = build_optimiser({"net": mine}, OptimiserConfig(kind="adan", lr=1.0, weight_decay=0.5, decay_all=True))
    run(mine, optimiser, range(40))
    expected, d = by_hand(theirs, 40, 0.5)
    assert d > 1e-6
    assert float(optimiser.tensors()["adan/d"]) == pytest.approx(d, rel=1e-10)
    for a, b in zip(mine.parameters(), expected, strict=True):
        torch.testing.assert_close(a.detach(), b, rtol=1e-10, atol=1e-14)


@pytest.mark.oracle
@pytest.mark.parametrize("growth", [1.05, float("inf")])
def test_it_is_that_of_the_package(growth: float) -> None:
    package = pytest.importorskip("dadaptation", reason="dadaptation is not installed; pip install dadaptation==3.2")
    mine, theirs = network(), network()
    groups = adan_groups(dict(theirs.named_parameters()), 1e-3, False)
    reference = package.DAdaptAdan(groups, lr=1.0, growth_rate=growth)
    own = Adan(adan_groups(dict(mine.named_parameters()), 1e-3, False), growth=growth)
    ours, others = run(mine, own, range(300)), run(theirs, reference, range(300))
    assert ours[-1] < 0.5 * ours[0]
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(others), rtol=0, atol=2e-9)
    assert float(own.shared["d"]) == pytest.approx(reference.param_groups[0]["d"], rel=1e-6)


def test_d_grows_by_five_percent_at_most_and_never_shrinks() -> None:
    net = network()
    optimiser = build_optimiser({"net": net}, CONFIG)
    found = [1e-6]
    for step in range(60):
        run(net, optimiser, range(step, step + 1))
        found.append(float(optimiser.tensors()["adan/d"]))
    ratios = [b / a for a, b in itertools.pairwise(found)]
    assert min(ratios) >= 1.0
    assert max(ratios) == pytest.approx(1.05)


def test_without_gradients_nothing_moves() -> None:
    net = nn.Linear(2, 2)
    before = [p.detach().clone() for p in net.parameters()]
    optimiser = build_optimiser({"net": net}, OptimiserConfig(kind="adan", lr=1.0, weight_decay=0.0))
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    optimiser.step()
    assert float(optimiser.tensors()["adan/d"]) == 1e-6
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), before, strict=True))


def test_what_decays() -> None:
    shapes = {"matrix": (3, 4), "column": (3, 1), "gain": (5,), "kernel": (2, 2, 1, 1), "table.bias": (4, 4)}
    parameters = {name: nn.Parameter(torch.zeros(shape)) for name, shape in shapes.items()}
    for decay_all, names in ((False, {"matrix", "kernel"}), (True, set(shapes))):
        groups = adan_groups(parameters, 0.1, decay_all)
        decaying = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
        assert {name for name, p in parameters.items() if id(p) in decaying} == names


def test_groups_share_one_learning_rate() -> None:
    net = network()
    groups: list[dict[str, Any]] = [{"params": [p], "lr": 1.0 + i} for i, p in enumerate(net.parameters())]
    optimiser = Adan(groups)
    loss_of(net, 0).backward()
    with pytest.raises(RuntimeError, match="share one learning rate"):
        optimiser.step()


def test_a_state_through_a_file_goes_on_bit_by_bit(tmp_path: Path) -> None:
    net = network()
    optimiser = build_optimiser({"net": net}, CONFIG)
    fresh = {name: value.shape for name, value in optimiser.tensors().items()}
    run(net, optimiser, range(5))
    assert fresh == {name: value.shape for name, value in optimiser.tensors().items()}
    write_weights(tmp_path / "o.safetensors", optimiser.tensors())
    other = copy.deepcopy(net)
    again = build_optimiser({"net": other}, CONFIG)
    again.load(read_weights(tmp_path / "o.safetensors"))
    assert run(net, optimiser, range(5, 12)) == run(other, again, range(5, 12))
    for name, value in optimiser.tensors().items():
        assert torch.equal(value, again.tensors()[name]), name
    assert float(again.tensors()["adan/step"]) == 12


def test_an_interrupted_stage_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    own = settings(optimiser=OptimiserConfig(kind="adan", lr=1.0))
    train(tmp_path / "one", Toy(own))
    with pytest.raises(Interrupted):
        train(tmp_path / "two", Toy(own, disturb={13: lambda _: signal.raise_signal(signal.SIGTERM)}))
    train(tmp_path / "two", Toy(own))
    assert result(tmp_path / "one") == result(tmp_path / "two")
    d = read_weights(tmp_path / "two/step-000024/optimiser.safetensors")["adan/d"]
    assert float(d) > 1e-6
    rates = [line["train"]["lr"] for line in read_lines(tmp_path / "two/metrics.jsonl") if "train" in line]
    assert max(rates) == 1.0

"""The optimiser does what those of PyTorch do, and its state survives a file."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pdejepa.core.errors import CheckpointError
from pdejepa.core.weights import read_weights, write_weights
from pdejepa.training.optim import Optimiser, build_optimiser
from pdejepa.training.settings import OptimiserConfig


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Conv1d(1, 2, 3), nn.Linear(3, 1))


def run(net: nn.Sequential, optimiser: Optimiser | torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        x = torch.randn((4, 3), generator=torch.Generator().manual_seed(step))
        h = net[2](net[1](net[0](x))[:, None])  # (4,2,3)
        net.zero_grad()
        net[3](h).square().mean().backward()
        optimiser.step()


def equal(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_adamw_is_that_of_pytorch() -> None:
    mine, theirs = network(), network()
    config = OptimiserConfig(lr=0.01, betas=(0.8, 0.9), weight_decay=0.3)
    biases = [p for name, p in theirs.named_parameters() if p.ndim < 2]
    matrices = [p for name, p in theirs.named_parameters() if p.ndim >= 2]
    reference = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.3}, {"params": biases, "weight_decay": 0.0}], lr=0.01, betas=(0.8, 0.9)
    )
    run(mine, build_optimiser({"net": mine}, config), range(6))
    run(theirs, reference, range(6))
    assert equal(mine, theirs)


@pytest.mark.parametrize(("decay_all", "n_plain"), [(False, 5), (True, 0)])
def test_what_decays(decay_all: bool, n_plain: int) -> None:
    optimiser = build_optimiser({"net": network()}, OptimiserConfig(decay_all=decay_all))
    groups = optimiser._parts[0].param_groups
    plain = [p for group in groups if group["weight_decay"] == 0 for p in group["params"]]
    assert len(plain) == n_plain  # three biases and the two tensors of the norm
    assert all(p.ndim == 1 for p in plain)


def test_muon_moves_matrices_and_adamw_the_rest() -> None:
    net, before = network(), network()
    optimiser = build_optimiser({"net": net}, OptimiserConfig(kind="muon", muon_lr=0.01, lr=1e-9, weight_decay=0.0))
    names = optimiser.tensors()
    assert {name.split("/")[0] for name in names if name.endswith("momentum_buffer")} == {
        "net.0.weight",
        "net.3.weight",
    }
    run(net, optimiser, range(1))
    old = before.state_dict()
    moved = {name: float((value - old[name]).abs().max()) for name, value in net.state_dict().items()}
    assert moved["0.weight"] > 1e-4
    assert moved["3.weight"] > 1e-4
    assert max(value for name, value in moved.items() if name not in ("0.weight", "3.weight")) < 1e-7


def test_only_matrices_and_no_matrices() -> None:
    for module in (nn.Linear(3, 3, bias=False), nn.LayerNorm(3)):
        optimiser = build_optimiser({"m": module}, OptimiserConfig(kind="muon"))
        module(torch.ones(2, 3)).square().sum().backward()
        optimiser.step()
        assert len(optimiser._parts) == 1


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_state_through_a_file_goes_on_bit_by_bit(kind: Any, tmp_path: Path) -> None:
    config = OptimiserConfig(kind=kind, lr=0.01, muon_lr=0.02)
    net = network()
    optimiser = build_optimiser({"net": net}, config)
    run(net, optimiser, range(5))
    write_weights(tmp_path / "o.safetensors", optimiser.tensors())
    other = copy.deepcopy(net)
    again = build_optimiser({"net": other}, config)
    again.load(read_weights(tmp_path / "o.safetensors"))
    run(net, optimiser, range(5, 9))
    run(other, again, range(5, 9))
    assert equal(net, other)
    for name, value in optimiser.tensors().items():
        assert torch.equal(value, again.tensors()[name]), name
    if kind == "adamw":
        assert float(again.tensors()["net.0.weight/step"]) == 9


def test_names_do_not_depend_on_how_far_it_is() -> None:
    net = network()
    optimiser = build_optimiser({"net": net}, OptimiserConfig(kind="muon"))
    before = {name: value.shape for name, value in optimiser.tensors().items()}
    run(net, optimiser, range(2))
    assert before == {name: value.shape for name, value in optimiser.tensors().items()}
    assert "net.1.weight/exp_avg_sq" in before


def test_factors_are_of_the_configured_rates() -> None:
    optimiser = build_optimiser({"net": network()}, OptimiserConfig(kind="muon", lr=0.5, muon_lr=0.25))
    for factor in (0.5, 0.1, 1.0):
        optimiser.set_factor(factor)
        rates = {group["lr"] for part in optimiser._parts for group in part.param_groups}
        assert rates == {0.5 * factor, 0.25 * factor}


def test_loading_is_strict_and_says_everything_in_one_sentence() -> None:
    optimiser = build_optimiser({"net": network()}, OptimiserConfig())
    before = {name: value.clone() for name, value in optimiser.tensors().items()}
    state = dict(optimiser.tensors())
    state["net.9.weight/exp_avg"] = state.pop("net.0.weight/exp_avg")
    state["net.0.bias/exp_avg"] = torch.zeros(6)
    state["net.1.bias/step"] = torch.zeros((), dtype=torch.float64)
    with pytest.raises(CheckpointError) as caught:
        optimiser.load(state, "align/step-000010")
    assert str(caught.value) == (
        "align/step-000010 does not fit this model: missing: net.0.weight/exp_avg; unexpected: net.9.weight/exp_avg; "
        "shape: net.0.bias/exp_avg is (6,), expected (5,); dtype: net.1.bias/step is float64, expected float32."
    )
    assert all(torch.equal(value, before[name]) for name, value in optimiser.tensors().items())


def test_our_own_mistakes() -> None:
    net = network()
    optimiser = build_optimiser({"one": net, "two": net}, OptimiserConfig())
    assert all(name.startswith("one.") for name in optimiser.parameters)
    with pytest.raises(RuntimeError, match=r"one.0.weight is trained, but it takes no part in the loss"):
        optimiser.gradients()
    with pytest.raises(RuntimeError, match="at least one parameter"):
        build_optimiser({"none": nn.GELU()}, OptimiserConfig())

"""Moving averages of weights: the formula, what is judged and kept, and resume."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pdejepa.training.average import Average, memory, with_averages


def test_average_follows_its_formula_and_leaves_the_weights_alone() -> None:
    p = nn.Parameter(torch.tensor([1.0]))
    average = Average({"p": p}, window=0.5)
    expected, n_steps = 1.0, 8
    for step in range(n_steps):
        with torch.no_grad():
            p.copy_(torch.tensor([float(step)]))
        average.update(step, n_steps)
        m = min(1 - 1 / 4, (1 + step) / (10 + step))
        expected = m * expected + (1 - m) * step
    assert average.tensors()["p/average"].item() == pytest.approx(expected, rel=1e-6)
    with average.in_place():
        assert p.item() == pytest.approx(expected, rel=1e-6)
    assert p.item() == 7.0
    average.take_place()
    assert p.item() == pytest.approx(expected, rel=1e-6)


def test_memory_grows_to_the_window() -> None:
    assert memory(0, 1000, 0.1) == pytest.approx(0.1)
    assert memory(999, 1000, 0.1) == pytest.approx(0.99)
    assert memory(999, 1000, 1e-9) == 0.0  # no average at all


def test_a_checkpoint_is_judged_by_its_averages() -> None:
    weights = {"a": torch.ones(1), "b": torch.ones(1)}
    state = {"a/average": torch.zeros(1), "a/exp_avg": torch.full((1,), 5.0)}
    found = with_averages(weights, state)
    assert found["a"].item() == 0.0
    assert found["b"].item() == 1.0

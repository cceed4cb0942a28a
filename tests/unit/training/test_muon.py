"""Muon for stacked matrices is PyTorch's Muon."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from pdejepa.training.muon import Muon, by_shape, orthogonalised


def matrices(seed: int = 0) -> list[nn.Parameter]:
    draws = torch.Generator().manual_seed(seed)
    shapes = [(8, 8), (24, 8), (8, 32), (8, 8), (24, 8), (5, 3)]
    return [nn.Parameter(torch.randn(shape, generator=draws)) for shape in shapes]


def test_it_is_the_muon_of_pytorch() -> None:
    """PyTorch iterates in bfloat16, we on a CPU in float32: equal to the precision of that."""
    ours, theirs = matrices(), matrices()
    own = Muon(ours, lr=0.02, weight_decay=0.1)
    other = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for step in range(4):
        for p, q, g in zip(ours, theirs, matrices(100 + step), strict=True):
            p.grad, q.grad = g.detach().clone(), g.detach().clone()
        own.step()
        other.step()
        for p, q in zip(ours, theirs, strict=True):
            torch.testing.assert_close(own.state[p]["momentum_buffer"], other.state[q]["momentum_buffer"])
    moved = [float((p - start).detach().norm()) for p, start in zip(ours, matrices(), strict=True)]
    apart = [float((p - q).detach().norm()) for p, q in zip(ours, theirs, strict=True)]
    assert all(gap < 0.02 * way for gap, way in zip(apart, moved, strict=True))


def test_singular_values_become_one() -> None:
    x = torch.randn(3, 6, 20, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonalised(x))
    assert float(values.min()) > 0.6
    assert float(values.max()) < 1.3
    left, _, right = torch.linalg.svd(x, full_matrices=False)
    direction = (orthogonalised(x) * (left @ right)).sum((1, 2)) / (left @ right).square().sum((1, 2))
    assert direction.tolist() == pytest.approx([1.0] * 3, abs=0.2)


def test_matrices_of_a_stack_do_not_mix() -> None:
    x = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(1))
    alone = torch.cat([orthogonalised(m[None]) for m in x])
    torch.testing.assert_close(orthogonalised(x), alone, rtol=1e-4, atol=1e-5)


def test_parameters_without_gradient_stay() -> None:
    params = matrices()
    before = copy.deepcopy(params)
    params[0].grad = torch.ones_like(params[0])
    assert by_shape(params) == [[params[0]]]
    Muon(params, lr=0.1).step()
    assert not torch.equal(params[0], before[0])
    assert all(torch.equal(p, q) for p, q in zip(params[1:], before[1:], strict=True))

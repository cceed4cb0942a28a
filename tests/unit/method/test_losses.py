"""Losses against values computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from pdejepa.method.losses import (
    angle_error,
    directions,
    layer_normed,
    loss_anchor,
    loss_context,
    loss_dec,
    loss_dyn,
    loss_geo,
    loss_jepa,
    loss_step,
    pooled_ratio,
    turning,
    turning_angle,
)
from pdejepa.operators.norms import relative_error


def test_pooled_ratio_pools_before_dividing() -> None:
    error, reference = torch.tensor([3.0, 1.0]), torch.tensor([2.0, 4.0])
    assert float(pooled_ratio(error, reference)) == pytest.approx((9 + 1) / (4 + 16))
    still = torch.tensor([1.0, 0.0])  # one sample without change does not blow it up
    assert float(pooled_ratio(still, torch.tensor([0.0, 2.0]))) == pytest.approx(1 / 4)


def test_the_denominator_has_no_gradient() -> None:
    reference = torch.tensor([2.0, 4.0], requires_grad=True)
    pooled_ratio(reference * 0 + 1.0, reference).backward()
    assert reference.grad is not None
    assert reference.grad.tolist() == [0.0, 0.0]


def test_layer_norm_of_each_level() -> None:
    z = torch.tensor([[1.0, 3.0, 10.0, 30.0]])
    assert layer_normed(z, 2).tolist()[0] == pytest.approx([-1.0, 1.0, -1.0, 1.0], abs=1e-4)


def test_jepa_loss() -> None:
    predicted = torch.tensor([[[1.0, -1.0], [0.0, 2.0]]], requires_grad=True)
    target = torch.tensor([[[0.0, 0.0], [1.0, 1.0]]], requires_grad=True)
    loss = loss_jepa(predicted, target)
    assert float(loss.detach()) == pytest.approx((1 + 1 + 1 + 1) / 4)
    loss.backward()
    assert target.grad is None  # nothing flows into the teacher


def test_context_loss_weighs_by_distance() -> None:
    predicted, target = torch.ones(1, 2, 3), torch.zeros(1, 2, 3)
    loss = loss_context(predicted, target, torch.tensor([[1.0, 4.0]]))
    assert float(loss) == pytest.approx((1 + 1 / 2) / 2)


def test_turning_of_a_square_walk() -> None:
    """Four steps east, north, west, south: 90 degrees each; lag 2 turns back."""
    walk = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [1.0, 2.0], [0.0, 2.0], [0.0, 1.0]]])  # (1,5,2)
    d = directions(walk)
    assert turning(d, 1).tolist() == [[0.0, 0.0, 0.0]]
    assert turning(d, 2).tolist() == [[-1.0, -1.0]]
    assert float(turning_angle(walk)) == pytest.approx(90.0)


def test_geometry_loss() -> None:
    """u goes straight on (cosine 1), q turns by 60 degrees every step (cosines 1/2 at lag 1, -1/2 at lag 2)."""
    u = torch.arange(4.0).reshape(1, 4, 1)
    angles = torch.tensor([0.0, 1.0, 2.0]) * math.pi / 3
    steps = torch.stack((angles.cos(), angles.sin()), 1)
    q = torch.cat((torch.zeros(1, 2), steps.cumsum(0)))[None]
    smooth = lambda x: 0.5 * x**2 if x < 1 else x - 0.5  # noqa: E731
    expected = 1.0 * smooth(0.5) + 0.5 * smooth(1.5)
    assert float(loss_geo(u, q, (1, 2, 4), (1.0, 0.5, 0.25))) == pytest.approx(expected, rel=1e-5)
    assert float(angle_error(u, q)) == pytest.approx(60.0, abs=0.1)


def test_anchor_loss() -> None:
    z = torch.tensor([3.0, 4.0])
    assert float(loss_anchor(z + torch.tensor([1.0, 0.0]), z)) == pytest.approx(1 / 25)


def test_dynamics_loss_of_stage_two_detaches_its_target() -> None:
    q = torch.tensor([[[[0.0]], [[2.0]], [[3.0]]]], requires_grad=True)  # changes 2 and 1
    dq_hat = torch.tensor([[[[1.0]], [[1.0]]]], requires_grad=True)
    loss = loss_dyn(dq_hat, q)
    assert float(loss.detach()) == pytest.approx((1 + 0) / (4 + 1))
    loss.backward()
    assert q.grad is None
    assert dq_hat.grad is not None


def test_step_loss() -> None:
    q = torch.tensor([[[[0.0]], [[2.0]], [[3.0]]]])
    q_hat = torch.tensor([[[[2.5]], [[3.0]]]])
    assert float(loss_step(q_hat, q)) == pytest.approx((0.25 + 0) / (4 + 1))
    weight = torch.tensor([[1 / 4, 1.0]])
    assert float(loss_step(q_hat, q, weight)) == pytest.approx((0.25 / 4) / 2)


def test_relative_error_per_channel() -> None:
    u = torch.zeros(1, 2, 2, 2)
    u[:, :, 0], u[:, :, 1] = 2.0, 100.0
    u_hat = u.clone()
    u_hat[0, 0, 0, 0] += 2.0
    u_hat[:, :, 1] *= 1.1
    assert relative_error(u_hat, u).tolist()[0] == pytest.approx([2 / 4, 0.1], rel=1e-5)
    assert float(loss_dec(u_hat, u)) == pytest.approx(0.3, rel=1e-5)

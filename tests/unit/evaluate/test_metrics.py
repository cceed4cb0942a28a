"""Errors against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from pdejepa.core.errors import DataError
from pdejepa.evaluate import metrics

# two trajectories, three frames, two channels, two points
TRUTH = torch.tensor(
    [
        [[[1.0, 2.0], [0.0, 0.0]], [[3.0, 4.0], [6.0, 8.0]], [[0.0, 5.0], [0.0, 10.0]]],
        [[[1.0, 1.0], [1.0, 1.0]], [[1.0, 1.0], [2.0, 2.0]], [[1.0, 1.0], [2.0, 2.0]]],
    ]
)
GUESS = TRUTH.clone()
GUESS[0, 1, 0] = torch.tensor([3.0, 5.0])  # channel 0: error 1 in frame 1, 2 in frame 2
GUESS[0, 2, 0] = torch.tensor([2.0, 5.0])
GUESS[0, 1, 1] = torch.tensor([6.0, 5.0])  # channel 1: error 3 in frame 1
GUESS[0, 0, 1] = torch.tensor([1.0, 0.0])  # frame 0, where the truth is zero


def test_relative_error_of_the_forecast_frames() -> None:
    first, second = math.sqrt((1 + 4) / (25 + 25)), math.sqrt(9 / (100 + 100))
    found = metrics.rel_l2(GUESS, TRUTH)
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx([(first + second) / 2, 0.0])
    assert metrics.per_channel(GUESS, TRUTH)[0].tolist() == pytest.approx([first, second])


def test_joint_norm() -> None:
    assert metrics.rel_l2_joint(GUESS, TRUTH).tolist() == pytest.approx([math.sqrt((5 + 9) / (50 + 200)), 0.0])


def test_all_frames() -> None:
    first, second = math.sqrt(5 / (5 + 50)), math.sqrt((1 + 9) / 200)
    assert metrics.rel_l2(GUESS, TRUTH, 0)[0].item() == pytest.approx((first + second) / 2)


def test_frames_for_themselves() -> None:
    found = metrics.per_frame(GUESS, TRUTH)
    assert found.shape == (2, 2)
    assert found[0].tolist() == pytest.approx([(1 / 5 + 3 / 10) / 2, (2 / 5 + 0) / 2])
    assert metrics.last_frame(GUESS, TRUTH)[0].item() == pytest.approx(0.2)


def test_a_channel_that_is_zero_in_a_frame_is_left_out() -> None:
    assert metrics.per_frame(GUESS, TRUTH, 0)[0, 0].item() == 0.0  # only channel 0 counts, and it is exact
    nothing = torch.zeros(1, 3, 1, 4)
    assert math.isnan(metrics.rel_l2(nothing, nothing).item())
    assert math.isnan(metrics.rel_l2_joint(nothing, nothing).item())
    assert math.isnan(metrics.per_channel(nothing + 1, nothing).item())


def test_frames_that_are_not_there_are_no_zero_error() -> None:
    guess = GUESS.clone()
    guess[1, 2:] = torch.nan
    for error in (metrics.rel_l2, metrics.rel_l2_joint, metrics.last_frame):
        found = error(guess, TRUTH)
        assert math.isnan(found[1].item())
        assert math.isfinite(found[0].item())
    frames = metrics.per_frame(guess, TRUTH)
    assert math.isfinite(frames[1, 0].item())
    assert math.isnan(frames[1, 1].item())


def test_repeating() -> None:
    assert torch.equal(metrics.repeat_first(TRUTH), TRUTH[:, :1].expand_as(TRUTH))
    two = metrics.repeat_first(TRUTH, 2)
    assert torch.equal(two[:, :2], TRUTH[:, :2])
    assert torch.equal(two[:, 2], TRUTH[:, 1])


def test_scale_and_shape() -> None:
    u = torch.randn(3, 4, 2, 5, 6)
    small = metrics.rel_l2(1e-6 * (u + 0.1), 1e-6 * u)
    assert small.tolist() == pytest.approx(metrics.rel_l2(u + 0.1, u).tolist(), rel=1e-4)
    assert metrics.rel_l2(1.25 * u, u).tolist() == pytest.approx([0.25] * 3)
    with pytest.raises(DataError, match=r"one shape \(B,T,C,\*grid\)"):
        metrics.rel_l2(u, u[:, 1:])
    with pytest.raises(DataError, match="first counted frame must be from 0 to 3; got 4"):
        metrics.rel_l2(u, u, 4)

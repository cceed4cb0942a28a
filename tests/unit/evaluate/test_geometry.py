"""Turning angles, accelerations and cosines against values computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from pdejepa.core.errors import DataError
from pdejepa.evaluate.geometry import compare_geometry, lag_cosines, symmetric_accelerations, turning_angles


def path(*points: tuple[float, ...]) -> torch.Tensor:
    """(1,T,features)."""
    return torch.tensor([points])


STRAIGHT = path((0.0, 0.0), (1.0, 0.0), (2.0, 0.0))
CORNER = path((0.0, 0.0), (1.0, 0.0), (1.0, 1.0))


@pytest.mark.parametrize(
    ("x", "cosine", "angle", "acceleration"),
    [
        (STRAIGHT, 1.0, 0.0, 0.0),
        (CORNER, 0.0, 90.0, math.sqrt(2)),
        (path((0.0, 0.0), (1.0, 0.0), (0.0, 0.0)), -1.0, 180.0, 2.0),
        (path((0.0, 0.0), (1.0, 0.0), (3.0, 0.0)), 1.0, 0.0, 2 / 3),  # straight on, twice as fast
        (path((0.0, 0.0), (1.0, 0.0), (2.0, 1.0)), math.sqrt(0.5), 45.0, 2 / (1 + math.sqrt(2))),
        (path((2.0, 3.0), (2.0, 3.0), (2.0, 3.0)), 0.0, 90.0, 0.0),  # at rest
    ],
)
def test_three_points(x: torch.Tensor, cosine: float, angle: float, acceleration: float) -> None:
    assert lag_cosines(x).tolist() == [[pytest.approx(cosine, abs=1e-12)]]
    assert turning_angles(x).tolist() == [[pytest.approx(angle, abs=1e-5)]]
    assert symmetric_accelerations(x).tolist() == [[pytest.approx(acceleration, abs=1e-12)]]


def test_one_value_per_inner_frame_and_trajectory() -> None:
    x = torch.cat((path((0, 0), (1, 0), (1, 1), (1, 2)), path((0, 0), (1, 0), (2, 0), (2, 1)))).float()
    assert turning_angles(x).tolist() == [[90.0, 0.0], [0.0, 90.0]]
    field = x.reshape(2, 4, 2, 1, 1)  # channels and space are flattened
    assert torch.equal(turning_angles(field), turning_angles(x))


def test_units_do_not_matter() -> None:
    x = torch.randn((3, 6, 5), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for measure in (lag_cosines, turning_angles, symmetric_accelerations):
        assert measure(1e6 * x + 3.0) == pytest.approx(measure(x), rel=1e-6)
        assert measure(x).shape == (3, 4)


def test_a_symmetric_acceleration_never_exceeds_two() -> None:
    x = torch.randn((50, 9, 4), generator=torch.Generator().manual_seed(1))
    values = symmetric_accelerations(x)
    assert float(values.max()) <= 2.0
    assert float(values.max()) > 1.8


def test_compare() -> None:
    """z turns by 90 degrees where u goes straight on; q differs from z in its last frame and does as u does."""
    u, z = STRAIGHT.reshape(1, 3, 1, 2), CORNER.reshape(1, 3, 1, 2)
    q = z.clone()
    q[0, 2, 0] = torch.tensor([2.0, 0.0])
    found = compare_geometry([(u, z, q)])
    assert found.n == 1
    assert found.mean_angle == {"u": 0.0, "z": 90.0, "q": 0.0}
    assert found.angle == {"z": 90.0, "q": 0.0}
    assert found.acceleration["z"] == pytest.approx(math.sqrt(2))
    assert found.acceleration["q"] == 0.0
    assert found.cosine == {"z": 1.0, "q": 0.0}
    assert found.change == pytest.approx(math.sqrt(2 / 3))  # |(1,-1)|^2 = 2; |z|^2 = 1 + 2


def test_differences_do_not_cancel() -> None:
    """One trajectory turns too much, the other too little: the means agree, the error is 90 degrees."""
    u, z = torch.cat((STRAIGHT, CORNER)), torch.cat((CORNER, STRAIGHT))
    found = compare_geometry([(u, z, u)])
    assert found.mean_angle["u"] == found.mean_angle["z"] == 45.0
    assert found.angle == {"z": 90.0, "q": 0.0}


def test_blocks_are_weighted_by_their_rows() -> None:
    u, z, q = (torch.randn((5, 4, 3), generator=torch.Generator().manual_seed(seed)) for seed in range(3))
    whole = compare_geometry([(u, z, q)])
    parts = compare_geometry((u[part], z[part], q[part]) for part in (slice(0, 4), slice(4, 5)))
    assert parts.n == 5
    for name in ("mean_angle", "angle", "acceleration", "cosine"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name))
    assert parts.change == pytest.approx(whole.change)


def test_what_is_no_path_is_refused() -> None:
    with pytest.raises(DataError, match="three frames or more"):
        turning_angles(torch.zeros(1, 2, 3))
    with pytest.raises(DataError, match="no trajectories"):
        compare_geometry([])

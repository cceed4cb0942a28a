"""UniSolver: its size, its geometry, who modulates what, and the forcing it is told."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pdejepa.baselines.unisolver import UniSolver, UniSolverConfig, reference_distances
from tests.unit.baselines.token_solvers import millions, parameters, rough, shaken, task_of


@pytest.mark.parametrize(
    ("name", "size"), [("advection", 8.92), ("combined", 8.92), ("vorticity", 8.92), ("heterns", 4.11)]
)
def test_size(name: str, size: float) -> None:
    assert round(millions(UniSolver, name), 2) == size


def forced() -> tuple[UniSolver, Tensor, Tensor]:
    """A tiny solver of Burgers, two frames and their parameters."""
    task = task_of("burgers", 64)
    return UniSolver(UniSolver.recipe("tiny", task).model, task), rough("burgers", 2, 1, 64), parameters("burgers", 2)


def test_distances_by_hand() -> None:
    d = reference_distances(task_of("gray_scott"), 8)
    assert d.shape == (64, 32, 32)
    assert d[0, 0, 0] == 0.0  # the first reference point is the first corner
    assert d[63, 31, 31] == 0.0  # and the last one the last
    assert float(d[0, 31, 31]) == pytest.approx(2**0.5)
    assert float(d[1, 0, 0]) == pytest.approx(1 / 7)  # second axis runs fastest
    assert float(d[8, 0, 31]) == pytest.approx((1 / 49 + 1) ** 0.5)


def test_it_begins_by_repeating_the_frame() -> None:
    solver, u, xi = forced()
    assert torch.equal(solver.rollout(u, solver.adapt(xi=xi), 2), u.expand(-1, 2, -1, -1))


def test_parameters_own_the_first_channels() -> None:
    solver = shaken(forced()[0])
    domain, point = torch.randn(2, 1, 8), torch.randn(2, 8, 8)
    before = solver.modulations[0](domain, point)
    after = solver.modulations[0](domain + 1.0, point)
    assert len(before) == 6
    for a, b in zip(before, after, strict=True):
        assert a.shape == (2, 8, 32)
        assert not torch.equal(a[..., :16], b[..., :16])
        assert torch.equal(a[..., 16:], b[..., 16:])
        assert torch.equal(a[:, :1, :16].expand(-1, 8, -1), a[..., :16])  # the same for all tokens


def test_a_forcing_in_time_is_told_at_its_time() -> None:
    solver, _, xi = forced()
    system, frame = solver.task.problem, torch.tensor([3, 4])
    told = solver._places(xi, frame)[..., 2:]  # after two distances
    gap = float(system.times[1] - system.times[0])
    field = system.forcing(system.times[0] + (frame + 0.5) * gap, xi, torch.empty(2, 1, 64, dtype=torch.float64))
    expected = field.reshape(2, 8, 8) * gap / solver.task.statistics.std[0]
    torch.testing.assert_close(told.double(), expected, rtol=1e-5, atol=1e-6)
    assert solver._places(xi, frame)[0, :, 0].tolist() == pytest.approx([(8 * n + 3.5) / 63 for n in range(8)])


@torch.no_grad()
def test_rollouts_count_their_frames() -> None:
    """Two steps at once are one step, then another that starts with two known frames."""
    solver, u, xi = forced()
    state = shaken(solver).adapt(xi=xi)
    both = solver.rollout(u, state, 2)
    second = solver.rollout(torch.cat((u, both[:, :1]), 1), state, 1)
    later = solver.rollout(both[:, :1], state, 1)  # the same frame, but at the time of the first
    torch.testing.assert_close(second[:, 0], both[:, 1])
    assert not torch.allclose(later[:, 0], both[:, 1])


def test_ten_frames_for_heterns() -> None:
    task = task_of("heterns")
    config = UniSolver.recipe("paper", task).model
    assert (config.history, config.is_residual) == (10, False)
    assert UniSolver.recipe("fast", task).model.history == 1
    solver = UniSolver(UniSolverConfig(patch=8, reference=2, depth=1, width=16, heads=2, hidden=16, history=10), task)
    assert solver.card.history == 10
    assert solver.window("fit", 0.0).n_frames == 11
    assert UniSolver.card.history == 1
    u, xi = rough("heterns", 2, 1), parameters("heterns", 2)
    assert solver.rollout(u, solver.adapt(xi=xi), 2).shape == (2, 2, 1, 64, 64)


def test_heterns_has_a_step_for_every_frame_that_is_forecast() -> None:
    for name, epochs in (("heterns", 301 * 10), ("heat", 100)):
        assert UniSolver.recipe("paper", task_of(name)).stages[0].training.budget.epochs == epochs

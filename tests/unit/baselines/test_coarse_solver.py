"""Our own solver on a coarse grid, as a competitor."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path

import pytest
import torch

import pdejepa
from pdejepa import systems
from pdejepa.baselines import solver_folder
from pdejepa.baselines.coarse_solver import CoarseConfig, CoarseSolver
from pdejepa.baselines.fit import build, fit
from pdejepa.baselines.inference import forecast
from pdejepa.baselines.pool import Pool, build_pool
from pdejepa.core.errors import ConfigError
from pdejepa.evaluate import metrics

CPU = torch.device("cpu")


@cache
def pool(place: str) -> Pool:
    switches = {"n_points": 64} if place != "gray_scott" else {}
    return build_pool(systems.get(place, **switches), {"train": 2, "valid": 4}, CPU)


def solver_with(place: str, **changes: object) -> CoarseSolver:
    recipe = CoarseSolver.recipe("fast", pool(place).task)
    model = dataclasses.replace(recipe.model, **changes)
    solver = build(CoarseSolver, dataclasses.replace(recipe, model=model), pool(place))
    assert isinstance(solver, CoarseSolver)
    return solver


def error(solver: CoarseSolver) -> float:
    data = pool(solver.task.problem.name).data
    mean, std = data.statistics.moments(data.problem.ndim, CPU)
    u = data.fields["valid"] * std + mean
    answer = forecast(solver, u[:, :1], data.xi["valid"], u.shape[1] - 1)
    return float(metrics.rel_l2(answer.fields, u, 1).mean())


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("burgers", "gray_scott")]


@pytest.mark.parametrize("place", ["combined", "wave_2d", *SLOW])
def test_coarser_is_worse_and_the_full_grid_is_the_truth(place: str) -> None:
    full = pool(place).task.grid[0]
    errors = [error(solver_with(place, n_points=n)) for n in (full, full // 2, full // 4)]
    assert errors[0] < 1e-4
    assert errors[0] < errors[1] < errors[2] < 1.5


def test_a_grid_is_chosen_by_its_cost(tmp_path: Path) -> None:
    recipe = CoarseSolver.recipe("fast", pool("combined").task)
    for ms, n in ((1e6, 64), (1e-6, 8)):
        model = dataclasses.replace(recipe.model, ms=ms)
        solver = solver_with("combined", ms=ms)
        fit(solver, dataclasses.replace(recipe, model=model), pool("combined"), tmp_path / str(n))
        assert int(solver.n_points) == n


def test_it_goes_on_from_the_last_frame_that_is_known() -> None:
    data = pool("burgers").data  # its forcing changes in time
    mean, std = data.statistics.moments(1, CPU)
    u, xi = data.fields["valid"] * std + mean, data.xi["valid"]
    answer = forecast(solver_with("burgers", n_points=64), u[:, :5], xi, 3)
    torch.testing.assert_close(answer.fields[:, 5:], u[:, 5:8], rtol=2e-3, atol=2e-3)


def test_saved_and_loaded(tmp_path: Path) -> None:
    solver = solver_with("combined", n_points=16, step=2.0)
    solver_folder.save(solver, tmp_path, "fast")
    again = pdejepa.load(tmp_path, "cpu")
    u, xi = pool("combined").data.fields["valid"][:2, :1], pool("combined").data.xi["valid"][:2]
    assert torch.equal(again.forecast(u, xi, n_frames=3).fields, forecast(solver, u, xi, 3).fields)


def test_frames_that_are_no_states_are_refused() -> None:
    data = build_pool(systems.get("wave_b"), {"train": 2, "valid": 2}, CPU)
    solver = build(CoarseSolver, CoarseSolver.recipe("fast", data.task), data)
    with pytest.raises(ConfigError, match="a frame of wave_b is not the whole state of its solver"):
        solver.solve_for(data.data, print)
    with pytest.raises(ConfigError, match="step and ms above 0; got n_points=0, step=0"):
        CoarseConfig(step=0.0)

"""One contract for all trained solvers, ours and published: forecast, encode, save, load; from several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pdejepa
from pdejepa import baselines, systems
from pdejepa.baselines.inference import PublishedSolver
from pdejepa.core.errors import ConfigError, DataError, ParameterError
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.forecast.interface import Forecast, Solver
from tests.unit.baselines.token_solvers import parameters, rough, shaken, task_of
from tests.unit.forecast import tiny

FORECASTERS = [name for name in baselines.NAMES if baselines.get(name).card.is_forecaster]
U, XI = rough("combined", 3, 6, 64), parameters("combined", 3)
NAMED = dict(zip(("advection", "diffusivity", "dispersion"), XI.T.tolist(), strict=True))


def published(name: str) -> PublishedSolver:
    kind, task = baselines.get(name), task_of("combined", 64)
    torch.manual_seed(0)
    return PublishedSolver(shaken(kind(kind.recipe("tiny", task).model, task)).eval().requires_grad_(False), "tiny")


def ask(solver: Solver, **changes: Any) -> Forecast:
    """Two new frames from one, with fixed random numbers."""
    more: dict[str, Any] = {"n_frames": 2, **changes}
    if isinstance(solver, PublishedSolver):
        more = {"support": U[:, None], "generator": torch.Generator().manual_seed(0), **more}
        return solver.forecast(U[:, : solver.card.history], XI, **more)
    return solver.forecast(tiny.state(solver.problem, 3), tiny.middle(solver.problem), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [*FORECASTERS, "pdejepa"])
def test_what_was_saved_is_loaded_by_its_folder(name: str, tmp_path: Path) -> None:
    solver: Solver = tiny.forecaster("heat") if name == "pdejepa" else published(name)
    assert isinstance(solver, Solver)
    solver.save(tmp_path / "saved")
    again = pdejepa.load(tmp_path / "saved", "cpu")
    assert type(again) is type(solver)
    assert again.problem == solver.problem
    assert again.card.name == name
    found, expected = ask(again), ask(solver)
    assert torch.equal(found.fields, expected.fields)
    assert len(found.outcome) == 3
    assert len(found.times) == found.fields.shape[1]
    assert found.seconds >= found.adapt_seconds >= 0


# ---- published solvers take what ours takes ----------------------------------------------------------------------
def test_parameters_by_name() -> None:
    solver = published("unisolver")
    assert torch.equal(
        solver.forecast(U[:, 0], **NAMED, n_frames=2).fields, solver.forecast(U[:, :1], XI, n_frames=2).fields
    )
    assert solver.forecast(U[0, 0], advection=0.5, diffusivity=0.1, dispersion=0.2).fields.shape == (1, 14, 1, 64)
    with pytest.raises(ParameterError, match="has no parameter 'advektion', did you mean 'advection'"):
        solver.forecast(U[:, 0], advektion=1.0, diffusivity=0.1, dispersion=0.2)


def test_extrapolation_is_told() -> None:
    far = published("unisolver").forecast(U[0, 0], advection=9.0, diffusivity=0.1, dispersion=0.2, n_frames=2)
    assert "advection 9 is above the training range" in str(far.support)
    assert published("fno").forecast(U[:1, :2], n_frames=2).support.is_inside  # it is told nothing of them
    assert "frames in all" in str(published("fno").forecast(U[:1, :2], n_frames=40).support)


def test_wrong_states_are_refused() -> None:
    with pytest.raises(DataError, match=r"expects trajectories as \(B, T, 1, 64\)"):
        published("fno").forecast(U[..., ::2], n_frames=2)
    with pytest.raises(ConfigError, match="Expected a published solver"):
        PublishedSolver(3, "tiny")  # type: ignore[arg-type]


# ---- several threads ---------------------------------------------------------------------------------------------
def switches() -> tuple[Any, ...]:
    """Torch's settings of the whole process."""
    return (
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
    )


def models() -> list[Forecaster]:
    """Shipped ones of several kinds: plain, forced in time, of second order."""
    return [pdejepa.load(name, "cpu") for name in ("combined", "burgers", "wave_b")]


@pytest.mark.parametrize("n_repeats", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_eight_threads_forecast_at_once(n_repeats: int) -> None:
    """Several models, batch sizes and parameters: what one thread gives, and no setting is left changed."""
    requests = []
    for number, model in enumerate(models()):
        for n in (1, 2 + number):
            u0, xi = model.system.sample("test", range(10 * number, 10 * number + n))
            frames = u0[:, None].expand(-1, model.surrogate.history, *u0.shape[1:])
            requests.append((model, frames, xi))
    forecast = lambda ask: ask[0].forecast(ask[1], ask[2], n_frames=2).fields  # noqa: E731
    alone: list[Tensor] = [forecast(request) for request in requests]
    torch.set_default_dtype(torch.float64)  # as somebody else's program may have it
    before = switches()
    try:
        with ThreadPoolExecutor(8) as threads:
            many = list(threads.map(forecast, requests * n_repeats))
        assert switches() == before
    finally:
        torch.set_default_dtype(torch.float32)
    for number, found in enumerate(many):
        torch.testing.assert_close(found, alone[number % len(requests)], rtol=1e-6, atol=1e-6)


def test_sampling_while_others_forecast() -> None:
    """Parameters and states are drawn and solved in other threads at the same time."""
    model, system = pdejepa.load("combined", "cpu"), systems.get("combined")
    u0, xi = system.sample("test", range(3))
    expected, solved = model.forecast(u0, xi, n_frames=2).fields, system.generate("test", 3).fields
    with ThreadPoolExecutor(4) as threads:
        forecasts = [threads.submit(lambda: model.forecast(u0, xi, n_frames=2).fields) for _ in range(4)]
        solves = [threads.submit(lambda: system.generate("test", 3).fields) for _ in range(4)]
        assert all(torch.allclose(one.result(), expected, rtol=1e-6, atol=1e-6) for one in forecasts)
        assert all(torch.equal(one.result(), solved) for one in solves)

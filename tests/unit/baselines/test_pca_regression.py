"""Regression on principal components: it interpolates its trajectories, generalises where maps are linear, refuses."""

from __future__ import annotations

import dataclasses
import sys
from functools import cache
from pathlib import Path
from unittest import mock

import pytest
import torch

import pdejepa
from pdejepa import baselines, systems
from pdejepa.baselines import solver_folder
from pdejepa.baselines.fit import build, fit
from pdejepa.baselines.inference import forecast
from pdejepa.baselines.pca_regression import PcaConfig, PcaRegression, PcaRidge
from pdejepa.baselines.pool import Pool, build_pool
from pdejepa.core.errors import ConfigError, ParameterError
from pdejepa.operators.norms import relative_error
from tests.unit.baselines.test_opinf import decay_pool

CPU = torch.device("cpu")
NAMES = ("pca_ridge", "pca_gp")


@cache
def pool() -> Pool:
    return build_pool(systems.get("heat", n_points=32), {"train": 40, "valid": 8}, CPU)


def fitted(name: str, data: Pool, folder: Path, config: PcaConfig | None = None) -> PcaRegression:
    kind = baselines.get(name)
    recipe = kind.recipe("tiny", data.task)
    recipe = recipe if config is None else dataclasses.replace(recipe, model=config)
    solver = build(kind, recipe, data)
    fit(solver, recipe, data, folder)
    assert isinstance(solver, PcaRegression)
    return solver


def error(solver: PcaRegression, data: Pool, split: str) -> float:
    u, xi = data.data.fields[split][:8], data.data.xi[split][:8]
    return float(relative_error(solver.rollout(u[:, :1], {"xi": xi}, u.shape[1] - 1), u[:, 1:]).mean())


@pytest.mark.parametrize("name", NAMES)
def test_a_smooth_map_is_learnt(name: str, tmp_path: Path) -> None:
    """Linear decay of four modes, 40 trajectories: known ones are met, others nearly."""
    data = decay_pool()
    solver = fitted(name, data, tmp_path, PcaConfig(n_modes=4, n_inputs=4, n_train=40))
    assert error(solver, data, "train") < 0.02
    assert error(solver, data, "test") < 0.25


def test_what_it_predicts_is_scikit_learn_s_prediction() -> None:
    """The weights are held here, padded, and evaluated here."""
    from sklearn.kernel_ridge import KernelRidge

    data = decay_pool()
    recipe = PcaRidge.recipe("tiny", data.task)
    solver = build(PcaRidge, dataclasses.replace(recipe, model=PcaConfig(4, 4, 60)), data)
    assert isinstance(solver, PcaRidge)
    lengths = torch.tensor([1.0, 2.0, 1.0, 2.0, 0.7], dtype=torch.float64)
    with mock.patch.object(solver, "kernel", return_value=(lengths, 1e-3)):
        solver.solve_for(data.data, print)
    assert not solver.dual[40:].any()
    u, xi = data.data.fields, data.data.xi
    q, own = solver._reduced(u["train"]), solver._reduced(u["test"])
    direct = KernelRidge(alpha=1e-3, kernel="rbf", gamma=0.5)
    target = (q[:, 1:] - q[:, 1:].mean(0)).flatten(1)
    direct.fit((solver.inputs(q[:, 0], xi["train"]) / lengths).numpy(), target.numpy())
    predicted = torch.from_numpy(direct.predict((solver.inputs(own[:, 0], xi["test"]) / lengths).numpy()))
    found = solver._reduced(solver.rollout(u["test"][:, :1], {"xi": xi["test"]}, data.data.n_frames - 1))
    torch.testing.assert_close(found, predicted.unflatten(1, (-1, 4)) + q[:, 1:].mean(0), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_saved_and_loaded_without_scikit_learn(name: str, tmp_path: Path) -> None:
    solver = fitted(name, pool(), tmp_path / "run")
    solver_folder.save(solver, tmp_path / "model", "tiny")
    u, xi = pool().data.fields["train"][:3, :1], pool().data.xi["train"][:3]
    with mock.patch.dict(sys.modules, {"sklearn": None, "sklearn.kernel_ridge": None}):
        again = pdejepa.load(tmp_path / "model", "cpu")
        assert torch.equal(again.forecast(u, xi, n_frames=4).fields, forecast(solver, u, xi, 4).fields)
        with pytest.raises(ConfigError, match=r'not installed. Install it with: pip install "pdejepa\[classical\]"'):
            fitted(name, pool(), tmp_path / "other")


def test_times_without_a_map_are_refused(tmp_path: Path) -> None:
    solver = fitted("pca_ridge", pool(), tmp_path)
    u, xi, n = pool().data.fields["train"][:2], pool().data.xi["train"][:2], pool().data.n_frames
    with pytest.raises(ParameterError, match=f"one map for each of {n - 1} frames after the first; {n} were asked for"):
        forecast(solver, u[:, :1], xi, n)
    later = forecast(solver, u[:, :3], xi, n - 3).fields[:, 3:]  # the first frame decides, whatever else is known
    torch.testing.assert_close(later, forecast(solver, u[:, :1], xi, n - 1).fields[:, 3:])


def test_a_parameter_of_several_decades_enters_by_its_logarithm(tmp_path: Path) -> None:
    solver = fitted("pca_ridge", pool(), tmp_path)
    names = list(pool().task.problem.parameter_names)
    low, high = pool().task.statistics.ranges["diffusivity"]
    assert high > 10 * low > 0
    xi = pool().data.xi["train"][:3].clone()
    xi[:, names.index("diffusivity")] = torch.tensor([low, (low * high) ** 0.5, high], dtype=torch.float64)
    x = solver.inputs(torch.zeros(3, solver.config.n_inputs, dtype=torch.float64), xi)
    column = x[:, solver.config.n_inputs + names.index("diffusivity")]
    torch.testing.assert_close(column, torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64), atol=1e-9, rtol=0.0)

"""Unit amplitude as a preprocessing of every solver: the same forecast at every size, judged as before."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from pdejepa import systems
from pdejepa.baselines import get
from pdejepa.baselines.fit import build, fit
from pdejepa.baselines.inference import forecast
from pdejepa.baselines.pool import Pool, build_pool
from pdejepa.baselines.solver_folder import load, save
from pdejepa.core.errors import ConfigError
from pdejepa.models.amplitude import rescale
from pdejepa.studies.compare import comparison
from pdejepa.studies.compare.comparison import compare
from pdejepa.studies.compare.comparison_records import read_records
from pdejepa.studies.compare.comparison_tables import rows
from pdejepa.studies.compare.competitors import MethodEntry, make
from pdejepa.studies.compare.judgement import _inputs
from pdejepa.studies.compare.turns import Comparison
from pdejepa.training.budget import TotalBudget

CPU = torch.device("cpu")
COUNTS = {"train": 10, "valid": 5, "test": 5}
FEW = TotalBudget("steps", 2)


@pytest.fixture(scope="module")
def pools() -> tuple[Pool, Pool]:
    """The same trajectories as they are, and at unit amplitude."""
    system = systems.get("combined", n_points=64)
    return build_pool(system, COUNTS, CPU), build_pool(system, COUNTS, CPU, amplitude="unit")


def test_the_same_trajectories_rescaled(pools: tuple[Pool, Pool]) -> None:
    plain, unit = pools
    assert (plain.task.amplitude, unit.task.amplitude) == ("as_is", "unit")
    assert plain.data.hash == unit.data.hash
    (mean, std), (mean_1, std_1) = (pool.data.statistics.moments(1, CPU) for pool in pools)
    u, u_1 = plain.data.fields["test"] * std + mean, unit.data.fields["test"] * std_1 + mean_1
    torch.testing.assert_close(u_1[:, 0].square().mean((1, 2)), torch.ones(5), rtol=1e-5, atol=0)
    torch.testing.assert_close(u_1 * unit.sizes["test"].float().reshape(-1, 1, 1, 1), u, rtol=1e-4, atol=1e-4)
    back = rescale(unit.data.problem, unit.data.xi["test"], unit.sizes["test"])
    torch.testing.assert_close(back, plain.data.xi["test"])


def test_context_has_the_parameters_of_its_row(pools: tuple[Pool, Pool]) -> None:
    """Another trajectory is divided by the size of the row, not by its own."""
    _plain, unit = pools
    entry = make("zebra", "combined", "tiny", 0)
    (u, _, support), (u_1, _, support_1) = (_inputs(entry, pool, "test", torch.arange(5)) for pool in pools)
    size = unit.sizes["test"].float().reshape(-1, 1, 1, 1)
    torch.testing.assert_close(u_1 * size, u, rtol=1e-4, atol=1e-4)
    assert support is not None
    assert support_1 is not None
    torch.testing.assert_close(support_1 * size[:, None], support, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["fno", "zebra", "opinf"])
def test_a_state_twice_as_large_has_a_forecast_twice_as_large(
    name: str, pools: tuple[Pool, Pool], tmp_path: Path
) -> None:
    pool, kind = pools[1], get(name)
    recipe = kind.recipe("tiny", pool.task)
    solver = build(kind, recipe, pool)
    fit(solver, recipe, pool, tmp_path / "run", FEW, keep="memory")
    save(solver, tmp_path / "model", "tiny")
    solver = load(tmp_path / "model", "cpu")
    assert solver.task.amplitude == "unit"
    plain = pools[0]
    mean, std = plain.data.statistics.moments(1, CPU)
    u, xi = plain.data.fields["test"] * std + mean, plain.data.xi["test"]
    doubled = rescale(plain.data.problem, xi, torch.full((5,), 2.0))
    support = u[:, None] if name == "zebra" else None
    twice = None if support is None else 2 * support
    one = forecast(solver, u[:, :1], xi, 4, support, torch.Generator().manual_seed(0))
    two = forecast(solver, 2 * u[:, :1], doubled, 4, twice, torch.Generator().manual_seed(0))
    torch.testing.assert_close(two.fields, 2 * one.fields, rtol=1e-4, atol=1e-4)


def test_codes_of_environments_need_the_size(pools: tuple[Pool, Pool]) -> None:
    with pytest.raises(ConfigError, match=r"CoDA learns one code per environment.*--amplitude as_is"):
        pools[1].task.check(get("coda").card)
    linear = build_pool(systems.get("advection", n_points=32), {"train": 10, "valid": 5}, CPU, amplitude="unit")
    linear.task.check(get("coda").card)  # its parameters do not depend on the size


def test_the_method_takes_it_too(pools: tuple[Pool, Pool], tmp_path: Path) -> None:
    entry = make("pdejepa", "combined", "tiny", 0, "unit")
    assert isinstance(entry, MethodEntry)
    assert entry.config.amplitude == "unit"
    small = dataclasses.replace(entry.config, switches={"n_points": 64})
    entry.config = small
    entry.fit(pools[1], TotalBudget("steps", 5), tmp_path, 1.0, keep="memory")
    assert entry.model is not None
    assert entry.model.statistics.unit_ranges


def test_equations_without_the_symmetry_are_refused(tmp_path: Path) -> None:
    plan = Comparison("burgers", ("fno",), FEW, tmp_path, size="tiny", recipe="tiny", amplitude="unit")
    with pytest.raises(ConfigError, match="burgers has none"):
        compare(plan)
    with pytest.raises(ConfigError, match="unknown amplitude 'unti'"):
        compare(dataclasses.replace(plan, amplitude="unti"))  # type: ignore[arg-type]


def test_the_row_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = systems.get("combined", n_points=64)
    monkeypatch.setattr(comparison, "build_system", lambda *_: small)
    monkeypatch.setattr(comparison, "N_JUDGED", 5)
    plan = Comparison("combined", ("opinf",), FEW, tmp_path, size="tiny", recipe="tiny")
    compare(plan, lambda _: None)
    (record,) = compare(dataclasses.replace(plan, amplitude="unit"), lambda _: None)
    assert record.file.endswith("combined-opinf-tiny-tiny-2steps-unit-s0.json")
    assert len(record.curve) == 1
    names = [row[0] for row in rows(read_records([tmp_path]))]
    assert {"Operator inference", "Operator inference, unit amplitude"} <= set(names)

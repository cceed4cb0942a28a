"""Cases: the same trajectory from memory and from a data set, its truth, and changed parameters."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import pytest
import torch

from pdejepa import systems
from pdejepa.core.errors import DataError, ParameterError, UsageError
from pdejepa.evaluate.cases import find_case

Make = Callable[[str], Path]


@pytest.mark.parametrize("name", ["heat", "wave_b", "advection"])
def test_memory_is_what_generate_makes(name: str) -> None:
    system = systems.get(name).at_size("tiny")
    case = find_case("test:3", system, {})
    made = system.generate("test", 1, start=3)
    torch.testing.assert_close(case.truth(system.times).fields, made.fields[0])
    torch.testing.assert_close(case.observed(2)[0], made.fields[0, :2])
    assert torch.equal(case.xi, made.xi)
    longer = case.truth(torch.cat((system.times, system.times[-1:] + system.times.diff()[:1])))
    torch.testing.assert_close(longer.fields[:-1], made.fields[0], rtol=1e-4, atol=1e-5)
    assert longer.outcome == "ok"
    assert longer.seconds > 0


def test_a_flow_that_is_simulated_on_a_finer_grid() -> None:
    system = replace(systems.get("heterns"), solver_grid=64, n_points=32, dt=0.1)  # type: ignore[type-var]
    case = find_case("test:3", system, {"viscosity": 5e-3})
    truth = case.truth(system.times[:2]).fields
    assert truth.shape == (2, 1, 32, 32)
    state, xi = system.sample("test", 3)
    xi[0, 0] = 5e-3
    torch.testing.assert_close(truth, system.solve(state, xi, times=system.times[:2]).as_subclass(torch.Tensor)[0])
    torch.testing.assert_close(case.observed(1)[0, 0], truth[0])


def test_a_data_set_names_the_same_trajectory(tiny_datasets: Make) -> None:
    system = systems.get("heat").at_size("tiny")
    stored, made = find_case(f"{tiny_datasets('heat')}:test:3", system, {}), find_case("test:3", system, {})
    assert stored.stored is not None
    torch.testing.assert_close(stored.xi, made.xi, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(stored.observed(1), made.observed(1))
    torch.testing.assert_close(stored.truth(system.times).fields, stored.stored)
    other = find_case(f"{tiny_datasets('heat')}:test:3", system, {"diffusivity": 4.0})
    assert other.stored is None
    solved = other.truth(system.times).fields
    torch.testing.assert_close(solved[0], stored.stored[0])
    assert float((solved[-1] - stored.stored[-1]).abs().amax()) > 1e-3


def test_changed_parameters() -> None:
    system = systems.get("heat")
    case = find_case("ood:1", system, {"diffusivity": 0.25})
    assert float(case.xi[0, 0]) == 0.25
    assert torch.equal(case.xi[0, 1:], find_case("ood:1", system, {}).xi[0, 1:])
    with pytest.raises(ParameterError, match="did you mean 'diffusivity'"):
        find_case("ood:1", system, {"difusivity": 0.25})
    with pytest.raises(ParameterError, match="diffusivity must be in"):
        find_case("ood:1", system, {"diffusivity": -1.0})


@pytest.mark.parametrize("source", ["test", "3", "test:", ":3", "test:x", "test:-1", "", "a:b:c"])
def test_sources_that_make_no_sense(source: str) -> None:
    with pytest.raises(UsageError, match="SPLIT:INDEX or DIR:SPLIT:INDEX"):
        find_case(source, systems.get("heat"), {})


def test_wrong_data(tiny_datasets: Make, tmp_path: Path) -> None:
    system = systems.get("heat")
    with pytest.raises(DataError, match="no split 'tset'"):
        find_case("tset:0", system, {})
    with pytest.raises(DataError, match="holds no data set"):
        find_case(f"{tmp_path}:test:0", system, {})
    with pytest.raises(DataError, match="there is no 10"):
        find_case(f"{tiny_datasets('heat')}:test:10", system, {})
    with pytest.raises(DataError, match="holds 'heat'; the model forecasts burgers"):
        find_case(f"{tiny_datasets('heat')}:test:0", systems.get("burgers"), {})


def test_other_peoples_data(tiny_datasets: Make, tmp_path: Path) -> None:
    """Without our own group in the file only the stored frames are known."""
    root = Path(shutil.copytree(tiny_datasets("heat") / "data" / "test", tmp_path / "d" / "data" / "test")).parents[1]
    for path in (root / "data" / "test").glob("*.hdf5"):
        with h5py.File(path, "r+") as file:
            del file["provenance"]
    system = systems.get("heat")
    case = find_case(f"{root}:test:2", system, {})
    assert case.state is None
    truth = case.truth(system.times)
    assert truth.fields.shape == (25, 1, 256)
    with pytest.raises(DataError, match="no truth to compare test 2 with"):
        case.truth(torch.arange(30.0))
    other = find_case(f"{root}:test:2", system, {"diffusivity": 1.0})
    torch.testing.assert_close(other.observed(1)[0, 0], truth.fields[0])
    with pytest.raises(DataError, match="no truth"):
        other.truth(system.times)


@pytest.mark.parametrize("source", ["test:120", "test:999999"])
def test_a_trajectory_beyond_the_split_is_refused(source: str) -> None:
    with pytest.raises(UsageError, match=r"the split test of heat has 120 trajectories, 0 to 119; got .*Choose one"):
        find_case(source, systems.get("heat"), {})
    assert find_case("test:119", systems.get("heat"), {}).index == 119

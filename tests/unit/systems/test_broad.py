"""The extra splits: initial states of the wider law, and the one to choose settings by outside the training range."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from pdejepa import systems
from pdejepa.app.cli import main
from pdejepa.core.errors import ConfigError, DataError
from pdejepa.data.generate.layout import GenerateConfig, Plan
from pdejepa.evaluate import metrics
from pdejepa.evaluate.protocol import evaluate
from pdejepa.solve.outcome import Outcome
from pdejepa.systems.base import System, relative_l2
from pdejepa.systems.gray_scott import GrayScott
from pdejepa.systems.problem import Range
from tests.unit.forecast import tiny

BROAD = ["broad_train", "broad_valid", "broad_test"]
WITH_OOD = [name for name in systems.NAMES if name != "wave_b"]
SMALL: dict[str, dict[str, Any]] = {
    "vorticity": {"solver_grid": 64, "n_points": 32, "dt": 2 / 29 / 4},
    "heterns": {"solver_grid": 64, "n_points": 32, "dt": 1 / 20},
}


def small(name: str) -> System:
    return systems.get(name, **SMALL.get(name, {}))


@pytest.mark.parametrize("name", systems.NAMES)
def test_extra_splits_stay_beside_those_of_the_benchmark(name: str) -> None:
    system = systems.get(name)
    extra = [split.name for split in system.extra_splits]
    assert extra == BROAD + ["valid_ood"] * (name in WITH_OOD)
    assert all(split.is_ours and split.meaning for split in system.extra_splits)
    assert not set(extra) & {split.name for split in system.splits}
    with pytest.raises(DataError, match="no split 'broad_tets', did you mean 'broad_test'"):
        system.split("broad_tets")


@pytest.mark.parametrize("name", systems.NAMES)
def test_a_broad_trajectory_is_the_same_alone_and_in_company(name: str) -> None:
    system, rows = small(name), [0, 1, 2, 5, 17, 40, 41]
    u0, xi = system.sample("broad_train", rows)
    for place in (0, 3, 6):
        state, parameters = system.sample("broad_train", rows[place])
        assert torch.equal(state[0], u0[place])
        assert torch.equal(parameters[0], xi[place])
    again = system.sample("broad_train", rows, attempt=torch.tensor([0, 1, 0, 1, 0, 0, 0]))[0]
    assert [torch.equal(one, two) for one, two in zip(u0, again, strict=True)] == [1, 0, 1, 0, 1, 1, 1]


@pytest.mark.parametrize("name", systems.NAMES)
def test_no_pair_is_in_two_splits_and_environments_are_disjoint(name: str) -> None:
    system = small(name)
    seen: dict[bytes, str] = {}
    parameters: dict[bytes, str] = {}
    for split in system.all_splits:
        u0, xi = system.sample(split.name, range(24), dtype=torch.float64)
        for state, row in zip(u0, xi, strict=True):
            key = row.numpy().tobytes()
            assert seen.setdefault(state.numpy().tobytes() + key, split.name) == split.name
            assert parameters.setdefault(key, split.name) == split.name or name in ("wave_b", "heterns")
        assert len({row.numpy().tobytes() for row in u0}) == 24


@pytest.mark.parametrize("name", systems.NAMES)
def test_broad_states_are_others_with_the_parameters_of_train(name: str) -> None:
    system = small(name)
    u0, xi = system.sample("broad_test", range(40), dtype=torch.float64)
    known = system.sample("test", range(40), dtype=torch.float64)[0]
    low, high = (torch.tensor([p.train[end] for p in system.parameters], dtype=torch.float64) for end in (0, 1))
    assert bool(((xi >= low) & (xi <= high)).all())
    widths = [values[:, 0].flatten(1).std(1).quantile(torch.tensor([0.05, 0.95]).double()) for values in (u0, known)]
    assert float(widths[0][1] / widths[0][0]) > 1.3 * float(widths[1][1] / widths[1][0])  # smaller and larger ones
    moved = u0[:, 0].flatten(1).mean(1).abs().max()
    assert float(moved) > 0.3 if name in ("advection", "burgers", "heat", "combined") else True
    assert float(moved) < 1e-6 or name not in ("vorticity", "heterns")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SMALL else n for n in systems.NAMES])
def test_broad_rows_are_solved(name: str) -> None:
    system = small(name)
    made = system.generate("broad_test", 2 if name in SMALL else 4)
    assert made.status.tolist() == [Outcome.OK.value] * len(made.status)
    assert bool(torch.isfinite(made.fields).all())
    broken = [check for check in system.invariants(made.fields.double(), made.xi, made.times) if not check.passed]
    assert broken == []


@pytest.mark.parametrize("name", WITH_OOD)
def test_settings_can_be_chosen_outside_without_the_judged_split(name: str) -> None:
    system, split = small(name), systems.get(name).split("valid_ood")
    xi = system.sample("valid_ood", range(split.n_environments))[1]
    judged = [s for s in system.splits if s.is_ood]
    known = torch.cat([system.sample(s.name, range(s.n_environments))[1] for s in judged])
    train = system.sample("train", range(systems.get(name).split("train").n_environments))[1]
    assert not any(bool((row == other).all(1).any()) for row in xi for other in (known, train))
    low, high = (torch.tensor([p.train[end] for p in system.parameters], dtype=torch.float64) for end in (0, 1))
    ends = [law if isinstance(law := p.ood, Range) else p.train for p in system.parameters]
    furthest = [torch.tensor([pair[end] for pair in ends], dtype=torch.float64) for end in (0, 1)]
    assert bool((xi >= torch.minimum(torch.minimum(known.amin(0), furthest[0]), low)).all())
    assert bool((xi <= torch.maximum(torch.maximum(known.amax(0), furthest[1]), high)).all())
    inside = ((xi > low) & (xi < high)).all(1)
    assert not bool(inside.any()) or name == "heterns"


def test_a_system_without_the_wider_law_has_none_of_its_splits() -> None:
    heat = systems.get("heat")
    with mock.patch.object(type(heat).__mro__[1], "broad", System.broad):
        assert [split.name for split in heat.extra_splits] == ["valid_ood"]
        with pytest.raises(DataError, match="no wider law"):
            heat.broad(mock.Mock())


def test_a_pattern_that_dies_is_drawn_again() -> None:
    system = systems.get("gray_scott")
    with mock.patch.object(GrayScott, "_painted", lambda self, draws, spot: torch.zeros(len(draws.rows), 32, 32)):
        made = system.generate("broad_train", 2)
    assert made.attempt.tolist() == [4, 4]
    assert system.generate("broad_train", 2).attempt.tolist() == [0, 0]


# ---- steps of Combined -------------------------------------------------------------------------------------------
def test_short_waves_take_finer_steps_and_the_benchmark_keeps_its_own() -> None:
    """A pulse under strong dispersion was wrong by half a percent at the benchmark's steps."""
    system = systems.get("combined")
    x, xi = system.axes["x"], system.xi(advection=0.87, diffusivity=0.01, dispersion=0.84)
    pulse = 0.4 * torch.exp(-((x - 8) ** 2) / 0.18)[None, None]
    times = system.times[:3]
    errors = []
    for turning in (0.25, 1e9):
        with mock.patch("pdejepa.systems.combined.TURNING", turning):
            found, fine = system.solve(pulse, xi, times=times), system.__class__(dt=system.dt / 16)
            with mock.patch("pdejepa.systems.combined.TURNING", 1e9):
                truth = fine.solve(pulse, xi, times=times)
        errors.append(float(relative_l2(found.as_subclass(Tensor), truth.as_subclass(Tensor))))
    assert errors[0] < 1e-5 < 1e-4 < errors[1]
    u0, known = system.sample("train", range(8))
    usual = system.solve(u0, known, times=times).as_subclass(Tensor)
    with mock.patch("pdejepa.systems.combined.TURNING", 1e-3):
        assert torch.equal(system.solve(u0, known, times=times).as_subclass(Tensor), usual)


# ---- plans and sizes ---------------------------------------------------------------------------------------------
def test_a_data_set_holds_extra_splits_where_they_are_named() -> None:
    config = {"system": "combined", "out": "d"}
    assert [s.name for s in Plan.of(GenerateConfig(**config)).splits] == ["train", "valid", "test", "ood"]
    named = Plan.of(GenerateConfig(**config, splits=("broad_test", "test"), counts={"broad_test": 7}))
    assert [(s.name, named.count(s)) for s in named.splits] == [("test", 10), ("broad_test", 7)]
    with pytest.raises(ConfigError, match="broad_test is made only where --splits names it"):
        GenerateConfig(**config, counts={"broad_test": 7})


@pytest.mark.parametrize("name", ["advection", pytest.param("combined", marks=pytest.mark.slow)])
def test_extra_splits_pass_the_audit(name: str, tmp_path: Path) -> None:
    splits = [split.name for split in systems.get(name).extra_splits]
    words = ["--splits", ",".join(splits), "--out", str(tmp_path / "d"), "--device", "cpu"]
    assert main(["generate", name, *words, *(f"counts.{split}=4" for split in splits)]) == 0
    assert main(["audit", str(tmp_path / "d"), "--device", "cpu"]) == 0


def test_errors_on_broad_states_stand_beside_those_of_the_benchmark() -> None:
    model = tiny.forecaster("advection")
    found = evaluate(model, ["test", "broad_test"], n=3)
    truth = model.system.generate("broad_test", 3)
    repeated = metrics.rel_l2(metrics.repeat_first(truth.fields), truth.fields).mean()
    assert list(found) == ["test", "broad_test"]
    assert found["broad_test"].repeat_first == pytest.approx(float(repeated))


def test_sizes_of_laptop_data() -> None:
    def counts(name: str) -> dict[str, int]:
        return {split.name: split.size("laptop") for split in systems.get(name).all_splits}

    extra = {"broad_train": 3_000, "broad_valid": 120, "broad_test": 120, "valid_ood": 120}
    assert counts("combined") == {"train": 3_000, "valid": 120, "test": 120, "ood": 120, **extra}
    assert counts("gray_scott") == {"train": 3_000, "valid": 120, "test": 240, "ood": 120, **extra}
    assert set(counts("vorticity").values()) == set(counts("heterns").values()) == {1_000, 60}
    plan = Plan.of(GenerateConfig(system="wave_2d", out="d", size="laptop"))
    assert sum(plan.count(split) for split in plan.splits) * plan.row_bytes < 2e9
    flows = [systems.get(name).at_size("laptop") for name in ("vorticity", "heterns")]
    assert [(flow.solver_grid, flow.grid) for flow in flows] == [(256, (64, 64)), (128, (64, 64))]  # type: ignore[attr-defined]

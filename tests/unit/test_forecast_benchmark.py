"""`benchmarks/forecast.py`: rivals that solve the same problem, and sentences that follow from the numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from pdejepa import systems
from pdejepa.evaluate import metrics
from pdejepa.systems import System
from pdejepa.systems import coarser as coarser_module
from tests.unit.forecast import tiny
from tests.unit.scripts import load_script

Printed = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def coarser() -> ModuleType:
    return coarser_module


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("benchmarks/forecast.py", "tables")


def small(name: str) -> System:
    """A system whose reference takes moments."""
    changes: dict[str, Any] = {
        "vorticity": {"n_points": 16, "solver_grid": 64, "k0": 2.0, "dt": 2 / 29 / 6},
        "heterns": {"n_points": 8, "solver_grid": 32, "dt": 0.05},
        "burgers": {"n_points": 64},
        "combined": {"n_points": 128},
    }.get(name, {})
    return replace(systems.get(name), **changes)


def asked(coarser: ModuleType, name: str, n: int = 2, **changes: float) -> tuple[System, Tensor, Tensor, Tensor]:
    """System, state at the first frame, parameters and truth."""
    system = small(name)
    u0, xi = system.sample("test", range(n))
    xi = system.xi({**system.named(xi), **changes})
    return system, coarser.first_state(system, u0, xi), xi, system.solve(u0, xi).as_subclass(Tensor)


# ---- solvers with less work --------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", systems.NAMES)
def test_the_first_setting_is_the_reference(name: str, coarser: ModuleType) -> None:
    system, state, xi, truth = asked(coarser, name)
    first = coarser.settings(system)[0]
    frames = first.run(first.start(state), xi)
    assert (first.n, first.dtype) == (coarser.grid_of(system), system.dtype)
    assert frames.shape == truth.shape
    assert float(metrics.rel_l2(frames, truth).max()) < 1e-4  # float32 flows restart from a rounded state
    assert frames[:, 0].allclose(truth[:, 0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", systems.NAMES)
def test_settings_end_on_the_stored_grid(name: str, coarser: ModuleType) -> None:
    system, state, xi, truth = asked(coarser, name, 1)
    found = coarser.settings(system)
    assert len({setting.label for setting in found}) == len(found)
    assert len({setting.n for setting in found}) >= 3
    cheap = [s for s in found if s.n == min(s.n for s in found)]
    for setting in (cheap[0], cheap[-1]):
        start = setting.start(state)
        assert start.shape == (*state.shape[:2], *[setting.n] * system.ndim)
        assert start.dtype == setting.dtype
        assert setting.run(start, xi).shape == truth.shape


@pytest.mark.parametrize(
    ("name", "smooth", "bound"),
    [
        ("advection", {}, 1e-12),
        ("heat", {}, 1e-12),
        ("wave_b", {}, 1e-6),
        ("combined", {"diffusivity": 0.4}, 1e-10),
        ("burgers", {"diffusivity": 2.0}, 1e-3),
        ("heterns", {"viscosity": 1e-2, "forcing_frequency": 2.0}, 1e-6),
        ("vorticity", {"viscosity": 0.1}, 0.05),  # second order: 32 points against 64
    ],
)
def test_half_the_points_solve_a_smooth_problem_as_well(
    name: str, smooth: dict[str, float], bound: float, coarser: ModuleType
) -> None:
    system, state, xi, truth = asked(coarser, name, **smooth)
    half = next(s for s in coarser.settings(system) if 2 * s.n == coarser.grid_of(system))
    assert float(metrics.rel_l2(half.run(half.start(state), xi), truth).max()) < bound


@pytest.mark.parametrize("name", systems.NAMES)
def test_smooth_frames_survive_the_coarse_grid(name: str, coarser: ModuleType) -> None:
    """What the reference stores of a smooth state is what a coarse grid gives of it: points, cells or blocks."""
    system = small(name)
    fine = coarser.grid_of(system)
    angle = 2 * torch.pi * torch.arange(fine, dtype=torch.float64) / fine
    wave = torch.sin(angle + 0.3) if all(system.problem.periodic_axes) else torch.cos(angle * 0.4 + 0.3)
    frame = wave if system.ndim == 1 else wave[:, None] * wave.flip(0)
    state = frame.expand(1, len(system.fields), *frame.shape)
    if name == "wave_b":
        state = torch.cos(0.2 * system.axes["x"])[None, None]
    stored = state[:, None]
    if name == "vorticity":
        stored = state.unflatten(-1, (16, 4)).mean(-1).unflatten(-2, (16, 4)).mean(-2)[:, None]
    if name == "heterns":
        stored = state[..., ::4, ::4][:, None]
    for n in (fine // 2, fine // 4) + ((3 * fine // 4,) if system.ndim == 2 else ()):
        setting = next(s for s in coarser.settings(system) if s.n == n)
        again = setting.lift(setting.restrict(state)[:, None])
        assert again.shape == stored.shape
        assert float((again - stored).abs().max()) < 1e-4


def test_a_coarse_gray_scott_has_the_same_domain(coarser: ModuleType) -> None:
    """Its spacing is a switch of its own; from a smooth state, half the points diffuse and react alike."""
    system = systems.get("gray_scott")
    wave = 0.1 * torch.sin(2 * torch.pi * torch.arange(32, dtype=torch.float64) / 32)
    state = torch.stack((0.5 + wave[:, None] + wave, 0.25 + wave[:, None] - wave))[None]
    _, xi = system.sample("test", 0)
    reference, half = (next(s for s in coarser.settings(system) if s.n == n) for n in (32, 16))
    truth, frames = (setting.run(setting.start(state), xi) for setting in (reference, half))
    assert float(metrics.rel_l2_joint(frames, truth)) < 0.015


def test_larger_steps_are_larger(coarser: ModuleType) -> None:
    system = small("combined")
    steps = [s.step for s in coarser.settings(system) if s.n == 32 and s.dtype == torch.float64]
    assert steps == sorted(steps)
    dts = [s.system.dt for s in coarser.settings(system) if s.n == 32 and s.dtype == torch.float64]
    assert dts == [system.dt * step for step in steps]
    assert dts[-1] >= float(system.times.diff().max()) > dts[-2]
    assert {s.step for s in coarser.settings(small("heat"))} == {0.0}


# ---- what the numbers say ----------------------------------------------------------------------------------------
def row(who: str, seconds: float, error: float, **others: Any) -> dict[str, Any]:
    told = {"model": "m", "system": "combined", "n": 4, "has_closed_form": False, "batch": 1, "n_failed": 0}
    told |= {
        "repeat_first": 0.9,
        "who": who,
        "setting": f"{who} {error}",
        "seconds": seconds,
        "rel_l2": error,
        "in_turn": True,
    }
    return told | others


def test_the_front(script: ModuleType) -> None:
    rows = [row("solver", *pair) for pair in ((1, 0.5), (2, 0.6), (3, 0.1), (4, 0.1), (5, 0.01))]
    assert [found["seconds"] for found in script.front(rows)] == [5, 3, 1]


def test_verdicts(script: ModuleType) -> None:
    reference, coarse, rough = row("reference", 8, 0.0), row("solver", 3, 0.01), row("solver", 0.1, 0.2)
    stale = row("solver", 0.01, 0.01, in_turn=False)
    fast = script.verdict([row("surrogate", 1, 0.02), reference, coarse, rough, stale], 1)
    assert "at an error of 2 % the surrogate is 3 times faster than the fastest solver" in fast
    assert "(solver 0.01: 1 %)" in fast
    assert "8 times faster than the solver that makes the data" in fast
    slow = script.verdict([row("surrogate", 12, 0.02), reference, coarse, rough], 1)
    assert "4 times slower than" in slow
    assert "the solver dominates; it is 1.5 times slower than the solver that makes" in slow
    closed = script.verdict([row("surrogate", 12, 0.02, has_closed_form=True), reference, coarse], 1)
    assert "the solver dominates, because its solution is a closed form" in closed
    precise = script.verdict([row("surrogate", 1, 0.001), reference, coarse], 1)
    assert "8 times faster than the fastest solver setting that is at least as accurate (reference 0.0: 0 %)" in precise
    useless = script.verdict([row("surrogate", 1e-9, 0.91), reference, coarse], 1)
    assert "error, 91 %, makes it useless; all zeros have 100 %, and repeating the first frame 90 %" in useless
    assert "faster" not in useless


# ---- the whole of it ---------------------------------------------------------------------------------------------
def test_from_a_model_to_a_plot(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    tiny.saved("heat", tmp_path / "warm")
    out, plot = tmp_path / "f.json", tmp_path / "f.png"
    words = ["--models", str(tmp_path / "warm"), "--device", "cpu", "--n", "4", "--batches", "1", "2"]
    words += ["--patience", "0", "--out", str(out), "--plot", str(plot)]
    monkeypatch.setattr("sys.argv", ["forecast", *words])
    script.main()
    text, report = capsys.readouterr().out, json.loads(out.read_text())
    assert report["torch"] == torch.__version__
    assert report["device"].startswith("CPU, ")
    rows = report["rows"]
    assert {row["who"] for row in rows} == {"surrogate", "reference", "solver"}
    assert {row["batch"] for row in rows} == {1, 2}
    assert all(row["seconds"] > 0 for row in rows)
    assert all(row["rel_l2"] < 1e-6 for row in rows if row["who"] == "reference")
    assert all(row["rel_l2"] > 0.1 for row in rows if row["who"] == "surrogate")  # untrained
    assert len(report["verdicts"]) == 2
    assert all(sentence in text for sentence in report["verdicts"])
    assert "| warm | 4 | 2 | surrogate | float32 |" in text
    with Image.open(plot) as image:
        assert image.format == "PNG"
    monkeypatch.chdir(tmp_path)
    assert load_script("benchmarks/tables.py").table("f.json").strip() in text


def test_a_failed_row_counts_as_a_whole_error(script: ModuleType) -> None:
    question = script.Question(tiny.forecaster("heat"), 2)
    broken = question.truth.clone()
    broken[1, 3:] = torch.nan
    assert question.error(lambda rows: broken[rows], 1) == (0.5, 1)


def test_batches_larger_than_the_sample(script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setattr("sys.argv", ["forecast", "--models", "m", "--n", "4"])
    with pytest.raises(SystemExit):
        script.main()
    assert "batches must be from 1 to n = 4" in capsys.readouterr().err

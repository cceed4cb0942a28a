"""How well parameters are found: the study counts right, continues, and its solver finds what made the frames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from pdejepa.app.cli import main
from pdejepa.core import cluster
from pdejepa.core.errors import DataError, UsageError
from pdejepa.forecast import known_examples, least_squares
from pdejepa.forecast.known_examples import Examples
from pdejepa.forecast.least_squares import rms_of
from pdejepa.studies.identify.identification import (
    Case,
    Cell,
    Found,
    Identification,
    Plan,
    errors,
    identify,
    n_cases,
    read,
    read_all,
    with_noise,
    write,
)
from pdejepa.studies.identify.identification_tables import _percent, markdown, table
from pdejepa.studies.identify.true_solver import SolverTask, can_start, fitted
from tests.unit.forecast import tiny

ONE = Plan(splits=("test",), noises=(0.01,), frames=(1,), n=2)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_examples, "N_CALIBRATION", 3)
    monkeypatch.setattr(least_squares, "N_STARTS", 4)
    monkeypatch.setattr(least_squares, "N_ITERATIONS", 2)


def made() -> Identification:
    """Two cases with a truth of .5: one is right, one is .1 off and outside of its 50 % interval."""
    right = Found(0.5, 0.5, "ok", (0.4, 0.3), (0.6, 0.7), 0.5)
    wrong = Found(0.5, 0.6, "not identifiable", (0.58, 0.4), (0.62, 0.8), 0.51)
    cases = (Case(0, {"speed": right}, 0.01, 2.0, True), Case(1, {"speed": wrong}, 0.01, 1.0, False))
    cells = (Cell("test", 0.01, 1, cases), Cell("ood", 0.01, 0, cases[:1]))
    return Identification("advection", "m", "a" * 64, "some processor", {"speed": (0.0, 4.0, False)}, cells=cells)


def test_errors_and_shares_are_counted() -> None:
    record = made()
    assert errors(record.cells[0], "speed", record.ranges["speed"]) == pytest.approx([0.0, 0.025])
    assert errors(record.cells[0], "speed", (0.05, 5.0, True), with_solver=True)[1] == pytest.approx(0.0043, abs=1e-4)
    inside, outside = table([record]).rows
    assert inside[:5] == ["advection", "speed", "test", "1", "2"]
    assert inside[5:] == ["1.2 (2.5)", "0.13", "1 of 2", "2 of 2", "1 of 2", "0 of 2", "2"]
    assert outside[2:6] == ["ood", "all", "1", "0 (0)"]
    assert [_percent(x) for x in (0.0, 1e-6, 0.00034, 0.099, 1.3)] == ["0", "< 0.001", "0.034", "9.9", "130"]
    assert "Measured on some processor." in markdown([record])


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    write(made(), tmp_path / "advection.json")
    assert read(tmp_path / "advection.json") == made()
    plain = json.loads((tmp_path / "advection.json").read_text())
    for damage in ({"cells": 3}, {"ranges": None}, {"unheard": 1}, {"format_version": 2}):
        (tmp_path / "advection.json").write_text(json.dumps({**plain, **damage}))
        with pytest.raises(DataError, match=r"is no record of pdejepa identify|has format 2"):
            read(tmp_path / "advection.json")
    with pytest.raises(DataError, match="holds no record"):
        read_all(tmp_path / "nowhere")


@pytest.mark.slow
def test_cases_are_added_and_kept(tmp_path: Path) -> None:
    model, path, done = tiny.forecaster("advection", speed=100.0), tmp_path / "advection.json", [0]

    def report(_: str, n: int) -> None:
        done[0] += n

    first = identify(model, "m", path, ONE, report)
    assert done == [n_cases(ONE)]
    assert [case.index for case in first.cells[0].cases] == [0, 1]
    assert [case.calibrated for case in first.cells[0].cases] == [True, False]
    again = identify(model, "m", path, Plan(("test", "ood"), (0.01,), (1,), 3), report)
    assert read(path) == again
    assert again.cells[0].cases[:2] == first.cells[0].cases
    assert [len(cell.cases) for cell in again.cells] == [3, 3]
    truth = model.system.sample("test", range(2))[1][:, 0].tolist()
    assert [case.found["speed"].truth for case in again.cells[0].cases[:2]] == pytest.approx(truth, rel=1e-5)
    case = again.cells[0].cases[0].found["speed"]
    assert case.low[1] <= case.low[0] <= case.value <= case.high[0] <= case.high[1]
    model.details = {**model.details, "weights_sha256": "b" * 64}
    with pytest.raises(DataError, match="record of other weights"):
        identify(model, "m", path, ONE)


def test_a_limit_ends_a_cell(tmp_path: Path) -> None:
    model, notes = tiny.forecaster("wave_b"), []
    plan = Plan(("test", "ood"), (0.0,), (1,), 50, limit=1e-9)
    found = identify(model, "m", tmp_path / "wave_b.json", plan, lambda line, _: notes.append(line))
    assert len(found.cells) == 1  # it has no split outside
    assert len(found.cells[0].cases) < 50
    assert any("cases, then 1e-09 s were over" in note for note in notes)
    assert set(found.cells[0].cases[0].found if found.cells[0].cases else {}) <= {"bc_left", "bc_right"}


def test_noise_is_relative_to_the_frames_after_the_first() -> None:
    fields = torch.randn(4, 2, 64, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 10.0])[:, None]
    apart = (with_noise(fields, 1, 0.05, 3) - fields).double()
    assert (rms_of(apart) / rms_of(fields[1:])).flatten().tolist() == pytest.approx([0.05, 0.05], rel=0.2)
    assert torch.equal(with_noise(fields, 1, 0.0, 3), fields)


@pytest.mark.parametrize("name", ["advection", "burgers"])
def test_the_true_solver_finds_what_made_the_frames(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise; its derivatives are those of finer differences."""
    monkeypatch.setattr(least_squares, "N_STARTS", 24)
    monkeypatch.setattr(least_squares, "N_ITERATIONS", 20)
    model = tiny.forecaster(name)
    assert can_start(model)
    made = model.system.generate("test", 1)
    truth = {key: float(value) for key, value in model.problem.named(made.xi).items()}
    wanted = least_squares.findable(model.problem)
    given = {key: value for key, value in truth.items() if key not in wanted}
    found = fitted(model, made.fields[0, :4], wanted, given, 0.0, Examples(model))
    for key in wanted:
        low, high = next(p.train for p in model.problem.parameters if p.name == key)
        assert abs(found[key] - truth[key]) < 2e-2 * (high - low), (key, found[key], truth[key])


def test_differences_at_the_end_of_what_is_allowed() -> None:
    """A parameter at its physical limit has a one-sided difference."""
    model = tiny.forecaster("combined")
    frames = model.system.generate("test", 1).fields[0, :3]
    task = SolverTask.of(model, frames, None, {}, None, None)
    xi = torch.tensor([[0.5, 0.0, 0.2]], dtype=torch.float64)
    value, slopes = task.derivatives(xi)
    step = torch.tensor([[0.0, 1e-3, 0.0]], dtype=torch.float64)
    there = (task.frames(xi + step) - task.frames(xi)) / 1e-3
    assert value.shape == (1, 2, 1, 256)
    assert float((slopes[0, 1] - there[0]).norm() / there.norm()) < 0.05


@pytest.mark.parametrize("change", [{"n": 0}, {"noises": (2.0,)}, {"frames": (-1,)}, {"splits": ()}])
def test_a_plan_that_means_nothing(change: dict[str, tuple[float, ...]]) -> None:
    with pytest.raises(UsageError):
        Plan(**change)  # type: ignore[arg-type]


@pytest.mark.slow
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Records, then table and picture of them."""
    tiny.saved("heat", tmp_path / "m", speed=50.0)
    page, out = tmp_path / "page.md", str(tmp_path / "out")
    page.write_text("before\n<!-- identify -->\n<!-- end identify -->\nafter\n")
    few = ["--n", "1", "--splits", "test", "--noise", "0,5%", "--frames", "1"]
    assert main(["identify", str(tmp_path / "m"), *few, "--out", out]) == 0
    assert ["heat", "diffusivity", "test", "1", "1"] in [
        line.split()[:5] for line in capsys.readouterr().out.splitlines()
    ]
    assert main(["identify", "--out", out, "--write", str(page), "--plot", str(tmp_path / "f.png")]) == 0
    lines = page.read_text().splitlines()
    assert lines[2].startswith("| system | parameter | split | frames | cases | error, 0 % noise | error, 5 % noise |")
    assert lines[4].startswith("| heat | diffusivity | test | 1 | 1 |")
    assert (lines[0], lines[-1]) == ("before", "after")
    with Image.open(tmp_path / "f.png") as image:
        assert image.format == "PNG"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--noise", "much"], 2, "--noise takes shares of the rms"),
        (["--frames", "0"], 2, "--frames takes numbers of frames"),
        (["--plot", "f.bmp"], 2, "Pictures are written as"),
        (["combined", "combined"], 2, "got two of the same"),
        ([], 3, "holds no record"),
    ],
)
def test_mistakes(words: list[str], code: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["identify", *words, "--out", str(tmp_path / "out")]) == code
    assert told in capsys.readouterr().err


@pytest.mark.slow
def test_on_a_cluster_cases_are_the_same_and_in_their_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")
    model, alone, shared = str(tiny.saved("advection", tmp_path / "m")), tmp_path / "alone", tmp_path / "shared"
    words = ["identify", model, "--n", "3", "--splits", "test", "--noise", "0,1%", "--frames", "1", "--device", "cpu"]
    assert main([*words, "--out", str(alone)]) == 0
    submitted = cluster.Cluster.results

    def backwards(self: cluster.Cluster, task: Any, jobs: Any) -> Any:
        return reversed(list(submitted(self, task, jobs)))

    monkeypatch.setattr(cluster.Cluster, "results", backwards)
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as here:
        words += ["--scheduler", here.scheduler_address]
        assert main([*words, "--out", str(shared)]) == 0
        assert main([*words, "--out", str(shared), "--limit", "1"]) == 2
    assert "leave out either --limit or --scheduler" in capsys.readouterr().err
    one, other = read(alone / "advection.json"), read(shared / "advection.json")
    assert [cell.label for cell in one.cells] == [cell.label for cell in other.cells]
    for mine, theirs in zip(one.cells, other.cells, strict=True):
        assert [case.index for case in theirs.cases] == [0, 1, 2]
        assert [case.found for case in theirs.cases] == [case.found for case in mine.cases]
    assert other.machine == one.machine

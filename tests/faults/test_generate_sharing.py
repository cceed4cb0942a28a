"""Several writers, other people's folders, solves that fail: what `generate` does when it is not alone or not lucky."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pdejepa.core.errors import DataError, NumericalError, PdejepaError, ResourceError
from pdejepa.data.generate.job import GenerateReport
from pdejepa.data.well.reader import Dataset
from pdejepa.solve.outcome import Outcome
from pdejepa.systems.advection import Advection
from tests.faults.generating import leftovers, manifest_bytes, run, start


# ---- two writers, slices, ranks ------------------------------------------------------------------------------------
def test_two_writers(tmp_path: Path, undisturbed: Path) -> None:
    reports: list[GenerateReport] = []
    threads = [threading.Thread(target=lambda: reports.append(run(tmp_path / "d"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(report.n_generated for report in reports) == [0, 36]
    assert manifest_bytes(tmp_path / "d") == manifest_bytes(undisturbed)


def test_the_second_writer_leaves_with_no_wait(tmp_path: Path) -> None:
    out = tmp_path / "d"
    process = start(out, number=1, what="HOLD")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "holding\n"
        with pytest.raises(ResourceError, match=f"Another process .pid {process.pid}, .* is writing"):
            run(out, wait=False)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_slices_in_any_order_equal_the_whole(order: tuple[int, ...], tmp_path: Path, undisturbed: Path) -> None:
    reports = [run(tmp_path / "d", shard=f"{number}/3") for number in order]
    assert [report.is_complete for report in reports] == [False, False, True]
    assert [report.n_unfinished > 0 for report in reports] == [True, True, False]
    assert sum(report.n_generated for report in reports) == 36
    assert manifest_bytes(tmp_path / "d") == manifest_bytes(undisturbed)


def test_slices_at_the_same_time(tmp_path: Path, undisturbed: Path) -> None:
    threads = [threading.Thread(target=run, args=(tmp_path / "d",), kwargs={"shard": f"{i}/4"}) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert manifest_bytes(tmp_path / "d") == manifest_bytes(undisturbed)


def test_ranks_share_the_work(tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("1", "0"):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("LOCAL_RANK", rank)
        report = run(tmp_path / "d")
        assert 0 < report.n_generated < 36
    assert report.is_complete
    monkeypatch.undo()
    assert manifest_bytes(tmp_path / "d") == manifest_bytes(undisturbed)


def test_more_slices_than_shards(tmp_path: Path) -> None:
    report = run(tmp_path / "d", shard="19/20")
    assert (report.n_generated, report.is_complete) == (0, False)


# ---- other contents ------------------------------------------------------------------------------------------------
def test_another_configuration_in_the_folder(copy: Path, undisturbed: Path) -> None:
    with pytest.raises(DataError, match="holds another data set: seed is 0 there, 1 here"):
        run(copy, seed=1)
    with pytest.raises(DataError, match="system is advection there, heat here"):
        run(copy, system="heat")
    with pytest.raises(DataError, match=r"counts.test is 6 there, 5 here.*counts.ood is 6 there, not set here"):
        run(copy, splits=("train", "valid", "test"), counts={"train": 18, "valid": 6, "test": 5})
    assert manifest_bytes(copy) == manifest_bytes(undisturbed)


def test_a_folder_that_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(DataError, match="is not empty and holds no data set of ours"):
        run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    (tmp_path / "file").write_text("")
    with pytest.raises(PdejepaError):
        run(tmp_path / "file")


def test_a_stray_file_is_not_mixed_in(copy: Path) -> None:
    (copy / "data/train/extra.h5").write_bytes(b"")
    with pytest.raises(DataError, match=r"extra.h5 is not part of this data set"):
        run(copy)


def test_half_a_folder_of_another_kind(copy: Path) -> None:
    (copy / "manifest.json").unlink()
    (copy / "config.json").write_text("{")
    with pytest.raises(DataError, match=r"config.json is missing or damaged"):
        run(copy)


# ---- solves that fail ----------------------------------------------------------------------------------------------
def failing_solver(rows: list[int], attempts: int) -> Callable[..., Tensor]:
    """A solver whose train rows `rows` diverge in their first `attempts` attempts."""
    solve, tried = Advection.solve, {"n": 0}

    def replacement(self: Advection, u0: Tensor, *args: Any, **kwargs: Any) -> Any:
        solved = solve(self, u0, *args, **kwargs)
        bad = torch.tensor(rows) if len(u0) == 4 else torch.arange(len(u0))
        if len(u0) != 4 or tried["n"] == 0:
            tried["n"] += 1
            if tried["n"] <= attempts:
                solved.status[bad] = int(Outcome.DIVERGED)
        return solved

    return replacement


def test_rows_are_drawn_again_and_counted(tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Advection, "solve", failing_solver([1, 3], attempts=2))
    report = run(tmp_path / "d", counts={"train": 4, "valid": 4, "test": 4, "ood": 4})
    assert report.n_redrawn == 2
    generation = (tmp_path / "d/generation.json").read_text()
    assert '"1": 2' in generation
    assert '"3": 2' in generation
    assert "2 solves failed and were drawn again" in (tmp_path / "d/README.md").read_text()
    with Dataset.open(tmp_path / "d") as data, Dataset.open(undisturbed) as other:
        assert data.column("train", "attempt").tolist() == [0, 2, 0, 2]
        mine, theirs = data.fields("train"), other.fields("train", range(4))
        assert [(a == b).all() for a, b in zip(mine, theirs, strict=True)] == [True, False, True, False]


def test_rows_that_never_succeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Advection, "solve", failing_solver([1, 3], attempts=99))
    with pytest.raises(NumericalError, match=r"train trajectories 1 \(diverged\), 3 \(diverged\)") as caught:
        run(tmp_path / "d", counts={"train": 4, "valid": 4, "test": 4, "ood": 4})
    assert caught.value.exit_code == 5
    assert [p for p in (tmp_path / "d").rglob("*") if p.is_file() and p.suffix == ".hdf5"] == []
    assert leftovers(tmp_path) == []

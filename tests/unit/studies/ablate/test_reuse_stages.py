"""Stages that one run takes over from another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from pdejepa.core.errors import CheckpointError
from pdejepa.studies.ablate.reuse_stages import copy_fitted, is_finished, read_base, take_over
from pdejepa.training.checkpoint import StageFolder

METHOD_STAGES = ("pretrain", "align", "dynamics", "decode")


def finish_stage(run: Path, stage: str, value: float = 1.0) -> None:
    """A stage as the loop leaves it."""
    store = StageFolder(run / stage)
    store.save(3, {"a.weight": torch.full((4,), value)}, {"a": torch.zeros(2)}, {"stage": stage})
    digest = store.write_final({"a.weight": torch.full((4,), value)}, {"stage": stage, "step": 3, "score": None})
    (run / stage / "metrics.jsonl").write_text('{"step": 3, "train": {"loss": 1.0}}\n')
    (run / stage / "plan.json").write_text("{}")
    store.write_done({"steps": 3, "step": 3, "weights_sha256": digest, "upstream": {}, "seconds": 1.0})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    run = tmp_path / "source"
    run.mkdir()
    (run / "data.json").write_text('{"hash": "abc"}')
    (run / "config.json").write_text(json.dumps({"train": {"variant": "physics", "system": "heat"}}))
    for stage in METHOD_STAGES:
        finish_stage(run, stage)
    return run


def content(run: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in sorted(run.rglob("*")) if path.is_file()]
    return {str(path.relative_to(run)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_take_over(source: Path, tmp_path: Path) -> None:
    before, run = content(source), tmp_path / "run"
    take_over(source, run, ("pretrain", "align"))
    assert sorted(path.name for path in run.iterdir()) == ["align", "data.json", "pretrain"]
    found = StageFolder(run / "align")
    assert found.read_done() == StageFolder(source / "align").read_done()
    assert torch.equal(found.read("final").weights["a.weight"], torch.ones(4))
    assert (run / "align" / "metrics.jsonl").exists()
    assert not list((run / "align").glob("step-*"))  # checkpoints of the way are of no use
    assert content(source) == before


def test_weights_are_shared_and_nothing_else(source: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    take_over(source, run, ("pretrain",))
    same = {
        path.name: path.stat().st_ino == (source / path.relative_to(run)).stat().st_ino
        for path in run.rglob("*")
        if path.is_file()
    }
    assert {name for name, is_same in same.items() if is_same} == {"weights.safetensors"}
    with (run / "pretrain" / "metrics.jsonl").open("a") as stream:
        stream.write("more\n")
    assert "more" not in (source / "pretrain" / "metrics.jsonl").read_text()


def test_without_hard_links(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("os.link", refuse)
    run = tmp_path / "run"
    take_over(source, run, ("pretrain",))
    assert torch.equal(StageFolder(run / "pretrain").read("final").weights["a.weight"], torch.ones(4))


def test_a_second_time_changes_nothing(source: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    take_over(source, run, METHOD_STAGES)
    before = content(run)
    take_over(source, run, METHOD_STAGES)
    assert content(run) == before


def test_a_killed_copy_is_made_again(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("os.rename", _stop)
        take_over(source, run, ("pretrain",))
    assert not (run / "pretrain").exists()
    take_over(source, run, ("pretrain",))
    assert sorted(path.name for path in run.iterdir()) == ["data.json", "pretrain"]


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def test_another_base_is_refused(source: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    finish_stage(run, "pretrain", 2.0)
    with pytest.raises(CheckpointError, match="holds another pretrain"):
        take_over(source, run, ("pretrain",))
    assert torch.equal(StageFolder(run / "pretrain").read("final").weights["a.weight"], torch.full((4,), 2.0))


def test_a_stage_of_its_own_is_not_replaced(source: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "pretrain").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="holds another pretrain"):
        take_over(source, run, ("pretrain",))


def test_unfinished_stages_are_not_taken(source: Path, tmp_path: Path) -> None:
    (source / "align" / "done.json").unlink()
    with pytest.raises(CheckpointError, match="has not finished align"):
        take_over(source, tmp_path / "run", ("pretrain", "align"))
    with pytest.raises(CheckpointError, match="is not finished: align missing"):
        read_base(source)


def test_bases(source: Path, tmp_path: Path) -> None:
    assert read_base(source)["system"] == "heat"
    (source / "config.json").write_text(json.dumps({"train": {"variant": "geo"}}))
    with pytest.raises(CheckpointError, match="not a run of the variant physics"):
        read_base(source)
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        read_base(tmp_path / "nothing")


def test_fitted_numbers(source: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    copy_fitted(source, run)
    assert not (run / "latents.json").exists()
    (source / "latents.json").write_text("{}")
    copy_fitted(source, run)
    assert (run / "latents.json").read_text() == "{}"


def test_finished(source: Path) -> None:
    assert not is_finished(source, METHOD_STAGES)  # there is no model yet
    (source / "model").mkdir()
    digest = StageFolder(source / "decode").read_done()["weights_sha256"]  # type: ignore[index]
    (source / "model" / "config.json").write_text(json.dumps({"lineage": {"decode": digest}}))
    assert is_finished(source, METHOD_STAGES)
    assert not is_finished(source, (*METHOD_STAGES, "reconstruct"))
    (source / "model" / "config.json").write_text(json.dumps({"lineage": {"decode": "other"}}))
    assert not is_finished(source, METHOD_STAGES)

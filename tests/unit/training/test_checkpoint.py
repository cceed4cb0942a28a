"""Checkpoints of a stage: what is written, what is refused, and which one is used."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pdejepa.core import weights
from pdejepa.core.errors import CheckpointError, ResourceError
from pdejepa.core.files import Manifest
from pdejepa.training import checkpoint
from pdejepa.training.checkpoint import StageFolder, write_weights


def at(step: int) -> dict[str, Tensor]:
    return {"net.weight": torch.full((2, 3), float(step))}


def save_steps(store: StageFolder, *steps: int) -> None:
    for step in steps:
        store.save(step, at(step), {"net.weight/step": torch.tensor(float(step))}, {"best": None})


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, said: list[str]) -> StageFolder:
    return StageFolder(tmp_path / "align", say=said.append)


def names(store: StageFolder) -> list[str]:
    return sorted(path.name for path in store.root.iterdir())


def test_the_folder_is_as_drawn(store: StageFolder) -> None:
    assert store.load_latest() is None
    assert store.latest() == ""
    save_steps(store, 500, 1000, 1500)
    assert names(store) == ["latest.json", "step-001000", "step-001500"]
    folder = store.root / "step-001500"
    assert sorted(os.listdir(folder)) == ["manifest.json", "optimiser.safetensors", "state.json", "weights.safetensors"]
    assert Manifest.read(folder).verify(folder) == []
    assert json.loads((store.root / "latest.json").read_text()) == {"folder": "step-001500"}
    found = store.load_latest()
    assert found is not None
    assert (found.step, found.state) == (1500, {"best": None, "step": 1500})
    assert torch.equal(found.weights["net.weight"], at(1500)["net.weight"])
    assert float(found.optimiser["net.weight/step"]) == 1500


def test_numbers_with_seven_digits(store: StageFolder) -> None:
    save_steps(store, 999_999, 1_000_000)
    assert store.latest() == "step-1000000"
    assert names(store) == ["latest.json", "step-1000000", "step-999999"]


def test_the_folder_that_latest_names_is_used(store: StageFolder) -> None:
    save_steps(store, 1, 2)
    (store.root / "latest.json").write_text('{"folder": "step-000001"}')
    assert store.latest() == "step-000001"
    for content in ('{"folder": "../x"}', "{", "[]", '{"folder": "step-000009"}'):
        (store.root / "latest.json").write_text(content)
        assert store.latest() == "step-000002"


def test_a_step_that_is_made_again_replaces_the_old_one_and_later_ones_go(store: StageFolder) -> None:
    save_steps(store, 1, 2, 3)
    store.save(2, {"net.weight": torch.zeros(1)}, {}, {})
    assert names(store) == ["latest.json", "step-000002"]
    found = store.load_latest()
    assert found is not None
    assert found.weights["net.weight"].shape == (1,)


def test_partial_folders_are_ignored(store: StageFolder, said: list[str]) -> None:
    save_steps(store, 1, 2)
    (store.root / "step-000002/manifest.json").unlink()
    (store.root / ".step-000003.tmp-1-abcd").mkdir()
    shutil.copy(store.root / "step-000001/weights.safetensors", store.root / ".step-000003.tmp-1-abcd")
    (store.root / "step-000004").mkdir()
    store.clear()
    found = store.load_latest()
    assert found is not None
    assert found.step == 1
    assert said == [
        "align: step-000003 was not finished when a process ended; it is ignored.",
        "align: step-000002 was never finished; it is ignored.",
        "align: step-000004 was never finished; it is ignored.",
    ]
    assert names(store) == ["latest.json", "step-000001", "step-000002", "step-000004"]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def spoil(path: Path) -> None:
    """Values that are not finite, vouched for by the manifest."""
    write_weights(path, {"net.weight": torch.full((2, 3), float("nan"))})
    manifest = Manifest.read(path.parent)
    manifest.add(path.parent, path.name)
    manifest.write(path.parent)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (flip, r"step-000002/weights.safetensors is damaged \(hash differs\)"),
        (lambda path: os.truncate(path, 20), r"step-000002/weights.safetensors is damaged \(size differs\)"),
        (os.unlink, r"step-000002/weights.safetensors is damaged \(missing\)"),
        (spoil, "'net.weight' holds values that are not finite"),
        (lambda path: flip(path.with_name("optimiser.safetensors")), r"optimiser.* is damaged \(hash differs\)"),
        (lambda path: path.with_name("state.json").write_text("{"), r"state.json is damaged \(size differs\)"),
        (lambda path: path.with_name("manifest.json").write_text("{"), "manifest.json is damaged"),
    ],
)
def test_a_damaged_checkpoint_is_never_used(
    damage: Callable[[Path], object], told: str, store: StageFolder, said: list[str]
) -> None:
    save_steps(store, 1, 2)
    damage(store.root / "step-000002/weights.safetensors")
    with pytest.raises(CheckpointError, match=told):
        store.read("step-000002")
    found = store.load_latest()
    assert found is not None
    assert found.step == 1
    assert len(said) == 1
    assert said[0].endswith("Looking for an older checkpoint.")


def test_only_damaged_checkpoints(store: StageFolder) -> None:
    save_steps(store, 1, 2)
    for name in ("step-000001", "step-000002"):
        flip(store.root / name / "weights.safetensors")
    with pytest.raises(CheckpointError, match=r"No checkpoint of align can be used.*Pass --restart align"):
        store.load_latest()


def test_best_and_final(store: StageFolder) -> None:
    for step in (3, 7):
        store.save_best(step, at(step), {})
        assert store.read("best").step == step
    digest = store.write_final(at(7), {"step": 7})
    assert digest == store.digest("final", "weights.safetensors")
    assert sorted(os.listdir(store.root / "final")) == ["manifest.json", "state.json", "weights.safetensors"]
    with pytest.raises(CheckpointError, match=r"step-000007 is missing or was never finished"):
        store.read("step-000007")


@pytest.mark.parametrize("where", ["save_file", "state", "rename", "latest"])
def test_a_full_disk(where: str, store: StageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the disk says it, the checkpoint before stays and nothing half is left."""
    save_steps(store, 1500)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def full_in_words(*_: object, **__: object) -> None:
        raise weights.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    write_json = checkpoint.write_json
    if where == "save_file":
        monkeypatch.setattr(weights, "save_file", full_in_words)
    elif where == "rename":
        monkeypatch.setattr(os, "rename", full)
    else:
        name = f"{where}.json"
        monkeypatch.setattr(
            checkpoint, "write_json", lambda path, data: full() if path.name == name else write_json(path, data)
        )
    with pytest.raises(ResourceError, match=r"Disk full while saving step-002000; step-001500 is intact\.") as caught:
        save_steps(store, 2000)
    assert caught.value.exit_code == 6
    monkeypatch.undo()
    found = store.load_latest()
    assert found is not None
    assert found.step == 1500
    assert not [name for name in names(store) if ".tmp-" in name]


def test_a_full_disk_before_anything_was_saved(store: StageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceError, match=r"Disk full while saving step-000001; nothing was saved before"):
        save_steps(store, 1)


def test_a_failed_replacement_brings_the_old_folder_back(store: StageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save_best(3, at(3), {})
    rename = os.rename

    def failing(source: Any, target: Any) -> None:
        if ".tmp-old" not in str(source) and Path(target).name == "best":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="Input/output error"):
        store.save_best(7, at(7), {})
    assert store.read("best").step == 3
    assert names(store) == ["best"]

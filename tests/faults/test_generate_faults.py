"""A data set survives kills, damage and a full disk: it ends up as if nothing had happened."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from pdejepa.core.errors import Interrupted, ResourceError
from pdejepa.core.files import Manifest
from pdejepa.data.well.shard import ShardFile
from pdejepa.systems.advection import Advection
from tests.faults.generating import cut, flip, leftovers, manifest_bytes, run, start, stop_at


# ---- killed processes --------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_kill_minus_nine_in_mid_write_and_again(tmp_path: Path) -> None:
    out, straight = tmp_path / "killed", tmp_path / "straight"
    for n_finished in (1, 2):
        process = start(out, number=n_finished + 1, what="SIGKILL")
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert len(leftovers(out)) >= 1
        assert not (out / "manifest.json").exists()
    process = start(out)
    told = process.communicate()[1]
    assert process.returncode == 0, told
    assert "Found 3 of 7 shards, verified. Generating 4 more." in told
    other = start(straight)
    other.communicate()
    assert other.returncode == 0
    assert manifest_bytes(out) == manifest_bytes(straight)
    assert leftovers(out) == []


def test_sigterm_stops_with_code_seven_and_the_same_command_continues(tmp_path: Path) -> None:
    out = tmp_path / "d"
    process = start(out, number=2, what="SIGTERM")
    _, told = process.communicate()
    assert process.returncode == 7
    assert "Stopped; 1 of 7 shards are finished. Run the same command to continue." in told
    assert leftovers(out) == []


def test_ctrl_c_between_two_shards(tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at(3, KeyboardInterrupt(), monkeypatch)
    with pytest.raises(Interrupted, match="Stopped; 2 of 11 shards are finished"):
        run(tmp_path / "d")
    assert leftovers(tmp_path) == []
    monkeypatch.undo()
    said: list[str] = []
    run(tmp_path / "d", said)
    assert said == ["Found 2 of 11 shards, verified. Generating 9 more."]
    assert manifest_bytes(tmp_path / "d") == manifest_bytes(undisturbed)


# ---- damage ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (flip, "Shard train/0003 is damaged (hash differs); rebuilding it."),
        (cut, "Shard train/0003 is damaged (size differs); rebuilding it."),
        (lambda path: path.write_bytes(b""), "Shard train/0003 is damaged (empty); rebuilding it."),
        (Path.unlink, "Shard train/0003 is missing; making it again."),
    ],
)
def test_only_the_damaged_shard_is_rebuilt(
    damage: Callable[[Path], None], told: str, copy: Path, undisturbed: Path
) -> None:
    path = copy / "data/train/advection_train_0003.hdf5"
    before = {p: p.stat().st_mtime_ns for p in copy.glob("data/*/*.hdf5")}
    damage(path)
    said: list[str] = []
    report = run(copy, said)
    assert said == [told, "Found 10 of 11 shards, verified. Generating 1 more."]
    assert report.n_generated == 4
    assert manifest_bytes(copy) == manifest_bytes(undisturbed)
    assert {p for p, t in before.items() if p.stat().st_mtime_ns != t} == {path}


@pytest.mark.parametrize("name", ["stats.yaml", "README.md", "picture.png", "config.json", "manifest.json"])
@pytest.mark.parametrize("damage", [flip, Path.unlink])
def test_damaged_products_are_written_again(
    name: str, damage: Callable[[Path], None], copy: Path, undisturbed: Path
) -> None:
    damage(copy / name)
    assert run(copy).n_generated == 0
    assert manifest_bytes(copy) == manifest_bytes(undisturbed)


def test_the_journal_can_be_lost(copy: Path, undisturbed: Path) -> None:
    shutil.rmtree(copy / ".journal")
    flip(copy / "data/test/advection_test_0001.hdf5")
    report = run(copy)
    assert report.n_generated == 2
    assert manifest_bytes(copy) == manifest_bytes(undisturbed)
    (copy / ".journal/train_0000.json").write_text("{")
    (copy / ".journal/train_0001.json").write_text('{"sha256": 3}')
    assert run(copy).n_generated == 0


def test_a_complete_data_set_is_left_alone(copy: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in copy.rglob("*") if p.is_file() and "lock" not in p.name}
    said: list[str] = []
    report = run(copy, said)
    assert said == ["Found 11 of 11 shards, verified. Nothing to generate."]
    assert report.is_complete
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_other_bytes_than_before_are_told(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As if the lost shard had been made on another device: the values differ in the last digits."""
    solve = Advection._solve

    def elsewhere(self: Advection, *args: Any) -> tuple[Tensor, Tensor]:
        fields, status = solve(self, *args)
        return fields * (1 + 1e-6), status

    stats = (copy / "stats.yaml").read_bytes()
    (copy / "data/train/advection_train_0001.hdf5").unlink()
    monkeypatch.setattr(Advection, "_solve", elsewhere)
    said: list[str] = []
    run(copy, said)
    assert "Shard train/0001 has other bytes than the lost one" in capsys.readouterr().err
    assert "manifest, statistics, picture and card are updated" in said[-1]
    assert (copy / "stats.yaml").read_bytes() != stats
    assert Manifest.read(copy).verify(copy) == []


# ---- the disk ------------------------------------------------------------------------------------------------------
def test_disk_full_in_mid_write(tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at(4, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), monkeypatch)
    with pytest.raises(ResourceError, match=r"Disk full while writing .*advection_train_0003.hdf5"):
        run(tmp_path / "d")
    assert leftovers(tmp_path) == []
    assert len(list((tmp_path / "d").glob("data/train/*.hdf5"))) == 3
    monkeypatch.undo()
    run(tmp_path / "d")
    assert manifest_bytes(tmp_path / "d") == manifest_bytes(undisturbed)


def test_a_disk_that_is_really_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        with pytest.raises(ResourceError, match=r"Not enough space: this data set needs about"):
            run(small / "d")
        monkeypatch.setattr("pdejepa.data.generate.job.check_free_space", lambda *_: None)
        with pytest.raises(ResourceError, match="Disk full"):
            run(small / "d")
        assert leftovers(small) == []
        for path in small.glob("d/data/*/*.hdf5"):
            ShardFile(path).close()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_too_little_space_is_told_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**6, 10**6 - 1000, 1000))
    with pytest.raises(ResourceError, match=r"Not enough space: this data set needs about .* MB, 1.0 kB free"):
        run(tmp_path / "d")
    assert list((tmp_path / "d").glob("data/*/*")) == []

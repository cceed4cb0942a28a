"""A disk that fills up while a shard is written: our sentence and exit code, never a crash of the HDF5 library."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pdejepa.core.errors import DataError, ResourceError
from pdejepa.data.generate.layout import GenerateConfig, Plan
from pdejepa.data.well import writer
from pdejepa.data.well.reserve import drop_reserve
from pdejepa.data.well.shard import ShardFile
from pdejepa.data.well.writer import write_shard
from pdejepa.systems import Generated
from tests.faults.generating import SOURCE, leftovers, manifest_bytes, run

UNCHECKED = """
import sys
from pdejepa.app.cli import main
from pdejepa.data.generate import job

job.check_free_space = lambda *_: None
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


MORE = [pytest.param(words, marks=pytest.mark.slow) for words in (("rows_per_file=400",), ("compression=gzip",))]


@pytest.mark.parametrize("words", [("rows_per_file=40",), *MORE])
def test_a_process_on_a_full_disk_ends_with_code_six(small_disk: Path, words: tuple[str, ...]) -> None:
    command = ["generate", "combined", "--size", "small", "--out", str(small_disk / "d"), "--device", "cpu", *words]
    ended = subprocess.run(
        [sys.executable, "-c", UNCHECKED, *command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")])},
    )
    assert ended.returncode == 6, ended.stderr
    assert "Disk full while writing" in ended.stderr
    assert leftovers(small_disk) == []
    for path in small_disk.glob("d/data/*/*.hdf5"):
        ShardFile(path).close()


def fill_up_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no space left when it is asked for the `number`-th time, counted from 1."""
    asked = []

    def posix_fallocate(descriptor: int, begin: int, length: int) -> None:
        asked.append(length)
        if len(asked) == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(descriptor, begin, length)

    allocate = os.posix_fallocate
    monkeypatch.setattr(os, "posix_fallocate", posix_fallocate)


@pytest.mark.parametrize("number", [1, 2, 3])  # before anything, before the fields, before the parameters
def test_a_disk_that_fills_up_half_way(
    number: int, tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        fill_up_at(number, patch)
        with pytest.raises(ResourceError, match=r"Disk full while writing .*advection_train_0000.hdf5"):
            run(tmp_path / "d")
    assert leftovers(tmp_path) == []
    assert not list((tmp_path / "d").glob("data/*/*.hdf5"))
    run(tmp_path / "d")
    assert manifest_bytes(tmp_path / "d") == manifest_bytes(undisturbed)


def test_a_file_system_that_cannot_reserve_space(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def posix_fallocate(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", posix_fallocate)
    run(tmp_path / "d")
    assert manifest_bytes(tmp_path / "d") == manifest_bytes(undisturbed)


@pytest.mark.parametrize("name", ["advection", "burgers", "wave_b", "heterns"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_the_reserve_is_enough_and_leaves_no_trace(
    name: str, compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved, allocate = [1000], os.posix_fallocate  # opening a file writes 96 bytes

    def remember(descriptor: int, begin: int, length: int) -> None:
        assert os.fstat(descriptor).st_size <= reserved[-1]  # HDF5 stayed within what was reserved before
        reserved.append(length)
        allocate(descriptor, begin, length)

    config = GenerateConfig(system=name, out=str(tmp_path), size="tiny", compression=compression)
    plan = Plan.of(config)
    monkeypatch.setattr(Plan, "n_frames", 2)
    monkeypatch.setattr(type(plan.system), "generate", lambda *_, n, **__: of_noise(plan, n))
    monkeypatch.setattr(os, "posix_fallocate", remember)
    write_shard(plan, plan.pieces[0], tmp_path / "reserved", torch.device("cpu"))
    assert (tmp_path / "reserved").stat().st_size <= reserved[-1]
    monkeypatch.setattr(writer, "reserve", lambda *_: None)
    write_shard(plan, plan.pieces[0], tmp_path / "plain", torch.device("cpu"))
    assert (tmp_path / "reserved").read_bytes() == (tmp_path / "plain").read_bytes()


def of_noise(plan: Plan, n: int) -> Generated:
    """Trajectories that no compression makes smaller."""
    system, draws = plan.system, torch.Generator().manual_seed(0)
    fields = torch.randn(n, 2, len(system.fields), *system.grid, generator=draws)
    xi = torch.tensor([[p.train[0] for p in system.parameters]], dtype=torch.float64).repeat(n, 1)
    count = torch.arange(n)
    return Generated(fields, xi, system.times[:2], count, torch.zeros(n, dtype=torch.int8), count)


def test_a_file_without_an_end_is_not_cut(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"something else" * 9)
    with pytest.raises(DataError, match="is not complete"):
        drop_reserve(tmp_path / "file")

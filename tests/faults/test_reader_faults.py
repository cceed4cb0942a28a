"""Reading damaged, hostile or foreign files ends in one DataError that names the shard, never in anything else."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from pdejepa.core.errors import DataError
from pdejepa.data.generate.job import GenerateConfig, generate
from pdejepa.data.well import reader
from pdejepa.data.well.reader import Dataset

SHARD = "data/test/advection_test_0000.hdf5"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "d"
    counts = {"train": 7, "valid": 2, "test": 3, "ood": 2}
    generate(GenerateConfig(system="advection", out=str(out), device="cpu", counts=counts, rows_per_file=3))
    return out


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "copy")
    return tmp_path / "copy"


def read_all(root: Path) -> None:
    with Dataset.open(root) as data:
        for split in data.splits:
            data.xi(split)
            for index in range(data.n(split)):
                data.read(split, index)


def test_rows_across_files(whole: Path) -> None:
    with Dataset.open(whole) as data:
        everything = data.fields("train")
        assert everything.shape == (7, 14, 1, 256)
        assert everything.dtype == np.float32
        rows = [6, 0, 1, 2, 3, 4, 3, 3]
        np.testing.assert_array_equal(data.fields("train", rows), everything[rows])
        assert data.fields("train", []).shape == (0, 14, 1, 256)
        assert [path.name for path in data.shards("train")] == [f"advection_train_000{i}.hdf5" for i in range(3)]
        assert data.column("train", "trajectory").tolist() == list(range(7))
        for index in range(7):
            np.testing.assert_array_equal(data.read("train", index).fields, everything[index])


def test_few_files_stay_open(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_OPEN", 2)
    with Dataset.open(whole) as data:
        expected = data.fields("train")
        assert len(data._open) == 2
        np.testing.assert_array_equal(data.fields("train"), expected)
    assert len(data._open) == 0


def test_workers_open_their_own_files(whole: Path) -> None:
    with Dataset.open(whole) as data:
        expected = data.fields("train")
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            np.testing.assert_array_equal(pool.apply(data.fields, ("train",)), expected)
        forked = multiprocessing.get_context("fork").Process(target=lambda: os._exit(_differs(data, expected)))
        forked.start()
        forked.join()
        assert forked.exitcode == 7


def _differs(data: Dataset, expected: np.ndarray) -> int:
    """7 if a forked worker, which inherits open files, reads the same through files of its own."""
    shared = list(data._open.values())
    is_equal = (data.fields("train") == expected).all()
    return 7 if is_equal and not any(one in shared for one in data._open.values()) else 1


@pytest.mark.parametrize(
    ("split", "index", "told"),
    [
        ("tset", 0, "has no split 'tset', did you mean 'test'"),
        ("test", 3, "test has trajectories 0 to 2; there is no 3"),
        ("test", -1, "there is no -1"),
    ],
)
def test_what_is_not_there(split: str, index: int, told: str, whole: Path) -> None:
    with Dataset.open(whole) as data, pytest.raises(DataError, match=told):
        data.read(split, index)


def test_a_folder_without_data(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(DataError, match=r"holds no data set.*pdejepa generate NAME --out"):
            Dataset.open(folder)


@pytest.mark.parametrize("tenths", range(10))
def test_cut_files(tenths: int, copy: Path) -> None:
    path = copy / SHARD
    path.write_bytes(path.read_bytes()[: path.stat().st_size * tenths // 10])
    with pytest.raises(DataError, match=r"advection_test_0000.hdf5 .* Run the `pdejepa generate` command"):
        read_all(copy)


def test_flipped_bytes_never_escape_as_another_error(copy: Path) -> None:
    """Hashes find every flip; reading without them must still not crash, hang or raise anything but DataError."""
    path, rng = copy / SHARD, random.Random(0)
    content = path.read_bytes()
    n_refused = 0
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(rng.choice((1, 8, 64))):
            damaged[rng.randrange(min(len(damaged), 12_000))] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            with Dataset.open(copy) as data:
                data.read("test", 1)
                data.xi("test")
                _ = data.config
        except DataError:
            n_refused += 1
    assert n_refused > 30


def external_link(file: h5py.File) -> None:
    del file["t0_fields/u"]
    file["t0_fields/u"] = h5py.ExternalLink("/etc/hostname", "/u")


def soft_link(file: h5py.File) -> None:
    del file["t0_fields/u"]
    file["t0_fields/u"] = h5py.SoftLink("/scalars/speed")


def virtual(file: h5py.File) -> None:
    shape = file["t0_fields/u"].shape
    del file["t0_fields/u"]
    layout = h5py.VirtualLayout(shape=shape, dtype="f4")
    layout[...] = h5py.VirtualSource("elsewhere.hdf5", "u", shape=shape)
    file["t0_fields"].create_virtual_dataset("u", layout)


def external_storage(file: h5py.File) -> None:
    shape = file["t0_fields/u"].shape
    del file["t0_fields/u"]
    size = int(np.prod(shape)) * 4
    file["t0_fields"].create_dataset("u", shape=shape, dtype="f4", external=[("/etc/passwd", 0, size)])


def object_type(file: h5py.File) -> None:
    del file["scalars/speed"]
    file["scalars"].create_dataset("speed", data=["a", "b", "c"], dtype=h5py.string_dtype())


def absurd_size(file: h5py.File) -> None:
    del file["t0_fields/u"]
    file["t0_fields"].create_dataset("u", shape=(10**6, 10**3, 10**3), dtype="f4", chunks=(1, 14, 256))


@pytest.mark.parametrize(
    ("attack", "told"),
    [
        (external_link, "external link"),
        (soft_link, "soft link"),
        (virtual, "virtual"),
        (external_storage, "external storage|another file"),
        (object_type, "type"),
        (absurd_size, "declares 4.0 TB"),
    ],
)
def test_hostile_files_are_refused_unfollowed(attack: Callable[[h5py.File], None], told: str, copy: Path) -> None:
    with h5py.File(copy / SHARD, "r+") as file:
        attack(file)
    with pytest.raises(DataError, match=told) as caught:
        read_all(copy)
    assert "advection_test_0000.hdf5" in str(caught.value)


@pytest.mark.parametrize("name", ["dimensions", "scalars", "t0_fields", "t0_fields/u", "provenance/parameters"])
def test_parts_that_are_missing(name: str, copy: Path) -> None:
    with h5py.File(copy / SHARD, "r+") as file:
        del file[name]
    with pytest.raises(DataError, match="not in The Well's layout"):
        read_all(copy)


def test_fields_of_the_wrong_shape(copy: Path) -> None:
    with h5py.File(copy / SHARD, "r+") as file:
        values, attributes = file["t0_fields/u"][...], dict(file["t0_fields/u"].attrs)
        del file["t0_fields/u"]
        file["t0_fields/u"] = values.transpose(0, 2, 1)
        file["t0_fields/u"].attrs.update(attributes)
    with pytest.raises(DataError, match=r"t0_fields/u has shape \(3, 256, 14\), expected \(3, 14, 256\)"):
        read_all(copy)


def test_a_newer_format_is_refused(copy: Path) -> None:
    with h5py.File(copy / SHARD, "r+") as file:
        file["provenance"].attrs["format_version"] = 7
    with pytest.raises(DataError, match=r"has format 7; .* Install a newer one"):
        read_all(copy)


def test_a_pipe_is_not_waited_for(copy: Path) -> None:
    (copy / SHARD).unlink()
    os.mkfifo(copy / SHARD)
    with pytest.raises(DataError, match="is not a regular file"):
        read_all(copy)

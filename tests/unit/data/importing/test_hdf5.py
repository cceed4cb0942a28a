"""HDF5 files: any with --map, other people's in The Well's layout, and the layouts that PDEBench uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pdejepa.app.cli import main
from pdejepa.data.well.reader import Dataset
from tests.unit.data.importing.made import OPTIONS, T, X, waves, words, write_source

U, COLUMNS = waves()


def put(path: Path, arrays: dict[str, Any], **attributes: float) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values)
        file.attrs.update(attributes)
    return path


def imported(out: Path, *command: str) -> Dataset:
    assert main(["import", *command, "--yes", "--out", str(out)]) == 0
    return Dataset.open(out)


# ---- any file ----------------------------------------------------------------------------------------------------
def test_named_arrays_of_any_file(tmp_path: Path) -> None:
    arrays = {"train/u": U, "train/vx": 2 * U, "train/speed": COLUMNS["speed"], "train/t": 0.5 * np.arange(T)}
    path = put(tmp_path / "any.h5", {**arrays, "notes": np.bytes_("text"), "x": np.arange(X) / X})
    names = "--map", "u=/train/u,vx=train/vx,speed=/train/speed,t=/train/t,x=/x"
    with imported(tmp_path / "data", str(path), *names, "--axes", "n,t,x", "--periodic", "x") as data:
        rows = data.column("train", "source_row")
        assert data.field_names == ("u", "vx")
        np.testing.assert_array_equal(data.fields("train"), np.stack([U, 2 * U], 2)[rows])
        np.testing.assert_array_equal(data.xi("train")[:, 0], COLUMNS["speed"][rows])
        np.testing.assert_allclose(data.times, 0.5 * np.arange(T))


def test_what_has_no_place_in_a_file_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "secret.h5", {"u": U})
    path = tmp_path / "links.h5"
    with h5py.File(path, "w") as file:
        file["external"] = h5py.ExternalLink("secret.h5", "/u")
        file["soft"] = h5py.SoftLink("/own")
        file["own"] = U
        file.create_dataset("huge", shape=(10**6, 10**3, 10**3), dtype="f4", chunks=(1, 100, 100), compression="gzip")
    faults = {"external": "has no array external", "soft": "has no array soft", "huge": "/huge declares 4.0 TB"}
    for name, sentence in faults.items():
        command = ["import", str(path), "--map", f"u={name}", "--axes", "n,t,x", "--params", "none", *OPTIONS]
        assert main([*command, "--yes", "--out", str(tmp_path / "data")]) == 3
        assert sentence in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_unknown_layouts_are_refused_with_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path / "any.h5", {"flow/p": U})
    assert main(["import", str(path), "--yes", "--out", str(tmp_path / "data")]) == 3
    told = capsys.readouterr().err
    assert "has none of the layouts that are recognised" in told
    assert "It has: /flow/p (40, 6, 32)" in told
    raw = path.read_bytes()
    (tmp_path / "cut.h5").write_bytes(raw[: len(raw) // 2])
    assert main(["import", str(tmp_path / "cut.h5"), "--yes", "--out", str(tmp_path / "data")]) == 3
    assert "is damaged or no HDF5 file" in capsys.readouterr().err


# ---- The Well ----------------------------------------------------------------------------------------------------
def test_data_of_others_in_the_layout_of_the_well(tmp_path: Path) -> None:
    assert main(words(*write_source(tmp_path), tmp_path / "made")) == 0
    files = sorted((tmp_path / "made").rglob("*.hdf5"))
    for path in files:
        with h5py.File(path, "r+") as file:
            del file["provenance"]
            file.attrs["dataset_name"] = "theirs"
    with imported(tmp_path / "data", *map(str, files), "--name", "again", "--ood", "decay<0.2") as data:
        assert data.system_name == "again"
        assert data.parameter_names == ("speed", "decay")
        assert data.shard(data.shards("train")[0]).boundaries == {"x": "periodic"}
        found = np.concatenate([data.fields(split)[:, :, 0] for split in data.splits])
        assert {one.tobytes() for one in found} == {one.tobytes() for one in U}
        assert data.xi("ood")[:, 1].max() < 0.2
        np.testing.assert_allclose(data.axes["x"], np.arange(X) / X)


# ---- PDEBench ----------------------------------------------------------------------------------------------------
GRID = {"x-coordinate": (np.arange(X) + 0.5) / X, "t-coordinate": 0.5 * np.arange(T + 1)}


def test_scalar_files_are_a_set_with_one_parameter_each(tmp_path: Path) -> None:
    files = [
        put(tmp_path / "1D_Advection_Sols_beta0.1.hdf5", {"tensor": U[:20], **GRID}),
        put(tmp_path / "1D_Advection_Sols_beta4.0.hdf5", {"tensor": U[None, 20:], **GRID}),
    ]
    with pytest.raises(AssertionError):  # the axes of the second file differ by one
        imported(tmp_path / "no", *map(str, files), "--name", "no", "--axes", "n,t,y")
    with imported(tmp_path / "data", *map(str, files), "--name", "advected") as data:
        assert data.parameter_names == ("beta",)
        for split in data.splits:
            rows = data.column(split, "source_row")
            np.testing.assert_array_equal(data.xi(split)[:, 0], np.where(rows < 20, 0.1, 4.0))
            np.testing.assert_array_equal(data.fields(split)[:, :, 0], U[rows])
        np.testing.assert_allclose(data.times, 0.5 * np.arange(T))
        assert data.shard(data.shards("train")[0]).boundaries == {"x": "periodic"}


def test_parameters_in_attributes_come_first(tmp_path: Path) -> None:
    path = put(tmp_path / "ReacDiff_Nu0.5_Rho1.0.hdf5", {"tensor": U, **GRID}, Nu=0.25, rho=2.0)
    with imported(tmp_path / "data", str(path), "--name", "reaction") as data:
        assert data.parameter_names == ("nu", "rho")
        assert data.xi("train")[0].tolist() == [0.25, 2.0]


@pytest.mark.slow
def test_compressible_flow(tmp_path: Path) -> None:
    draws = np.random.default_rng(0).normal(size=(4, 8, 5, 16, 16)).astype(np.float32)
    names = ("density", "pressure", "Vx", "Vy")
    path = tmp_path / "2D_CFD_Rand_M0.1_Eta1.e-8_Zeta1.e-8_periodic_16_Train.hdf5"
    put(path, {**dict(zip(names, draws, strict=True)), "t-coordinate": np.linspace(0, 1, 6)})
    with imported(tmp_path / "data", str(path), "--name", "flow", "--box", "0:1,0:1") as data:
        assert data.field_names == ("density", "pressure", "vx", "vy")
        named = dict(zip(data.parameter_names, data.xi("train")[0], strict=True))
        assert named == {"eta": 1e-8, "m": 0.1, "zeta": 1e-8}
        rows = data.column("train", "source_row")
        np.testing.assert_array_equal(data.fields("train"), np.moveaxis(draws, 0, 2)[rows])


def test_one_group_per_trajectory(tmp_path: Path) -> None:
    draws = np.random.default_rng(0).normal(size=(8, 5, 16, 8, 2)).astype(np.float32)
    arrays: dict[str, Any] = {f"{i:04d}/data": one for i, one in enumerate(draws)}
    for i in range(len(draws)):
        arrays |= {f"{i:04d}/grid/{axis}": np.arange(float(n)) for axis, n in (("x", 16), ("y", 8), ("t", 5))}
    path = put(tmp_path / "2D_diff-react_NA_NA.h5", arrays)
    with imported(tmp_path / "data", str(path), "--name", "turing") as data:
        rows = data.column("train", "source_row")
        np.testing.assert_array_equal(data.fields("train"), np.moveaxis(draws, -1, 2)[rows])
        assert data.shard(data.shards("train")[0]).boundaries == {"x": "neumann", "y": "neumann"}


@pytest.mark.slow
def test_incompressible_flow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draws = np.random.default_rng(0).normal(size=(6, 5, 16, 16, 3)).astype(np.float32)
    times = np.tile(np.linspace(0, 1, 5), (6, 1))
    parts = {"velocity": draws[..., :2], "particles": draws[..., 2:], "force": draws[:, 0, :, :, :2], "t": times}
    path = put(tmp_path / "ns_incom_inhom_2d_16-0.h5", parts)
    command = [str(path), "--name", "smoke", "--box", "0:1,0:1"]
    assert main(["import", *command, "--yes", "--out", str(tmp_path / "data")]) == 2
    assert "--periodic x,y (axes and periodic as the data look)" in capsys.readouterr().err
    with imported(tmp_path / "data", *command, "--periodic", "none") as data:
        assert data.field_names == ("velocity_x", "velocity_y", "particles")
        rows = data.column("train", "source_row")
        np.testing.assert_array_equal(data.fields("train"), np.moveaxis(draws, -1, 2)[rows])


def test_steady_states_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path / "2D_DarcyFlow_beta0.01_Train.hdf5", {"tensor": U[:, :1], "nu": U[:, 0]})
    assert main(["import", str(path), "--yes", "--out", str(tmp_path / "data")]) == 3
    assert "holds steady states, one frame each" in capsys.readouterr().err



"""The validator accepts a conforming file, names every broken rule, and survives hostile bytes."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdejepa.data.well.inspector import Inspector
from pdejepa.data.well.validate import check_file, check_folder

B, T, N = 3, 5, 8
SHAPES = {1: (N,), 2: (N, 6)}
Errors = Callable[[Path], list[str]]


def put(group: h5py.Group, name: str, data: Any, per_sample: bool, per_time: bool, ndim: int = 0) -> None:
    dataset = group.create_dataset(name, data=np.asarray(data, np.float32))
    dataset.attrs["sample_varying"], dataset.attrs["time_varying"] = per_sample, per_time
    if ndim:
        dataset.attrs["dim_varying"] = [True] * ndim


def write_well(path: Path, ndim: int = 1, n: int = B, frames: int = T, seed: int = 0) -> Path:
    """A small conforming file with a scalar field, a vector, a tensor, a constant field and two scalars."""
    rng, grid = np.random.default_rng(seed), SHAPES[ndim]
    axes = dict(zip("xy", grid, strict=False))
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as f:
        f.attrs.update(dataset_name="toy", grid_type="cartesian", n_spatial_dims=ndim)
        f.attrs.update(n_trajectories=n, simulation_parameters=[])
        dims = f.create_group("dimensions")
        dims.attrs["spatial_dims"] = list(axes)
        put(dims, "time", np.arange(frames), False, True)
        walls = f.create_group("boundary_conditions")
        for name, size in axes.items():
            put(dims, name, np.linspace(0, 1, size), False, False)
            wall = walls.create_group(f"{name}_periodic")
            wall.attrs.update(bc_type="PERIODIC", associated_dims=[name], associated_fields=[])
            wall.attrs.update(sample_varying=False, time_varying=False)
            wall.create_dataset("mask", data=[True] + [False] * (size - 2) + [True])
        groups = {name: f.create_group(name) for name in ("scalars", "t0_fields", "t1_fields", "t2_fields")}
        listed = {"scalars": ["speed", "c"], "t0_fields": ["u", "f"], "t1_fields": ["v"], "t2_fields": ["s"]}
        for name, names in listed.items():
            groups[name].attrs["field_names"] = names
        put(groups["scalars"], "speed", rng.random(n), True, False)
        put(groups["scalars"], "c", 2.0, False, False)
        put(groups["t0_fields"], "u", rng.random((n, frames, *grid)), True, True, ndim)
        put(groups["t0_fields"], "f", rng.random((n, *grid)), True, False, ndim)
        put(groups["t1_fields"], "v", rng.random((n, frames, *grid, ndim)), True, True, ndim)
        put(groups["t2_fields"], "s", rng.random((n, frames, *grid, ndim, ndim)), True, True, ndim)
    return path


@pytest.fixture(scope="module")
def inspector() -> Iterator[Inspector]:
    with Inspector(time_limit=5.0) as inspector:
        yield inspector


@pytest.fixture
def errors(inspector: Inspector) -> Callable[[Path], list[str]]:
    """Problems of a file that are no warnings, from one helper process that serves all tests."""
    return lambda path: [str(p) for p in inspector.inspect(path, path.name)[0] if not p.is_warning]


@pytest.mark.parametrize("ndim", [1, 2])
def test_a_conforming_file_has_no_problems(tmp_path: Path, ndim: int) -> None:
    assert check_file(write_well(tmp_path / "a.hdf5", ndim)) == []


def replace(where: str, data: Any) -> Callable[[h5py.File], None]:
    """Exchange the values of a dataset, keeping its attributes."""

    def change(f: h5py.File) -> None:
        attributes = dict(f[where].attrs)
        del f[where]
        f.create_dataset(where, data=data).attrs.update(attributes)

    return change


def attribute(where: str, name: str, value: Any) -> Callable[[h5py.File], None]:
    def change(f: h5py.File) -> None:
        f[where].attrs.pop(name, None)
        if value is not None:
            f[where].attrs[name] = value

    return change


def remove(where: str) -> Callable[[h5py.File], None]:
    return lambda f: f.__delitem__(where)


def rename_scalar(name: str) -> Callable[[h5py.File], None]:
    def change(f: h5py.File) -> None:
        f.move("scalars/c", f"scalars/{name}")
        f["scalars"].attrs["field_names"] = ["speed", name]

    return change


WALL = "boundary_conditions/x_periodic"
BROKEN: dict[str, tuple[Callable[[h5py.File], None], str]] = {
    "group missing": (remove("t1_fields"), "t1_fields: this group is missing"),
    "no name": (attribute("/", "dataset_name", None), "'dataset_name' is missing"),
    "name in bytes": (attribute("/", "dataset_name", np.bytes_("toy")), "'dataset_name' must be text"),
    "grid type": (attribute("/", "grid_type", "hexagonal"), "grid_type must be cartesian or spherical"),
    "dims as text": (attribute("/", "n_spatial_dims", "1"), "'n_spatial_dims' must be a whole number"),
    "dims as float": (attribute("/", "n_spatial_dims", 1.0), "'n_spatial_dims' must be a whole number"),
    "four dims": (attribute("/", "n_spatial_dims", 4), "'n_spatial_dims' must be a whole number"),
    "other dims": (attribute("/", "n_spatial_dims", 2), "spatial_dims names 1 axes, n_spatial_dims says 2"),
    "B wrong": (attribute("/", "n_trajectories", 4), "t0_fields/u: expected shape (4, 5, 8), got (3, 5, 8)"),
    "parameter nowhere": (
        attribute("/", "simulation_parameters", ["q"]),
        "'q' must be both a root attribute and a scalar",
    ),
    "varying parameter at the root": (attribute("/", "speed", 1.0), "must not be a root attribute"),
    "bare string": (attribute("dimensions", "spatial_dims", "x"), "'spatial_dims' must be a list of text"),
    "axes in bytes": (
        attribute("dimensions", "spatial_dims", np.array([b"x"])),
        "'spatial_dims' must be a list of text",
    ),
    "field names as text": (attribute("t0_fields", "field_names", "u"), "'field_names' must be a list of text"),
    "field names missing": (attribute("scalars", "field_names", None), "'field_names' is missing"),
    "field name with slash": (attribute("t0_fields", "field_names", ["../u"]), "must list plain, different names"),
    "field name twice": (attribute("t0_fields", "field_names", ["u", "u"]), "must list plain, different names"),
    "listed but absent": (attribute("t0_fields", "field_names", ["u", "w"]), "t0_fields/w: this dataset is missing"),
    "nothing varies": (attribute("t0_fields/u", "time_varying", False), "t0_fields/u: expected shape (3, 8)"),
    "no time": (remove("dimensions/time"), "dimensions/time: this dataset is missing"),
    "no axis": (remove("dimensions/x"), "dimensions/x: this dataset is missing"),
    "time not varying": (attribute("dimensions/time", "time_varying", False), "time_varying must be True here"),
    "axis varying": (attribute("dimensions/x", "time_varying", True), "time_varying must be False here"),
    "time repeats": (replace("dimensions/time", [0.0, 1, 1, 2, 3]), "the times must ascend strictly"),
    "time runs back": (replace("dimensions/time", [0.0, 1, 2, 3, 1]), "the times must ascend strictly"),
    "time is a matrix": (replace("dimensions/time", np.zeros((5, 2))), "dimensions/time: expected shape (N,)"),
    "T wrong": (replace("dimensions/time", np.arange(6.0)), "expected shape (3, 6, 8), got (3, 5, 8)"),
    "time not finite": (replace("dimensions/time", [0, 1, 2, 3, np.nan]), "dimensions/time: holds values that are not"),
    "grid wrong": (replace("dimensions/x", np.arange(9.0)), "expected shape (3, 5, 9), got (3, 5, 8)"),
    "integer flag": (attribute("t0_fields/u", "sample_varying", 1), "'sample_varying' must be a boolean"),
    "flag missing": (attribute("scalars/c", "time_varying", None), "'time_varying' is missing"),
    "axis switched off": (attribute("t0_fields/u", "dim_varying", [False]), "dim_varying must be True for every axis"),
    "dim_varying as integers": (attribute("t0_fields/u", "dim_varying", [1]), "dim_varying must be a list of booleans"),
    "dim_varying as one flag": (attribute("t0_fields/u", "dim_varying", True), "must be a list of booleans"),
    "dim_varying too long": (attribute("t0_fields/u", "dim_varying", [True] * 2), "2 entries for 1 axes"),
    "scalar of shape one": (replace("scalars/c", [2.0]), "scalars/c: expected shape (), got (1,)"),
    "vector of coefficients": (replace("scalars/speed", np.ones((3, 5))), "expected shape (3,), got (3, 5)"),
    "scalar not finite": (replace("scalars/speed", [1, 2, np.nan]), "scalars/speed: holds values that are not finite"),
    "vector without components": (replace("t1_fields/v", np.ones((3, 5, 8))), "expected shape (3, 5, 8, 1)"),
    "tensor as vector": (replace("t2_fields/s", np.ones((3, 5, 8, 1))), "expected shape (3, 5, 8, 1, 1)"),
    "field of integers": (replace("t0_fields/u", np.ones((3, 5, 8), int)), "fields are floating-point numbers"),
    "other boundary": (attribute(WALL, "bc_type", "DIRICHLET"), "bc_type must be one of WALL, OPEN, PERIODIC"),
    "small letters": (attribute(WALL, "bc_type", "periodic"), "bc_type must be one of WALL, OPEN, PERIODIC"),
    "boundary per sample": (attribute(WALL, "sample_varying", True), "sample_varying must be False"),
    "boundary of no axis": (attribute(WALL, "associated_dims", ["z"]), "associated_dims must name axes of ['x']"),
    "associated_dims as text": (attribute(WALL, "associated_dims", "x"), "must be a list of text"),
    "mask missing": (remove(f"{WALL}/mask"), "mask: this dataset is missing"),
    "mask of numbers": (replace(f"{WALL}/mask", np.ones(8)), "mask: must hold booleans"),
    "mask too short": (replace(f"{WALL}/mask", [True] * 7), "mask: expected shape (8,), got (7,)"),
    "mask per sample": (replace(f"{WALL}/mask", np.ones((3, 8), bool)), "mask: expected shape (8,), got (3, 8)"),
    "mask empty": (replace(f"{WALL}/mask", [False] * 8), "the boundary lies nowhere"),
    "periodic at one end": (replace(f"{WALL}/mask", [True] + [False] * 7), "True at its first and last point"),
    "boundary is a dataset": (
        lambda f: f["boundary_conditions"].create_dataset("y_wall", data=1.0),
        "boundary_conditions/y_wall: must be a group",
    ),
    "name used twice": (rename_scalar("u"), "the name 'u' is used twice"),
    "name reserved": (rename_scalar("time_grid"), "the name 'time_grid' is reserved"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_each_broken_rule_is_named(tmp_path: Path, errors: Errors, case: str) -> None:
    change, words = BROKEN[case]
    path = write_well(tmp_path / "a.hdf5")
    with h5py.File(path, "r+") as f:
        change(f)
    found = errors(path)
    assert any(words in problem for problem in found), found
    assert all(problem.startswith("a.hdf5: ") for problem in found)


def test_warnings_are_not_errors(tmp_path: Path, errors: Errors) -> None:
    path = write_well(tmp_path / "a.hdf5")
    with h5py.File(path, "r+") as f:
        f.move(WALL, "boundary_conditions/around")
        f.attrs["note"] = "long " * 1000
    assert errors(path) == []
    assert [p.where for p in check_file(path)] == ["", "boundary_conditions/around"]


# ---- hostile files ----------------------------------------------------------------------------------------


def external_link(f: h5py.File) -> None:
    f["t0_fields/w"] = h5py.ExternalLink("/etc/passwd", "/u")


def external_storage(f: h5py.File) -> None:
    f["extra"] = 1.0
    f.create_dataset("elsewhere", (4,), "f4", external=[("/etc/hostname", 0, 16)])


def virtual(f: h5py.File) -> None:
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource("/etc/other.h5", "u", (4,))
    f.create_virtual_dataset("assembled", layout)


def circle(f: h5py.File) -> None:
    f["scalars/again"] = f["/"]


def deep(f: h5py.File) -> None:
    f.create_group("/".join("abcdefghijklmnop"))


def plug_in(f: h5py.File) -> None:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((4,))
    plist.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (1,))
    space = h5py.h5s.create_simple((4,))
    h5py.h5d.create(f.id, b"zipped", h5py.h5t.NATIVE_FLOAT, space, plist)


HOSTILE: dict[str, tuple[Callable[[h5py.File], None], str]] = {
    "external link": (external_link, "/t0_fields/w: holds an external link"),
    "soft link": (lambda f: f.__setitem__("u", h5py.SoftLink("/t0_fields/u")), "/u: holds a soft link"),
    "dangling soft link": (lambda f: f.__setitem__("u", h5py.SoftLink("/no")), "/u: holds a soft link"),
    "external storage": (external_storage, "/elsewhere: keeps its values in another file"),
    "virtual": (virtual, "/assembled: is a virtual dataset"),
    "objects": (lambda f: f.create_dataset("o", data=["a", "b"]), "/o: holds values of type object"),
    "references": (lambda f: f.create_dataset("r", data=f.ref, dtype=h5py.ref_dtype), "/r: holds values of type"),
    "a trillion values": (lambda f: f.create_dataset("big", (10**12,), "f4", chunks=(10**6,)), "/big: declares 4.0 TB"),
    "a trillion zipped": (
        lambda f: f.create_dataset("big", (10**12,), "f4", chunks=(10**6,), compression="gzip"),
        "/big: declares 4.0 TB",
    ),
    "huge and never written": (lambda f: f.create_dataset("big", (10**9,), "f4"), "/big: declares 4.0 GB"),
    "huge chunk": (
        lambda f: f.create_dataset("big", (0,), "f4", maxshape=(None,), chunks=(3 * 10**8,), compression=9),
        "/big: has chunks of 1.2 GB",
    ),
    "circle": (circle, "deeper nesting than a data file has"),
    "deep": (deep, "deeper nesting than a data file has"),
    "plug-in": (plug_in, "/zipped: needs the HDF5 plug-in filter 32015"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_content_is_refused_without_following_it(tmp_path: Path, errors: Errors, case: str) -> None:
    change, words = HOSTILE[case]
    path = write_well(tmp_path / "a.hdf5")
    with h5py.File(path, "r+") as f:
        change(f)
    found = errors(path)
    assert any(words in problem for problem in found), found


def test_what_is_no_file_is_not_opened(tmp_path: Path, errors: Errors) -> None:
    pipe = tmp_path / "pipe.hdf5"
    os.mkfifo(pipe)
    assert "is not a regular file" in errors(pipe)[0]
    assert "No such file" in errors(tmp_path / "absent.hdf5")[0]
    (tmp_path / "empty.hdf5").touch()
    assert "is empty" in errors(tmp_path / "empty.hdf5")[0]
    (tmp_path / "noise.hdf5").write_bytes(np.random.default_rng(0).bytes(5000))
    assert "is not a readable HDF5 file" in errors(tmp_path / "noise.hdf5")[0]


@pytest.mark.parametrize("tenth", range(1, 10))
def test_a_cut_file_is_a_problem(tmp_path: Path, errors: Errors, tenth: int) -> None:
    whole = write_well(tmp_path / "a.hdf5", 2).read_bytes()
    cut = tmp_path / "cut.hdf5"
    cut.write_bytes(whole[: len(whole) * tenth // 10])
    assert errors(cut)


@given(start=st.integers(0, 20_000), noise=st.binary(min_size=1, max_size=64))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_overwritten_bytes_never_raise(tmp_path: Path, inspector: Inspector, start: int, noise: bytes) -> None:
    source = tmp_path / "source.hdf5"
    raw = bytearray((source if source.exists() else write_well(source, 2)).read_bytes())
    start %= len(raw)
    raw[start : start + len(noise)] = noise
    path = tmp_path / "fuzzed.hdf5"
    path.write_bytes(raw)
    for problem in inspector.inspect(path, "fuzzed.hdf5")[0]:
        assert len(str(problem)) < 2000


@given(raw=st.binary(max_size=400), has_signature=st.booleans())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_never_raise(tmp_path: Path, inspector: Inspector, raw: bytes, has_signature: bool) -> None:
    path = tmp_path / "random.hdf5"
    path.write_bytes((b"\x89HDF\r\n\x1a\n" if has_signature else b"") + raw)
    assert inspector.inspect(path, "random.hdf5")[0]


def test_a_file_that_brings_the_library_down_is_a_finding(
    tmp_path: Path, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = write_well(tmp_path / "good.hdf5")
    for path, words in ((tmp_path / "crash", "brought the HDF5 library down"), (tmp_path / "hang", "more than 1 s")):
        with Inspector(time_limit=1.0) as own:
            helper = own._start()
            if "hang" in path.name:
                os.kill(helper.pid, signal.SIGSTOP)
            else:
                os.kill(helper.pid, signal.SIGSEGV)
            problems, layout = own.inspect(good, path.name)
            assert words in str(problems[0])
            assert layout is None
            assert own.inspect(good, "good.hdf5")[0] == []  # by a new helper


# ---- folders ----------------------------------------------------------------------------------------------

STATS = "".join(
    f"{key}:\n  u: 1.0\n  v: [1.0]\n  s: [[1.0]]\n" + ("" if key.endswith("delta") else "  f: 0.5\n")
    for key in ("mean", "std", "rms", "mean_delta", "std_delta", "rms_delta")
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "toy"
    for i, split in enumerate(("train", "train", "valid", "ood")):
        write_well(root / "data" / split / f"toy_{i}.hdf5", n=2 + i, frames=T + (i == 3), seed=i)
    (root / "stats.yaml").write_text(STATS)
    return root


def folder_errors(root: Path) -> list[str]:
    return [str(problem) for problem in check_folder(root) if not problem.is_warning]


def test_a_conforming_folder(folder: Path) -> None:
    assert check_folder(folder) == []
    (folder / "stats.yaml").unlink()
    assert [str(problem) for problem in check_folder(folder)] == [
        "stats.yaml: is missing; loaders cannot normalise without it"
    ]
    assert folder_errors(folder) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (attribute("/", "dataset_name", "other"), "the name of the data set differs from data/ood/toy_3.hdf5"),
        (replace("dimensions/x", np.linspace(0, 2, N)), "the coordinates differ from"),
        (attribute("t0_fields", "field_names", ["f", "u"]), "the fields differ from"),
        (rename_scalar("d"), "the scalars differ from"),
        (replace("t0_fields/f", np.ones((4, N))), "the number types differ from"),
        (attribute(WALL, "bc_type", "WALL"), "the boundary conditions differ from"),
    ],
)
def test_files_must_agree(folder: Path, change: Callable[[h5py.File], None], words: str) -> None:
    with h5py.File(folder / "data/valid/toy_2.hdf5", "r+") as f:
        change(f)
    found = folder_errors(folder)
    assert any(words in problem for problem in found), found


def test_folders_that_hold_no_data(tmp_path: Path, folder: Path) -> None:
    assert "has no folder data/<split>" in folder_errors(tmp_path / "nothing")[0]
    (folder / "data/test").mkdir()
    assert folder_errors(folder) == ["data/test: has no .hdf5 or .h5 file"]
    shutil.rmtree(folder / "data")
    assert "has no folder data/<split>" in folder_errors(folder)[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (STATS.replace("std:", "sd:"), "stats.yaml: std/u: is missing"),
        (STATS.replace("  f: 0.5\n", ""), "mean/f: is missing"),
        (STATS.replace("v: [1.0]", "v: 1.0"), "mean/v: must be a list of numbers"),
        (STATS.replace("u: 1.0", "u: [1.0]"), "mean/u: must be one number"),
        (STATS.replace("u: 1.0", "u: .nan"), "mean/u: must be finite numbers"),
        (STATS.replace("u: 1.0", "u: 'text'"), "mean/u: must be finite numbers"),
        ("- 1", "must hold six maps"),
        ("a: !!python/object:x {}", "not valid YAML"),
    ],
)
def test_statistics(folder: Path, text: str, words: str) -> None:
    (folder / "stats.yaml").write_text(text)
    found = folder_errors(folder)
    assert any(words in problem for problem in found), found


def test_the_official_loader_agrees(folder: Path) -> None:
    """What we call conforming, the published loader opens."""
    the_well = pytest.importorskip("the_well.data")
    data = the_well.WellDataset(path=str(folder), well_split_name="train", n_steps_input=1, n_steps_output=1)
    assert len(data) == (2 + 3) * (T - 1)
    assert data[0]["input_fields"].shape == (1, N, 3)

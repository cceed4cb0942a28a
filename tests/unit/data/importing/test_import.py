"""Imported data: the values of the sources, cut by parameters, the same bytes however often the work was stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pdejepa.app.cli import main
from pdejepa.data.audit.auditor import audit
from pdejepa.data.importing import convert, import_plan
from pdejepa.data.well.reader import Dataset
from pdejepa.data.well.validate import check_folder
from tests.unit.data.importing.made import OPTIONS, N, T, waves, words, write_source, write_table


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    source, table = write_source(folder)
    assert main(words(source, table, folder / "data")) == 0
    return folder / "data"


def shards(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.rglob("*.hdf5")}


def test_values_and_parameters_are_those_of_the_source(imported: Path) -> None:
    u, columns = waves()
    seen = []
    with Dataset.open(imported) as data:
        assert (data.system_name, data.field_names, data.parameter_names) == ("waves", ("u",), ("speed", "decay"))
        np.testing.assert_allclose(data.times, 0.5 * np.arange(T))
        for split in data.splits:
            rows = data.column(split, "source_row")
            np.testing.assert_array_equal(data.fields(split)[:, :, 0], u[rows])
            np.testing.assert_array_equal(data.xi(split), np.stack([columns["speed"], columns["decay"]], 1)[rows])
            seen += rows.tolist()
        assert sorted(seen) == list(range(N))
        assert data.is_imported
        assert not data.is_solved


def test_the_folder_keeps_the_format_and_says_what_it_is(imported: Path) -> None:
    assert [fault for fault in check_folder(imported) if not fault.is_warning] == []
    plain = json.loads((imported / "certificate.json").read_text())
    assert plain["verdict"] == "imported, not solved"
    assert {finding["part"] for finding in plain["findings"]} >= {"sources", "frames", "splits", "parameters"}
    assert "imported, not solved" in (imported / "README.md").read_text()
    assert audit(imported).verdict == "imported, not solved"
    assert not (imported / ".scratch").exists()


def test_the_outer_part_is_out_of_distribution(imported: Path) -> None:
    with Dataset.open(imported) as data:
        assert data.splits == ("train", "valid", "test", "ood")
        assert data.xi("ood")[:, 0].min() > max(data.xi(split)[:, 0].max() for split in ("train", "valid", "test"))


def test_a_changed_value_is_found_by_an_audit(imported: Path, tmp_path: Path) -> None:
    source, table = write_source(tmp_path)
    assert main(words(source, table, tmp_path / "data")) == 0
    shard = next((tmp_path / "data/data/test").glob("*.hdf5"))
    raw = bytearray(shard.read_bytes())
    raw[len(raw) // 2] ^= 1
    shard.write_bytes(raw)
    assert main(["audit", str(tmp_path / "data")]) == 3
    assert main(words(source, table, tmp_path / "data")) == 0
    assert shards(tmp_path / "data") == shards(imported)


# ---- layouts -----------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_compressed_files_and_other_orders_of_axes_give_the_same_bytes(imported: Path, tmp_path: Path) -> None:
    u, columns = waves()
    table = write_table(tmp_path / "table.csv", columns)
    np.savez_compressed(tmp_path / "packed.npz", u=u)
    np.save(tmp_path / "turned.npy", np.ascontiguousarray(u.transpose(2, 0, 1)))
    np.save(tmp_path / "fortran.npy", np.asfortranarray(u.astype(np.float64)))
    for name, axes in (("packed.npz", "n,t,x"), ("turned.npy", "x,n,t"), ("fortran.npy", "n,t,x")):
        out = tmp_path / name.split(".")[0]
        assert main([*words(tmp_path / name, table, out, "--fields", "u"), "--axes", axes]) == 0
        assert shards(out) == shards(imported)


def test_two_fields_on_a_rectangle_with_parameters_times_and_points_inside(tmp_path: Path) -> None:
    draws = np.random.default_rng(1)
    p, q = draws.normal(size=(2, 12, 5, 16, 8)).cumsum(2).cumsum(3).cumsum(4)
    points = {"x": np.linspace(0, 4, 16), "y": np.linspace(0, 2, 8)}
    more = {"nu": np.linspace(1, 2, 12), "t": np.linspace(3, 5, 5), **points}
    np.savez(tmp_path / "plane.npz", p=p, q=q, **more)
    command = ["import", str(tmp_path / "plane.npz"), "--axes", "n,t,x,y", "--fields", "p,q", "--periodic", "none"]
    assert main([*command, "--ends", "neumann", "--yes", "--out", str(tmp_path / "data")]) == 0
    with Dataset.open(tmp_path / "data") as data:
        assert data.system_name == "plane"
        assert data.field_names == ("p", "q")
        assert data.parameter_names == ("nu",)
        np.testing.assert_allclose(data.times, more["t"])
        np.testing.assert_allclose(data.axes["x"], more["x"])
        rows = data.column("train", "source_row")
        np.testing.assert_array_equal(data.fields("train"), np.stack([p, q], 2)[rows].astype(np.float32))
        assert data.shard(data.shards("train")[0]).boundaries == {"x": "neumann", "y": "neumann"}


def test_one_trajectory_to_a_file_with_a_table_that_names_the_files(tmp_path: Path) -> None:
    u, columns = waves()
    for row in range(N):
        np.save(tmp_path / f"run{row:02d}.npy", u[row])
    lines = [f"run{row:02d}.npy;{float(columns['speed'][row])!r}" for row in reversed(range(N))]
    (tmp_path / "table.csv").write_text("\n".join(["file;speed", *lines]))
    files = [str(path) for path in sorted(tmp_path.glob("run*.npy"))]
    command = ["import", *files, "--axes", "t,x", "--params", str(tmp_path / "table.csv"), "--name", "runs", *OPTIONS]
    assert main([*command, "--yes", "--out", str(tmp_path / "data")]) == 0
    with Dataset.open(tmp_path / "data") as data:
        rows = data.column("train", "source_row")
        np.testing.assert_array_equal(data.xi("train")[:, 0], columns["speed"][rows])
        np.testing.assert_array_equal(data.fields("train")[:, :, 0], u[rows])


@pytest.mark.parametrize("form", ["lists", "objects", "number"])
def test_parameters_in_json(form: str, tmp_path: Path) -> None:
    source, _ = write_source(tmp_path)
    _, columns = waves()
    speed = columns["speed"].tolist()
    data = {"lists": {"speed": speed}, "objects": [{"speed": value} for value in speed], "number": {"speed": 2.5}}[form]
    (tmp_path / "table.json").write_text(json.dumps(data))
    assert main(words(source, tmp_path / "table.json", tmp_path / "data")) == 0
    with Dataset.open(tmp_path / "data") as found:
        expected = np.array(speed if form != "number" else [2.5] * N)
        np.testing.assert_array_equal(found.xi("train")[:, 0], expected[found.column("train", "source_row")])


def test_no_parameters(tmp_path: Path) -> None:
    source, _ = write_source(tmp_path)
    assert main(words(source, "none", tmp_path / "data")) == 0
    with Dataset.open(tmp_path / "data") as data:
        assert data.splits == ("train", "valid", "test")
        assert data.xi("train").shape == (32, 0)
    assert "one set of parameters" in (tmp_path / "data/README.md").read_text()


# ---- stopped and continued ---------------------------------------------------------------------------------------
KILLED = """
import os, signal, sys
from pdejepa.app.cli import main
from pdejepa.data.importing import convert, import_plan

import_plan.ROWS_PER_FILE = 8
fill, filled = convert._Run._fill, []

def disturbed(self, *args):
    fill(self, *args)
    filled.append(1)
    if len(filled) == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)

convert._Run._fill = disturbed
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.slow
def test_a_killed_import_is_continued_to_the_same_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, table = write_source(tmp_path)
    command = words(source, table, tmp_path / "data")
    for number in ("2", "3"):
        done = subprocess.run([sys.executable, "-c", KILLED, number, *command], capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL
        assert not (tmp_path / "data/manifest.json").exists()
    n_kept = len(shards(tmp_path / "data"))
    assert n_kept >= 2
    monkeypatch.setattr(import_plan, "ROWS_PER_FILE", 8)
    written: list[int] = []
    make = convert._Run._write
    monkeypatch.setattr(convert._Run, "_write", lambda self, *args: (written.append(1), make(self, *args))[1])
    assert main(command) == 0
    assert main(words(source, table, tmp_path / "whole")) == 0
    assert len(written) == 2 * len(shards(tmp_path / "whole")) - n_kept
    names = ("manifest.json", "certificate.json")
    assert all((tmp_path / "data" / n).read_bytes() == (tmp_path / "whole" / n).read_bytes() for n in names)


def test_another_import_into_the_same_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, table = write_source(tmp_path)
    assert main(words(source, table, tmp_path / "data")) == 0
    before = shards(tmp_path / "data")
    assert main(words(source, table, tmp_path / "data", "--seed", "1")) == 3
    assert "holds another import, with other seed" in capsys.readouterr().err
    assert shards(tmp_path / "data") == before


MEASURED = """
import resource, sys
from pdejepa.app.cli import main
import pdejepa.data.audit.auditor, pdejepa.data.importing.convert, pdejepa.draw.pictures
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert main(sys.argv[1:]) == 0
print("KB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_memory_does_not_grow_with_the_source(save: object, tmp_path: Path) -> None:
    u = np.repeat(waves(40)[0], 32, axis=2)  # 1024 points
    u = np.concatenate([u * (1 + k / 1000) for k in range(500)])  # 20,000 trajectories, 490 MB
    save(tmp_path / "large.npz", u=u)  # type: ignore[operator]
    size = u.nbytes
    del u
    command = words(tmp_path / "large.npz", "none", tmp_path / "data")
    done = subprocess.run([sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, check=True)
    grown = 1024 * int(done.stdout.split("KB")[1])
    assert grown < size / 1.5

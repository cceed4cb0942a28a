"""An audit finds every kind of damage, names the place, and ends with the right code."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pdejepa.app.cli import main
from pdejepa.core.files import Manifest
from pdejepa.data.audit import physics_checks
from pdejepa.data.audit.auditor import AuditConfig, audit
from pdejepa.data.audit.findings import JSON_NAME, TEXT_NAME, Report
from pdejepa.systems.advection import Advection
from pdejepa.systems.combined import Combined
from pdejepa.systems.structure import Check, Reference

Make = Callable[[str], Path]
Printed = pytest.CaptureFixture[str]
TRAIN, VALID, TEST = (f"data/{split}/combined_{split}_0000.hdf5" for split in ("train", "valid", "test"))


@pytest.fixture
def copy(tiny_datasets: Make, tmp_path: Path) -> Path:
    """A tiny data set of Combined, to be damaged."""
    shutil.copytree(tiny_datasets("combined"), tmp_path / "copy")
    return tmp_path / "copy"


def remake_manifest(root: Path) -> None:
    """What a careless tool, or a careful enemy, would do after a change."""
    manifest = Manifest.read(root)
    for name in list(manifest.files):
        manifest.add(root, name)
    manifest.write(root)


def change(root: Path, name: str, action: Callable[[h5py.File], object]) -> None:
    with h5py.File(root / name, "r+") as file:
        action(file)
    if (root / "manifest.json").exists():
        remake_manifest(root)


def put(path: str, place: Any, value: Any) -> Callable[[h5py.File], object]:
    return lambda file: file[path].__setitem__(place, value)


def run(root: Path, capsys: Printed, *options: str) -> tuple[int, str, str]:
    code = main(["audit", str(root), "--device", "cpu", "--samples", "1", *options])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


# ---- damage that the manifest shows -----------------------------------------------------------------------


def flip(path: Path, at: float) -> None:
    raw = bytearray(path.read_bytes())
    raw[int(at * (len(raw) - 1))] ^= 0x10
    path.write_bytes(raw)


@pytest.mark.parametrize("at", [0.0, 0.01, 0.2, 0.5, 0.99, 1.0])
def test_one_flipped_bit_is_named(copy: Path, at: float, capsys: Printed) -> None:
    flip(copy / VALID, at)
    code, out, err = run(copy, capsys)
    assert code == 3
    wanted = (
        f"Shard valid-0000 ({VALID}) is damaged (hash differs). 3 of 4 shards are good. "
        f"Rebuild it with: pdejepa generate combined --size tiny --seed 0 --out {copy}"
    )
    assert wanted in err
    assert wanted in out
    assert json.loads((copy / JSON_NAME).read_text())["verdict"] == "failed"


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("action", "reason"),
    [(cut, "size differs"), (lambda path: os.truncate(path, 0), "empty"), (os.unlink, "missing")],
)
def test_other_damage(copy: Path, action: Callable[[Path], None], reason: str, capsys: Printed) -> None:
    action(copy / TRAIN)
    code, _, err = run(copy, capsys)
    assert code == 3
    assert f"Shard train-0000 ({TRAIN}) is damaged ({reason}). 3 of 4 shards are good." in err


@pytest.mark.parametrize("overrides", [[], ["--raw-frames"], ["switches.flux=alpha u^2", "rows_per_file=4"]])
def test_the_named_command_rebuilds_only_that_shard(tmp_path: Path, overrides: list[str], capsys: Printed) -> None:
    root = tmp_path / "d d"
    words = ["generate", "combined", "--out", str(root), "--splits", "valid,test", *overrides]
    assert main([*words, "counts.valid=6", "counts.test=6"] if len(overrides) > 1 else words) == 0
    before = (root / "manifest.json").read_bytes()
    good = root / TEST
    stamp = good.stat().st_mtime_ns
    flip(root / VALID, 0.5)
    code, _, err = run(root, capsys)
    assert code == 3
    command = err.split("Rebuild it with: ")[1].splitlines()[0].replace(str(root), shlex.quote(str(root)))
    assert main(shlex.split(command)[1:]) == 0
    assert (root / "manifest.json").read_bytes() == before
    assert good.stat().st_mtime_ns == stamp
    assert run(root, capsys)[0] == 0


def test_other_files_of_the_manifest(copy: Path, capsys: Printed) -> None:
    (copy / "stats.yaml").write_text("mean: {u: 1.0}\n")
    code, _, err = run(copy, capsys)
    assert code == 3
    assert "stats.yaml is damaged (size differs). 4 of 4 shards are good." in err


def test_a_stray_file_that_loaders_would_read(copy: Path, capsys: Printed) -> None:
    shutil.copy(copy / TEST, copy / "data/train/extra.h5")
    code, _, err = run(copy, capsys)
    assert code == 3
    assert "data/train/extra.h5 is not in the manifest, but loaders would read it" in err


def test_a_manifest_that_is_gone_or_broken(copy: Path, capsys: Printed) -> None:
    (copy / "manifest.json").write_text('{"format_version": 1, "files": {"../x": {}}}')
    assert run(copy, capsys)[0] == 3
    (copy / "manifest.json").unlink()
    code, _, err = run(copy, capsys)
    assert code == 3
    assert "it is not a finished data set" in err


# ---- damage that the manifest vouches for -----------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(copy: Path, value: float, capsys: Printed) -> None:
    def spoil(file: h5py.File) -> None:
        file["t0_fields/u"][3, 6:, 17] = value
        file["t0_fields/u"][7, 9, 0] = value

    change(copy, TEST, spoil)
    code, _, err = run(copy, capsys)
    assert code == 3
    assert "2 trajectories contain non-finite values (test: 3, 7), first at frame 6." in err


def freeze(file: h5py.File) -> None:
    file["t0_fields/u"][4, 8] = file["t0_fields/u"][4, 7]


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (
            put("t0_fields/u", (2, 5), 1.0),
            "1 trajectory contains frames that are constant in space (test: 2), first at frame 5.",
        ),
        (freeze, "1 trajectory contains frames equal to the one before (test: 4), first at frame 8."),
        (put("provenance/solver_status", 6, 1), "test: 1 of 10 solves ended diverged (6)"),
        (put("provenance/solver_status", 6, 2), "test: 1 of 10 solves ended step-limit (6)"),
        (put("provenance/parameters", (1, 1), -0.1), "test: combined: diffusivity must be in [0, 20], got -0.1"),
        (put("provenance/parameters", (1, 1), np.nan), "test: combined: diffusivity must be in [0, 20], got nan"),
        (put("scalars/advection", 5, 0.5), f"{TEST}: the scalars are not the parameters in its provenance."),
        (put("dimensions/time", 13, 9.4), "the stored time coordinates are not those of combined"),
        (put("dimensions/x", 255, 15.9), "the coordinates differ from"),
        (put("provenance/solver_status", 3, 77), "test: the recorded outcomes are not known outcomes of 10 solves"),
        (put("provenance/attempt", 3, -1), "test: the recorded attempts are not from 0 to 4"),
        (put("provenance/trajectory", 3, 4), "the trajectories of test are not numbered 0 to 9"),
        (put("provenance/environment_id", 3, 7), "test: environment numbers are not those of the trajectories"),
    ],
)
def test_tampering_with_data(copy: Path, action: Callable[[h5py.File], object], words: str, capsys: Printed) -> None:
    change(copy, TEST, action)
    code, _, err = run(copy, capsys, "--samples", "10")
    assert code == 3
    assert words in err


def test_swapped_parameters(copy: Path, capsys: Printed) -> None:
    def swap(file: h5py.File) -> None:
        for name in ("provenance/parameters", *(f"scalars/{p}" for p in ("advection", "diffusivity", "dispersion"))):
            file[name][[2, 3]] = file[name][[2, 3]][::-1]

    change(copy, TEST, swap)
    code, out, err = run(copy, capsys)
    assert code == 3
    assert "test: other parameters than seed 0 draws in 2 trajectories (2, 3)." in err
    assert main(["audit", str(copy), "--device", "cpu", "--samples", "10"]) == 3
    out = capsys.readouterr().out
    assert "FAILED   reproduction  test: stored values" in out  # solving again with them gives other values
    assert "ok       reproduction  valid: stored values" in out


def test_parameters_on_the_wrong_side(copy: Path, capsys: Printed) -> None:
    with h5py.File(copy / TEST) as file:
        inside = file["provenance/parameters"][:]

    def move_inside(file: h5py.File) -> None:
        file["provenance/parameters"][:] = inside

    change(copy, TEST.replace("test", "ood"), move_inside)
    change(copy, VALID, put("provenance/parameters", (0, 0), 1.5))
    code, _, err = run(copy, capsys)
    assert code == 3
    assert "inside the training range: 10 trajectories (0, 1, 2, 3, 4, 5, 6, 7 and 2 more)." in err
    assert "valid: outside the training range: 1 trajectory (0)." in err


def test_one_trajectory_in_two_splits(copy: Path, capsys: Printed) -> None:
    with h5py.File(copy / TRAIN) as file:
        fields, parameters = file["t0_fields/u"][5], file["provenance/parameters"][5]

    def leak(file: h5py.File) -> None:
        file["t0_fields/u"][2] = fields
        file["provenance/parameters"][2] = parameters

    change(copy, TEST, leak)
    code, _, err = run(copy, capsys)
    assert code == 3
    assert "trajectory 2 of test has the first frame and the parameters of train 5 (1 such pair)." in err


def test_hostile_content_behind_a_good_manifest(copy: Path, capsys: Printed) -> None:
    change(copy, TEST, lambda file: file.__setitem__("t0_fields/w", h5py.ExternalLink("/etc/passwd", "/")))
    code, _, err = run(copy, capsys)
    assert code == 3
    assert f"{TEST}: /t0_fields/w: holds an external link; such files are not read." in err


def test_what_is_marked_is_reported_and_not_judged(copy: Path, capsys: Printed) -> None:
    change(copy, TEST, put("provenance/solver_status", slice(None), 3))
    code, out, _ = run(copy, capsys)
    assert code == 0
    assert "reported frames        test: 10 of 10 solves ended under-resolved" in out
    assert "reported reference     1 row marked under-resolved" in out
    assert "reported reproduction  rows that now end with another outcome than recorded: test" in out


# ---- physics ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1.001, -1.0])
def test_values_that_the_equation_does_not_give(copy: Path, factor: float, capsys: Printed) -> None:
    def rescale(file: h5py.File) -> None:
        values = file["t0_fields/u"][:]
        values[:, 1:] *= factor
        file["t0_fields/u"][:] = values

    change(copy, TEST, rescale)
    code, out, err = run(copy, capsys)
    assert code == 5
    assert "test: stored values against solving 1 row again" in err
    assert "FAILED   reproduction  test" in out
    assert "FAILED   reference     test" in out
    assert "ok       reproduction  train" in out


def test_growing_energy(copy: Path, capsys: Printed) -> None:
    """A fault in rows that are not solved again shows in the invariants, which look at every row."""

    def grow(file: h5py.File) -> None:
        values = file["t0_fields/u"][:]
        values[:, -1] *= 4.0
        file["t0_fields/u"][:] = values

    change(copy, TRAIN, grow)
    code, out, _ = run(copy, capsys)
    assert code == 5
    assert "FAILED   invariants    L2 norm never grows" in out


@pytest.mark.parametrize(
    ("target", "name", "value", "words"),
    [
        (Advection, "reference", Reference("a finer sum", 1e-12), "train: 1 row against: a finer sum"),
        (Advection, "invariants", lambda *_: [Check("energy is kept", 2.0, 1.0)], "energy is kept"),
        (Advection, "invariants", lambda *_: [Check("energy is kept", float("nan"), 1.0)], "energy is kept"),
        (physics_checks, "RATIO", 1e12, "a parameter without effect: speed"),
    ],
)
def test_physics_that_fails_ends_with_five(
    tiny_datasets: Make,
    tmp_path: Path,
    target: Any,
    name: str,
    value: Any,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Printed,
) -> None:
    root = shutil.copytree(tiny_datasets("advection"), tmp_path / "copy")
    monkeypatch.setattr(target, name, value)
    code, _, err = run(root, capsys)
    assert code == 5
    assert words in err
    assert json.loads((root / JSON_NAME).read_text())["verdict"] == "failed"


# ---- the certificate --------------------------------------------------------------------------------------


def test_the_certificate(copy: Path, capsys: Printed) -> None:
    before = (copy / "manifest.json").read_bytes()
    assert run(copy, capsys)[0] == 0
    first = [(copy / name).read_bytes() for name in (JSON_NAME, TEXT_NAME)]
    assert run(copy, capsys)[0] == 0
    assert [(copy / name).read_bytes() for name in (JSON_NAME, TEXT_NAME)] == first
    assert (copy / "manifest.json").read_bytes() == before
    certificate = json.loads(first[0])
    assert certificate["verdict"] == "passed"
    assert certificate["about"]["trajectories"] == {"train": 20, "valid": 10, "test": 10, "ood": 10}
    assert certificate["manifest_sha256"] in first[1].decode()
    assert str(copy.parent).encode() not in b"".join(first)
    flip(copy / VALID, 0.5)
    assert run(copy, capsys)[0] == 3
    assert "# Certificate: failed" in (copy / TEXT_NAME).read_text()


def test_the_table_of_a_terminal(copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "90")
    flip(copy / TEST, 0.5)
    code, out, _ = run(copy, capsys)
    assert code == 3
    assert "test-0000" in out.replace("\n", "")
    assert "failed" in out
    assert "Audit of data set" in out


def test_json_output(copy: Path, capsys: Printed) -> None:
    code, out, _ = run(copy, capsys, "--json")
    assert code == 0
    assert json.loads(out) == json.loads((copy / JSON_NAME).read_text())
    flip(copy / TEST, 0.5)
    code, out, _ = run(copy, capsys, "--json")
    assert code == 3
    assert json.loads(out)["verdict"] == "failed"


def test_format_only_leaves_no_trace(copy: Path, capsys: Printed) -> None:
    code, out, _ = run(copy, capsys, "--format-only")
    assert code == 0
    assert "reproduction" not in out
    assert not (copy / JSON_NAME).exists()


def test_a_folder_that_cannot_be_written(copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    def refuse(self: Report) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Report, "write", refuse)
    code, _, err = run(copy, capsys)
    assert code == 0
    assert "The certificate could not be written (Permission denied)." in err


@pytest.mark.parametrize("samples", ["0", "-1", "10001"])
def test_wrong_options(copy: Path, samples: str, capsys: Printed) -> None:
    assert main(["audit", str(copy), "--samples", samples]) == 2
    assert "samples must be from 1 to 10,000" in capsys.readouterr().err


def test_costly_rows_are_fewer_and_it_is_said(copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setattr(physics_checks, "HEAVY", 1.0)
    said: list[str] = []
    report = audit(copy, AuditConfig(device="cpu"), said.append)
    assert report.verdict == "passed in part"
    assert "Checking 1 row; --samples asks for more." in said[0]
    skipped = [finding.sentence for finding in report.findings if finding.state == "skipped"]
    assert skipped[0].startswith("valid, test, ood: not solved again.")
    assert skipped[1].startswith("error in space: not measured.")


# ---- other people's folders -------------------------------------------------------------------------------


@pytest.fixture
def foreign(copy: Path) -> Path:
    """The same files as somebody else might have written them."""
    for entry in copy.iterdir():
        if entry.name not in ("data", "stats.yaml"):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for path in copy.glob("data/*/*.hdf5"):
        with h5py.File(path, "r+") as file:
            del file["provenance"]
    return copy


def test_a_system_may_come_to_rest(copy: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it declares so, frames that do not move are reported, and are no fault."""
    change(copy, TEST, freeze)
    monkeypatch.setattr(Combined, "comes_to_rest", True)
    _, out, err = run(copy, capsys)
    words = "1 trajectory contains frames equal to the one before (test: 4), first at frame 8."
    line = next(line for line in out.splitlines() if words in line)
    assert line.startswith("reported frames")
    assert words not in err


def test_a_foreign_folder_gets_what_can_be_said(foreign: Path, capsys: Printed) -> None:
    code, out, _ = run(foreign, capsys)
    assert code == 0
    assert "ok       format   The Well's layout and the same declarations in 4 files" in out
    assert "ok       frames   train: 20 trajectories, all finite" in out
    assert "skipped  physics  pdejepa did not make this data set" in out
    assert sorted(entry.name for entry in foreign.iterdir()) == ["data", "stats.yaml"]
    assert main(["show", str(foreign), "--out", str(foreign.parent / "p.png")]) == 0


def test_faults_of_a_foreign_folder(foreign: Path, capsys: Printed) -> None:
    change(foreign, TEST, put("t0_fields/u", (4, 8), 1.0))
    code, out, _ = run(foreign, capsys)
    assert code == 0  # their field may start from rest
    assert "reported frames   1 trajectory contains frames that are constant in space (test: 4)" in out
    change(foreign, TEST, put("t0_fields/u", (4, 8, 0), np.nan))
    code, _, err = run(foreign, capsys)
    assert code == 3
    assert "1 trajectory contains non-finite values (test: 4), first at frame 8." in err
    change(foreign, TEST, lambda file: file.__delitem__("t1_fields"))
    code, _, err = run(foreign, capsys)
    assert code == 3
    assert f"{TEST}: t1_fields: this group is missing" in err


@pytest.mark.slow
def test_bytes_of_a_foreign_folder(foreign: Path, capsys: Printed) -> None:
    """Whatever is overwritten, the audit ends with a documented code."""
    rng = np.random.default_rng(0)
    whole = (foreign / TEST).read_bytes()
    for _ in range(12):
        raw = bytearray(whole)
        for at in rng.integers(0, 6000, 24):
            raw[at] = int(rng.integers(0, 256))
        (foreign / TEST).write_bytes(raw)
        assert run(foreign, capsys)[0] in (0, 3)
        assert main(["show", str(foreign), "--out", str(foreign / "p.png")]) in (0, 3)


def test_a_folder_without_data(tmp_path: Path, capsys: Printed) -> None:
    code, _, err = run(tmp_path, capsys)
    assert code == 3
    assert "there is no folder data/<split> in it" in err

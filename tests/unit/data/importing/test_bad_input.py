"""Files that cannot be imported: one sentence each, the right exit code, and nothing left behind."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdejepa.app.cli import main
from pdejepa.data.importing import convert
from pdejepa.data.well.reader import Dataset
from tests.unit.data.importing.made import OPTIONS, N, T, X, waves, words, write_source, write_table


class Canary:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def changed(index: tuple[Any, ...], value: float) -> np.ndarray:
    u = waves()[0]
    u[index] = value
    return u


FIELDS: dict[str, tuple[Callable[[], np.ndarray], str]] = {
    "empty": (lambda: np.zeros((0, T, X), np.float32), "is empty: its shape is (0, 6, 32)"),
    "one trajectory": (lambda: waves()[0][:1], "have 1 trajectory, at least 5 are needed"),
    "one frame": (lambda: waves()[0][:, :1], "have 1 frame, at least 4 are needed"),
    "few points": (lambda: waves()[0][:, :, :4], "have 4 points, at least 8 are needed"),
    "not finite": (lambda: changed((7, 3, 1), np.nan), "1 of 40 trajectories hold NaN or infinite values (trajector"),
    "too large": (lambda: 1e39 * waves()[0].astype(np.float64), "hold NaN or infinite values"),
    "constant": (lambda: changed((slice(None),), 2.0), "u is 2 everywhere"),
    "at rest": (lambda: np.repeat(waves()[0][:, :1], T, 1), "All frames of a trajectory are the same"),
    "complex": (lambda: waves()[0].astype(np.complex64), "holds values of type complex64; expected real numbers"),
    "text": (lambda: waves()[0].astype("U8"), "expected real numbers"),
    "wrong axes": (lambda: np.ascontiguousarray(waves()[0].swapaxes(0, 1)), "Did you mean --axes t,n,x?"),
    "other axes": (lambda: waves()[0][..., None], "names 3 axes"),
}


def refused(command: list[str], out: Path, capsys: pytest.CaptureFixture[str], code: int = 3) -> str:
    """The sentence; nothing may be left of the data set."""
    assert main(command) == code
    assert not out.exists()
    sentence = capsys.readouterr().err.strip().splitlines()
    return sentence[-1] if len(sentence) < 3 or "import numpy" not in sentence[-2] else "\n".join(sentence[-3:])


@pytest.mark.parametrize("fault", FIELDS)
def test_fields(fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make, sentence = FIELDS[fault]
    np.save(tmp_path / "u.npy", make())
    assert sentence in refused(words(tmp_path / "u.npy", "none", tmp_path / "data"), tmp_path / "data", capsys)


TABLES: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "rows missing": (lambda rows: rows[:-3], "speed has 37 values for 40 trajectories, fewer than there are"),
    "too many rows": (lambda rows: [*rows, "1.0,2.0"], "41 values for 40 trajectories, more than there are"),
    "a value missing": (lambda rows: [*rows[:5], "1.0,", *rows[6:]], "decay is missing in 1 rows, for example 5"),
    "not finite": (lambda rows: [*rows[:5], "inf,1", *rows[6:]], "row 5, column speed: 'inf' is not a finite number"),
    "text": (lambda rows: [*rows[:5], "fast,1", *rows[6:]], "row 5, column speed: 'fast' is not a finite number"),
    "decimal commas": (lambda rows: [rows[0], *("0,5,0,25" for _ in rows[1:])], "Decimal commas? Write 0.5, not 0,5"),
    "semicolons": (lambda rows: ["speed;decay", *("0,5;1" for _ in rows[1:])], "'0,5' has a decimal comma; write 0.5"),
    "no head": (lambda rows: rows[1:], "begins with numbers; expected a head line"),
    "empty": (lambda rows: [], "is empty; expected a head line"),
    "name twice": (lambda rows: ["speed,speed", *rows[1:]], "names a column twice"),
    "column of files": (lambda rows: ["speed,file", *rows[1:]], "are not one to a file"),
}


@pytest.mark.parametrize("fault", TABLES)
def test_tables(fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, table = write_source(tmp_path)
    spoil, sentence = TABLES[fault]
    table.write_text("\n".join(spoil(table.read_text().splitlines())))
    assert sentence in refused(words(source, table, tmp_path / "data"), tmp_path / "data", capsys)


OPTIONS_REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "built-in name": (("--name", "combined"), "there is a system 'combined' already"),
    "no word": (("--name", "My Data"), "must be a word such as my_flow"),
    "axes": (("--axes", "n,t,z"), "names each axis n, t, c, x or y"),
    "box": (("--box", "1:0"), "--box takes LOW:HIGH"),
    "box of another dimension": (("--box", "0:1,0:1"), "--box needs LOW:HIGH for x; got 2"),
    "step": (("--dt", "-1"), "--dt must be a positive time"),
    "fields": (("--fields", "u,v"), "--fields names 2 fields; the data have 1"),
    "taken": (("--fields", "time"), "the name 'time' has a meaning already"),
    "condition": (("--ood", "speed is large"), "--ood takes conditions"),
    "unknown parameter": (("--ood", "sped>1"), "there is no parameter 'sped', did you mean 'speed'?"),
    "nothing outside": (("--ood", "speed>9"), "no trajectory has speed>9"),
    "ends": (("--ends", "wall"), "--ends must be open, dirichlet, neumann"),
}


@pytest.mark.parametrize("fault", OPTIONS_REFUSED)
def test_options(fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, table = write_source(tmp_path)
    options, sentence = OPTIONS_REFUSED[fault]
    assert sentence in refused(words(source, table, tmp_path / "data", *options), tmp_path / "data", capsys, 2)


def test_without_a_terminal_missing_options_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, table = write_source(tmp_path)
    out = tmp_path / "data"
    told = refused(["import", str(source), "--out", str(out)], out, capsys, 2)
    expected = "--axes n,t,x --dt STEP --box LOW:HIGH --periodic x --params TABLE|none"
    assert told.startswith(f"Not said, and not in the files: {expected}")
    command = [word for word in words(source, table, out) if word != "--yes"]
    assert "Add --yes if the above is right" in refused(command, out, capsys, 2)


def test_sure_axes_are_taken(tmp_path: Path) -> None:
    np.save(tmp_path / "u.npy", waves()[0].swapaxes(0, 1)[:, :5])
    command = words(tmp_path / "u.npy", "none", tmp_path / "data", "--sure")
    assert main(command) == 0


def test_uneven_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "u.npz", u=waves()[0], t=[0, 1, 2, 3, 5, 8])
    told = refused(words(tmp_path / "u.npz", "none", tmp_path / "data"), tmp_path / "data", capsys)
    assert "frames are not evenly spaced, the gaps go from 1 to 3. Interpolate them to even times first" in told


def test_different_lengths_are_refused_or_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    u = waves()[0]
    for row in range(12):
        np.save(tmp_path / f"run{row:02d}.npy", u[row, : 4 + row % 2])
    files = [str(path) for path in sorted(tmp_path.glob("run*.npy"))]
    out = tmp_path / "data"
    command = ["import", *files, "--axes", "t,x", "--params", "none", *OPTIONS, "--name", "runs", "--yes"]
    told = refused([*command, "--out", str(out)], out, capsys)
    assert "different lengths, 4 to 5 frames" in told
    assert "--lengths cut" in told
    assert main([*command, "--out", str(out), "--lengths", "cut"]) == 0
    with Dataset.open(out) as data:
        assert data.fields("train").shape == (10, 4, 1, X)
    assert "were cut to the first 4" in (out / "README.md").read_text()


def test_ragged_arrays_and_pickles_are_never_unpickled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ragged = np.empty(2, dtype=object)
    ragged[0], ragged[1] = Canary(tmp_path / "canary"), np.zeros(3)
    np.save(tmp_path / "ragged.npy", ragged, allow_pickle=True)
    np.savez(tmp_path / "ragged.npz", u=ragged)
    np.savez_compressed(tmp_path / "packed.npz", u=ragged)
    for name in ("plain.pkl", "plain.pt", "renamed.npy"):
        (tmp_path / name).write_bytes(pickle.dumps(Canary(tmp_path / "canary"), protocol=4))
    for name in ("ragged.npy", "ragged.npz", "packed.npz", "plain.pkl", "plain.pt", "renamed.npy"):
        told = refused(words(tmp_path / name, "none", tmp_path / "data"), tmp_path / "data", capsys)
        assert "holds Python objects (a pickle), which can run code and is not loaded" in told
        assert "np.save(" in told
    assert not (tmp_path / "canary").exists()


def test_cut_and_damaged_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "u.npy", waves()[0])
    np.savez_compressed(tmp_path / "u.npz", u=waves()[0])
    whole, packed = (tmp_path / "u.npy").read_bytes(), (tmp_path / "u.npz").read_bytes()
    contents = {
        "cut.npy": (whole[:-100], "is cut off"),
        "head.npy": (whole[:20], "has no readable description"),
        "none.npy": (b"", "is empty (zero bytes)"),
        "other.npy": (b"x,u\n1,2\n", "expected .npy or .npz"),
        "cut.npz": (packed[:-200], "is damaged or no npz file"),
        "flipped.npz": (packed[:2000] + bytes([packed[2000] ^ 255]) + packed[2001:], "is damaged or no npz file"),
    }
    for name, (raw, sentence) in contents.items():
        (tmp_path / name).write_bytes(raw)
        assert sentence in refused(words(tmp_path / name, "none", tmp_path / "data"), tmp_path / "data", capsys), name
    gone = words(tmp_path / "gone.npy", "none", tmp_path / "data")
    assert "cannot be read" in refused(gone, tmp_path / "data", capsys)


def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, table = write_source(tmp_path)
    write = convert._Run._write

    def disturbed(run: Any, *args: Any) -> None:
        write(run, *args)
        np.savez(source, u=2 * waves()[0])

    monkeypatch.setattr(convert._Run, "_write", disturbed)
    told = refused(words(source, table, tmp_path / "data"), tmp_path / "data", capsys)
    assert "fields.npz changed while it was read" in told


def test_repeated_trajectories_are_left_out_and_told(tmp_path: Path) -> None:
    u, columns = waves()
    u[9], columns["speed"][9], columns["decay"][9] = u[3], columns["speed"][3], columns["decay"][3]
    np.save(tmp_path / "u.npy", u)
    table = write_table(tmp_path / "table.csv", columns)
    assert main(words(tmp_path / "u.npy", table, tmp_path / "data")) == 0
    with Dataset.open(tmp_path / "data") as data:
        rows = np.concatenate([data.column(split, "source_row") for split in data.splits])
        assert sorted(rows) == [row for row in range(N) if row != 9]
    assert "1 trajectory of the sources repeated another one" in (tmp_path / "data/CERTIFICATE.md").read_text()


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, table = write_source(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/notes.txt").write_text("mine")
    assert main(words(source, table, tmp_path / "data")) == 3
    assert "is not empty and holds no imported data" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["notes.txt"]


@pytest.mark.slow
def test_very_many_small_files(tmp_path: Path) -> None:
    draws = np.random.default_rng(0).normal(size=(20_000, 4, 8)).astype(np.float32).cumsum(1)
    for row, values in enumerate(draws):
        np.save(tmp_path / f"{row:05d}.npy", values)
    files = [str(path) for path in sorted(tmp_path.glob("*.npy"))]
    command = ["import", *files, "--axes", "t,x", "--params", "none", *OPTIONS, "--name", "many", "--yes"]
    assert main([*command, "--out", str(tmp_path / "data")]) == 0
    with Dataset.open(tmp_path / "data") as data:
        assert sum(data.n(split) for split in data.splits) == 20_000

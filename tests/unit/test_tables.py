"""`benchmarks/tables.py`: tables from result files, and the lab holds those that its marks name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdejepa.core.documents import find_marks, marked_names
from tests.unit.scripts import ROOT, load_script

tables = load_script("benchmarks/tables.py")

MARKS = [
    (path, name)
    for path in sorted((ROOT / "lab").glob("*.md"))
    for name in marked_names(path)
    if name.startswith(tables.PREFIX)
]


@pytest.mark.parametrize(("path", "name"), MARKS, ids=[f"{path.stem}-{name}" for path, name in MARKS])
def test_tables_of_the_lab_are_up_to_date(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (ROOT / "results").is_dir():
        pytest.skip("the results are not part of this copy")
    monkeypatch.chdir(ROOT)
    lines, begin, end = find_marks(path, name)
    written = tables.table(name.removeprefix(tables.PREFIX))
    assert "".join(lines[begin + 1 : end]) == f"{written}\n", "run: python benchmarks/tables.py lab/*.md"


def test_only_what_stands_between_the_marks_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = {"rel_l2": 0.0123, "rel_l2_joint": None, "repeat_first": 1.5, "n": 12}
    record = {"recipe": "fast", "polish": False, "errors": {"test": found}, "seconds": {"total": 61.2}, "device": "cpu"}
    for name in ("b-1", "b-2", "a"):
        Path(f"{name}.json").write_text(json.dumps({**record, "system": name}))
    page = Path("page.md")
    page.write_text("before\n<!-- table: b-*.json a.json -->\nold\n<!-- end table: b-*.json a.json -->\nafter\n")
    monkeypatch.setattr("sys.argv", ["tables", "page.md"])
    tables.main()
    first, mark, *lines, end, last = page.read_text().splitlines()
    marks = ("<!-- table: b-*.json a.json -->", "<!-- end table: b-*.json a.json -->")
    assert (first, mark, end, last) == ("before", *marks, "after")
    assert [line.split()[1] for line in lines[2:]] == ["b-1", "b-2", "a"]  # as the patterns stand, then by name
    assert lines[2] == "| b-1 | fast | test | 12 | 1.23 % |  | 150 % | 61 | cpu |"


def test_a_mark_that_fits_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"no file fits no/such\.json; run from the top folder"):
        tables.table("no/such.json")


def test_limits() -> None:
    row = dict.fromkeys(("direct", "one_step", "forecast", "latent_one_step", "latent_forecast"), 0.0123)
    known = {"system": "combined", "recipe": "fast", "polish": True, "seed": 3, "split": "ood", "n": 2}
    line = tables.limit_table({"device": "cpu", "limits": [{**known, **row}]}).splitlines()[-1]
    assert line.startswith("| combined | fast, polished, seed 3 | ood | 1.23 % | 1.23 % |")


def test_breakeven_rows_of_several_files() -> None:
    row = {
        "model": "it", "batch": 4, "error": 0.01, "forecast_seconds": 0.2, "solver_setting": "9 points",
        "solver_error": 0.002, "solver_seconds": 0.05, "data_seconds": 3.4, "training_seconds": 60.2,
        "trained_on": "A", "measured_on": "B", "reason": "never",
    }  # fmt: skip
    other = {**row, "model": "that", "data_seconds": None, "measured_on": "C"}
    text = tables.breakeven_table([{"breakeven": [row]}, {"breakeven": [other]}])
    assert text.startswith("B, C; ms per trajectory.")
    lines = text.splitlines()
    assert lines[-2] == "| it | 4 | 1 % | 200 | 9 points | 0.2 % | 50 | 3 + 60 s, A | never |"
    assert "| not told | never |" in lines[-1]


def test_solver_records_tell_who_blew_up() -> None:
    found = {"rel_l2": 0.05, "rel_l2_joint": 0.04, "median": 0.01, "n": 12, "n_diverged": 3}
    record = {"title": "It", "errors": {"test": found}, "seconds": 7.2, "ms_per_forecast": 1.25}
    rows = [{**record, "system": name} for name in ("gray_scott", "combined")]
    *_, first, second = tables.solver_table(rows).splitlines()
    assert first == "| combined | It | 5 % | 1 % | 3 of 12 | - | - | - | 7 | 1.25 |"
    assert second.startswith("| gray_scott | It | 4 % |")


def test_coverage_of_bands() -> None:
    """Promised where they hold within the sampling interval; no promise elsewhere."""
    test = {"split": "test", "n": 100, "shares": [0.55, 0.8], "errors": [0.0, 0.01], "n_environments": 12}
    ood = {**test, "split": "ood", "shares": [0.1, 0.3]}
    report = {"levels": [0.5, 0.9], "widths": [[[0.1]], [[0.2]]], "n": 240, "weights_sha256": "a" * 64}
    line = tables.coverage_table({"combined": {**report, "coverage": [test, ood]}}).splitlines()[-1]
    assert line == (
        "| combined | 240 cases | 100 cases, 12 environments | 55.0 % ± 9.8 % | 80.0 % ± 5.9 % | no "
        "| ood, no promise: 10 % and 30 % of 100 |"
    )
    held = tables.coverage_table({"m": {**report, "coverage": [{**test, "shares": [0.5, 0.9]}]}})
    assert held.splitlines()[-1].endswith("| yes | - |")

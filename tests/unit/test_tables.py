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

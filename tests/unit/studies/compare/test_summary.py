"""One table of all comparisons, for documents."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pdejepa.app.cli import main
from pdejepa.studies.compare.summary import _tables, summary, summary_rows
from tests.unit.studies.compare.records_made import record

ROOT = Path(__file__).parents[4]
MARKS = "<!-- compare -->\nold\n<!-- end compare -->\n"


def test_a_line_per_solver_and_columns_per_table() -> None:
    best, other = record("fno", 0.01), record("cape", 0.04)
    long, plane = record("cape", 0.02, budget_seconds=600.0), record("cape", 0.2, "gray_scott")
    best["errors"]["test"]["repeat_first"] = 1.34
    head, lines = summary_rows(_tables([best, other, long, plane]))
    names = ("combined, 180 s", "combined, 600 s", "gray_scott, 180 s")
    assert head[2:] == tuple(f"{name}: {split}" for name in names for split in ("test", "ood"))
    assert lines == [
        ("FNO", "nothing", "1%", "2%", "", "", "", ""),
        ("CAPE", "parameters", "4%", "8%", "2%", "4%", "10%", "10%"),  # Gray-Scott: one norm
        ("(the first frame again)", "", "134%", "", "", "", "", ""),
    ]


def test_seeds_are_averaged() -> None:
    seeds = [record("fno", test, seed=seed) for seed, test in enumerate((0.01, 0.03))]
    assert summary_rows(_tables(seeds))[1] == [("FNO", "nothing", "2%", "4%")]


def test_splits_of_other_names_have_columns() -> None:
    one = record("fno", 0.1, "heterns")
    one["errors"]["ood_forcing"] = {**one["errors"].pop("ood"), "rel_l2": 0.93}
    head, lines = summary_rows(_tables([one]))
    assert (head[-1], lines[0][-1]) == ("heterns, 180 s: ood_forcing", "93%")


def test_tables_with_the_same_short_title_have_whole_ones() -> None:
    records = [record("fno", 0.1), record("fno", 0.2, device="NVIDIA H200")]
    assert list(_tables(records))[1] == "combined, 180 s each from scratch, recipe fast, paper data, NVIDIA H200"
    assert list(_tables(records[:1])) == ["combined, 180 s"]


def test_who_is_best_and_where_the_rest_is() -> None:
    text = summary([record("fno", 0.01), record("pdejepa", 0.02, title="PDE-JEPA")], "a b/compare.md")
    assert "- combined, 180 s. Smallest errors: test FNO (1%, PDE-JEPA 2.0 times as much)" in text
    assert text.endswith("the published numbers: [a b/compare.md](a%20b/compare.md).\n")


def test_a_report_writes_all_tables_beside_the_records_and_a_summary_into_a_document(tmp_path: Path) -> None:
    records, document = tmp_path / "records", tmp_path / "docs" / "page.md"
    for folder in (records, document.parent):
        folder.mkdir()
    (records / "a.json").write_text(json.dumps(record("fno", 0.05)))
    document.write_text(MARKS)
    assert main(["compare", "--report", str(records), "--write", str(document)]) == 0
    whole = (records / "compare.md").read_text()
    assert "](compare.png)" in whole
    assert "| FNO | 5% | 10% |" in whole
    assert "why it may differ" in whole
    assert "| FNO | nothing | 5% | 10% |" in document.read_text()
    assert "(../records/compare.md)" in document.read_text()
    before = document.read_text(), whole
    assert main(["compare", "--report", str(records), "--write", str(document)]) == 0
    assert (document.read_text(), (records / "compare.md").read_text()) == before


def test_the_readme_shows_the_committed_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are written by a command, so it fails if a record is changed, or a table by hand."""
    shutil.copytree(ROOT / "results/compare", tmp_path / "results/compare", ignore=shutil.ignore_patterns("*.md"))
    (tmp_path / "README.md").write_text(MARKS)
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "--report", "results/compare", "--write", "README.md"]) == 0
    assert (tmp_path / "results/compare/compare.md").read_text() == (ROOT / "results/compare/compare.md").read_text()
    assert (tmp_path / "README.md").read_text() in (ROOT / "README.md").read_text()

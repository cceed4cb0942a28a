"""Tables and a picture of comparisons, from their records."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pdejepa.app.cli import main
from pdejepa.core.errors import DataError
from pdejepa.studies.compare.comparison_records import SolverRecord, read_records
from pdejepa.studies.compare.comparison_tables import (
    HEAD,
    SPARE,
    caveats,
    group_tables,
    groups,
    ledger,
    page,
    rows,
    short_groups,
    summary,
    summary_table,
    told,
)
from pdejepa.studies.compare.cost_picture import panels, plot
from tests.unit.studies.compare.records_made import made, read, record

ROOT = Path(__file__).parents[4]
MARKS = "<!-- compare -->\nold\n<!-- end compare -->\n"


def _read(folder: Path, *records: dict[str, Any]) -> list[SolverRecord]:
    """Records as a report finds them, in 0.json, 1.json, ..."""
    for number, one in enumerate(records):
        (folder / f"{number}.json").write_text(json.dumps(one))
    return read_records(sorted(folder.glob("*.json")))


def test_tables_and_picture(tmp_path: Path) -> None:
    for solver, value in (("lns", 0.2), ("fno", 0.05)):
        (tmp_path / f"{solver}.json").write_text(json.dumps(record(solver, value)))
    (tmp_path / "other.json").write_text("[1, 2]")
    records = read_records([tmp_path])
    assert [one.solver for one in records] == ["fno", "lns"]  # best first
    assert rows(records)[0][:3] == ("FNO", "5%", "10%")
    assert ledger(records)[0][:3] == ("FNO", "3.74%", "5%")
    text = page(records, "c.png", "m.png")
    assert "| FNO | 5% | 10% |" in text
    assert "](c.png)" in text
    assert "](m.png)" in text
    assert [row[7] for row in rows(records)] == ["1.50 M", "2.5 k"]
    assert caveats(records[:1]) == []
    plot(records, tmp_path / "c.png")
    assert (tmp_path / "c.png").stat().st_size > 5_000


def test_budgets_of_one_comparison_share_a_panel(tmp_path: Path) -> None:
    short, long = made("fno", 0.05), made("fno", 0.04, budget_seconds=600.0)
    other = made("lns", 0.2, device="another {device}")
    found = panels([short, long, other])
    assert [[len(table) for table in tables] for tables in found.values()] == [[1, 1], [1]]
    assert [heading.split(" each")[0] for heading in found] == ["combined, 180 s and 600 s", "combined, 180 s"]
    plot([short, long, other], tmp_path / "c.png")
    assert (tmp_path / "c.png").stat().st_size > 5_000


def test_narrow_terminals_keep_names_and_errors() -> None:
    assert set(HEAD) - set(SPARE) == {"solver", "test", "ood"}
    assert set(SPARE) < set(HEAD)


def test_who_repeats_the_first_frame_stands_below_all() -> None:
    one = record("fno", 0.05)
    for split, value in (("test", 1.34), ("ood", 1.51)):
        one["errors"][split]["repeat_first"] = value
    one["errors"]["test"]["blind"] = 0.41
    first, blind = rows([read(one)])[1:]
    assert first == ("(the first frame again)", "134%", "151%", "", "", "1", *[""] * 8)
    assert blind[1:3] == ("41%", "")
    assert "parameters unknown" in blind[0]


def test_what_solvers_are_told() -> None:
    found = {name: told(name) for name in ("pdejepa", "unisolver", "fno", "zebra", "geps", "cls_vit")}
    assert found["pdejepa"] == found["unisolver"] == "parameters"
    assert found["zebra"] == found["geps"] == found["cls_vit"] == "a trajectory"
    assert found["fno"] == ""
    assert rows([made("geps", 0.1, adapts="gradient")])[0][10] == "3.0 ms"


def test_who_took_a_single_step_is_named() -> None:
    starved = made("pdejepa", 0.2, title="PDE-JEPA", steps={"dynamics": 3000, "decode": 1, "polish": 1})
    assert caveats([starved, made("fno", 0.1)]) == ["Stages with one step only: PDE-JEPA (decode, polish)."]


def test_sizes_operations_and_machines_are_told() -> None:
    """Two sizes of a solver are two lines; records without these keys have no such notes."""
    told = {"recipe": "laptop", "machine": "2 threads of a CPU", "flops_per_forecast": 1.8e9}
    group = [
        made("unisolver", 0.2, title="UniSolver", **told),
        made("unisolver", 0.1, title="UniSolver, size of fast", network="fast", **told),
        made("pdejepa", 0.05, title="PDE-JEPA", **told),
    ]
    assert caveats(group) == [
        "Sized to about the operations of PDE-JEPA: UniSolver.",
        "Operations of a forecast, without adapting: UniSolver 1.8e+09; UniSolver, size of fast 1.8e+09; "
        "PDE-JEPA 1.8e+09.",
        "Measured on: 2 threads of a CPU.",
    ]
    assert [row[0] for row in rows(group)[:3]] == ["UniSolver", "UniSolver, size of fast", "PDE-JEPA"]
    assert len({row[0] for row in summary_table(group).rows}) >= 3
    assert len({one.question for one in group}) == 3


def test_the_ledger_counts_steps() -> None:
    blind = {"fno": True, "geps": False, "cape": False}
    why = {name: ledger([made(name, 0.1, is_blind=value)])[0][-1] for name, value in blind.items()}
    assert why["geps"] == "about 3,750,000 steps there, 1,000 here"
    assert why["fno"].endswith("here only one frame is true; about 188,000 steps there, 1,000 here")
    assert why["cape"] == "quoted there from earlier work, other protocol"
    assert "not comparable" in ledger([made("zebra", 0.1, "gray_scott")])[0][-1]
    joint = ledger([made("unisolver", 0.1, "gray_scott")])[0]
    assert (joint[2], joint[-1].split("; ")[-1]) == (
        "5%",
        "as a mean over channels, which the paper's public code takes, 10% and 20% here",
    )
    plane = [ledger([made("mae_pde", 0.1, system)])[0][-1] for system in ("combined", "gray_scott")]
    assert [line.split()[1] for line in plane] == ["2,800", "30,000"]


def test_gray_scott_is_judged_by_one_norm() -> None:
    assert made("fno", 0.2, "gray_scott").error("test") == 0.1
    assert made("fno", 0.2).error("test") == 0.2


@pytest.mark.parametrize("other", ["b" * 64, ""])
def test_other_data_are_refused(other: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        _read(tmp_path, record("fno", 0.1), record("lns", 0.2, budget_seconds=600.0, data_hash=other))
    assert str(caught.value) == (
        f"{tmp_path / '0.json'} and {tmp_path / '1.json'} cannot be in one report: expected the same data of combined, "
        f"got data_hash aaaaaaaaaaaa and {'b' * 12 if other else 'none'}. Report them apart, or move the one with the "
        "old data away and run its comparison again."
    )


def test_other_systems_and_sizes_have_other_data(tmp_path: Path) -> None:
    more = (record("fno", 0.1, "gray_scott", data_hash="b"), record("fno", 0.1, size="tiny", data_hash="c"))
    records = _read(tmp_path, record("fno", 0.1), *more)
    assert [len(group) for group in groups(records).values()] == [1, 1, 1]


def test_every_budget_and_size_has_its_own_table(tmp_path: Path) -> None:
    longer = [record(name, 0.01, budget_seconds=600.0, seconds=601.0) for name in ("fno", "unisolver")]
    records = _read(tmp_path, *longer, record("fno", 0.1), record("fno", 0.3, size="tiny", data_hash="c"))
    tables = {title: [r.solver for r in group] for title, group in groups(records).items()}
    assert tables == {
        "combined, 180 s each from scratch, recipe fast, paper data, cpu": ["fno"],
        "combined, 180 s each from scratch, recipe fast, tiny data, cpu": ["fno"],
        "combined, 600 s each from scratch, recipe fast, paper data, cpu": ["fno", "unisolver"],
    }
    assert not any(caveats(group) for group in groups(records).values())


def test_another_device_has_its_own_table(tmp_path: Path) -> None:
    records = _read(tmp_path, record("fno", 0.1), record("cape", 0.1, device="NVIDIA H200", data_hash="b" * 64))
    assert [len(group) for group in groups(records).values()] == [1, 1]


def test_other_commits_are_noted() -> None:
    commits = {"fno": "1" * 40, "dpot": "1" * 40, "cape": "2" * 40 + "-changed", "geps": ""}
    records = [made(name, 0.1, commit=commit) for name, commit in commits.items()]
    assert caveats(records) == [
        "Measured at different commits: 1111111: FNO, DPOT; 2222222-changed: CAPE; unknown: GEPS."
    ]
    assert caveats(records[:2]) == []


def test_places_without_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert read_records([tmp_path]) == []
    assert main(["compare", "--report", str(tmp_path)]) == DataError.exit_code
    assert f"No records of comparisons in {tmp_path}" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(DataError, match=r"nowhere does not exist\. Give folders or files with records"):
        read_records([tmp_path / "nowhere"])


def test_each_file_once_and_no_two_answers_to_one_question(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(record("fno", 0.1)))
    assert len(read_records([tmp_path, tmp_path / "a.json", tmp_path / "." / "a.json"])) == 1
    (tmp_path / "b.json").write_text(json.dumps(record("fno", 0.2)))
    with pytest.raises(DataError, match=r"a\.json and .*b\.json are records of the same: combined, fno, fast, paper"):
        read_records([tmp_path])


def test_splits_with_other_names_are_shown(tmp_path: Path) -> None:
    one = record("fno", 0.1, "heterns")
    one["errors"]["ood_forcing"] = {**one["errors"].pop("ood"), "rel_l2": 0.93}
    records = _read(tmp_path, one)
    _, others = group_tables("title", records)
    assert (others.head, others.rows) == (("solver", "ood_forcing"), [("FNO", "93%")])
    assert "| FNO | 93% |" in page(records, "c.png", "m.png")
    assert [table.head[1] for table in group_tables("title", [made("fno", 0.1)])] == ["test", "paper, test"]


def test_several_seeds_are_told_apart() -> None:
    seeds = [made("pdejepa", test, seed=seed, seconds=90.0 + seed) for seed, test in enumerate((0.01, 0.012))]
    records = [made("unisolver", 0.005), *seeds]
    assert caveats(records) == ["More than 10% beside the budget: PDEJEPA, seed 0 90 s; PDEJEPA, seed 1 91 s."]
    assert [line[0] for line in ledger(records)] == ["UNISOLVER", "PDEJEPA, seed 0", "PDEJEPA, seed 1"]


def test_titles_mean_nothing_to_markdown(tmp_path: Path) -> None:
    assert "\\*\\*b" in page(_read(tmp_path, record("fno", 0.1, device="**b**")), "c.png", "m.png")


def test_a_report_takes_no_options_of_a_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--solvers", "all"], ["--budget", "3min"], ["--out", "x"], ["--device", "cpu"]):
        assert main(["compare", "--report", str(tmp_path), *words]) == 2
        assert f"drop {words[0]}." in " ".join(capsys.readouterr().err.split())


def test_who_diverged_is_named() -> None:
    """100 % may be less than the error of a solver that stayed finite."""
    one = record("mpp", 1.0)
    one["errors"]["test"]["n_diverged"] = 2
    assert caveats([read(one), made("fno", 0.1)]) == ["Diverged, counted as 100%: MPP 2 of 3 on test."]


def test_tails_that_begin_elsewhere_are_told_apart() -> None:
    records = [record("fno", 0.1), record("cape", 0.1)]
    for one, frame in zip(records, (5, 10), strict=True):
        one["errors"]["test"]["tail_from"] = frame
    assert caveats(list(map(read, records))) == ["Tails begin at different frames: frame 5: FNO; frame 10: CAPE."]
    records[1]["errors"]["test"]["tail_from"] = 5
    assert caveats(list(map(read, records))) == []


def test_one_record_has_its_own_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text(json.dumps(record("fno", 0.1)))
    (tmp_path / "compare.png").write_text("that of the folder")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "compare").write_text("no folder, and none is needed")
    assert main(["compare", "--report", str(tmp_path / "a.json")]) == 0
    assert (tmp_path / "compare.png").read_text() == "that of the folder"
    assert (tmp_path / "a.png").exists()


# ---- one table of all comparisons ---------------------------------------------------------------------------------
def test_a_line_per_solver_and_columns_per_table() -> None:
    best = record("fno", 0.01)
    best["errors"]["test"]["repeat_first"] = 1.34
    long, plane = made("cape", 0.02, budget_seconds=600.0), made("cape", 0.2, "gray_scott")
    table = summary_table([read(best), made("cape", 0.04), long, plane])
    names = ("combined, 180 s", "combined, 600 s", "gray_scott, 180 s")
    assert table.head[2:] == tuple(f"{name}: {split}" for name in names for split in ("test", "ood"))
    assert table.rows == [
        ("FNO", "nothing", "1%", "2%", "", "", "", ""),
        ("CAPE", "parameters", "4%", "8%", "2%", "4%", "10%", "10%"),  # Gray-Scott: one norm
        ("(the first frame again)", "", "134%", "", "", "", "", ""),
    ]


def test_seeds_are_averaged() -> None:
    seeds = [made("fno", test, seed=seed) for seed, test in enumerate((0.01, 0.03))]
    assert summary_table(seeds).rows == [("FNO", "nothing", "2%", "4%")]


def test_splits_of_other_names_have_columns() -> None:
    one = record("fno", 0.1, "heterns")
    one["errors"]["ood_forcing"] = {**one["errors"].pop("ood"), "rel_l2": 0.93}
    table = summary_table([read(one)])
    assert (table.head[-1], table.rows[0][-1]) == ("heterns, 180 s: ood_forcing", "93%")


def test_tables_with_the_same_short_title_have_whole_ones() -> None:
    records = [made("fno", 0.1), made("fno", 0.2, device="NVIDIA H200")]
    assert list(short_groups(records))[1] == "combined, 180 s each from scratch, recipe fast, paper data, NVIDIA H200"
    assert list(short_groups(records[:1])) == ["combined, 180 s"]


def test_where_the_rest_is() -> None:
    text = summary([made("fno", 0.01)], "a b/compare.md")
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


def test_the_results_page_shows_the_committed_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are written by a command, so it fails if a record is changed, or a table by hand."""
    shutil.copytree(ROOT / "results/compare", tmp_path / "results/compare", ignore=shutil.ignore_patterns("*.md"))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/results.md").write_text(MARKS)
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "--report", "results/compare", "--write", "docs/results.md"]) == 0
    assert (tmp_path / "results/compare/compare.md").read_text() == (ROOT / "results/compare/compare.md").read_text()
    assert (tmp_path / "docs/results.md").read_text() in (ROOT / "docs/results.md").read_text()

"""Tables and a picture of comparisons, from their records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pdejepa.app.cli import main
from pdejepa.core.errors import DataError
from pdejepa.studies.compare.caveats import cautions
from pdejepa.studies.compare.comparison_records import error, read_records
from pdejepa.studies.compare.comparison_tables import HEAD, SPARE, groups, ledger, markdown, others, rows, told
from pdejepa.studies.compare.cost_picture import _panels, plot
from tests.unit.studies.compare.records_made import record


def _read(folder: Path, *records: dict[str, Any]) -> list[dict[str, Any]]:
    """Records as a report finds them, in 0.json, 1.json, ..."""
    for number, one in enumerate(records):
        (folder / f"{number}.json").write_text(json.dumps(one))
    return read_records(sorted(folder.glob("*.json")))


def test_tables_and_picture(tmp_path: Path) -> None:
    for solver, value in (("lns", 0.2), ("fno", 0.05)):
        (tmp_path / f"{solver}.json").write_text(json.dumps(record(solver, value)))
    (tmp_path / "other.json").write_text("[1, 2]")
    records = read_records([tmp_path])
    assert [one["solver"] for one in records] == ["fno", "lns"]  # best first
    assert rows(records)[0][:3] == ("FNO", "5%", "10%")
    assert ledger(records)[0][:3] == ("FNO", "3.74%", "5%")
    assert "| FNO | 5% | 10% |" in markdown(records)
    assert [row[7] for row in rows(records)] == ["1.50 M", "2.5 k"]
    assert "not how good they are" in markdown(records)
    assert cautions(records[:1]) == []
    plot(records, tmp_path / "c.png")
    assert (tmp_path / "c.png").stat().st_size > 5_000


def test_budgets_of_one_comparison_share_a_panel(tmp_path: Path) -> None:
    short, long, other = record("fno", 0.05), record("fno", 0.04), record("lns", 0.2)
    long["budget_seconds"], other["device"] = 600.0, "another {device}"
    panels = _panels([short, long, other])
    assert [[len(table) for table in tables] for tables in panels.values()] == [[1, 1], [1]]
    assert [heading.split(" each")[0] for heading in panels] == ["combined, 180 s and 600 s", "combined, 180 s"]
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
    first, blind = rows([one])[1:]
    assert first == ("(the first frame again)", "134%", "151%", "", "", "1", *[""] * 8)
    assert blind[1:3] == ("41%", "")
    assert "parameters unknown" in blind[0]


def test_what_solvers_are_told() -> None:
    found = {name: told(name) for name in ("pdejepa", "unisolver", "fno", "zebra", "geps", "cls_vit")}
    assert found["pdejepa"] == found["unisolver"] == "parameters"
    assert found["zebra"] == found["geps"] == found["cls_vit"] == "a trajectory"
    assert found["fno"] == ""
    assert cautions([record("geps", 0.1, adapts="gradient")])[0].startswith("GEPS: before a forecast they fit a code")


def test_who_cannot_know_the_parameters_is_named() -> None:
    told, blind = record("cape", 0.05, is_blind=False), record("fno", 0.4, is_blind=True)
    assert not cautions([told])
    assert cautions([told, blind])[0].startswith("FNO: told neither parameters")


def test_the_method_says_what_the_others_lack() -> None:
    assert "Muon" in cautions([record("pdejepa", 0.04)])[0]
    assert "bfloat16" not in cautions([record("pdejepa", 0.04)])[0]  # on a CPU nobody trains in it
    assert "bfloat16" in cautions([record("pdejepa", 0.04, device="NVIDIA H200")])[0]


def test_who_took_a_single_step_is_named() -> None:
    starved = record("pdejepa", 0.2, title="PDE-JEPA", steps={"dynamics": 3000, "decode": 1, "polish": 1})
    said = cautions([starved, record("fno", 0.1)])
    assert "One step only, so hardly trained: PDE-JEPA (decode, polish). The budget is too short for them." in said


def test_who_is_best() -> None:
    other, own = record("fno", 0.01), record("pdejepa", 0.02, title="PDE-JEPA")
    other["errors"]["ood"]["rel_l2"] = 0.05
    said = cautions([other, own])[0]
    assert said.startswith("Smallest errors: test FNO (1%, PDE-JEPA 2.0 times as much); ood PDE-JEPA (4%).")
    assert "Not measured: CAPE" in said
    assert "FNO" not in said.partition("Not measured")[2]
    assert "Smallest" not in " ".join(cautions([{**one, "recipe": "tiny"} for one in (other, own)]))


def test_the_ledger_counts_steps() -> None:
    blind = {"fno": True, "geps": False, "cape": False}
    why = {name: ledger([record(name, 0.1, is_blind=value)])[0][-1] for name, value in blind.items()}
    assert why["geps"] == "about 3,750,000 steps there, 1,000 here"
    assert why["fno"].endswith("here only one frame is true; about 188,000 steps there, 1,000 here")
    assert why["cape"] == "quoted there from earlier work, other protocol"
    assert "not comparable" in ledger([record("zebra", 0.1, "gray_scott")])[0][-1]
    joint = ledger([record("unisolver", 0.1, "gray_scott")])[0]
    assert (joint[2], joint[-1].split("; ")[-1]) == (
        "5%",
        "as a mean over channels, which the paper's public code takes, 10% and 20% here",
    )
    plane = [ledger([record("mae_pde", 0.1, system)])[0][-1] for system in ("combined", "gray_scott")]
    assert [line.split()[1] for line in plane] == ["2,800", "30,000"]


def test_gray_scott_is_judged_by_one_norm() -> None:
    assert error(record("fno", 0.2, "gray_scott"), "test") == 0.1
    assert error(record("fno", 0.2), "test") == 0.2


@pytest.mark.parametrize("other", ["b" * 64, None])
def test_other_data_are_refused(other: str | None, tmp_path: Path) -> None:
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
    tables = {title: [r["solver"] for r in group] for title, group in groups(records).items()}
    assert tables == {
        "combined, 180 s each from scratch, recipe fast, paper data, cpu": ["fno"],
        "combined, 180 s each from scratch, recipe fast, tiny data, cpu": ["fno"],
        "combined, 600 s each from scratch, recipe fast, paper data, cpu": ["fno", "unisolver"],
    }
    assert not any(cautions(group, records) for group in groups(records).values())


def test_another_device_has_its_own_table_and_a_note(tmp_path: Path) -> None:
    records = _read(tmp_path, record("fno", 0.1), record("cape", 0.1, device="NVIDIA H200", data_hash="b" * 64))
    assert [len(group) for group in groups(records).values()] == [1, 1]
    text = markdown(records)
    assert text.count("Also measured on NVIDIA H200, in another table: the same seconds") == 1
    assert text.count("Also measured on cpu, in another table") == 1


def test_other_commits_are_noted(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [{}, {}, {"commit": "2" * 40 + "-changed"}, {"commit": ""}]
    solvers = ("fno", "dpot", "cape", "geps")
    records = _read(tmp_path, *(record(name, 0.1, **own) for name, own in zip(solvers, changes, strict=True)))
    note = "so the code may differ. 1111111: FNO, DPOT; 2222222-changed: CAPE; unknown: GEPS."
    assert note in markdown(records)
    assert cautions(records[:2]) == []


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
    assert others(records) == (("solver", "ood_forcing"), [("FNO", "93%")])
    assert "| FNO | 93% |" in markdown(records)
    assert others([record("fno", 0.1)])[1] == []


def test_several_seeds_are_told_apart_and_together(tmp_path: Path) -> None:
    seeds = [record("pdejepa", test, seed=seed, seconds=90.0 + seed) for seed, test in enumerate((0.01, 0.012))]
    seeds[0]["errors"]["ood"]["rel_l2"], seeds[1]["errors"]["ood"]["rel_l2"] = 0.05, 0.02
    other = record("unisolver", 0.005)
    records = _read(tmp_path, *seeds, other)
    text = " ".join(cautions(records))
    assert "test UNISOLVER (0.5%, PDE-JEPA 2.0 times as much); ood UNISOLVER (1%, PDE-JEPA 2.0 times" in text
    assert "Mean (least - most) over seeds: PDEJEPA test 1.1% (1% - 1.2%), ood 3.5% (2% - 5%)." in text
    assert "PDEJEPA, seed 0 90 s, PDEJEPA, seed 1 91 s" in text
    assert [line[0] for line in ledger(records)] == ["UNISOLVER", "PDEJEPA, seed 0", "PDEJEPA, seed 1"]


def test_an_error_of_zero_is_no_ratio(tmp_path: Path) -> None:
    text = " ".join(cautions(_read(tmp_path, record("pdejepa", 0.01), record("fno", 0.0))))
    assert "Smallest errors: test FNO (0%); ood FNO (0%)." in text


def test_codes_are_fitted_to_no_more_than_there_are() -> None:
    one = record("geps", 0.1, adapts="gradient")
    assert "those of 3 at once, divided by 3." in cautions([one])[0]


def test_titles_mean_nothing_to_markdown(tmp_path: Path) -> None:
    assert "\\*\\*b" in markdown(_read(tmp_path, record("fno", 0.1, device="**b**")))


def test_a_report_takes_no_options_of_a_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--solvers", "all"], ["--budget", "3min"], ["--out", "x"], ["--device", "cpu"]):
        assert main(["compare", "--report", str(tmp_path), *words]) == 2
        assert f"drop {words[0]}." in " ".join(capsys.readouterr().err.split())


def test_who_diverged_is_named() -> None:
    """100 % may be less than the error of a solver that stayed finite."""
    one = record("mpp", 1.0)
    one["errors"]["test"]["n_diverged"] = 2
    assert "Forecasts that diverged count as 100%: MPP 2 of 3 on test." in cautions([one, record("fno", 0.1)])


def test_tails_that_begin_elsewhere_are_told_apart() -> None:
    records = [record("fno", 0.1), record("cape", 0.1)]
    for one, frame in zip(records, (5, 10), strict=True):
        one["errors"]["test"]["tail_from"] = frame
    assert "Tails begin at different frames, so they do not compare. frame 5: FNO; frame 10: CAPE." in cautions(records)
    records[1]["errors"]["test"]["tail_from"] = 5
    assert cautions(records) == []


def test_one_record_has_its_own_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text(json.dumps(record("fno", 0.1)))
    (tmp_path / "compare.png").write_text("that of the folder")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "compare").write_text("no folder, and none is needed")
    assert main(["compare", "--report", str(tmp_path / "a.json")]) == 0
    assert (tmp_path / "compare.png").read_text() == "that of the folder"
    assert (tmp_path / "a.png").exists()

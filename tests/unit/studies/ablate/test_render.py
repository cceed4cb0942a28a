"""Tables, sentences and documents of records."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pdejepa.core.errors import DataError, UsageError
from pdejepa.studies.ablate.ablation_record import earlier_record, read_record, record_name
from pdejepa.studies.ablate.ablation_tables import Table, tables
from pdejepa.studies.ablate.render import aligned, as_markdown, as_text, mark_name, write_marked
from tests.unit.studies.ablate.ablation_records_made import full_record


def table(what: str, record: dict[str, Any]) -> Table:
    return next(found for found in tables(record) if found.what == what)


def test_every_claim_is_judged() -> None:
    for found in tables(full_record()):
        assert found.verdict.startswith("Holds: "), found
        assert all(len(row) == len(found.head) for row in found.rows)


def test_variants() -> None:
    found = table("variants", full_record())
    assert found.head == ("model", "test", "ood", "parameters", "seconds", "unstable")
    assert found.rows[0] == ("vanilla", "8.6%", "49.1%", "1,234,567", "800", "2")  # 10 s for each of 10 + 30 + 40
    assert [row[0] for row in found.rows] == ["vanilla", "+ alignment (geo)", "+ structured field (physics)"]
    assert found.rows[2][4] == "1,000"


def test_two_fields_have_two_metrics() -> None:
    found = table("variants", full_record(fields=["u", "v"]))
    assert found.head[1:5] == ("test", "test joint", "ood", "ood joint")
    assert found.rows[1][1:5] == ("4%", "8%", "39.7%", "79.4%")
    assert "one norm over all fields" in found.note
    assert [row[0] for row in table("reconstruct", full_record(fields=["u", "v"])).rows] == [
        "mean over fields",
        "all fields in one norm",
    ]


def test_judged_by_the_metric_of_the_system() -> None:
    record = full_record(fields=["a", "b"], system="gray_scott")
    found = table("variants", record)
    assert found.verdict == (
        "Holds: each added part lowers every error (test 17.2% > 8% > 6.8%; ood 98.2% > 79.4% > 57.6%)."
    )
    assert "joint: one norm over all fields, by which they are judged." in found.note
    assert table("integrators", record).rows[0][7] == "10%"


def test_splits_of_our_own_are_marked() -> None:
    splits = {"test": {"is_ood": False, "is_ours": False}, "ood": {"is_ood": True, "is_ours": True}}
    found = table("variants", full_record(splits=splits))
    assert found.head[2] == "ood*"
    assert "not part of the published benchmark" in found.note


def test_geometry() -> None:
    found = table("geometry", full_record())
    assert found.rows[0] == ("turning angle, degrees", "30", "6.3", "-79 %")
    assert "a_t = |x_(t+1) - 2 x_t + x_(t-1)| / (|x_(t+1) - x_t| + |x_t - x_(t-1)|)" in found.note
    assert "u 30.0, z 60.0, q 36.0 degrees; |q-z|/|z| = 0.2." in found.note


def test_integrators() -> None:
    found = table("integrators", full_record())
    assert [row[:2] for row in found.rows[:5]] == [
        ("test", "euler"),
        ("test", "rk2"),
        ("test", "rk4"),
        ("test", "rk8"),
        ("ood", "euler"),
    ]
    assert found.rows[0] == ("test", "euler", "0.4", "0.4", "0.4", "0.4", "0.4", "5%", "1,000")
    record = full_record()
    record["runs"]["rk2"]["rollouts"]["ood"]["round_trip"] = None
    found = table("integrators", record)
    assert "not finite" in found.rows[5]
    assert found.verdict.startswith("Holds: ")  # by the medians
    record["runs"]["rk2"]["rollouts"]["ood"]["round_trip_median"] = None
    assert table("integrators", record).verdict == "Not decided: no finite number for rk2 on ood."


def test_the_base_may_have_another_integrator() -> None:
    record = full_record()
    record["runs"]["physics"]["integrator"] = "rk8"
    record["runs"]["rk4"] = record["runs"].pop("rk8")
    found = table("integrators", record)
    assert [row[2] for row in found.rows[2:4]] == ["0.195", "0.2"]
    assert found.verdict.startswith("Does not hold: rk8 (20%) is not clearly below rk4 (19.5%) on round trip, test")


def test_anchor() -> None:
    found = table("anchor", full_record())
    assert found.rows == [
        ("0.01", "3.4%", "28.8%", "6.3", "0.2", "1,000"),
        ("0", "4.7%", "42.3%", "4.8", "0.5", "1,000"),
    ]


def test_reconstruct() -> None:
    found = table("reconstruct", full_record())
    assert found.rows == [("one field", "0.75%", "6.8%", "9.07")]  # 0.068 / 0.0075
    assert "40 steps" in found.note


@pytest.mark.parametrize("runs", [{}, {"physics": full_record()["runs"]["geo"]}])
def test_what_is_missing_is_told(runs: dict[str, Any]) -> None:
    record = full_record(runs=runs)
    assert all(found.verdict.startswith("Not decided: ") for found in tables(record))
    assert "Not decided" in as_text(record)
    assert "Not decided" in as_markdown(record)


def test_text() -> None:
    text = as_text(full_record(what=["geometry"]))
    assert text.startswith("Vorticity, recipe fast, seed 0, NVIDIA H200, torch 2.11, commit 0123456789ab with changes.")
    assert "Equal steps in every run: pretrain 10, align 20, dynamics 30, decode 40." in text
    assert "Variants" not in text
    assert text.endswith("lag-1 cosine by 75 %).")
    failed = as_text(full_record(failed={"rk8": "dynamics, step 3: the loss is not finite"}))
    assert "differ by more. rk8 diverged (dynamics, step 3: the loss is not finite).\n" in failed
    assert aligned(("a", "bb"), [("ccc", "d")]) == "a    bb\nccc   d"


def test_markdown() -> None:
    text = as_markdown(full_record())
    assert "| vanilla | 8.6% | 49.1% | 1,234,567 | 800 | 2 |" in text
    assert "| anchor weight | test | ood | angle error, degrees | \\|q-z\\|/\\|z\\| | seconds |" in text
    for line in text.splitlines():
        if line.startswith("|"):
            assert re.fullmatch(r"\|( .* \|)+", line)


# ---- documents ---------------------------------------------------------------------------------------------------
DOCUMENT = "# Title\r\n\nbefore\n<!-- ablate: vorticity-fast -->\nformer text\n<!-- end -->\nafter\n<!-- end -->\n"


def test_documents(tmp_path: Path) -> None:
    path, record = tmp_path / "a.md", full_record()
    path.write_bytes(DOCUMENT.encode())
    write_marked(path, ["vorticity-fast"], [record])
    text = path.read_bytes().decode()
    assert text.startswith("# Title\r\n\nbefore\n<!-- ablate: vorticity-fast -->\nVorticity, recipe fast")
    assert text.endswith("\n<!-- end -->\nafter\n<!-- end -->\n")
    assert "former text" not in text
    write_marked(path, ["vorticity-fast"], [record])
    assert path.read_bytes().decode() == text


def test_several_records_in_one_document(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("<!-- ablate: vorticity-fast-s1 -->\n<!-- end -->\n<!-- ablate: vorticity-fast -->\n<!-- end -->\n")
    write_marked(path, ["vorticity-fast", "vorticity-fast-s1"], [full_record(), full_record(seed=1)])
    text = path.read_text()
    assert text.index("seed 1") < text.index("vorticity-fast -->") < text.index("seed 0")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("results/ablate-vorticity-fast-variants.json", "vorticity-fast-variants"),
        ("runs/a/ablate.json", "vorticity-fast-s1"),
        ("runs/ablate-vorticity", "vorticity-fast-s1"),  # a folder
        ("other.json", "vorticity-fast-s1"),
    ],
)
def test_marks_are_named_by_files_or_by_what_is_in_them(file: str, name: str) -> None:
    assert mark_name(Path(file), full_record(seed=1)) == name


@pytest.mark.parametrize("text", ["nothing", "<!-- ablate: vorticity-fast -->\nno end", "<!-- ablate: heat-fast -->\n"])
def test_documents_without_a_place_are_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text(text)
    with pytest.raises(DataError, match="it needs the line <!-- ablate: vorticity-fast -->, and <!-- end --> below it"):
        write_marked(path, ["vorticity-fast"], [full_record()])
    assert path.read_text() == text


def test_documents_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        write_marked(tmp_path / "nothing.md", ["vorticity-fast"], [full_record()])
    with pytest.raises(UsageError, match="Two records are called vorticity-fast"):
        write_marked(tmp_path / "nothing.md", ["vorticity-fast"] * 2, [full_record()] * 2)


# ---- records -----------------------------------------------------------------------------------------------------
def test_names() -> None:
    assert record_name(full_record()) == "vorticity-fast"
    assert record_name(full_record(seed=2, recipe="my/own")) == "vorticity-my_own-s2"


def test_records_are_found(tmp_path: Path) -> None:
    record = full_record()
    (tmp_path / "ablate.json").write_text(json.dumps(record))
    assert read_record(tmp_path) == read_record(tmp_path / "ablate.json") == earlier_record(tmp_path) == record


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is damaged"),
        ("[]", "is no record of an ablation"),
        ('{"format": "pdejepa-model"}', "is no record of an ablation"),
        (json.dumps(full_record(format_version=9)), "has format 9"),
        (json.dumps({key: value for key, value in full_record().items() if key != "runs"}), "runs missing"),
        (json.dumps(full_record(runs=[])), "runs missing"),
    ],
)
def test_other_files_are_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "ablate.json").write_text(text)
    with pytest.raises(DataError, match=words):
        read_record(tmp_path)
    assert earlier_record(tmp_path) is None


def test_no_record(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_record(tmp_path)
    assert earlier_record(tmp_path) is None

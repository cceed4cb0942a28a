"""Tables and documents of records."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pdejepa.core.errors import DataError, UsageError
from pdejepa.core.tables import Table
from pdejepa.evaluate.record import parse
from pdejepa.studies.ablate.ablation_record import Ablation
from pdejepa.studies.ablate.ablation_tables import as_markdown, as_text, mark_name, tables, write_marked
from tests.unit.studies.ablate.ablation_records_made import full_record, made


def table(what: str, record: Ablation) -> Table:
    return tables(record)[what]


def test_every_question_has_a_table() -> None:
    found = tables(made())
    assert list(found) == list(made().what)
    for one in found.values():
        assert one.rows
        assert all(len(row) == len(one.head) for row in one.rows)


def test_variants() -> None:
    found = table("variants", made())
    assert found.head == ("model", "test", "ood", "parameters", "seconds", "unstable")
    assert found.rows[0] == ("vanilla", "8.6%", "49.1%", "1,234,567", "800", "2")  # 10 s for each of 10 + 30 + 40
    assert [row[0] for row in found.rows] == ["vanilla", "+ alignment (geo)", "+ structured field (physics)"]
    assert found.rows[2][4] == "1,000"


def test_two_fields_have_two_metrics() -> None:
    found = table("variants", made(fields=["u", "v"]))
    assert found.head[1:5] == ("test", "test joint", "ood", "ood joint")
    assert found.rows[1][1:5] == ("4%", "8%", "39.7%", "79.4%")
    assert "one norm over all fields" in found.notes[0]
    assert [row[0] for row in table("reconstruct", made(fields=["u", "v"])).rows] == [
        "mean over fields",
        "all fields in one norm",
    ]


def test_judged_by_the_metric_of_the_system() -> None:
    record = made(fields=["a", "b"], system="gray_scott")
    assert "joint: one norm over all fields." in table("variants", record).notes[0]
    assert table("integrators", record).rows[0][7] == "10%"


def test_splits_of_our_own_are_marked() -> None:
    splits = {"test": {"is_ood": False, "is_ours": False}, "ood": {"is_ood": True, "is_ours": True}}
    found = table("variants", made(splits=splits))
    assert found.head[2] == "ood*"
    assert "*: not in the paper" in found.notes[0]


def test_geometry() -> None:
    found = table("geometry", made())
    assert found.rows[0] == ("turning angle, degrees", "30", "6.3", "-79 %")
    assert "u 30.0, z 60.0, q 36.0 degrees; |q-z|/|z| = 0.2." in found.notes[0]


def test_integrators() -> None:
    found = table("integrators", made())
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
    assert "not finite" in table("integrators", parse(Ablation, record)).rows[5]


def test_the_base_may_have_another_integrator() -> None:
    record = full_record()
    record["runs"]["physics"]["integrator"] = "rk8"
    record["runs"]["rk4"] = record["runs"].pop("rk8")
    found = table("integrators", parse(Ablation, record))
    assert [row[2] for row in found.rows[2:4]] == ["0.195", "0.2"]


def test_anchor() -> None:
    found = table("anchor", made())
    assert found.rows == [
        ("0.01", "3.4%", "28.8%", "6.3", "0.2", "1,000"),
        ("0", "4.7%", "42.3%", "4.8", "0.5", "1,000"),
    ]


def test_reconstruct() -> None:
    found = table("reconstruct", made())
    assert found.rows == [("one field", "0.75%", "6.8%", "9.07")]  # 0.068 / 0.0075
    assert "40 steps" in found.notes[0]


@pytest.mark.parametrize("runs", [{}, {"physics": full_record()["runs"]["geo"]}])
def test_what_is_missing_has_no_rows(runs: dict[str, Any]) -> None:
    record = made(runs=runs)
    assert {what: len(found.rows) for what, found in tables(record).items() if what != "variants"} == dict.fromkeys(
        ("geometry", "integrators", "anchor", "reconstruct"), 0
    )
    assert "Variants" in as_text(record)
    assert "**Variants**" in as_markdown(record)


def test_text() -> None:
    text = as_text(made(what=["geometry"]))
    assert text.startswith("Vorticity, recipe fast, seed 0, NVIDIA H200, torch 2.11, commit 0123456789ab with changes.")
    assert "Equal steps in every run: pretrain 10, align 20, dynamics 30, decode 40." in text
    assert "Variants" not in text
    failed = as_text(made(failed={"rk8": "dynamics, step 3: the loss is not finite"}))
    assert "decode 40. rk8 diverged (dynamics, step 3: the loss is not finite).\n" in failed


def test_markdown() -> None:
    text = as_markdown(made())
    assert "| vanilla | 8.6% | 49.1% | 1,234,567 | 800 | 2 |" in text
    assert "| anchor weight | test | ood | angle error, degrees | \\|q-z\\|/\\|z\\| | seconds |" in text
    for line in text.splitlines():
        if line.startswith("|"):
            assert re.fullmatch(r"\|( .* \|)+", line)


# ---- documents ---------------------------------------------------------------------------------------------------
END = "<!-- end ablate: vorticity-fast -->"
DOCUMENT = f"# Title\r\n\nbefore\n<!-- ablate: vorticity-fast -->\nformer text\n{END}\nafter\n"


def test_documents(tmp_path: Path) -> None:
    path, record = tmp_path / "a.md", made()
    path.write_bytes(DOCUMENT.encode())
    write_marked(path, ["vorticity-fast"], [record])
    text = path.read_bytes().decode()
    assert text.startswith("# Title\r\n\nbefore\n<!-- ablate: vorticity-fast -->\nVorticity, recipe fast")
    assert text.endswith(f"\n{END}\nafter\n")
    assert "former text" not in text
    write_marked(path, ["vorticity-fast"], [record])
    assert path.read_bytes().decode() == text


def test_several_records_in_one_document(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    names = ("ablate: vorticity-fast-s1", "ablate: vorticity-fast")
    path.write_text("".join(f"<!-- {name} -->\n<!-- end {name} -->\n" for name in names))
    write_marked(path, ["vorticity-fast", "vorticity-fast-s1"], [made(), made(seed=1)])
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
    assert mark_name(Path(file), made(seed=1)) == name


@pytest.mark.parametrize("text", ["nothing", "<!-- ablate: vorticity-fast -->\nno end", "<!-- ablate: heat-fast -->\n"])
def test_documents_without_a_place_are_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text(text)
    with pytest.raises(DataError, match=f"with the lines <!-- ablate: vorticity-fast --> and {END}"):
        write_marked(path, ["vorticity-fast"], [made()])
    assert path.read_text() == text


def test_documents_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        write_marked(tmp_path / "nothing.md", ["vorticity-fast"], [made()])
    with pytest.raises(UsageError, match="Two records are called vorticity-fast"):
        write_marked(tmp_path / "nothing.md", ["vorticity-fast"] * 2, [made()] * 2)

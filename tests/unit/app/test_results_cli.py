"""`pdejepa results`, end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from pdejepa.app.cli import main
from pdejepa.systems import NAMES
from tests.unit.evaluate import made
from tests.unit.forecast import tiny

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "results"
    made.write(root, made.plain("combined", {"test": 0.0097, "ood": 0.0402}))
    made.write(root, made.plain("combined", {"test": 0.0057, "ood": 0.0293}, polish=True))
    made.write(root, made.plain("heat", {"test": 0.05}, recipe="tiny"))
    (root / "generate-cpu.json").write_text('{"rows": []}')
    return root


def test_the_table(folder: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert main(["results"]) == 0
    out, err = capsys.readouterr()
    table = [line.split() for line in out.splitlines() if line.startswith("Combined equation")]
    assert ["1.31" in words for words in table] == [True, False]
    assert ["0.77" in words for words in table] == [False, True]
    assert "Published numbers met: 1 of 15. Missed: Combined equation ood. No record: Advection" in out
    assert "Records of other recipes, shown with --recipe: tiny (1)." in out
    assert err == "Skipped: generate-cpu.json (no record of an evaluation).\n"


def test_many_files_that_are_no_records_are_not_all_named(folder: Path, capsys: Printed) -> None:
    for n in range(5):
        (folder / f"ablate-{n}.json").write_text("{}")
    (folder / "broken.json").write_text("{")
    assert main(["results", str(folder)]) == 0
    assert capsys.readouterr().err == (
        "Skipped: ablate-0.json, ablate-1.json, ablate-2.json and 3 more (no record of an evaluation); "
        "broken.json (damaged: not JSON).\n"
    )


def test_another_recipe_and_folder(folder: Path, capsys: Printed) -> None:
    assert main(["results", str(folder), "--recipe", "tiny"]) == 0
    out = capsys.readouterr().out
    assert "Missed: Heat test." in out
    assert "fast (2)" in out


def test_in_a_terminal(folder: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for columns, is_wide in (("200", True), ("80", False)):
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["results", str(folder)]) == 0
        out = capsys.readouterr().out
        assert ("best other solver " in out) == is_wide
        assert "Published numbers met: 1 of 15" in out


def test_json(folder: Path, capsys: Printed) -> None:
    assert main(["results", str(folder), "--json"]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out) if row["system"] == "combined"]
    assert [row["what"] for row in rows] == ["four stages", "polished"]
    assert rows[1]["ratio"] == pytest.approx(0.0057 / 0.0074)
    assert rows[1]["records"] == ["combined-fast-polish-s0.json"]


def test_write_and_plot(folder: Path, tmp_path: Path, capsys: Printed) -> None:
    page, picture = tmp_path / "README.md", tmp_path / "errors.png"
    page.write_text("before\n<!-- results -->\n<!-- end results -->\nafter\n")
    command = ["results", str(folder), "--write", str(page)]
    assert main([*command, "--plot", str(picture)]) == 0
    out = capsys.readouterr().out
    assert f"Written to {page}" in out
    assert f"Drawn to {picture}" in out
    with Image.open(picture) as image:
        assert image.format == "PNG"
    text = page.read_text()
    assert text.startswith("before\n<!-- results -->\n| system | recipe | what | test |")
    assert text.endswith("\n- Written by `pdejepa results --write README.md`.\n<!-- end results -->\nafter\n")
    assert "| Combined equation | fast | polished | 0.0057 | 0.0074 | 0.77 | 0.0293 | 0.008 | CAPE 0.0085 |" in text
    assert str(tmp_path) not in text
    assert main(command) == 0
    assert f"{page} is up to date." in capsys.readouterr().out
    assert page.read_text() == text


def test_a_short_table_has_a_row_a_system(folder: Path, tmp_path: Path) -> None:
    page, full = tmp_path / "README.md", tmp_path / "results.md"
    page.write_text("<!-- results in short -->\n<!-- end results in short -->\n")
    full.write_text("<!-- results -->\n<!-- end results -->\n")
    assert main(["results", str(folder), "--write", str(page), "--write", str(full)]) == 0
    lines = [line for line in page.read_text().splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(NAMES)
    assert "| Combined equation | 0.57% | 0.74% | 2.93% | 0.8% | " in page.read_text()  # the polished one
    assert "| Vorticity | not measured | 3.48% | - | 28.8% | - |" in page.read_text()
    assert "Written by `pdejepa results --write README.md --write results.md`." in full.read_text()


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--write", "no_marks.md"], 3, "has not exactly one pair of marks"),
        (["--write", "nowhere.md"], 3, "does not exist"),
        (["--plot", "f.bmp"], 2, "--plot must be a picture"),
        (["--recipe", "paper", "--plot", "f.png"], 3, "nothing to plot"),
        (["--recipe", "tinny"], 2, "unknown recipe 'tinny', did you mean 'tiny'?"),
        (["empty"], 3, "empty holds no record of an evaluation. Make one with: pdejepa evaluate RUN"),
    ],
)
def test_mistakes(
    folder: Path, options: list[str], code: int, words: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    Path("no_marks.md").write_text("text\n")
    Path("empty").mkdir()
    assert main(["results", *options]) == code
    assert words in capsys.readouterr().err
    assert Path("no_marks.md").read_text() == "text\n"


def test_without_any_records(tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path / package)
    assert main(["results"]) == 3
    assert "make a record with: pdejepa evaluate" in capsys.readouterr().err
    assert main(["results", "elsewhere"]) == 3
    assert "elsewhere does not exist" in capsys.readouterr().err


def test_records_of_shipped_models(tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path / package)
    tiny.saved("heat", tmp_path / "pdejepa" / "checkpoints" / "heat", {"recipe": "fast"})
    assert main(["evaluate", "heat", "--n", "2", "--splits", "test", "--out", "r/a.json"]) == 0
    errors = json.loads(Path("r/a.json").read_text())["errors"]
    errors["test"] = {key: value for key, value in errors["test"].items() if key not in ("trajectories", "per_frame")}
    tiny.saved("heat", tmp_path / "pdejepa" / "checkpoints" / "heat", {"recipe": "fast", "errors": errors})
    capsys.readouterr()
    assert main(["results"]) == 0
    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if line.startswith("Heat")]
    assert "2 of 120 test trajectories" in line
    assert f"{errors['test']['rel_l2']:.4f}" in line
    assert main(["results", "--plot", "f.png"]) == 3
    assert "inside a model's config.json do not" in capsys.readouterr().err

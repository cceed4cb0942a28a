"""`pdejepa ablate`, from the command line to the document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from pdejepa.app.cli import main
from pdejepa.core.files import write_json
from tests.unit.method.small_run import SMALL
from tests.unit.studies.ablate.ablation_records_made import full_record

Printed = pytest.CaptureFixture[str]
STAGES = ("pretrain", "align", "dynamics", "decode", "reconstruct")
WORDS = (
    *SMALL,
    "device=cpu",
    *(f"{name}.training.budget={{steps: 2}}" for name in STAGES),
    *(f"{name}.training.n_scores=1" for name in STAGES),
)


@pytest.mark.slow
def test_from_training_to_document(tmp_path: Path, capsys: Printed) -> None:
    out, page = tmp_path / "runs", tmp_path / "page.md"
    command = ["ablate", "advection", "--recipe", "tiny", "--out", str(out), "--what", "geometry,anchor", "--n", "2"]
    assert main([*command, *WORDS]) == 0
    text = capsys.readouterr().out
    assert "Run 2 of 2: no-anchor (align.anchor_weight=0.0; pretrain from the base)" in text
    assert "Equal steps in every run: pretrain 2, align 2, dynamics 2, decode 2." in text
    assert f"Recorded in {out / 'ablate.json'}" in text
    assert set(json.loads((out / "ablate.json").read_text())["runs"]) == {"physics", "no-anchor"}

    page.write_text("<!-- ablate: advection-tiny -->\n<!-- end ablate: advection-tiny -->\n")
    assert main(["ablate", "--report", str(out), "--write", str(page)]) == 0
    told = capsys.readouterr().out
    assert told.split("\n\nWritten to")[0] in text  # the same tables
    assert "| turning angle, degrees |" in page.read_text()

    other = ["ablate", "advection", "--base", str(out / "physics"), "--out", str(tmp_path / "other"), "--n", "2"]
    assert main([*other, "--what", "geometry"]) == 0
    assert main([*other, "--what", "geometry", "align.geo_weight=3"]) == 2
    err = capsys.readouterr().err
    assert "align.geo_weight 0.1 -> 3.0. Leave out what differs, or leave out --base." in err


def test_reports_of_several_records(tmp_path: Path, capsys: Printed) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    write_json(files[0], full_record())
    write_json(files[1], full_record(title="Heat", system="heat"))
    assert main(["ablate", "--report", *map(str, files)]) == 0
    text = capsys.readouterr().out
    assert text.index("Vorticity, recipe fast") < text.index("Heat, recipe fast")
    assert text.count("+ structured field (physics)") == 2


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["advection"], 2, "Name a folder for the runs: --out DIR."),
        (["advektion", "--out", "x"], 2, "did you mean 'advection'"),
        (["advection", "--out", "x", "--what", "geometri"], 2, "did you mean 'geometry'"),
        (["advection", "--out", "x", "--write", "a.md"], 2, "use it with --report DIR"),
        (["advection", "--out", "x", "variant=geo"], 2, "variant physics, got geo"),
        (["advection", "--out", "x", "aling.window=3"], 2, "did you mean 'align'"),
        (["advection", "--out", "x", "--base", "nowhere"], 4, "nowhere is not a run of pdejepa"),
        (["advection", "--out", "x", "--base", "nowhere", "--seconds", "5"], 2, "--base has had its training"),
        (["--report", "nowhere"], 3, "nowhere cannot be read"),
        (["--report", "broken.json"], 3, "Give the command that wrote it, pdejepa ablate NAME --out DIR, once more"),
        (["advection", "--out", "x", "--seconds", "-5"], 2, "--seconds must be positive, got -5."),
    ],
)
def test_mistakes(
    words: list[str], code: int, sentence: str, tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.json").write_text('{"format": ')
    assert main(["ablate", *words]) == code
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.safetensors"))


def test_print_config(capsys: Printed) -> None:
    """Seconds are for the four stages of the base, whatever else a recipe would train."""
    assert main(["ablate", "heat", "--recipe", "fast", "--seconds", "8", "--print-config"]) == 0
    told = yaml.safe_load(capsys.readouterr().out)
    assert told["stages"] == ["pretrain", "align", "dynamics", "decode"]
    assert sum(told[stage]["training"]["budget"]["seconds"] for stage in told["stages"]) == pytest.approx(8.0)

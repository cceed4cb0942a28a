"""`pdejepa systems` and `pdejepa show`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from pdejepa import systems
from pdejepa.app.cli import main
from pdejepa.app.describe import describe

Make = Callable[[str], Path]
Printed = pytest.CaptureFixture[str]


def test_the_list_names_all(capsys: Printed) -> None:
    assert main(["systems"]) == 0
    text = capsys.readouterr().out
    for name in systems.NAMES:
        system = systems.get(name)
        assert f"{name}: {system.equation}" in text
        assert ", ".join(split.name for split in system.splits) in text
    assert "forcing_amplitude_1..5 [-0.5, 0.5]" in text
    assert "…" not in text


def test_the_table_of_a_terminal(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["systems"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in systems.NAMES)
    assert "…" not in text


@pytest.mark.parametrize("name", systems.NAMES)
def test_one_system_in_full(name: str, capsys: Printed) -> None:
    assert main(["systems", name]) == 0
    text, system = capsys.readouterr().out, systems.get(name)
    for parameter in system.parameters:
        for word in (parameter.name, parameter.symbol, parameter.unit, parameter.meaning, parameter.ood_text):
            assert word in text
        assert f"[{parameter.train[0]:g}, {parameter.train[1]:g}]" in text
        assert f"[{parameter.limits[0]:g}, {parameter.limits[1]:g}]" in text
    for split in system.splits:
        assert split.name in text
        assert split.meaning in text
        assert f"{split.n:,}" in text
    for term in system.structure.terms:
        assert f"{'-' if term.sign < 0 else '+'} {term.symbol} * [{term.operator}]" in text
        assert term.rule in text
    for word in (*system.structure.boundary_codes, system.expect, system.equation, *system.fields, *system.constants):
        assert word in text
    assert system.reference.refined in text
    assert f"{system.reference.bound:g}" in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_json(capsys: Printed) -> None:
    assert main(["systems", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in listed] == list(systems.NAMES)
    assert main(["systems", "wave_b", "--json"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert one == json.loads(json.dumps(describe(systems.get("wave_b"))))
    assert one["axes"][0]["is_uniform"] is False
    assert one["structure"]["time_order"] == 2
    assert one["splits"][0] == {
        "name": "train",
        "n_environments": 4,
        "meaning": "all four boundary pairs",
        "is_ood": False,
        "is_ours": False,
        "initial_from": None,
        "is_broad": False,
        "tiny": 20,
        "small": 480,
        "laptop": 3_000,
        "paper": 12_000,
    }


def test_a_slip_of_the_pen_is_answered(capsys: Printed) -> None:
    assert main(["systems", "vortcity"]) == 2
    assert "did you mean 'vorticity'?" in capsys.readouterr().err
    assert main(["systems", "Wave-2D"]) == 0


@pytest.mark.parametrize("name", ["advection", "gray_scott"])
def test_show(name: str, tiny_datasets: Make, tmp_path: Path, capsys: Printed) -> None:
    out, moving = tmp_path / "p.png", tmp_path / "a.gif"
    argv = ["show", str(tiny_datasets(name)), "--split", "ood", "--index", "2", "--out", str(out)]
    assert main([*argv, "--animate", str(moving)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{systems.get(name).title}, ood 2 (")
    assert text.rstrip().endswith(f"drawn to {out} and {moving}")
    assert text.count("\n") == 1
    with Image.open(out) as image:
        assert image.format == "PNG"
    with Image.open(moving) as image:
        assert image.n_frames == len(systems.get(name).times)


def test_show_without_options(
    tiny_datasets: Make, tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tiny_datasets("heat")
    monkeypatch.chdir(tmp_path)
    assert main(["show", str(root)]) == 0
    assert "drawn to heat_test_0.png" in capsys.readouterr().out
    assert (tmp_path / "heat_test_0.png").is_file()


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["--split", "tets"], 3, "has no split 'tets', did you mean 'test'?"),
        (["--index", "10"], 3, "test has trajectories 0 to 9; there is no 10"),
        (["--index", "-1"], 3, "there is no -1"),
        (["--out", "p.bmp"], 2, "Pictures are written as"),
        (["--animate", "p.mp4"], 2, "Animations are written as"),
    ],
)
def test_show_says_what_is_wrong(argv: list[str], code: int, words: str, tiny_datasets: Make, capsys: Printed) -> None:
    assert main(["show", str(tiny_datasets("heat")), *argv]) == code
    assert words in capsys.readouterr().err


def test_show_of_nothing(tmp_path: Path, capsys: Printed) -> None:
    assert main(["show", str(tmp_path)]) == 3
    assert "holds no data set" in capsys.readouterr().err

"""The pages docs/systems/*.md say what the code says."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from pdejepa import systems
from pdejepa.app.describe import describe
from tests.unit.scripts import load_script

Printed = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("tools/make_systems.py", "draw_systems")


@pytest.mark.parametrize("name", systems.NAMES)
def test_pages_are_up_to_date(name: str, script: ModuleType) -> None:
    if not script.RESULTS.is_dir():
        pytest.skip("the results are not part of this copy")
    path = script.PAGES / f"{name}.md"
    assert path.read_text("utf-8") == script.page(name), "run: python tools/make_systems.py"


@pytest.mark.parametrize("name", systems.NAMES)
def test_a_page_tells_everything(name: str, script: ModuleType) -> None:
    text, one = script.page(name), describe(systems.get(name))
    words = [one["equation"], one["expect"], one["docstring"], one["solver"], one["reference"]["refined"]]
    words += [split["meaning"] for split in one["splits"]] + [f"{split['paper']:,}" for split in one["splits"]]
    words += [f"`{term['expression']}`" for term in one["structure"]["terms"]]
    words += [p["ood"] for p in one["parameters"] if p["ood"]] + [f"`{field}`" for field in one["fields"]]
    words += [f"pdejepa {command} " for command in ("generate", "train", "forecast")]
    assert [word for word in words if word not in text] == []
    assert (script.PAGES / f"../pictures/systems/{name}.png").resolve().is_file()
    assert "\n- time" in text or "\n- space" in text  # claims of accuracy


def test_the_index_is_up_to_date(script: ModuleType) -> None:
    text = script.index()
    assert (script.PAGES / "README.md").read_text("utf-8") == text, "run: python tools/make_systems.py"
    assert all(f"]({name}.md) | `{systems.get(name).equation}`" in text for name in systems.NAMES)
    assert "(../pictures/nine_systems.png)" in text


def test_numbered_parameters_make_one_row(script: ModuleType) -> None:
    assert "| `forcing_amplitude_1..5` | A_1..5 | 1 | amplitude of forcing sine 1..5 |" in script.page("heat")
    assert "forcing_amplitude_2" not in script.page("heat")


def test_results_come_from_records(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    assert "No record yet" in script.page("heat")
    found = {"rel_l2": 0.0123, "rel_l2_joint": None, "repeat_first": 1.5, "n": 1200}
    record = {"system": "heat", "recipe": "fast", "errors": {"ood": found}, "seconds": {"total": 61.2}, "device": "cpu"}
    (tmp_path / "heat-fast-s0.json").write_text(json.dumps(record))
    (tmp_path / "burgers-fast-s0.json").write_text(json.dumps({**record, "system": "burgers"}))
    (tmp_path / "heat-other-s0.json").write_text(json.dumps({**record, "recipe": "another method"}))
    (tmp_path / "speed.json").write_text(json.dumps({"rows": []}))
    rows = [line for line in script.page("heat").splitlines() if line.startswith("| `") and "-s0" in line]
    assert rows == ["| `heat-fast-s0` | `ood` | 1,200 | 1.23% | - | 150% | 61 | cpu |"]


def test_the_error_in_space_comes_from_its_record(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    assert "## Error in space" not in script.page("heat")
    rows = [
        {"told": "grids, viscosity in [0.001, inf)", "error": 0.01},
        {"told": "grids, viscosity in [0, 0.001)", "error": 0.2},
        {"told": "grids, viscosity in [0.001, inf)", "error": 0.03},
    ]
    (tmp_path / "refinement.json").write_text(json.dumps({"heat": {"rows": rows, "seconds": 7, "device": "cpu"}}))
    lines = [line for line in script.page("heat").splitlines() if line.startswith("| grids")]
    assert lines == [
        "| grids, viscosity in [0, 0.001) | 1 | 20% | 20% |",
        "| grids, viscosity in [0.001, inf) | 2 | 2% | 3% |",
    ]
    assert "## Error in space" not in script.page("burgers")


def test_pictures_are_small(script: ModuleType) -> None:
    sizes = {path.name: path.stat().st_size for path in script.PICTURES.glob("*.png")}
    assert set(sizes) == {f"{name}.png" for name in systems.NAMES}
    widths = {Image.open(path).width for path in script.PICTURES.glob("*.png")}
    assert max(widths) - min(widths) <= 10
    assert max(sizes.values()) <= 80_000
    assert sum(sizes.values()) <= 700_000


def test_equal_data_give_equal_pictures(script: ModuleType) -> None:
    one, two = script.picture("wave_b"), script.picture("wave_b")
    assert one == two
    with Image.open(io.BytesIO(one)) as image:
        assert image.format == "PNG"
        assert image.width > 500
        colours = {colour for _, colour in image.convert("RGB").getcolors()}
    assert any(blue > red + 60 for red, _, blue in colours)  # the pulse comes back with the opposite sign
    assert any(red > blue + 60 for red, _, blue in colours)


def test_check_and_write(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "PAGES", tmp_path / "pages")
    monkeypatch.setattr(script, "PICTURES", tmp_path / "pictures")
    monkeypatch.setattr(script.systems, "NAMES", ("heat",))
    monkeypatch.setattr(script, "picture", lambda name: name.encode())
    run = lambda *words: (monkeypatch.setattr("sys.argv", ["make_systems", *words]), script.main())[1]  # noqa: E731
    assert run("--check") == 1
    assert "pages/heat.md is out of date" in capsys.readouterr().err
    assert not (tmp_path / "pages").exists()
    assert run() == 0
    assert capsys.readouterr().out.split() == ["pages/README.md", "pages/heat.md", "pictures/heat.png"]
    assert (run(), run("--check")) == (0, 0)
    assert capsys.readouterr().out == ""  # nothing was written the second time

"""`benchmarks/sizes.py`: widths are scaled and nothing else, every training is judged, and the table tells it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from pdejepa.core.errors import ConfigError
from pdejepa.draw import pictures
from pdejepa.method import recipes
from pdejepa.method.load_data import load_data
from tests.unit.method.small_run import CPU, small_config
from tests.unit.scripts import load_script

sizes = load_script("benchmarks/sizes.py", "tables")


def test_only_widths_change() -> None:
    model = recipes.get("combined", "fast").model
    half = sizes.scaled(model, 0.5)
    assert half.encoder == dataclasses.replace(model.encoder, width=64)
    assert half.field == dataclasses.replace(model.field, width=72)
    assert half.decoder == dataclasses.replace(model.decoder, widths=(48, 32, 24))
    assert sizes.scaled(model, 1.0) == model


def test_widths_that_heads_do_not_divide_are_refused() -> None:
    with pytest.raises(ConfigError, match="heads must divide width"):
        sizes.scaled(recipes.get("combined", "fast").model, 0.3)


def test_a_study_judges_after_four_stages_and_at_the_end(tmp_path: Path) -> None:
    config = small_config("combined", "stages=[pretrain,align,dynamics,decode,polish]", "device=cpu")
    data = load_data(config, CPU, show=False)
    rows = [row for factor in (1.0, 0.5) for row in sizes.study(config, data, factor, 0.5, 2)]
    assert [row["polished"] for row in rows] == [False, True] * 2
    assert rows[0]["parameters"] > 2 * rows[2]["parameters"]
    assert rows[1]["seconds"] == pytest.approx(0.5)
    assert rows[0]["seconds"] < rows[1]["seconds"]
    assert all(0 < row[split] < 10 for row in rows for split in ("valid", "test", "ood"))
    assert set(rows[1]["steps"]) == {*rows[0]["steps"], "polish"}

    about = {"device": "cpu", "torch": torch.__version__, "system": "combined", "recipe": "tiny", "seed": 0}
    lines = sizes.size_table({**about, "set": ["a=1"], "sizes": rows}).splitlines()
    assert lines[0].endswith("recipe tiny, seed 0, a=1.")
    assert len(lines) == 2 + 2 + len(rows)
    assert lines[4].startswith(f"| {rows[0]['parameters']:,} | four stages | ")
    assert f"{100 * rows[3]['ood']:.3g} %" in lines[-1]
    pictures.save(lambda: sizes.draw(rows, "combined"), tmp_path / "sizes.png")
    assert Image.open(tmp_path / "sizes.png").size[0] > 600


def test_a_file_is_continued_if_it_is_about_the_same(tmp_path: Path) -> None:
    path, about = tmp_path / "sizes.json", {"device": "cpu", "seed": 0}
    assert sizes.begun_report(path, about) == {**about, "sizes": []}
    path.write_text(json.dumps({**about, "sizes": [1]}))
    assert sizes.begun_report(path, about)["sizes"] == [1]
    with pytest.raises(SystemExit, match=r"is about another seed; use another --out"):
        sizes.begun_report(path, {**about, "seed": 1})

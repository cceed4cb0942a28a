"""The page docs/own_data.md from its first line to its last: files, import, training, evaluation, forecasts, report."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdejepa.app.cli import main
from pdejepa.core.config import load_config
from pdejepa.method import recipes
from pdejepa.method.run_config import RunConfig

PAGE = Path(__file__).parents[2] / "docs/own_data.md"
SMALL = (
    "counts={train: 8, valid: 4}",
    "model.encoder={patch: 8, width: 16, depth: 1, heads: 2}",
    "model.field={width: 16, depth: 1, heads: 2}",
    "model.decoder={widths: [16, 16, 16, 16], scales: [2, 2, 2]}",
    *(f"{stage}.training.budget.steps=2" for stage in ("pretrain", "align", "dynamics", "decode")),
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def run_commands(*more: str) -> None:
    """Every line of the page's shell blocks; trainings with the words `more`."""
    for line in "".join(blocks("bash")).splitlines():
        words = shlex.split(line, comments=True)[1:]
        assert main([*words, *(more if words[0] == "train" else ())]) == 0, line


def make_files() -> None:
    exec(compile(blocks("python")[0], str(PAGE), "exec"), {})


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_files()
    run_commands(*SMALL, "device=cpu")
    record = json.loads((tmp_path / "runs/fisher/results/fisher-tiny-s0.json").read_text())
    assert record["system"] == "fisher"
    assert {split: found["n"] for split, found in record["errors"].items()} == {"test": 18, "ood": 20}
    assert set(json.loads((tmp_path / "runs/fisher/model/config.json").read_text())["errors"]) == {"test", "ood"}
    page = (tmp_path / "runs/fisher/report.html").read_text()
    assert "Fisher: report of a training run" in page
    assert "ood, trajectory 0: as stored" in page
    assert all((tmp_path / name).stat().st_size > 10_000 for name in ("fisher.png", "faster.png"))
    assert "pdejepa train DIR --recipe tiny" in (tmp_path / "runs/fisher/model/README.md").read_text()


def test_the_python_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_files()
    real = recipes.for_data
    small = lambda data, recipe: load_config(RunConfig, None, SMALL, real(data, recipe))  # noqa: E731
    monkeypatch.setattr(recipes, "for_data", small)
    names: dict[str, Any] = {}
    exec(compile(blocks("python")[1], str(PAGE), "exec"), names)
    assert names["out"].new.shape == (1, 15, 1, 64)
    assert names["errors"]["test"].n == 18
    assert np.isfinite(names["errors"]["ood"].rel_l2)


@pytest.mark.slow
def test_the_page_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_files()
    run_commands()
    record = json.loads((tmp_path / "runs/fisher/results/fisher-tiny-s0.json").read_text())
    for found in record["errors"].values():
        assert found["rel_l2"] < found["repeat_first"] / 3

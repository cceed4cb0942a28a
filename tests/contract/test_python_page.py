"""The code of docs/python.md runs as it stands there, with a recipe that is small enough for a test."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pdejepa.method import recipes
from tests.unit.method.small_run import small_config

PAGE = Path(__file__).parents[2] / "docs/python.md"


@pytest.mark.slow
def test_the_code_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = ("pretrain", "align", "dynamics", "decode")
    small = small_config("combined", "device=cpu", *(f"{stage}.training.budget.steps=2" for stage in stages))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recipes, "get", lambda *_: small)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["errors"]["test"].n == 20
    assert {"test", "ood"} == set(names["errors"])
    pictures = ("forecast.png", "both.png", "both.gif")
    assert all((tmp_path / name).stat().st_size > 10_000 for name in pictures)
    with np.load(tmp_path / "forecast.npz") as kept:
        assert kept["fields"].shape == tuple(names["out"].fields.shape)
    assert bool(torch.isfinite(names["slope"]).all())

"""A finished run that is trained again: what is whole is left alone, a damaged model is written anew."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pdejepa.core.run_folder import FOUR
from pdejepa.method.pipeline import train
from pdejepa.training.stage import silent
from tests.unit.method.small_run import small_config

WORDS = (*(f"{name}.training.budget={{steps: 1}}" for name in FOUR), "device=cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(small_config("advection", *WORDS), folder, silent)
    return folder


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("weights.safetensors", lambda path: os.truncate(path, 100)),
        ("weights.safetensors", lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?")),
        ("weights.safetensors", os.unlink),
        ("config.json", lambda path: path.write_text("{")),
    ],
)
def test_a_damaged_model_is_written_anew(file: str, damage: Callable[[Path], object], run: Path) -> None:
    weights = run / "model" / "weights.safetensors"
    before = weights.read_bytes()
    damage(run / "model" / file)
    train(small_config("advection", *WORDS), run, silent)
    assert weights.read_bytes() == before
    changed = weights.stat().st_mtime_ns
    train(small_config("advection", *WORDS), run, silent)
    assert weights.stat().st_mtime_ns == changed

"""A finished run that is trained again: what is whole is left alone, a damaged model is written anew."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from pdejepa.app.cli import main
from pdejepa.core.errors import CheckpointError, ConfigError, DataError, PdejepaError
from pdejepa.core.run_folder import METHOD_STAGES
from pdejepa.method import chain
from pdejepa.method.align import Align
from pdejepa.method.chain import Trained
from pdejepa.method.pipeline import train
from pdejepa.training.stage import Batch, silent
from tests.unit.method.small_run import SMALL, small_config

WORDS = (*(f"{name}.training.budget={{steps: 1}}" for name in METHOD_STAGES), "device=cpu")


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


@pytest.mark.parametrize(
    ("words", "failure", "told"),
    [
        (("stages=[decode]",), CheckpointError, "decode needs pretrain and align and dynamics"),
        (("data=nowhere",), DataError, "nowhere"),
        (("counts={train: 4, valid: 2}",), ConfigError, "do not fit"),
    ],
)
def test_a_refused_training_leaves_nothing_behind(
    words: tuple[str, ...], failure: type[PdejepaError], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "fit" in told:
        monkeypatch.setattr(chain, "Surrogate", refuse)
    for out in (tmp_path / "run", tmp_path / "before"):
        (tmp_path / "before").mkdir(exist_ok=True)
        (tmp_path / "before" / "notes.txt").write_text("mine")
        with pytest.raises(failure, match=told):
            train(small_config("advection", *WORDS, *words), out, silent)
    assert not (tmp_path / "run").exists()
    left = sorted(path.name for path in (tmp_path / "before").iterdir())
    assert left == [".lock", "notes.txt"]


def refuse(*_: object) -> None:
    raise ConfigError("these sizes do not fit")


def test_few_frames_lie_between_the_command_and_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a reader of a traceback, or of the code, is soon where something is computed."""
    found: list[list[str]] = []

    def forward(self: Align, batch: Batch) -> dict[str, Tensor]:
        files = [frame.filename for frame in traceback.extract_stack()[:-1] if "/src/pdejepa/" in frame.filename]
        found.append([file.partition("/src/pdejepa/")[2] for file in files])
        raise Reached

    monkeypatch.setattr(Align, "forward", forward)
    words = ["--recipe", "tiny", "--out", str(tmp_path / "run"), *SMALL, *WORDS]
    assert main(["train", "advection", *words]) == 1
    frames = found[0][found[0].index("app/commands/train.py") + 1 :]
    assert frames[0] == "method/pipeline.py"
    assert len(frames) <= 7


class Reached(Exception):
    pass


def test_a_summary_is_printed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = Trained(None, None, "")  # type: ignore[arg-type]
    done.seconds["data"] = 1.5
    monkeypatch.setattr("pdejepa.method.pipeline.train", lambda *_: done)
    for rank, n_lines in ((0, 1), (1, 0)):
        monkeypatch.setattr("pdejepa.core.device.rank_and_world", lambda rank=rank: (rank, 2))
        assert main(["train", "advection", "--out", str(tmp_path / "run")]) == 0
        assert len(capsys.readouterr().out.splitlines()) == n_lines

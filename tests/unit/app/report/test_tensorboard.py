"""Metrics as TensorBoard events."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pdejepa.app.report.tensorboard import write_board
from pdejepa.core.errors import ResourceError
from tests.unit.app.report.folder import write_run


def test_every_number_arrives(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = write_run(tmp_path / "run")
    n = write_board(run, tmp_path / "board")
    found = 0
    for stage in ("pretrain", "align", "dynamics", "decode"):
        events = accumulator.EventAccumulator(str(tmp_path / "board" / stage)).Reload()
        tags = events.Tags()["scalars"]
        assert f"{stage}/train/loss" in tags
        found += sum(len(events.Scalars(tag)) for tag in tags)
    assert found == n > 0


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ResourceError, match=r"pip install 'pdejepa\[tensorboard\]'"):
        write_board(write_run(tmp_path / "run"), tmp_path / "board")

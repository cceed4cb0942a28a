"""Every system: its tiny data set passes the audit, and the certificate says so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pdejepa import systems
from pdejepa.app.cli import main
from pdejepa.data.audit.findings import JSON_NAME, TEXT_NAME

PARTS = (
    "manifest",
    "format",
    "declarations",
    "frames",
    "splits",
    "invariants",
    "reproduction",
    "reference",
    "parameters",
)
SLOW = ("vorticity", "heterns", "burgers", "wave_2d", "gray_scott")  # their reference solutions take long
TOLD_IN_SPACE = ("burgers", "gray_scott", "heterns", "vorticity")  # their grid defines the benchmark
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in systems.NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_the_tiny_data_set_passes(
    name: str, tiny_datasets: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = shutil.copytree(tiny_datasets(name), tmp_path / name)
    capsys.readouterr()
    assert main(["audit", str(root), "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    assert f"Audit of {name} in {root}: passed." in text
    certificate = json.loads((root / JSON_NAME).read_text())
    assert certificate["verdict"] == "passed"
    assert {finding["part"] for finding in certificate["findings"]} >= set(PARTS)
    states = [finding["state"] for finding in certificate["findings"]]
    assert set(states) <= {"ok", "reported"}
    system = systems.get(name)
    assert system.reference.refined in (root / TEXT_NAME).read_text()
    told = [finding["sentence"] for finding in certificate["findings"] if finding["state"] == "reported"]
    assert any(" in [" in sentence for sentence in told) == (name in TOLD_IN_SPACE)
    again = certificate["settings"]["rows_solved_again"]
    assert set(again) == {split.name for split in system.splits}
    assert all(len(rows) >= 1 for rows in again.values())

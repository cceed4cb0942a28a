"""`benchmarks/operations.py`: operations are counted, views are not, and nothing is computed."""

from __future__ import annotations

import dataclasses
import sys

import pytest
import torch

from pdejepa import baselines, systems
from pdejepa.baselines.pool import build_pool
from tests.unit.scripts import load_script

operations = load_script("benchmarks/operations.py")


def test_views_are_free() -> None:
    x = torch.ones(4, 3)
    with operations.Count() as count:
        (x.t()[0] + 1).exp()
    assert count.n == 2
    assert count.n_bytes == 4 * (2 * 4 + 2 * 4)  # both read and write four numbers


def test_a_step_is_counted_alike_with_and_without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = build_pool(systems.get("combined", n_points=64), {"train": 20, "valid": 4}, operations.CPU)
    ((_, shapes),) = operations.counted("fno", "tiny", pool)
    kind = baselines.get("fno")
    monkeypatch.setattr(kind, "card", dataclasses.replace(kind.card, unrecorded=("fit",)))
    ((_, values),) = operations.counted("fno", "tiny", pool)
    assert 0.8 < shapes.n / values.n < 1.25


def test_the_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["operations.py", "combined", "--solvers", "fno,lns", "--recipe", "tiny"])
    operations.main()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[:2] for row in rows] == [["fno", "fit"], ["lns", "autoencode"], ["lns", "dynamics"]]
    assert rows[0][3] == "1.0"
    assert int(rows[2][2].replace(",", "")) > 100

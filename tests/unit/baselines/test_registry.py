"""Solvers from elsewhere are known by the name on their card, trained, saved and loaded like ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch

import pdejepa
from pdejepa import baselines
from pdejepa.baselines.fno import Fno
from pdejepa.baselines.inference import PublishedSolver
from pdejepa.core.errors import ConfigError
from tests.unit.baselines.token_solvers import rough, task_of


class Mine(Fno):
    card = dataclasses.replace(Fno.card, name="mine", title="Mine")


@pytest.fixture(autouse=True)
def _nothing_is_kept() -> Iterator[None]:
    with mock.patch.dict(baselines._registered, clear=True):
        yield


def test_a_registered_solver_is_saved_and_loaded_by_its_name(tmp_path: Path) -> None:
    assert baselines.register(Mine) is Mine
    assert baselines.get("mine") is Mine
    task = task_of("combined", 64)
    torch.manual_seed(0)
    solver = PublishedSolver(Mine(Mine.recipe("tiny", task).model, task).eval().requires_grad_(False), "tiny")
    solver.save(tmp_path)
    again = pdejepa.load(tmp_path, "cpu")
    u = rough("combined", 2, 2, 64)
    assert again.card.name == "mine"
    assert torch.equal(again.forecast(u, n_frames=2).fields, solver.forecast(u, n_frames=2).fields)


def test_entry_points_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    point = mock.Mock()
    point.name, point.load = "mine", lambda: Mine
    found = lambda group, name: [point] if (group, name) == ("pdejepa.solvers", "mine") else []  # noqa: E731
    monkeypatch.setattr(baselines.importlib.metadata, "entry_points", found)
    assert baselines.get("mine") is Mine


def test_what_cannot_be_a_solver_is_refused() -> None:
    with pytest.raises(ConfigError, match="derives from Baseline; got 3"):
        baselines.register(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="There is a solver 'fno' already"):
        baselines.register(Fno)
    with pytest.raises(ConfigError, match="There is no solver 'mine'"):
        baselines.get("mine")

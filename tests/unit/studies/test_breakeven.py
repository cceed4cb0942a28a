"""When a surrogate pays: verdicts from numbers, and a stand-in whose speed is known."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from pdejepa import systems
from pdejepa.app.cli import main
from pdejepa.core.device import machine_name
from pdejepa.core.errors import ConfigError
from pdejepa.studies.breakeven import Question, breakeven, equivalents, verdict
from pdejepa.systems.coarser import Setting
from tests.unit.forecast import tiny

CPU = torch.device("cpu")
HERE = machine_name(CPU)
COSTS: dict[str, Any] = {
    "error": 0.01, "still": 1.2, "forecast": 0.1, "solver": 0.3, "label": "9 points", "spent": 60.0,
    "trained_on": "A", "here": "A",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "n_star", "told"),
    [
        ({}, 300.0, "after 300 forecasts: a forecast saves 200 ms, and data and training cost 60 s"),
        ({"solver": 0.05}, None, "never: the solver with 9 points is as accurate and 2 times as fast as a forecast"),
        ({"solver": 0.1}, None, "never: .* 1 times as fast"),
        ({"error": 1.3}, None, "never: the forecast is 1.3 off, no better than repeating the first frame"),
        ({"trained_on": "B"}, None, "unknown: a forecast saves 200 ms on A, but 60 s of data and training .* on B"),
        ({"trained_on": ""}, None, "on a machine that the model does not name"),
        ({"spent": None}, None, "the model does not tell what its data and its training cost"),
    ],
)
def test_verdicts(changes: dict[str, Any], n_star: float | None, told: str) -> None:
    import re

    found, reason = verdict(**{**COSTS, **changes})
    assert found == (None if n_star is None else pytest.approx(n_star))
    assert re.search(told, reason)


class StandIn:
    """A model of Combined on 32 points that looks its forecasts up, off by a known share, in a known time."""

    def __init__(self, error: float, seconds: float = 0.0, details: dict[str, Any] | None = None) -> None:
        self.system, self.device = systems.get("combined", n_points=32), CPU
        self.card, self.details = SimpleNamespace(history=1), details or {}
        self.error, self.pause, self.known = error, seconds, {}

    def forecast(self, u0: Tensor, xi: Tensor, n_frames: int) -> Any:
        time.sleep(self.pause)
        for u, row in zip(u0, xi, strict=True):
            key = tuple(row.tolist())
            if key not in self.known:
                start = u[-1:].double()
                self.known[key] = self.system.solve(start, row[None]).as_subclass(Tensor)[0]
        return SimpleNamespace(fields=torch.stack([self.known[tuple(row.tolist())] for row in xi]) * (1 + self.error))


@pytest.mark.slow
def test_a_fast_surrogate_pays_after_its_cost(capsys: pytest.CaptureFixture[str]) -> None:
    """It looks frames up, so any solver is slower; the machine is this one."""
    details = {"seconds": {"data": 10.0, "total": 110.0}, "machine": HERE, "device": "cpu"}
    found = breakeven(StandIn(1e-3, details=details), "it", n=2, batch=2)
    assert found.error == pytest.approx(1e-3, rel=1e-3)
    assert found.solver_error <= found.error
    assert found.solver_seconds > found.forecast_seconds
    assert (found.data_seconds, found.training_seconds) == (10.0, 100.0)
    saved = found.solver_seconds - found.forecast_seconds
    assert found.n_star == pytest.approx(110 / saved)
    elsewhere = breakeven(StandIn(1e-3, details={**details, "machine": "another"}), "it", n=2, batch=2)
    assert elsewhere.n_star is None
    assert elsewhere.trained_on == "another"


@pytest.mark.slow
def test_a_slow_surrogate_never_pays() -> None:
    found = breakeven(StandIn(1e-2, seconds=0.5), "it", n=2, batch=2)
    assert found.n_star is None
    assert found.reason.startswith("never: the solver with")
    assert found.forecast_seconds > 0.25


@pytest.mark.slow
def test_a_larger_error_allows_a_coarser_solver() -> None:
    sizes = []
    for error in (1e-4, 0.3):
        model = StandIn(error)
        question = Question(model, 2, 2)
        found = equivalents(question, error, lambda _: None)
        assert all(isinstance(one, Setting) for one in found)
        assert all(question.error(question.solver(one)) <= error for one in found)
        sizes.append(min(one.n for one in found))
    assert sizes[1] < sizes[0]


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(ConfigError, match="a batch from 1 to the number of trajectories, 2; got 3"):
        Question(StandIn(0.1), 2, 3)


def test_the_command_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.saved("heat", tmp_path / "model")
    assert main(["breakeven", str(tmp_path / "model"), "--n", "2", "--batch", "2", "--json", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"n_star", "reason", "solver_seconds", "forecast_seconds", "error"} <= set(found)
    assert found["n_star"] is None  # untrained
    assert found["reason"].startswith("never: the forecast is")


def test_the_command_writes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.saved("heat", tmp_path / "model")
    out = tmp_path / "out.json"
    assert main(["breakeven", str(tmp_path / "model"), "--n", "2", "--batch", "1", "--out", str(out)]) == 0
    (row,) = json.loads(out.read_text())["breakeven"]
    assert row["reason"] in capsys.readouterr().out

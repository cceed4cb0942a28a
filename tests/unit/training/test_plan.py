"""Budgets: seconds become steps once, and a resumed stage keeps them."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from pdejepa.core.errors import Interrupted
from pdejepa.training import timing
from pdejepa.training.checkpoint import StageFolder
from pdejepa.training.plan import planned_steps
from pdejepa.training.settings import Budget
from pdejepa.training.stage import Batch
from tests.faults.training import Toy, result, settings, train


def test_steps_of_a_budget() -> None:
    def steps(budget: Budget, n_samples: int = 100) -> int:
        return planned_steps(budget, n_samples, 8, lambda: 1e6)

    assert steps(Budget(steps=7)) == 7
    assert steps(Budget(epochs=2.5)) == 30
    assert steps(Budget(epochs=0.01)) == 1
    assert steps(Budget(epochs=3), 4) == 3
    assert steps(Budget(flops=7.9e6)) == 7
    assert steps(Budget(flops=10.0)) == 1
    assert steps(Budget(seconds=3)) == 0


def test_epochs(tmp_path: Path) -> None:
    assert train(tmp_path / "toy", Toy(settings(budget=Budget(epochs=2))))["steps"] == 10


class Timed(Toy):
    """A stage on a clock of its own: a step takes `step_s` seconds, a score two."""

    now, step_s = 100.0, 1.0

    def batch(self, step: int, n_steps: int) -> Batch:
        Timed.now += Timed.step_s
        return super().batch(step, n_steps)

    def score(self) -> dict[str, float]:
        Timed.now += 2.0
        return super().score()


@pytest.fixture
def own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "clock", lambda: Timed.now)
    monkeypatch.setattr(Timed, "now", 100.0)
    monkeypatch.setattr(Timed, "step_s", 1.0)


@pytest.mark.usefixtures("own_clock")
def test_seconds_become_steps_once_and_the_probe_leaves_no_trace(tmp_path: Path) -> None:
    """50 s: a step to warm up, one score, 10 timed steps.  Of the 37 s left, four scores take 8: 29 steps of 1 s."""
    assert train(tmp_path / "timed", Timed(settings(budget=Budget(seconds=50))))["steps"] == 29
    assert Timed.now - 100 == 13 + 8 + 29
    assert json.loads((tmp_path / "timed/plan.json").read_text())["steps"] == 29
    train(tmp_path / "counted", Toy(settings(budget=Budget(steps=29))))
    timed, counted = result(tmp_path / "timed"), result(tmp_path / "counted")
    assert {name for name in timed if timed[name] != counted[name]} == {"plan.json"}


@pytest.mark.usefixtures("own_clock")
def test_a_resumed_stage_keeps_its_number_of_steps(tmp_path: Path) -> None:
    budget = Budget(seconds=50)
    train(tmp_path / "one", Timed(settings(budget=budget)))
    stop = {11: lambda stage: signal.raise_signal(signal.SIGTERM)}

    class Stopped(Timed):
        def batch(self, step: int, n_steps: int) -> Batch:
            if n_steps != timing.PROBE_STEPS and step in stop:
                stop.pop(step)(self)
            return super().batch(step, n_steps)

    with pytest.raises(Interrupted, match=r"^Stopping after step 12; saved. Continue with the same command.$"):
        train(tmp_path / "two", Stopped(settings(budget=budget)))
    Timed.step_s = 17.0
    train(tmp_path / "two", Timed(settings(budget=budget)))
    assert result(tmp_path / "one") == result(tmp_path / "two")


@pytest.mark.usefixtures("own_clock")
def test_checkpoints_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    save = StageFolder.save
    monkeypatch.setattr(StageFolder, "save", lambda self, step, *rest: (saved.append(step), save(self, step, *rest)))
    train(tmp_path / "toy", Timed(settings(save_every=0, save_seconds=7.0, n_scores=0, select="last")))
    assert saved == [7, 14, 21, 24]


def test_stopped_in_the_probe(tmp_path: Path) -> None:
    stop = {timing.TYPICAL[1]: lambda _: signal.raise_signal(signal.SIGINT)}
    stage = Toy(settings(budget=Budget(seconds=50)), disturb=stop)
    with pytest.raises(Interrupted, match=r"^Stopped before the first step"):
        train(tmp_path / "toy", stage)
    assert not (tmp_path / "toy/plan.json").exists()

"""Budgets: seconds become steps once, and a resumed stage keeps them."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from pdejepa.core.errors import Interrupted
from pdejepa.training import plan as planning
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
    monkeypatch.setattr(planning, "clock", lambda: Timed.now)
    monkeypatch.setattr(Timed, "now", 100.0)
    monkeypatch.setattr(Timed, "step_s", 1.0)


@pytest.mark.usefixtures("own_clock")
def test_seconds_become_steps_once_and_the_probe_leaves_no_trace(tmp_path: Path) -> None:
    """50 s: 4 steps to warm up and 10 timed ones, then one score.  Of the 34 s left, four scores take 8, and saving
    takes a moment: 25 steps of 1 s."""
    assert train(tmp_path / "timed", Timed(settings(budget=Budget(seconds=50))))["steps"] == 25
    assert Timed.now - 100 == 16 + 8 + 25
    assert json.loads((tmp_path / "timed/plan.json").read_text())["steps"] == 25
    train(tmp_path / "counted", Toy(settings(budget=Budget(steps=25))))
    timed, counted = result(tmp_path / "timed"), result(tmp_path / "counted")
    assert {name for name in timed if timed[name] != counted[name]} == {"plan.json"}


@pytest.mark.usefixtures("own_clock")
def test_a_resumed_stage_keeps_its_number_of_steps(tmp_path: Path) -> None:
    budget = Budget(seconds=50)
    train(tmp_path / "one", Timed(settings(budget=budget)))
    stop = {11: lambda stage: signal.raise_signal(signal.SIGTERM)}

    class Stopped(Timed):
        def batch(self, step: int, n_steps: int) -> Batch:
            if n_steps != planning.PROBE_STEPS and step in stop:
                stop.pop(step)(self)
            return super().batch(step, n_steps)

    with pytest.raises(Interrupted, match=r"^Stopping after step 12; saved. Continue with the same command.$"):
        train(tmp_path / "two", Stopped(settings(budget=budget)))
    Timed.step_s = 17.0
    train(tmp_path / "two", Timed(settings(budget=budget)))
    assert result(tmp_path / "one") == result(tmp_path / "two")


@pytest.mark.usefixtures("own_clock")
def test_slow_steps_end_the_probe_early(tmp_path: Path) -> None:
    Timed.step_s = 30.0
    n_before = Timed.now
    assert train(tmp_path / "toy", Timed(settings(budget=Budget(seconds=50))))["steps"] == 1
    assert Timed.now - n_before < 30 * 4


def measured(
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    spend: Callable[[int], float],
    log_s: float = 0.0,
    score_s: float = 0.0,
    is_trial: bool = False,
) -> tuple[int, int, list[float]]:
    """Steps and scores that fit into the seconds if action number n takes spend(n), and what the probe took."""
    spent: list[float] = []
    monkeypatch.setattr(planning, "clock", lambda: sum(spent))
    work = planning.Work(
        step=lambda number, n: spent.append(spend(len(spent))),
        log=lambda: spent.append(log_s) if log_s else None,
        score=lambda: spent.append(score_s) if score_s else None,
        save=lambda: None,
        wait=lambda: None,
    )
    wanted = settings(budget=Budget(seconds=seconds), log_every=20, n_scores=10)
    return *planning.measure_steps(wanted, work, is_trial)[:2], spent


def test_quick_steps_are_timed_until_the_clock_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first round of twelve was disturbed, and took less than 1 % of the budget: a second follows."""
    steps, _, spent = measured(monkeypatch, 50, lambda number: 0.04 if number < 16 else 0.006)
    assert len(spent) == 4 + 2 * 12
    assert steps == pytest.approx((50 - sum(spent)) / (sum(spent[4:]) / 24), abs=1)


def test_lines_of_metrics_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line every 20 steps takes as long as they do: half as many fit."""
    steps, _, spent = measured(monkeypatch, 100, lambda _: 0.1, log_s=2.0)
    assert steps == pytest.approx((100 - sum(spent)) / 0.2, abs=1)


@pytest.mark.parametrize(("score_s", "n_scores"), [(1.0, 10), (5.0, 4), (30.0, 1)])
def test_scores_leave_time_for_steps(monkeypatch: pytest.MonkeyPatch, score_s: float, n_scores: int) -> None:
    """Ten are wanted; all of them take a quarter of what the probe leaves at most, but one is always taken."""
    steps, scores, spent = measured(monkeypatch, 100, lambda _: 0.1, score_s=score_s)
    assert scores == n_scores
    assert steps == pytest.approx((100 - sum(spent) - n_scores * score_s) / 0.1, abs=1.5)


@pytest.mark.usefixtures("own_clock")
def test_a_plan_of_an_earlier_version_says_nothing_of_scores(tmp_path: Path) -> None:
    train(tmp_path / "now", Timed(settings(budget=Budget(seconds=50))))
    before = json.loads((tmp_path / "now/plan.json").read_text())
    assert before.pop("scores") > 0
    (tmp_path / "before").mkdir()
    (tmp_path / "before/plan.json").write_text(json.dumps(before))
    train(tmp_path / "before", Timed(settings(budget=Budget(seconds=50))))
    now, then = result(tmp_path / "now"), result(tmp_path / "before")
    assert {name for name in now if now[name] != then[name]} == {"plan.json"}


def test_the_first_steps_of_a_trial_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """They compile and record, 30 s in all, which would leave a budget of 20 s nothing."""
    usual, trial = (
        measured(monkeypatch, 20, lambda number: 7.5 if number < 4 else 0.1, is_trial=is_trial)[0]
        for is_trial in (False, True)
    )
    assert usual <= 10
    assert trial == pytest.approx((20 - 12 * 0.1) / 0.1, abs=1)


@pytest.mark.usefixtures("own_clock")
def test_checkpoints_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    save = StageFolder.save
    monkeypatch.setattr(StageFolder, "save", lambda self, step, *rest: (saved.append(step), save(self, step, *rest)))
    train(tmp_path / "toy", Timed(settings(save_every=0, save_seconds=7.0, n_scores=0, select="last")))
    assert saved == [7, 14, 21, 24]


def test_stopped_in_the_probe(tmp_path: Path) -> None:
    stage = Toy(settings(budget=Budget(seconds=50)), disturb={1: lambda _: signal.raise_signal(signal.SIGINT)})
    with pytest.raises(Interrupted, match=r"^Stopped before the first step"):
        train(tmp_path / "toy", stage)
    assert not (tmp_path / "toy/plan.json").exists()

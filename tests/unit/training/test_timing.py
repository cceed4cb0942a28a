"""Budgets in seconds: steps are timed once, and what nobody can resume ends when its seconds do."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdejepa.core.errors import ConfigError
from pdejepa.training import timing
from pdejepa.training.schedule import learning_rate_factor
from pdejepa.training.settings import Budget
from pdejepa.training.stage import Batch, Keep
from pdejepa.training.timing import PROBE_STEPS, TYPICAL, Deadline, Limit, Measured
from tests.faults.training import SETTINGS, Toy, settings, train

SECONDS, SCORE_S = 400.0, 3.0
Cost = Callable[[float], float]


class Clocked(Toy):
    """A stage on a clock of its own: when it is timed a step takes 1 s times its cost, later `pace` times as long."""

    now, pace, n_scored = 0.0, 1.0, 0
    costs: Cost = staticmethod(lambda share: 1.0)

    def batch(self, step: int, n_steps: int) -> Batch:
        Clocked.now += self.costs(step / n_steps) * (1.0 if self.is_timed(n_steps) else Clocked.pace)
        return super().batch(step, n_steps)

    def is_timed(self, n_steps: int) -> bool:
        return n_steps == PROBE_STEPS

    def score(self) -> dict[str, float]:
        Clocked.now += SCORE_S
        Clocked.n_scored += 1
        return super().score()


@pytest.fixture
def own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "clock", lambda: Clocked.now)
    for name, value in {"now": 0.0, "pace": 1.0, "n_scored": 0}.items():
        monkeypatch.setattr(Clocked, name, value)


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    found = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line for line in found if kind in line]


def rising(share: float) -> float:
    """Rollouts of one, two and four frames."""
    return (1.0, 2.0, 4.0)[min(int(3 * share), 2)] / 2


# ---- a limit binds it ---------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("own_clock")
@pytest.mark.parametrize("keep", ["memory", "trial"])
@pytest.mark.parametrize("passed", [0.0, 100.0, 390.0])
def test_a_limit_counts_what_was_done_before(tmp_path: Path, keep: Keep, passed: float) -> None:
    """Warming up and scoring too, of trials as well."""
    Clocked.now = passed
    limit = Limit(SECONDS, SECONDS)
    train(tmp_path / "toy", Clocked(settings(budget=Budget(seconds=1.0))), keep=keep, limit=limit)
    assert Clocked.now == pytest.approx(SECONDS, abs=2.0)


@pytest.mark.usefixtures("own_clock")
def test_a_stage_has_its_share_of_what_is_left() -> None:
    limit = Limit(SECONDS, SECONDS)
    Clocked.now = 100.0
    assert limit.of_stage(0.5) == Limit(250.0, SECONDS)
    Clocked.now = 500.0
    assert (limit.left, limit.of_stage(0.5)) == (0.0, Limit(500.0, SECONDS))


@pytest.mark.usefixtures("own_clock")
@pytest.mark.parametrize("longest", [0.9, 1.1])
def test_long_steps_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest: float) -> None:
    monkeypatch.setattr(timing, "LONGEST_STEP", longest / SECONDS)
    stage, limit = Clocked(settings(budget=Budget(seconds=1.0))), Limit(SECONDS, SECONDS)
    if longest > 1:
        train(tmp_path / "toy", stage, keep="memory", limit=limit)
        return
    with pytest.raises(ConfigError, match=r"a step takes 1 s, 0\.2% of the budget of 400 s"):
        train(tmp_path / "toy", stage, keep="memory", limit=limit)
    assert Clocked.now < 10


# ---- in memory, the clock decides --------------------------------------------------------------------------------
@pytest.mark.usefixtures("own_clock")
@pytest.mark.parametrize("pace", [0.5, *(pytest.param(p, marks=pytest.mark.slow) for p in (0.8, 1.0, 1.25)), 2.0])
@pytest.mark.parametrize("costs", [lambda share: 1.0, rising], ids=["even", "rising"])
@pytest.mark.parametrize("keep", ["memory", "trial"])
def test_seconds_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pace: float, costs: Cost, keep: Keep
) -> None:
    """To one step at the end, which takes up to 4 s here; and all scores are made, the last one at the end."""
    monkeypatch.setattr(Clocked, "pace", pace)
    monkeypatch.setattr(Clocked, "costs", staticmethod(costs))
    report = train(tmp_path / "toy", Clocked(settings(budget=Budget(seconds=SECONDS))), keep=keep)
    warm = sum(costs(step / PROBE_STEPS) for step in TYPICAL[:1]) + SCORE_S if keep == "trial" else 0.0
    assert Clocked.now - warm == pytest.approx(SECONDS, abs=2 * pace * costs(1.0))
    scored = [line["step"] for line in lines(tmp_path / "toy", "valid")]
    assert len(scored) == Clocked.n_scored - 1 == (4 if keep == "memory" else 1)  # one before the first step
    assert scored[-1] == report["steps"] == lines(tmp_path / "toy", "train")[-1]["step"]
    assert json.loads((tmp_path / "toy/plan.json").read_text())["steps"] == report["steps"]


@pytest.mark.usefixtures("own_clock")
def test_scores_are_spread_over_the_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clocked, "pace", 2.0)
    report = train(tmp_path / "toy", Clocked(settings(budget=Budget(seconds=SECONDS))), keep="memory")
    scored = [line["step"] for line in lines(tmp_path / "toy", "valid")]
    assert scored == pytest.approx([share * report["steps"] for share in (0.25, 0.5, 0.75, 1.0)], abs=2)


class Started(Clocked):
    scores_start = True


@pytest.mark.usefixtures("own_clock")
def test_a_score_of_the_start_is_one_more(tmp_path: Path) -> None:
    train(tmp_path / "toy", Started(settings(budget=Budget(seconds=SECONDS))), keep="memory")
    assert [line["step"] > 0 for line in lines(tmp_path / "toy", "valid")] == [False, True, True, True, True]
    assert Clocked.now == pytest.approx(SECONDS, abs=2)


@pytest.mark.usefixtures("own_clock")
def test_the_schedule_follows_the_seconds(tmp_path: Path) -> None:
    """Steps cost 1 s in the first half and 4 s in the second: the rate falls by the time that has gone."""

    class Slowed(Clocked):
        def batch(self, step: int, n_steps: int) -> Batch:
            Clocked.pace = 4.0 if Clocked.now > SECONDS / 2 else 1.0
            shares.append(step / n_steps)
            return super().batch(step, n_steps)

    shares: list[float] = []
    configured = settings(budget=Budget(seconds=SECONDS), log_every=1, n_scores=1)
    train(tmp_path / "toy", Slowed(configured), keep="memory")
    shares = shares[1:]  # after the warm-up
    assert all(before < after for before, after in pairwise(shares))
    rates = [line["train"]["lr"] for line in lines(tmp_path / "toy", "train")]
    schedule, lr = SETTINGS.schedule, SETTINGS.optimiser.lr
    expected = [lr * learning_rate_factor(schedule, round(1e5 * share), 100_000) for share in shares]
    assert rates[1:] == pytest.approx(expected[1:], abs=0.04 * lr)
    n_early = sum(share < 0.5 for share in shares)
    assert n_early > 0.75 * len(shares)


@pytest.mark.usefixtures("own_clock")
def test_progress_knows_the_new_number_of_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Clocked, "pace", 2.0)
    stage = Clocked(settings(budget=Budget(seconds=SECONDS)))
    n = train(tmp_path / "toy", stage, keep="memory", shown="lines")["steps"]
    assert f"toy: {n:,} of {n:,} steps (100 %)" in capsys.readouterr().err


@pytest.mark.usefixtures("own_clock")
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.99])
@pytest.mark.parametrize("until", [0.5, 9.0], ids=["passes", "stays"])
def test_a_disturbance(tmp_path: Path, share: float, until: float) -> None:
    """Steps that become three times as slow, however late; each may be the last."""

    class Slowed(Clocked):
        def batch(self, step: int, n_steps: int) -> Batch:
            Clocked.pace = 3.0 if share * SECONDS < Clocked.now < until * SECONDS else 1.0
            return super().batch(step, n_steps)

    train(tmp_path / "toy", Slowed(settings(budget=Budget(seconds=SECONDS))), keep="memory")
    assert pytest.approx(SECONDS, abs=4) == Clocked.now


@pytest.mark.usefixtures("own_clock")
@pytest.mark.parametrize("first", [0.02, 30.0])
def test_first_steps_of_another_pace(tmp_path: Path, first: float) -> None:
    """Five steps fifty times as fast, or thirty times as slow.  The warm-up takes 1 + 3 s, four scores 12 s."""

    class Odd(Clocked):
        def batch(self, step: int, n_steps: int) -> Batch:
            Clocked.pace = first if step < 5 else 1.0
            return super().batch(step, n_steps)

        def is_timed(self, n_steps: int) -> bool:
            return Clocked.n_scored == 0

    report = train(tmp_path / "toy", Odd(settings(budget=Budget(seconds=SECONDS))), keep="memory")
    assert Clocked.now == pytest.approx(SECONDS, abs=3)
    assert report["steps"] == pytest.approx(5 + SECONDS - 4 - 12 - 5 * first, abs=3)


@pytest.mark.usefixtures("own_clock")
def test_one_step_is_taken_however_few_the_seconds(tmp_path: Path) -> None:
    report = train(tmp_path / "toy", Clocked(settings(budget=Budget(seconds=0.5))), keep="memory")
    assert (report["steps"], report["step_selected"]) == (1, 1)


def test_a_clock_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "clock", lambda: 5.0)
    assert Deadline(50.0, 0.0, lambda: None).n_steps(10, 1) > 10


def test_the_device_is_waited_for_near_the_end_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is 4 s behind: what it was asked to do ends at 104 s, which is noticed at 100 s."""
    now, waited = 0.0, []
    monkeypatch.setattr(timing, "clock", lambda: now)

    def wait() -> None:
        nonlocal now
        waited.append(now)
        now += 4.0

    deadline = Deadline(100.0, 0.0, wait)
    now = 90.0
    assert deadline.n_steps(90, 0) == 100
    assert waited == []
    now = 100.0
    assert deadline.n_steps(100, 0) == 100
    assert waited == [100.0]


# ---- before the first step ---------------------------------------------------------------------------------------
@pytest.mark.usefixtures("own_clock")
@pytest.mark.parametrize("costs", [lambda share: 1.0, rising], ids=["even", "rising"])
def test_a_training_with_files_keeps_its_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, costs: Cost
) -> None:
    monkeypatch.setattr(Clocked, "costs", staticmethod(costs))
    train(tmp_path / "toy", Clocked(settings(budget=Budget(seconds=SECONDS))))
    assert Clocked.now == pytest.approx(SECONDS, rel=0.02)


@pytest.mark.usefixtures("own_clock")
def test_a_training_with_files_keeps_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or one that is interrupted would end otherwise than one that is not."""
    monkeypatch.setattr(Clocked, "pace", 2.0)
    report = train(tmp_path / "toy", Clocked(settings(budget=Budget(seconds=SECONDS))))
    assert report["steps"] == json.loads((tmp_path / "toy/plan.json").read_text())["steps"]
    assert Clocked.now > 1.5 * SECONDS


def test_typical_steps_are_typical() -> None:
    """Of all lengths of rollouts that grow, and of what happens every other or every third step; so are the first."""
    for n_lengths in (1, 2, 3, 4, 6):
        lengths = [step * n_lengths // PROBE_STEPS for step in TYPICAL]
        assert np.bincount(lengths).tolist() == [12 // n_lengths] * n_lengths
    for n_lengths in (1, 2, 3, 4, 5):
        assert {step * n_lengths // PROBE_STEPS for step in TYPICAL[: timing.N_WARM]} == set(range(n_lengths))
    for every in (2, 3, 4):
        assert np.bincount([step % every for step in TYPICAL]).tolist() == [12 // every] * every
        assert {step % every for step in TYPICAL[: timing.N_WARM]} >= {0, every - 1}


def measured(
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    spend: Callable[[int], float],
    score_s: float = 0.0,
    keep: Keep = "files",
    **changes: Any,
) -> tuple[Measured, list[float]]:
    """What fits into the seconds if action number n takes spend(n), and what was spent to find out."""
    spent: list[float] = []
    monkeypatch.setattr(timing, "clock", lambda: sum(spent))
    work = timing.Work(
        step=lambda step: spent.append(spend(len(spent))),
        score=lambda: spent.append(score_s),
        save=lambda: spent.append(changes.get("save_s", 0.0)),
        wait=lambda: None,
    )
    wanted = settings(budget=Budget(seconds=seconds), n_scores=10, save_every=changes.get("save_every", 5))
    return timing.measure(wanted, work, keep), spent


def test_quick_steps_are_timed_until_the_clock_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first round of twelve was disturbed, and took less than 1 % of the budget: a second follows."""
    found, spent = measured(monkeypatch, 50, lambda number: 0.04 if number < 18 else 0.006)
    assert len(spent) == 5 + 1 + 2 * 12 + 1
    assert found.steps == pytest.approx((50 - sum(spent)) / (sum(spent[6:]) / 24), abs=1)


@pytest.mark.parametrize(("score_s", "n_scores"), [(1.0, 10), (5.0, 4), (30.0, 1)])
@pytest.mark.parametrize("keep", ["files", "memory"])
def test_scores_leave_time_for_steps(
    monkeypatch: pytest.MonkeyPatch, score_s: float, n_scores: int, keep: Keep
) -> None:
    """Ten are wanted; all of them take a quarter of what is left at most, but one is always taken."""
    found, spent = measured(monkeypatch, 100, lambda _: 0.1, score_s, keep)
    assert found.scores == n_scores
    if keep == "files":
        assert found.steps == pytest.approx((100 - sum(spent) - n_scores * score_s) / 0.1, abs=1.5)


@pytest.mark.parametrize("save_every", [0, 50])
def test_checkpoints_leave_time_for_steps(monkeypatch: pytest.MonkeyPatch, save_every: int) -> None:
    """Of 2 s each: one a minute or every 50 steps, one at the end, and two with every score, of which ten are paid."""
    found, spent = measured(monkeypatch, 1000, lambda _: 0.5, save_s=2.0, save_every=save_every)
    per_step = 2.0 * (0.5 / 60 if save_every == 0 else 1 / 50)
    assert found.scores == 10
    assert found.steps == pytest.approx((1000 - sum(spent) - 2 - 10 * 4) / (0.5 + per_step), abs=1.5)


def test_the_first_steps_of_a_trial_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """They compile and record, 35 s in all, which would leave a budget of 20 s nothing."""
    left = {}
    for keep in ("memory", "trial"):
        found, spent = measured(monkeypatch, 20, lambda number: 7.0, keep=keep)  # type: ignore[arg-type]
        assert found.deadline is not None
        left[keep] = found.deadline._ends - sum(spent)
    assert left == {"memory": 6.0, "trial": 20.0}  # two steps of warm-up, and all five


def test_slow_steps_end_the_timing_early(monkeypatch: pytest.MonkeyPatch) -> None:
    found, spent = measured(monkeypatch, 50, lambda _: 30.0)
    assert found.steps == 1
    assert len([seconds for seconds in spent if seconds]) == 2

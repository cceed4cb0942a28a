"""Trainings that nobody can resume end when their seconds do, whatever the first seconds promised."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pdejepa.training import plan as planning
from pdejepa.training.pace import Pace
from pdejepa.training.plan import Measured
from pdejepa.training.settings import Budget
from pdejepa.training.stage import Batch
from tests.faults.training import Toy, settings, train

SECONDS, SCORE_S = 400.0, 3.0
Cost = Callable[[float], float]


class Clocked(Toy):
    """A stage on a clock of its own: in the probe a step takes 1 s times its cost, later `pace` times as long."""

    now, pace, n_scored = 0.0, 1.0, 0
    costs: Cost = staticmethod(lambda share: 1.0)

    def batch(self, step: int, n_steps: int) -> Batch:
        is_probe = n_steps == planning.PROBE_STEPS
        Clocked.now += self.costs(step / n_steps) * (1.0 if is_probe else Clocked.pace)
        return super().batch(step, n_steps)

    def probe_step(self, number: int, n: int, n_steps: int) -> int:
        return number * n_steps // n

    def cost(self, share: float) -> float:
        return self.costs(share)

    def score(self) -> dict[str, float]:
        Clocked.now += SCORE_S
        Clocked.n_scored += 1
        return super().score()


@pytest.fixture
def own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "clock", lambda: Clocked.now)
    for name, value in {"now": 0.0, "pace": 1.0, "n_scored": 0}.items():
        monkeypatch.setattr(Clocked, name, value)


class Started(Clocked):
    scores_start = True


def rising(share: float) -> float:
    """Rollouts of one, two and four frames."""
    return (1.0, 2.0, 4.0)[min(int(3 * share), 2)] / 2


@pytest.mark.usefixtures("own_clock")
@pytest.mark.parametrize("pace", [0.5, 0.8, 1.0, 1.25, 2.0])
@pytest.mark.parametrize("costs", [lambda share: 1.0, rising], ids=["even", "rising"])
@pytest.mark.parametrize("keep", ["memory", "trial"])
def test_seconds_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pace: float, costs: Cost, keep: str
) -> None:
    """To one step at the end, which takes up to 4 s here; and all scores are made, the last one at the end."""
    monkeypatch.setattr(Clocked, "pace", pace)
    monkeypatch.setattr(Clocked, "costs", staticmethod(costs))
    report = train(tmp_path / "toy", Clocked(settings(budget=Budget(seconds=SECONDS))), keep=keep)
    warm = sum(costs(number / 4) for number in range(4)) if keep == "trial" else 0.0  # does not count in trials
    assert Clocked.now - warm == pytest.approx(SECONDS, abs=2 * pace * costs(1.0))
    lines = [json.loads(line) for line in (tmp_path / "toy/metrics.jsonl").read_text().splitlines()]
    scored = [line["step"] for line in lines if "valid" in line]
    assert len(scored) == Clocked.n_scored - 1 == (4 if keep == "memory" else 1)  # one in the probe
    assert scored[-1] == report["steps"] == lines[-1]["step"]
    spread = [number * report["steps"] / len(scored) for number in range(1, len(scored) + 1)]
    assert scored == pytest.approx(spread, abs=0.03 * report["steps"])
    assert json.loads((tmp_path / "toy/plan.json").read_text())["steps"] == report["steps"]


@pytest.mark.usefixtures("own_clock")
def test_a_score_of_the_start_is_one_more(tmp_path: Path) -> None:
    train(tmp_path / "toy", Started(settings(budget=Budget(seconds=SECONDS))), keep="memory")
    lines = [json.loads(line) for line in (tmp_path / "toy/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] > 0 for line in lines if "valid" in line] == [False, True, True, True, True]


@pytest.mark.usefixtures("own_clock")
def test_progress_knows_the_new_number_of_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Clocked, "pace", 2.0)
    stage = Clocked(settings(budget=Budget(seconds=SECONDS)))
    n = train(tmp_path / "toy", stage, keep="memory", shown="lines")["steps"]
    assert f"toy: {n:,} of {n:,} steps (100 %)" in capsys.readouterr().err


@pytest.mark.usefixtures("own_clock")
def test_a_training_with_files_keeps_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or one that is interrupted would end otherwise than one that is not."""
    monkeypatch.setattr(Clocked, "pace", 2.0)
    report = train(tmp_path / "toy", Clocked(settings(budget=Budget(seconds=SECONDS))))
    assert report["steps"] == json.loads((tmp_path / "toy/plan.json").read_text())["steps"]
    assert Clocked.now > 1.5 * SECONDS


@pytest.mark.usefixtures("own_clock")
def test_a_disturbance_that_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the training is slow; the pace of the rest is that of the rest."""

    class Disturbed(Clocked):
        def batch(self, step: int, n_steps: int) -> Batch:
            Clocked.pace = 3.0 if 100 < Clocked.now < 230 else 1.0
            return super().batch(step, n_steps)

    train(tmp_path / "toy", Disturbed(settings(budget=Budget(seconds=SECONDS))), keep="memory")
    assert Clocked.now == pytest.approx(SECONDS, abs=2)


@pytest.mark.usefixtures("own_clock")
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.99])
def test_a_disturbance_that_stays(tmp_path: Path, share: float) -> None:
    """Steps that become three times as slow, however late; each may be the last."""

    class Slowed(Clocked):
        def batch(self, step: int, n_steps: int) -> Batch:
            Clocked.pace = 3.0 if Clocked.now > share * SECONDS else 1.0
            return super().batch(step, n_steps)

    train(tmp_path / "toy", Slowed(settings(budget=Budget(seconds=SECONDS))), keep="memory")
    assert pytest.approx(SECONDS, abs=4) == Clocked.now


@pytest.mark.usefixtures("own_clock")
@pytest.mark.parametrize("first", [0.02, 30.0])
def test_first_steps_of_another_pace(tmp_path: Path, first: float) -> None:
    """Five steps fifty times as fast, or thirty times as slow.  The probe takes 4 + 12 + 3 s, four scores 12 s."""

    class Odd(Clocked):
        def batch(self, step: int, n_steps: int) -> Batch:
            Clocked.pace = first if step < 5 else 1.0
            return super().batch(step, n_steps)

    report = train(tmp_path / "toy", Odd(settings(budget=Budget(seconds=SECONDS))), keep="memory")
    assert Clocked.now == pytest.approx(SECONDS, abs=3)
    assert report["steps"] == pytest.approx(5 + SECONDS - 19 - 12 - 5 * first, abs=3)


def test_a_clock_that_stands_still_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "clock", lambda: 5.0)
    pace = Pace(Measured(100, 1, 50.0, 0.0), lambda share: 1.0)
    assert pace.recount(5.0, 10, 100, 1) == 100


def test_seconds_that_are_over_end_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "clock", lambda: 0.0)
    pace = Pace(Measured(100, 1, 50.0, 0.0), lambda share: 1.0)
    assert pace.recount(60.0, 10, 100, 1) == 10

"""Three short trials decide the learning rate, once."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from pdejepa import systems
from pdejepa.baselines.fit import TotalBudget
from pdejepa.baselines.pool import Pool, build_pool
from pdejepa.core.errors import ConfigError, Interrupted, NumericalError
from pdejepa.studies.compare import comparison, trials
from pdejepa.studies.compare import turns as planning
from pdejepa.studies.compare.turns import Comparison, Turn
from pdejepa.training import checkpoint
from tests.unit.studies.compare.records_made import record

NEW = [{"factor": factor, "score": 0.1} for factor in trials.FACTORS]


def new_trial(*_: Any) -> float:
    return 0.1


@pytest.fixture(scope="module")
def pool() -> Pool:
    counts = {"train": 10, "valid": 10, "test": 10}
    return build_pool(systems.get("advection", n_points=32), counts, torch.device("cpu"))


@pytest.fixture
def turn(pool: Pool, tmp_path: Path) -> Turn:
    return Turn(Comparison("advection", ("fno",), TotalBudget("seconds", 90.0), tmp_path), "fno", 0, pool)


class Wild:
    """A competitor that diverges with large learning rates, and in a long training sooner than in a trial."""

    stays_finite_below: ClassVar = {10.0: 2.0, 90.0: 0.5}  # seconds: factor

    def fit(self, pool: Pool, budget: TotalBudget, folder: Path, factor: float, **_: Any) -> dict[str, Any]:
        if factor > self.stays_finite_below[budget.amount]:
            raise NumericalError("loss is not finite")
        return {"fit": {"score": 1.0 / factor}}


def test_a_trial_that_fails_loses(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "make", lambda *_: Wild())
    assert [one["score"] for one in trials.trials_of(turn)] == [pytest.approx(3.0), 1.0, None]


@pytest.mark.slow
def test_who_diverges_after_its_trial_takes_the_next_rate(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "make", lambda *_: Wild())
    _, report, factor, known, _ = comparison._trained(turn)
    assert factor == pytest.approx(1 / 3)
    assert [one["score"] for one in known] == [pytest.approx(3.0), None, None]
    assert json.loads(trials.trials_file(turn).read_text())["trials"] == known  # the same command does not repeat it
    assert report["fit"]["score"] == pytest.approx(3.0)
    monkeypatch.setattr(Wild, "stays_finite_below", {90.0: 0.0})
    with pytest.raises(ConfigError, match=r"^fno diverged with all three learning rates, so it is left out"):
        comparison._trained(turn)


@pytest.mark.parametrize(
    ("before", "is_taken"), [({}, True), ({"budget_seconds": 90.0}, False), ({"device": "a GPU"}, False)]
)
def test_the_same_trials_are_not_run_twice(
    before: dict[str, Any], is_taken: bool, turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = dataclasses.replace(turn, plan=dataclasses.replace(turn.plan, budget=TotalBudget("seconds", 600.0)))
    found = [{"factor": factor, "score": factor} for factor in trials.FACTORS]
    known = record("fno", 0.1, "advection", data_hash=turn.pool.data.hash, trials=found, **before)
    name = dataclasses.replace(turn.plan, budget=TotalBudget("seconds", 180.0)).name("fno", 0)
    (turn.plan.out / f"{name}.json").write_text(json.dumps(known))
    (turn.plan.out / f"{name.replace('180', '100')}.json").write_text("{damaged")
    monkeypatch.setattr(trials, "trial", new_trial)
    assert trials.trials_of(turn) == (found if is_taken else NEW)


def kept(turn: Turn, monkeypatch: pytest.MonkeyPatch, scores: Any = (3.0, 1.0, None), **changes: Any) -> bool:
    """Whether trials with these scores are taken from a file; `changes` replace what else it tells."""
    found = [{"factor": factor, "score": score} for factor, score in zip(trials.FACTORS, scores, strict=True)]
    trials.keep_trials(turn, found)
    file = trials.trials_file(turn)
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    monkeypatch.setattr(trials, "trial", new_trial)
    return trials.trials_of(turn) == found


def test_trials_are_kept(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept(turn, monkeypatch)


def test_trials_go_on_where_they_were_stopped(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def trial(_: Turn, factor: float, __: TotalBudget) -> float:
        asked.append(factor)
        if len(asked) == 2:
            raise Interrupted("stopped")
        return factor

    monkeypatch.setattr(trials, "trial", trial)
    with pytest.raises(Interrupted):
        trials.trials_of(turn)
    assert trials.trials_of(turn) == [{"factor": factor, "score": factor} for factor in trials.FACTORS]
    assert asked == [trials.FACTORS[0], trials.FACTORS[1], *trials.FACTORS[1:]]  # only the stopped one twice


@pytest.mark.parametrize("change", [{"data_hash": "b" * 64}, {"device": "a GPU"}])
def test_trials_of_other_data_are_run_again(
    change: dict[str, str], turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not kept(turn, monkeypatch, **change)


@pytest.mark.parametrize(
    "damaged",
    [[], 3, [{"factor": 1.0}], [[]], [{"factor": factor, "score": "x"} for factor in trials.FACTORS]]
    + [[{"factor": factor, "score": value} for factor in trials.FACTORS] for value in (float("nan"), -1.0)]
    + [[{"factor": 0.0, "score": 1.0}] * 3, [{"factor": 1.0, "score": 1.0}], [*NEW, {"factor": 9.0, "score": 0.01}]],
)
def test_damaged_trials_are_run_again(damaged: Any, turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not kept(turn, monkeypatch, trials=damaged)


@pytest.mark.parametrize("text", ["[", "3", "[]", "null"])
def test_a_damaged_file_of_trials_is_written_anew(text: str, turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    trials.trials_file(turn).parent.mkdir()
    trials.trials_file(turn).write_text(text)
    monkeypatch.setattr(trials, "trial", new_trial)
    assert trials.trials_of(turn) == NEW


@pytest.mark.parametrize("solver", ["fno", "lns", "pdejepa"])
def test_trials_write_no_weights(solver: str, turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stage, two stages that stand on each other, and the method itself."""
    monkeypatch.setattr(checkpoint, "write_weights", lambda path, _: pytest.fail(f"wrote {path}"))
    turn = dataclasses.replace(turn, solver=solver, plan=dataclasses.replace(turn.plan, recipe="tiny"))
    score = trials.trial(turn, 1.0, TotalBudget("seconds", 0.5))
    assert score is not None
    assert score > 0
    assert not [path for path in turn.plan.out.rglob("*") if path.is_file()]


def test_other_failures_are_no_matter_of_the_learning_rate(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped:
        def fit(self, *_: Any, **__: Any) -> dict[str, Any]:
            raise Interrupted("stopped")

    monkeypatch.setattr(planning, "make", lambda *_: Stopped())
    with pytest.raises(Interrupted):
        comparison._trained(turn)
    assert not list(turn.plan.out.iterdir())  # nothing was decided


@pytest.mark.parametrize(
    ("recipe", "seconds", "expected"), [("laptop", 60.0, False), ("laptop", 600.0, True), ("fast", 60.0, True)]
)
def test_short_budgets_that_count_all_have_no_trials(
    recipe: str, seconds: float, expected: bool, tmp_path: Path
) -> None:
    plan = Comparison("advection", ("fno",), TotalBudget("seconds", seconds), tmp_path, recipe=recipe)
    assert trials.has_trials(plan) == expected

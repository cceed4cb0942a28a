"""What a training would cost here, told before it starts."""

from __future__ import annotations

import dataclasses

import pytest
from typer.testing import CliRunner

from pdejepa.app.cli import build_app
from pdejepa.core.errors import UsageError
from pdejepa.method import recipes
from pdejepa.method.estimate import Estimate, estimate, refusal
from pdejepa.method.run_config import RunConfig, map_training
from pdejepa.training.settings import Budget
from tests.unit.method.small_run import small_config

NAMES = ("pretrain", "align", "dynamics", "decode", "polish")


def small() -> RunConfig:
    """The laptop recipe of Advection with networks that cost nothing, and the shares of its steps."""
    return dataclasses.replace(small_config(), stages=NAMES)


def with_budget(config: RunConfig, budget: Budget) -> RunConfig:
    return map_training(config, lambda _, own: dataclasses.replace(own, budget=budget))


def test_steps_cost_what_a_clock_says() -> None:
    """A clock that ticks once a call: a stage that is timed for one second takes a second a step."""
    ticks = iter(range(10_000))
    found = estimate(with_budget(small(), Budget(steps=7)), clock=lambda: float(next(ticks)))
    assert found.steps == dict.fromkeys(NAMES, 7)
    assert found.step == dict.fromkeys(NAMES, 2.0)  # begun, asked once, read once: two ticks for one step
    assert found.seconds > found.data + 5 * 7 * 2.0


def test_seconds_buy_steps() -> None:
    found = estimate(with_budget(small(), Budget(seconds=50.0)))
    for name in NAMES:
        assert found.steps[name] == max(1, int(50.0 / found.step[name]))


def test_a_starved_training_is_refused_in_one_sentence() -> None:
    config = recipes.get("combined", "fast")
    starved = Estimate(step=dict.fromkeys(NAMES, 30.0), steps=dict.fromkeys(NAMES, 3))
    told = refusal(config, starved)
    assert "3 steps of pretrain and 3 steps of dynamics" in told
    assert "--recipe laptop" in told
    assert refusal(config, Estimate(step=dict.fromkeys(NAMES, 0.1), steps=dict.fromkeys(NAMES, 1000))) == ""
    long = Estimate(step=dict.fromkeys(NAMES, 100.0), steps=dict.fromkeys(NAMES, 10_000))
    assert "it would take about" in refusal(recipes.get("combined", "paper"), long)


def test_fast_is_not_started_on_a_cpu(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command asks for --yes, and leaves nothing behind."""
    starved = Estimate(step=dict.fromkeys(NAMES, 30.0), steps=dict.fromkeys(NAMES, 3))
    monkeypatch.setattr("pdejepa.method.estimate.estimate", lambda *_: starved)
    words = ["train", "combined", "--recipe", "fast", "--device", "cpu", "--out", f"{tmp_path}/run"]
    result = CliRunner().invoke(build_app(), words)
    assert isinstance(result.exception, UsageError)
    assert "--yes" in str(result.exception)
    from pathlib import Path

    assert not Path(f"{tmp_path}/run").exists()

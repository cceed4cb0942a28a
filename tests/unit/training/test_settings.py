"""Settings of a stage: what is refused, and that a file can fill them in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pdejepa.core.config import load_config, to_yaml
from pdejepa.core.errors import ConfigError
from pdejepa.training.settings import Budget, OptimiserConfig, ScheduleConfig, StageTraining


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "exactly one of steps, epochs, seconds and flops above 0, got none"),
        ({"steps": 3, "seconds": 1.0}, "got steps and seconds"),
        ({"steps": -3, "seconds": 1.0}, "budget.steps must be 0 or more, got -3"),
        ({"epochs": float("nan")}, "budget.epochs must be 0 or more, got nan"),
    ],
)
def test_budgets_that_are_refused(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Budget(**values)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"kind": "sgd"}, "optimiser.kind must be adamw, adam, muon or adan, got 'sgd'"),
        ({"kind": "adan", "factors": {"head": 2.0}}, "optimiser.factors must be empty with adan"),
        ({"lr": 0.0}, "optimiser.lr must be above 0, got 0.0"),
        ({"muon_lr": float("inf")}, "optimiser.muon_lr must be above 0, got inf"),
        ({"weight_decay": -1.0}, "optimiser.weight_decay must be 0 or more"),
        ({"clip": float("nan")}, "optimiser.clip must be 0 or more, got nan"),
        ({"betas": (0.9, 1.0)}, "optimiser.betas must be two numbers from 0 to below 1"),
    ],
)
def test_optimisers_that_are_refused(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        OptimiserConfig(**values)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"kind": "step"}, "schedule.kind must be wsd, cosine or constant"),
        ({"warmup": 1.5}, "schedule.warmup must be from 0 to 1, got 1.5"),
        ({"final": -0.1}, "schedule.final must be from 0 to 1"),
        ({"kind": "wsd", "warmup": 0.5, "decay": 0.6}, "must not exceed 1 together"),
    ],
)
def test_schedules_that_are_refused(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ScheduleConfig(**values)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"batch": 0}, "batch must be 1 or more, got 0"),
        ({"keep": 0}, "keep must be 1 or more"),
        ({"log_every": 0}, "log_every must be 1 or more"),
        ({"save_every": -1}, "save_every must be 0 or more"),
        ({"save_seconds": 0.0}, "save_seconds must be above 0"),
        ({"select": "first"}, "select must be best or last"),
        ({"n_scores": 0}, "select: best needs n_scores of 1 or more"),
    ],
)
def test_trainings_that_are_refused(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        StageTraining(**{"budget": Budget(steps=1), "batch": 4, **values})


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        StageTraining(budget=Budget(steps=1), batch=0, keep=0, log_every=0)
    assert len(caught.value.problems) == 3


def test_a_file_and_overrides_fill_them_in(tmp_path: Path) -> None:
    file = tmp_path / "training.yaml"
    file.write_text("batch: 64\nbudget: {seconds: 90}\noptimiser: {kind: muon, betas: [0.9, 0.95]}\n")
    config = load_config(StageTraining, file, ["schedule.kind=wsd", "schedule.decay=0.2", "keep=3"])
    assert config.budget == Budget(seconds=90.0)
    assert config.optimiser == OptimiserConfig(kind="muon", betas=(0.9, 0.95))
    assert (config.schedule.kind, config.schedule.decay, config.keep) == ("wsd", 0.2, 3)
    file.write_text(to_yaml(config))
    assert load_config(StageTraining, file) == config

"""What a stage prepares is cut to the seconds that it has."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from pdejepa import systems
from pdejepa.baselines.pool import build_pool
from pdejepa.method import preparing, recipes
from pdejepa.method.preparing import preparing_less
from pdejepa.method.run_config import RunConfig
from pdejepa.models.surrogate import Surrogate
from pdejepa.training import timing
from pdejepa.training.timing import Limit
from pdejepa.training.training_data import TrainingData


@pytest.fixture(scope="module")
def parts() -> tuple[RunConfig, Surrogate, TrainingData]:
    data = build_pool(systems.get("combined", n_points=64), {"train": 40, "valid": 2}, torch.device("cpu")).data
    config = recipes.get("combined", "tiny")
    return config, Surrogate(data.problem, config.model, config.variant, data.statistics, config.history), data


def prepared(
    parts: tuple[RunConfig, Surrogate, TrainingData], name: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> RunConfig:
    """With `seconds` left, where four trajectories take one second to encode, and to roll out."""
    ticks = iter(range(100))
    monkeypatch.setattr(preparing, "clock", lambda: float(next(ticks)))
    monkeypatch.setattr(timing, "clock", lambda: 0.0)
    config, model, data = parts
    return preparing_less(config, name, model, data, Limit(seconds, seconds), Limit(2 * seconds, 2 * seconds))


@pytest.mark.parametrize(("seconds", "latents"), [(49.0, "on_the_fly"), (51.0, "float32")])
@pytest.mark.parametrize("name", ["align", "dynamics", "polish"])
def test_latents_are_kept_where_they_cost_little(
    parts: tuple[RunConfig, Surrogate, TrainingData],
    name: str,
    seconds: float,
    latents: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All 40 trajectories take 10 s: a fifth of the stage, a tenth of the training."""
    assert prepared(parts, name, seconds, monkeypatch).latents == latents


@pytest.mark.parametrize(("seconds", "n"), [(math.ulp(0), 4), (25.0, 20), (40.0, 32), (1e3, 40)])
def test_the_decoder_learns_from_as_many_rollouts_as_it_can_afford(
    parts: tuple[RunConfig, Surrogate, TrainingData], seconds: float, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert round(40 * prepared(parts, "decode", seconds, monkeypatch).decode.share) == n


def test_a_recipe_that_wants_less_has_less(
    parts: tuple[RunConfig, Surrogate, TrainingData], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, *rest = parts
    less = dataclasses.replace(config, latents="on_the_fly", decode=dataclasses.replace(config.decode, share=0.25))
    for name in ("pretrain", "align", "dynamics", "decode", "polish"):
        assert prepared((less, *rest), name, 1e3, monkeypatch) == less

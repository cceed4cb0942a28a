"""Every recipe of every system builds; the published ones have the published sizes and can be trained."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from pdejepa import systems
from pdejepa.core.config import load_config
from pdejepa.core.errors import ConfigError
from pdejepa.core.run_folder import METHOD_STAGES
from pdejepa.method import recipes
from pdejepa.method.chain import BUILD
from pdejepa.method.load_data import load_data
from pdejepa.method.run_config import RunConfig
from pdejepa.models.causal_predictor import CausalPredictor
from pdejepa.models.condition import fit_statistics
from pdejepa.models.jepa_predictor import JepaPredictor
from pdejepa.models.surrogate import Surrogate
from pdejepa.training.optim import build_optimiser
from pdejepa.training.resume import choose_trained
from pdejepa.training.stage import Context

PARTS = ("encoder", "projector", "field", "decoder")
ENCODERS = {"vorticity": 5_352_384, "wave_2d": 5_346_240, "heterns": 5_343_168, "gray_scott": 10_684_608}
FIELDS = {"vorticity": 42_811_008, "combined": 42_885_696, "gray_scott": 14_419_584}
DECODERS = {"vorticity": 5_525_569, "wave_2d": 1_402_658, "gray_scott": 1_216_642, "combined": 271_170}
CONDITIONS = {"combined": 3, "advection": 1, "burgers": 7, "heat": 7, "wave_b": 4, "gray_scott": 2, "wave_2d": 2}


def build(config: RunConfig) -> Surrogate:
    """The model of a recipe without memory for its weights."""
    system = systems.get(config.system)
    _, xi = system.sample("train", range(4))
    statistics = fit_statistics(system, torch.randn(4, 1, len(system.fields), *[2] * system.ndim), xi)
    with torch.device("meta"):
        return Surrogate(system.problem, config.model, config.variant, statistics, config.history)


def size(module: torch.nn.Module | None) -> int:
    return sum(p.numel() for p in module.parameters()) if module is not None else 0


@pytest.mark.parametrize("recipe", recipes.RECIPES)
@pytest.mark.parametrize("name", systems.NAMES)
def test_every_recipe_builds(name: str, recipe: str) -> None:
    config = recipes.get(name, recipe)
    assert (config.system, config.recipe) == (name, recipe)
    model = build(config)
    assert all(size(getattr(model, part)) > 0 for part in PARTS)
    assert load_config(RunConfig, None, (), config) == config  # every value passes the checks of its type


@pytest.mark.parametrize("name", systems.NAMES)
def test_published_sizes(name: str) -> None:
    config = recipes.get(name, "paper")
    model = build(config)
    n_conditions = {**CONDITIONS, "vorticity": 1, "heterns": 2}[name]
    assert size(model.encoder) == ENCODERS.get(name, 5_339_712)
    assert size(model.projector) == 148_416
    assert size(model.field) == FIELDS.get(name, size(model.field))
    assert size(model.decoder) == DECODERS.get(name, size(model.decoder))
    assert model.conditioner.n_conditions == n_conditions
    sizes = config.model
    with torch.device("meta"):
        predictor = JepaPredictor(sizes.jepa_predictor, sizes.encoder, model.patches, 14)
        causal = CausalPredictor(sizes.causal_predictor, sizes.encoder, model.patches, 14, n_conditions)
    expected = 21_517_056 if sizes.encoder.n_levels == 1 else 22_108_224
    assert size(predictor) == (43_401_792 if name == "gray_scott" else expected)
    assert size(causal) == 42_736_320 + 384 * n_conditions


def test_unknown_names() -> None:
    with pytest.raises(ConfigError, match="unknown recipe 'fats', did you mean 'fast'"):
        recipes.get("heat", "fats")
    with pytest.raises(ConfigError, match="did you mean 'burgers'"):
        recipes.get("burger", "fast")


SMALLER = {
    "gray_scott": {"n_points": 16},
    "wave_2d": {"n_points": 16},
    "vorticity": {"n_points": 32, "solver_grid": 32},
    "heterns": {"n_points": 16, "solver_grid": 32},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", systems.NAMES)
def test_published_recipes_take_two_steps(name: str) -> None:
    """All four stages at full network size, on a small grid with one trajectory."""
    words = [f"{stage}.training.batch=1" for stage in METHOD_STAGES]
    config = load_config(RunConfig, None, ("device=cpu", "precision=fp32", *words), recipes.get(name, "paper"))
    switches = SMALLER.get(name, {"n_points": 32})
    config = dataclasses.replace(config, size="tiny", switches=switches, counts={"train": 1, "valid": 1})
    cpu = torch.device("cpu")
    data = load_data(config, cpu, show=False)
    model = Surrogate(data.problem, config.model, config.variant, data.statistics, config.history)
    for stage_name in METHOD_STAGES:
        stage = BUILD[stage_name](config, data, model, Context(cpu))
        stage.data.fields = {"train": data.fields["train"]}  # no score is taken, so valid needs no latents
        choose_trained(stage)
        optimiser = build_optimiser(stage.trained(), stage.settings.optimiser)
        for step in range(2):
            stage.zero_grad()
            stage(stage.batch(step, 2))["loss"].backward()
            optimiser.step()
            with torch.no_grad():
                stage.after_update(step, 2)
        assert all(torch.isfinite(p).all() for p in stage.parameters()), stage_name

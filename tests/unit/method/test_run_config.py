"""Configurations that former versions stored are read, and mean what they meant."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
from pathlib import Path
from typing import Any

import pytest

from pdejepa.core.config import to_dict
from pdejepa.core.errors import ConfigError
from pdejepa.core.run_folder import STAGES
from pdejepa.method import recipes
from pdejepa.method.model_card import card_text, train_words
from pdejepa.method.run_config import FORMER, load_stored, map_training
from pdejepa.method.run_settings import check, completed
from pdejepa.systems import build_system
from pdejepa.training.settings import StageTraining

SHIPPED = ("advection", "burgers", "combined", "gray_scott", "heat", "wave_b")
TINY = to_dict(recipes.get("advection", "tiny"))


def shipped(name: str) -> tuple[dict[str, Any], str]:
    """config.json and card of a shipped model."""
    folder = Path(str(importlib.resources.files("pdejepa"))) / "checkpoints" / name
    return json.loads((folder / "config.json").read_text()), (folder / "README.md").read_text()


def former() -> dict[str, Any]:
    """A configuration as a former version stored it."""
    return {**TINY, **{name: {**TINY[name], **fields} for name, fields in FORMER.items()}}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_models_are_repeated_by_the_command_on_their_cards(name: str) -> None:
    details, card = shipped(name)
    words, is_whole = train_words(details)
    assert is_whole
    assert " ".join(card.split("```bash\n")[1].replace(" \\\n", " ").split()).startswith(" ".join(words))
    system = build_system(details["system"], details["size"], details["training"]["switches"])
    block = card.split("## How to repeat it")[1].split("## Errors")[0]
    assert f"## How to repeat it{block}## Errors" in card_text(system.problem, details, rounded=("field", "decoder"))


def test_shipped_models_hold_fields_of_former_versions() -> None:
    """Or the test above shows nothing."""
    found = {(stage, key) for name in SHIPPED for stage in FORMER for key in shipped(name)[0]["training"][stage]}
    assert found >= {(stage, key) for stage, fields in FORMER.items() for key in fields}


def test_fields_that_changed_nothing_are_left_out() -> None:
    assert to_dict(load_stored(former())) == TINY
    assert completed(former()) == TINY


FIELDS = [("dynamics", "uneven", 0.6), ("pretrain", "mask_types", "in_turn")]


@pytest.mark.parametrize(("stage", "key", "value"), FIELDS)
def test_fields_that_changed_the_training_are_refused(stage: str, key: str, value: Any, tmp_path: Path) -> None:
    stored = former()
    stored[stage] = {**stored[stage], key: value}
    with pytest.raises(ConfigError, match=rf"{stage}\.{key}: unknown key"):
        load_stored(stored)
    (tmp_path / stage).mkdir()
    with pytest.raises(ConfigError, match=rf"{stage}\.{key} {value} -> None.*--restart {stage}"):
        check(tmp_path, completed(stored), TINY)


@pytest.mark.parametrize("stored", [{"pretrain": 3}, {"colour": "blue"}, {"dynamics": {"uneven": 0.0}}])
def test_what_is_no_configuration_is_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        load_stored(stored)


def test_a_change_of_the_training_reaches_every_stage() -> None:
    config = recipes.get("advection", "tiny")
    seen: dict[str, StageTraining] = {}

    def change(name: str, training: StageTraining) -> StageTraining:
        seen[name] = training
        return dataclasses.replace(training, batch=training.batch + len(name))

    changed = map_training(config, change)
    assert seen == {name: getattr(config, name).training for name in STAGES}
    for name in STAGES:
        before, after = getattr(config, name), getattr(changed, name)
        assert after.training.batch == before.training.batch + len(name)
        assert dataclasses.replace(after, training=before.training) == before
    assert map_training(config, lambda _, training: training) == config

"""Fine-tuning: what is taken over stays to the last bit, the rest goes on, and what does not fit is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

import pdejepa
from pdejepa.app.cli import main
from pdejepa.core.config import load_config
from pdejepa.core.errors import CheckpointError, ConfigError
from pdejepa.method.pipeline import train
from pdejepa.method.run_config import RunConfig
from pdejepa.method.tuning import tuned_from
from tests.unit.method.small_run import SMALL, STAGES, small_config

BRIEF = ("device=cpu", *(f"{name}.training.budget.steps=2" for name in STAGES))
FEWER = ("counts={train: 4, valid: 4}",)  # other data of the same law
Printed = pytest.CaptureFixture[str]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a few steps."""
    folder = tmp_path_factory.mktemp("tuning") / "base"
    train(small_config("advection", *BRIEF), folder, say=lambda _: None)
    return folder


def tuned(base: Path, *words: str) -> RunConfig:
    config = tuned_from(small_config("advection", *BRIEF, *FEWER), str(base))
    return load_config(RunConfig, None, words, config)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return pdejepa.load(run, "cpu").surrogate.state_dict()


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    """The parts of the model whose weights differ."""
    return {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}


def test_encoder_and_projector_stay_and_the_rest_goes_on(base: Path, tmp_path: Path) -> None:
    trained = train(tuned(base), tmp_path / "run", say=lambda _: None)
    assert list(trained.reports) == ["dynamics", "decode"]
    assert moved(weights(base), weights(tmp_path / "run")) == {"field", "decoder"}
    old, new = (pdejepa.load(run, "cpu").surrogate.statistics for run in (base, tmp_path / "run"))
    assert (new.mean, new.std, new.coefficients) == (old.mean, old.std, old.coefficients)
    assert new.ranges != old.ranges
    card = (tmp_path / "run/model/README.md").read_text()
    assert "Fine-tuned from the model `base`" in card
    assert "--from base" in card
    assert json.loads((tmp_path / "run/config.json").read_text())["train"]["tuned_from"] == str(base)


def test_it_begins_with_the_weights_of_the_model(base: Path, tmp_path: Path) -> None:
    rates = [f"{name}.training.optimiser.{rate}=1e-30" for name in ("dynamics", "decode") for rate in ("lr", "muon_lr")]
    train(tuned(base, *rates), tmp_path / "run", say=lambda _: None)
    assert moved(weights(base), weights(tmp_path / "run")) == set()


def test_one_stage_alone(base: Path, tmp_path: Path) -> None:
    trained = train(tuned(base, "stages=[decode]"), tmp_path / "run", say=lambda _: None)
    assert list(trained.reports) == ["decode"]
    assert moved(weights(base), weights(tmp_path / "run")) == {"decoder"}
    again = train(tuned(base, "stages=[polish]"), tmp_path / "run", say=lambda _: None)
    assert list(again.reports) == ["decode", "polish"]  # on what was begun here


def test_in_two_tries_as_in_one(base: Path, tmp_path: Path) -> None:
    train(tuned(base), tmp_path / "one", say=lambda _: None)
    train(tuned(base, "stages=[dynamics]"), tmp_path / "two", say=lambda _: None)
    train(tuned(base), tmp_path / "two", say=lambda _: None)
    assert moved(weights(tmp_path / "one"), weights(tmp_path / "two")) == set()


def test_what_does_not_fit_is_refused(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(ConfigError, match=r"does not fit this training: model\.field\.depth 1 -> 2\. Fine"):
        train(tuned(base, "model.field.depth=2"), out)
    with pytest.raises(ConfigError, match=r"does not fit this training: grid \(32,\) -> \(64,\)"):
        train(tuned(base, "switches.n_points=64"), out)
    with pytest.raises(ConfigError, match="amplitude"):
        train(tuned(base, "amplitude=unit"), out)
    with pytest.raises(ConfigError, match="pretrain cannot be trained: fine-tuning takes them from"):
        dataclasses.replace(tuned(base), stages=("pretrain",))
    with pytest.raises(ConfigError, match=r"parameters \('speed',\) -> \('diffusivity'"):
        train(tuned_from(small_config("heat", *BRIEF), str(base)), out)
    with pytest.raises(CheckpointError, match="nowhere"):
        tuned(tmp_path / "nowhere")
    assert not out.exists()


def test_another_model_under_the_same_name_is_refused(base: Path, tmp_path: Path) -> None:
    train(tuned(base, "stages=[dynamics]"), tmp_path / "run", say=lambda _: None)
    other = tmp_path / "other"
    train(small_config("advection", *BRIEF, "seed=1"), other, say=lambda _: None)
    changed = dataclasses.replace(tuned(base), tuned_from=str(other))
    with pytest.raises(ConfigError, match="started with other settings: tuned_from"):
        train(changed, tmp_path / "run", say=lambda _: None)
    settings = json.loads((tmp_path / "run/config.json").read_text())
    settings["train"]["tuned_from"] = str(other)
    (tmp_path / "run/config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match="dynamics was started on tuned_from"):
        train(changed, tmp_path / "run", say=lambda _: None)


def test_waves_keep_their_unit_of_velocity(tmp_path: Path) -> None:
    train(small_config("wave_b", *BRIEF), tmp_path / "base", say=lambda _: None)
    config = tuned_from(small_config("wave_b", *BRIEF, *FEWER), str(tmp_path / "base"))
    train(config, tmp_path / "run", say=lambda _: None)
    old, new = (pdejepa.load(tmp_path / run, "cpu").surrogate.statistics for run in ("base", "run"))
    assert new.velocity_scale == old.velocity_scale != 1.0


def test_the_command(base: Path, tmp_path: Path, capsys: Printed) -> None:
    switches = [word for word in SMALL if not word.startswith("model")]
    words = ["train", "advection", "--recipe", "tiny", "--from", str(base), "--out", str(tmp_path / "run")]
    assert main([*words, *switches, *BRIEF, *FEWER]) == 0
    told = capsys.readouterr().out
    assert "dynamics" in told
    assert "pretrain" not in told
    assert moved(weights(base), weights(tmp_path / "run")) == {"field", "decoder"}
    assert main(["evaluate", str(tmp_path / "run"), "--splits", "test", "--n", "2"]) == 0
    assert main(["report", str(tmp_path / "run"), "--no-examples"]) == 0

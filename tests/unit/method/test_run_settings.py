"""A run remembers its settings, and says what to do when they change."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from pdejepa.core.config import differences
from pdejepa.core.errors import CheckpointError, ConfigError, UsageError
from pdejepa.method import recipes
from pdejepa.method.chain import train_stages, with_seconds
from pdejepa.method.run_config import RunConfig
from pdejepa.method.run_settings import check_settings, owner, read_json, remember, restart_from
from pdejepa.training.stage import silent

CONFIG = recipes.get("advection", "tiny")


def settle(out: Path, config: RunConfig) -> None:
    """As a training does: check, then write down."""
    check_settings(out, config)
    remember(out, config)


def changed(path: str, value: object) -> RunConfig:
    def replace(part: object, names: list[str]) -> object:
        inner = value if len(names) == 1 else replace(getattr(part, names[0]), names[1:])
        return dataclasses.replace(part, **{names[0]: inner})  # type: ignore[type-var]

    return replace(CONFIG, path.split("."))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("path", "value", "stage"),
    [
        ("seed", 3, "pretrain"),
        ("model.encoder.depth", 2, "pretrain"),
        ("align.geo_weight", 0.3, "align"),
        ("model.field.n_substeps", 3, "dynamics"),
        ("dynamics.training.batch", 32, "dynamics"),
        ("model.decoder.n_blocks", 2, "decode"),
    ],
)
def test_a_change_is_refused_once_its_stage_was_begun(path: str, value: object, stage: str, tmp_path: Path) -> None:
    settle(tmp_path, CONFIG)
    other = changed(path, value)
    (tmp_path / stage).mkdir()
    with pytest.raises(ConfigError, match=rf"{path} .*--restart {stage}"):
        settle(tmp_path, other)
    restart_from(tmp_path, stage, silent)
    settle(tmp_path, other)
    assert read_json(tmp_path / "config.json")["train"] != {}


def test_a_change_of_what_stands_under_a_stage_is_refused_too(tmp_path: Path) -> None:
    settle(tmp_path, CONFIG)
    (tmp_path / "dynamics").mkdir()
    with pytest.raises(ConfigError, match="--restart pretrain"):
        settle(tmp_path, changed("model.encoder.depth", 2))


def test_a_change_before_its_stage_is_free(tmp_path: Path) -> None:
    settle(tmp_path, CONFIG)
    (tmp_path / "pretrain").mkdir()
    settle(tmp_path, changed("dynamics.unroll", 2))


@pytest.mark.parametrize(
    ("path", "value"), [("device", "cpu"), ("stages", ("pretrain",)), ("decode.training.save_every", 7)]
)
def test_some_settings_change_nothing(path: str, value: object, tmp_path: Path) -> None:
    settle(tmp_path, CONFIG)
    for name in ("pretrain", "align", "dynamics", "decode"):
        (tmp_path / name).mkdir()
    settle(tmp_path, changed(path, value))


def test_restart_forgets_what_stands_on_a_stage(tmp_path: Path) -> None:
    for name in ("pretrain", "align", "dynamics", "decode", "reconstruct", "model"):
        (tmp_path / name).mkdir()
    said: list[str] = []
    restart_from(tmp_path, "dynamics", said.append)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["align", "pretrain", "reconstruct"]
    assert "Forgot dynamics, decode" in said[0]
    with pytest.raises(ConfigError, match="did you mean 'align'"):
        restart_from(tmp_path, "aling", silent)


def test_differences_and_owners() -> None:
    assert differences({"a": 1, "b": [1, 2]}, {"a": 1, "b": (1, 2)}) == []
    assert differences({"a": {"b": 1}}, {"a": {"b": 2}}) == ["a.b 1 -> 2"]
    assert owner("model.field.depth 1 -> 2") == "dynamics"
    assert owner("switches.flux x -> y") == "pretrain"


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[1, 2")
    with pytest.raises(CheckpointError, match="does not look like a run"):
        settle(tmp_path, CONFIG)


def test_a_run_of_an_earlier_version_goes_on_with_settings_it_did_not_know(tmp_path: Path) -> None:
    settle(tmp_path, CONFIG)
    (tmp_path / "decode").mkdir()
    stored = json.loads((tmp_path / "config.json").read_text())
    del stored["train"]["decode"]["share"]
    (tmp_path / "config.json").write_text(json.dumps(stored))
    settle(tmp_path, CONFIG)
    stored["train"]["decode"]["frames"] = 3
    (tmp_path / "config.json").write_text(json.dumps(stored))
    with pytest.raises(ConfigError, match=r"decode\.frames 3 -> "):
        settle(tmp_path, CONFIG)


def test_a_total_in_seconds_is_shared_as_in_the_recipe() -> None:
    fast = recipes.get("combined", "fast")
    half = with_seconds(fast, 280.0)
    parts = [getattr(half, name).training.budget.seconds for name in half.stages]
    assert parts == pytest.approx([45.0, 10.0, 110.0, 15.0, 100.0])
    assert half.decode.share == 0.5
    assert with_seconds(fast, 1e4).decode.share == 1.0
    tiny = with_seconds(recipes.get("advection", "tiny"), 140.4)  # 100, 30, 800 and 300 steps there
    seconds = [getattr(tiny, name).training.budget.seconds for name in tiny.stages]
    assert seconds == pytest.approx([25.0, 5.4, 80.0, 30.0])
    assert tiny.decode.share == 1.0  # steps do not tell how long its own seconds would be


@pytest.mark.parametrize("seconds", [-5.0, 0.0, float("nan"), float("inf")])
def test_a_total_in_seconds_is_positive(seconds: float) -> None:
    with pytest.raises(UsageError, match=f"^--seconds must be positive, got {seconds:g}"):
        with_seconds(CONFIG, seconds)


def test_no_stage_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="stages must name at least one of pretrain"):
        dataclasses.replace(CONFIG, stages=())


def test_missing_stages_are_told_before_data_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdejepa.method.chain.load_data", lambda *_, **__: pytest.fail("data were made"))
    config = dataclasses.replace(CONFIG, stages=("dynamics",), device="cpu")
    with pytest.raises(CheckpointError, match=r"dynamics needs pretrain and align, .* Add pretrain,align to --stages"):
        train_stages(config, tmp_path)
    assert not list(tmp_path.iterdir())

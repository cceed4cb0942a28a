"""Models for shipping: half the size, no claim that was not measured, nothing overwritten, and how to repeat them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

import pdejepa
from pdejepa.app.cli import main
from pdejepa.app.commands.pack import rounding_errors
from pdejepa.core.config import load_config, to_dict
from pdejepa.core.errors import CheckpointError, UsageError
from pdejepa.core.yaml_subset import parse
from pdejepa.method import recipes
from pdejepa.method.model_card import train_words
from pdejepa.method.pack import pack_model
from pdejepa.method.pipeline import train
from pdejepa.method.run_config import RunConfig
from pdejepa.method.save_model import record_errors, rounded_layers, save_model
from pdejepa.training.rounding import round_all
from tests.unit.forecast import tiny
from tests.unit.method.small_run import STAGES, small_config

ERRORS = {"test": {"rel_l2": 0.25, "n": 3, "n_unstable": 0}}
BRIEF = tuple(f"{name}.training.budget.steps=2" for name in STAGES)
Printed = pytest.CaptureFixture[str]


def config_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "config.json").read_text()))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of a few steps, with a stage that was given seconds."""
    folder = tmp_path_factory.mktemp("pack") / "run"
    words = (*BRIEF, "pretrain.training.budget={steps: 0, seconds: 0.2}", "seed=5", "align.anchor_weight=0.5")
    words += ("device=cpu",)
    train(small_config("advection", *words), folder, say=lambda _: None)
    return folder


# ---- weights and errors ------------------------------------------------------------------------------------------
def test_half_precision_on_disk_full_precision_in_memory(tmp_path: Path) -> None:
    folder = tiny.saved("heat", tmp_path / "m")
    source = pdejepa.load(folder, "cpu")
    written = pack_model(source, tmp_path / "out")
    again = pdejepa.load(tmp_path / "out", "cpu")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "README.md",
        "config.json",
        "weights.safetensors",
    ]
    assert again.details["weights_dtype"] == "float16"
    assert {value.dtype for value in again.surrogate.state_dict().values()} == {torch.float32}
    for key, value in source.surrogate.state_dict().items():
        assert torch.equal(again.surrogate.state_dict()[key], value.half().float())
    assert written.weights_bytes < 0.75 * source.details["weights_bytes"]
    assert written.n_bytes == sum(path.stat().st_size for path in (tmp_path / "out").iterdir())


def test_errors_of_other_weights_are_not_claimed(tmp_path: Path) -> None:
    source = pdejepa.load(tiny.saved("heat", tmp_path / "m", {"errors": ERRORS}), "cpu")
    half = pack_model(source, tmp_path / "half")
    assert half.lost_errors
    assert not half.has_errors
    assert config_of(tmp_path / "half")["errors"] == {}
    assert "Not measured yet" in (tmp_path / "half" / "README.md").read_text()
    full = pack_model(source, tmp_path / "full", "float32")
    assert full.has_errors
    assert not full.lost_errors
    assert config_of(tmp_path / "full")["errors"] == ERRORS
    rounded = pdejepa.load(tmp_path / "half", "cpu")
    record_errors(rounded.surrogate, tmp_path / "half", ERRORS)
    pack_model(pdejepa.load(tmp_path / "half", "cpu"), tmp_path / "again")  # nothing is rounded the second time
    assert config_of(tmp_path / "again")["errors"] == ERRORS
    assert config_of(tmp_path / "again")["weights_sha256"] == config_of(tmp_path / "half")["weights_sha256"]


def test_the_card_tells_of_rounded_layers(tmp_path: Path) -> None:
    """Norms keep their digits; one layer of a part that is not rounded is enough to leave the part out."""
    told, model = "Weights of field and decoder are stored rounded to bfloat16", tiny.surrogate("wave_b")
    parts = [part for part in (model.field, model.startup, model.decoder) if part is not None]
    layers = [layer for part in parts for layer in rounded_layers(part).values()]
    round_all(p for layer in layers for p in layer.parameters())
    save_model(model, tmp_path / "m", tiny.DETAILS)
    assert told in (tmp_path / "m/README.md").read_text()
    pack_model(pdejepa.load(tmp_path / "m", "cpu"), tmp_path / "out")
    assert told in (tmp_path / "out/README.md").read_text()
    record_errors(model, tmp_path / "m", ERRORS)
    assert told in (tmp_path / "m/README.md").read_text()
    for layer, left in ((layers[0], "decoder"), (layers[-1], "field")):
        with torch.no_grad():
            kept = layer.weight[0, 0].clone()
            layer.weight[0, 0] = 1 / 3
        save_model(model, tmp_path / "m", tiny.DETAILS)
        assert f"Weights of {left} are stored rounded to bfloat16" in (tmp_path / "m/README.md").read_text()
        with torch.no_grad():
            layer.weight[0, 0] = kept


def test_weights_too_large_for_half_precision(tmp_path: Path) -> None:
    model = tiny.forecaster("heat")
    model.surrogate.decoder.layers[-1].weight.data[0, 0] = 1e30
    model.details = {**pdejepa.load(tiny.saved("heat", tmp_path / "m"), "cpu").details}
    with pytest.raises(CheckpointError, match="not finite in float16"):
        pack_model(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_rounding_is_measured_by_forecasts_of_both(tmp_path: Path) -> None:
    source = pdejepa.load(tiny.saved("gray_scott", tmp_path / "m"), "cpu")
    pack_model(source, tmp_path / "out")
    moved = rounding_errors(source, pdejepa.load(tmp_path / "out", "cpu"), 3)
    assert moved.shape == (3,)
    assert bool(((moved > 0) & (moved < 0.1)).all())
    assert bool((rounding_errors(source, pdejepa.load(tmp_path / "m", "cpu"), 2) == 0).all())
    two_frames = tiny.forecaster("wave_b", history=2)  # untrained, so it coasts away
    assert bool(rounding_errors(two_frames, two_frames, 2).isnan().all())


# ---- where it may be written -------------------------------------------------------------------------------------
def test_nothing_but_a_model_is_overwritten(tmp_path: Path) -> None:
    source = pdejepa.load(tiny.saved("heat", tmp_path / "m"), "cpu")
    taken = tmp_path / "thesis"
    taken.mkdir()
    pack_model(source, taken)  # an empty folder is fine, and so is a model
    pack_model(source, taken)
    (taken / "config.json").write_text('{"mine": 1}')
    with pytest.raises(UsageError, match=r"not empty and holds no model.*Give a new folder"):
        pack_model(source, taken)
    assert (taken / "config.json").read_text() == '{"mine": 1}'
    with pytest.raises(UsageError, match="is a file"):
        pack_model(source, taken / "config.json")
    before = (tmp_path / "m" / "weights.safetensors").read_bytes()
    with pytest.raises(UsageError, match="is the model itself"):
        pack_model(source, tmp_path / "x" / ".." / "m")
    assert (tmp_path / "m" / "weights.safetensors").read_bytes() == before


def test_the_models_of_a_run_are_left_alone(run: Path, tmp_path: Path) -> None:
    source = pdejepa.load(tiny.saved("advection", tmp_path / "m"), "cpu")
    before = (run / "model" / "config.json").read_bytes()
    for target, words in ((run, "holds no model"), (run / "model", "belongs to a run")):
        with pytest.raises(UsageError, match=words):
            pack_model(source, target)
    assert (run / "model" / "config.json").read_bytes() == before


# ---- how to repeat it --------------------------------------------------------------------------------------------
def configuration(words: list[str], capsys: Printed) -> dict[str, Any]:
    """What `pdejepa train` makes of the words of a card."""
    capsys.readouterr()
    assert main([*words[1:], "--print-config"]) == 0
    return dict(parse(capsys.readouterr().out))


def card_words(folder: Path) -> list[str]:
    """The command as a reader copies it from the card."""
    text = (folder / "README.md").read_text().split("```bash\n")[1].split("\n```")[0]
    assert all(len(line) < 250 for line in text.splitlines())
    return shlex.split(text.replace("\\\n", " "))


def test_the_command_repeats_the_training(run: Path, tmp_path: Path, capsys: Printed) -> None:
    pack_model(pdejepa.load(run, "cpu"), tmp_path / "out")
    details = config_of(tmp_path / "out")
    trained = config_of(run)["train"]
    assert details["training"] == {k: v for k, v in trained.items() if k not in ("polish", "reconstruct")}
    words = card_words(tmp_path / "out")
    start = "pdejepa train advection --recipe tiny --seed 5 --stages pretrain,align,dynamics,decode --out RUN"
    assert " ".join(words).startswith(start)
    found = configuration(words, capsys)
    n_steps = details["steps"]["pretrain"]
    assert n_steps > 0
    expected = {**trained, "device": "auto", "stages": ["pretrain", "align", "dynamics", "decode"]}
    expected["pretrain"]["training"]["budget"] = {"steps": n_steps, "epochs": 0.0, "seconds": 0.0, "flops": 0.0}
    for unused in ("polish", "reconstruct"):  # settings of stages that this model does not have
        expected.pop(unused), found.pop(unused)
    assert found == expected
    assert "given the steps" in (tmp_path / "out" / "README.md").read_text()


def test_the_command_gives_the_same_weights(run: Path, tmp_path: Path) -> None:
    pack_model(pdejepa.load(run, "cpu"), tmp_path / "out", "float32")
    words = [str(tmp_path / "again") if word == "RUN" else word for word in card_words(tmp_path / "out")]
    assert main([*words[1:], "--device", "cpu"]) == 0
    again = config_of(tmp_path / "again" / "model")
    assert again["weights_sha256"] == config_of(tmp_path / "out")["weights_sha256"]
    assert again["lineage"] == config_of(tmp_path / "out")["lineage"]


def test_a_run_tells_what_an_older_model_does_not(run: Path, tmp_path: Path) -> None:
    path = run / "model" / "config.json"
    kept = path.read_text()
    config = json.loads(kept)
    try:
        older = {key: value for key, value in config.items() if key not in ("training", "steps")}
        path.write_text(json.dumps(older))
        assert pack_model(pdejepa.load(run, "cpu"), tmp_path / "out").has_training
        assert config_of(tmp_path / "out")["training"] == config["training"]
        assert config_of(tmp_path / "out")["steps"] == config["steps"]
        older["lineage"]["decode"] = "0" * 64  # the stage was trained again since
        path.write_text(json.dumps(older))
        assert not pack_model(pdejepa.load(run, "cpu"), tmp_path / "out").has_training
        assert "were not recorded" in (tmp_path / "out" / "README.md").read_text()
    finally:
        path.write_text(kept)


def test_a_model_without_a_record_of_its_training(tmp_path: Path, capsys: Printed) -> None:
    folder = tiny.saved("wave_b", tmp_path / "m", {"lineage": {"pretrain": "a", "dynamics": "b"}}, variant="vanilla")
    found = configuration(card_words(folder), capsys)
    assert found["model"] == to_dict(tiny.CONFIG)
    assert (found["seed"], found["variant"], found["history"], found["size"]) == (3, "vanilla", 1, "tiny")
    assert found["stages"] == ["pretrain", "dynamics"]
    assert "The settings of the stages were not recorded" in (folder / "README.md").read_text()


@pytest.mark.parametrize(
    "change",
    [
        ("counts={train: 7}",),
        ("switches={flux: alpha u^2}", "counts={}"),
        ("variant=geo", "data=somewhere/deep", "precision=bf16"),
        ("pretrain.training.optimiser.lr=1.5e-05", "model.decoder.widths=[8, 8, 8]", "pretrain.mask.cut=random"),
        ("recipe=my own", "pretrain.context_weight=0"),
        ("polish.training.budget={seconds: 0, epochs: 2.5}",),
    ],
)
def test_every_kind_of_change_comes_back(change: tuple[str, ...], capsys: Printed) -> None:
    config = load_config(RunConfig, None, change, recipes.get("combined", "fast"))
    stages = ("pretrain", "align", "dynamics", "decode", "polish")
    details = {
        "system": "combined",
        "recipe": config.recipe,
        "seed": config.seed,
        "lineage": dict.fromkeys(stages, "0"),
        "training": to_dict(config),
        "steps": {},
    }
    words, is_whole = train_words(details)
    assert is_whole
    found = configuration(shlex.split(" ".join(words)), capsys)
    expected = to_dict(config)
    assert found.pop("data") == ("DIR" if expected.pop("data") else "")
    found.pop("reconstruct"), expected.pop("reconstruct")
    assert found == expected


def test_a_foreign_training_is_not_believed(capsys: Printed) -> None:
    other = to_dict(recipes.get("heat", "fast"))
    base = {"system": "combined", "recipe": "fast", "seed": 0, "lineage": {}, "steps": {}, "variant": "physics"}
    base |= {"history": 1, "size": "paper", "model": to_dict(recipes.get("combined", "fast"))["model"]}
    for training in (other, {"system": "combined"}, {"colour": "$(reboot)"}, {"pretrain": 3}):
        words, is_whole = train_words({**base, "training": training})
        assert not is_whole
        assert "reboot" not in " ".join(words)
        assert configuration(words, capsys)["system"] == "combined"


# ---- the command -------------------------------------------------------------------------------------------------
def test_pack(run: Path, tmp_path: Path, capsys: Printed) -> None:
    source = pdejepa.load(run, "cpu")
    record_errors(source.surrogate, run / "model", ERRORS)
    out = tmp_path / "out"
    assert main(["pack", str(run), str(out)]) == 0
    text = capsys.readouterr().out
    assert f" MB in {out}, " in text
    assert "forecasts of 8 test trajectories" in text
    assert "recorded before rounding (test: 25%) are not claimed" in text
    assert f"Next: pdejepa evaluate {out}" in text
    assert main(["evaluate", str(out), "--n", "2", "--splits", "test"]) == 0
    assert config_of(out)["errors"]["test"]["n"] == 2
    assert "| `test` | in distribution | 2 |" in (out / "README.md").read_text()
    capsys.readouterr()
    assert main(["pack", str(run), str(out), "--float32"]) == 0
    text = capsys.readouterr().out
    assert "the same to the last bit" in text
    assert "Next" not in text
    assert main(["pack", str(run), str(run)]) == 2
    assert "holds no model" in capsys.readouterr().err
    assert main(["pack", str(tmp_path / "nothing"), str(out)]) == 4


def test_unstable_forecasts_are_told(tmp_path: Path, capsys: Printed) -> None:
    model = tiny.surrogate("advection")
    model.field.D_heads[0][-1].weight.data.mul_(1e3)  # type: ignore[union-attr,index]
    save_model(model, tmp_path / "m", {})
    assert main(["pack", str(tmp_path / "m"), str(tmp_path / "out")]) == 0
    assert "unstable" in capsys.readouterr().out

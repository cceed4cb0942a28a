"""A model folder may come from anywhere: whatever is wrong with it ends in one CheckpointError."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pdejepa.core.errors import CheckpointError
from pdejepa.core.files import sha256_file
from pdejepa.forecast.model_folder import load_surrogate
from tests.unit.forecast import tiny


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved("heat", tmp_path_factory.mktemp("hostile") / "m")


@pytest.fixture
def model(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "m"))


def refuse(folder: Path, words: str) -> None:
    with pytest.raises(CheckpointError, match=words) as caught:
        load_surrogate(folder, "cpu")
    assert len(str(caught.value)) < 1500


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change config.json."""
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


def reweigh(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change the weights, and config.json so that hash and size fit them."""
    path = folder / "weights.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    change(tensors)
    save_file(tensors, path)
    edit(folder, lambda config: config.update(weights_sha256=sha256_file(path), weights_bytes=path.stat().st_size))


# ---- weights ---------------------------------------------------------------------------------------------------
NAME = "encoder.embed.weight"


def test_missing_and_unknown_tensors(model: Path) -> None:
    reweigh(model, lambda tensors: tensors.pop(NAME))
    refuse(model, f"missing: {NAME}")
    reweigh(model, lambda tensors: tensors.update(extra=torch.zeros(3)))
    refuse(model, f"missing: {NAME}; unexpected: extra")


def test_wrong_shape_and_type(model: Path, original: Path) -> None:
    reweigh(model, lambda tensors: tensors.update({NAME: tensors[NAME].T.contiguous()}))
    refuse(model, rf"{NAME} is \(8, 16\), expected \(16, 8\)")
    reweigh(model, lambda tensors: tensors.update({NAME: tensors[NAME].T.contiguous().double()}))
    refuse(model, "is float64, expected float32")


def test_weights_that_are_not_finite(model: Path) -> None:
    reweigh(model, lambda tensors: tensors[NAME].fill_(torch.nan))
    refuse(model, "not finite")


def test_a_flipped_bit(model: Path) -> None:
    path = model / "weights.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-9] ^= 1
    path.write_bytes(raw)
    refuse(model, "hash is not the one in config.json")


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_cut_files(model: Path, kept: int) -> None:
    path = model / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    refuse(model, "cut off")


def test_a_renamed_pickle(model: Path) -> None:
    path = model / "weights.safetensors"
    torch.save({NAME: torch.zeros(3)}, path)
    refuse(model, "Python pickle")
    path.write_bytes(pickle.dumps({"a": 1}))
    refuse(model, "Python pickle")


def test_missing_files(model: Path) -> None:
    (model / "weights.safetensors").unlink()
    refuse(model, r"weights\.safetensors is missing")
    (model / "config.json").unlink()
    refuse(model, "holds no model")
    (model / "weights.safetensors").write_bytes(b"")
    refuse(model, r"has no config\.json")


def test_weights_of_another_model(model: Path, tmp_path: Path) -> None:
    other = tiny.saved("heat", tmp_path / "other", seed=7)
    shutil.copy(other / "weights.safetensors", model / "weights.safetensors")
    refuse(model, "of another model")


# ---- config.json -----------------------------------------------------------------------------------------------
def test_newer_and_wrong_versions(model: Path) -> None:
    edit(model, lambda config: config.update(format_version=3, something_new=1))
    refuse(model, "Format 3 needs a newer pdejepa; this is ")
    for version in (0, -1, "1", True, None, 1.5):
        edit(model, lambda config, version=version: config.update(format_version=version))
        refuse(model, "no usable format_version")
    edit(model, lambda config: config.update(format="other"))
    refuse(model, "does not describe a model")


BAD_VALUES: list[tuple[str, Any, str]] = [
    ("system", 5, "system: must be text"),
    ("system", "heaat", "stored is 'heat', but the model is for 'heaat'"),
    ("switches", [], "switches: must be"),
    ("switches", {"n_points": 64}, "stored is 'heat', but"),
    ("problem", 3, "problem: must be"),
    ("variant", "magic", "variant: must be one of"),
    ("history", 2, "observed frames"),
    ("history", "1", "history: must be an integer"),
    ("model", 3, "model"),
    ("model", {"encoder": {"width": 10**9, "heads": 1}}, "model.encoder.width"),
    ("model", {"field": {"depth": 10**7}}, "model.field.depth is 10000000; more than 1024 is refused"),
    ("model", {"encoder": {"mlp_ratio": 1e300}}, "mlp_ratio"),
    ("model", {"encoder": {"heads": 5}}, "heads must divide"),
    ("model", {"encoder": {"colour": 1}}, "model.encoder.colour: unknown key"),
    ("statistics", {}, "The statistics must hold"),
    ("fields", ["u", "v"], "another heat: its fields"),
    ("grid", [128], "another heat: its grid"),
    ("times", [0.0, 1.0], "another heat: its number of frames"),
    ("parameters", {}, "another heat: its parameters"),
    ("seed", 1e400, "seed"),
    ("weights_sha256", None, "weights_sha256"),
    ("weights_dtype", "float8", "weights_dtype: must be one of"),
    ("weights_dtype", "float16", "is float32, expected float16"),
    ("size", "huge", "size: must be one of"),
]


@pytest.mark.parametrize(("key", "value", "words"), BAD_VALUES)
def test_bad_values(model: Path, key: str, value: Any, words: str) -> None:
    edit(model, lambda config: config.update({key: value}))
    refuse(model, words)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("system", "heaat", "did you mean 'heat'"),
        ("switches", {"n_points": "many"}, "cannot be built"),
        ("switches", {"n_points": -4}, "cannot be built|refused"),
        ("switches", {"n_points": 10**12}, "cannot be built|refused"),
        ("switches", {"nonsense": 1}, "no switch 'nonsense'"),
    ],
)
def test_bad_values_in_files_of_format_1(model: Path, key: str, value: Any, words: str) -> None:
    """They do not hold the problem: the system of their name says it."""
    edit(model, lambda config: (config.pop("problem"), config.update({"format_version": 1, key: value})))
    refuse(model, words)


MANY = ["u"] * 100


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda problem: problem.update(colour=1), "colour: unknown key"),
        (lambda problem: problem.pop("times"), "times: required"),
        (lambda problem: problem.update(fields=MANY), "this many fields is refused"),
        (lambda problem: problem.update(axes=[]), "this many axes is refused"),
        (lambda problem: problem.update(axes=problem["axes"] * 4), "this many axes is refused"),
        (lambda problem: problem.update(axes=[{**problem["axes"][0], "boundary": "magic"}]), "boundary must be one of"),
        (lambda problem: problem.update(axes=[{**problem["axes"][0], "points": ["a"]}]), "points item 1"),
        (lambda problem: problem.update(axes=[5]), "axes: item 1 of the list must be a group of keys"),
        (lambda problem: problem.update(times=[0.0]), "this many times is refused"),
        (lambda problem: problem.update(parameters=problem["parameters"] * 80), "this many parameters is refused"),
        (lambda problem: problem["structure"].update(terms=problem["structure"]["terms"] * 2000), "this many terms"),
        (lambda problem: problem["structure"]["terms"][0].update(coefficient={}), "a product of powers or a one-hot"),
        (lambda problem: _coefficient(problem, powers={"speed": 1.0}), "needs 'speed', which is none of its"),
        (lambda problem: _coefficient(problem, powers={"diffusivity": "x"}), "powers key 'diffusivity' must be"),
        (lambda problem: problem["structure"].update(forcing="often"), "forcing"),
        (lambda problem: problem.update(law="os.system"), "law: unknown key"),
    ],
)
def test_bad_problems(model: Path, change: Callable[[dict[str, Any]], object], words: str) -> None:
    edit(model, lambda config: change(config["problem"]))
    refuse(model, words)


def _coefficient(problem: dict[str, Any], **values: Any) -> None:
    problem["structure"]["terms"][0]["coefficient"] = values


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mean", [0.0, 0.0]),
        ("std", [0.0]),
        ("std", [float("nan")]),
        ("mean", "no"),
        ("ranges", {}),
        ("coefficients", {"other": [0, 1]}),
        ("coefficients", {"diffusivity": [0, 0]}),
        ("coefficients", {"diffusivity": [0]}),
        ("latent_std", [1.0] * 5),
        ("velocity_scale", None),
    ],
)
def test_bad_statistics(model: Path, key: str, value: Any) -> None:
    edit(model, lambda config: config["statistics"].update({key: value}))
    refuse(model, "statistics")


def test_missing_and_unknown_keys(model: Path) -> None:
    edit(model, lambda config: (config.pop("recipe"), config.update(recipes="x")))
    refuse(model, "recipes: unknown key.*recipe: required, but not given")


HEAD = b'{"format": "pdejepa-model", "format_version": '


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "damaged"),
        (b"\xff\xfe\x00", "damaged"),
        (b"[1, 2]", "does not describe a model"),
        (b"[" * 200_000, "damaged"),
        (HEAD + b'1, "errors": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001, "damaged"),
        (HEAD + b"1" + b" " * 5_000_000 + b"}", "larger than 4 MB"),
        (HEAD + b"9" * 10_000 + b"}", "damaged"),
    ],
)
def test_hostile_files(model: Path, raw: bytes, words: str) -> None:
    (model / "config.json").write_bytes(raw)
    refuse(model, words)


def test_moderately_deep_nesting(model: Path) -> None:
    deep: Any = 1
    for _ in range(600):
        deep = {"a": deep}
    edit(model, lambda config: config.update(errors=deep))
    try:
        load_surrogate(model, "cpu")
    except CheckpointError as error:
        assert "nested" in str(error)


def test_no_regular_file(model: Path) -> None:
    import os

    (model / "config.json").unlink()
    os.mkfifo(model / "config.json")
    refuse(model, "not a regular file|no config")
    (model / "config.json").unlink()
    (model / "config.json").mkdir()
    refuse(model, "not a regular file|no config")

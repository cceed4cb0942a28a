"""Models on disk: the same model comes back, bit for bit, and from every place it may lie in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import pdejepa
from pdejepa import systems
from pdejepa.core.errors import CheckpointError
from pdejepa.core.files import sha256_file
from pdejepa.forecast import locate
from pdejepa.forecast.header import Header
from pdejepa.forecast.model_folder import load_surrogate
from pdejepa.method.save_model import record_errors, save_model
from tests.unit.forecast import tiny


@pytest.mark.parametrize("name", systems.NAMES)
def test_what_was_saved_comes_back(name: str, tmp_path: Path) -> None:
    model = tiny.surrogate(name)
    digest = save_model(model, tmp_path / "m", tiny.DETAILS)
    again, details = load_surrogate(tmp_path / "m", "cpu")
    assert again.problem == model.problem
    assert again.config == model.config
    assert again.statistics == model.statistics
    assert again.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(again.state_dict()[key], value) for key, value in model.state_dict().items())
    assert not again.training
    assert not any(value.requires_grad for value in again.parameters())
    assert details["weights_sha256"] == digest == sha256_file(tmp_path / "m" / "weights.safetensors")
    assert details["recipe"] == "tiny"
    u0, values = tiny.state(model.problem), tiny.middle(model.problem)
    first = pdejepa.load(tmp_path / "m", "cpu").forecast(u0, values, n_frames=2)
    assert torch.equal(first.fields, tiny.forecaster(name).forecast(u0, values, n_frames=2).fields)


@pytest.mark.parametrize(("variant", "history"), [("geo", 1), ("vanilla", 1), ("direct", 2)])
def test_variants(variant: str, history: int, tmp_path: Path) -> None:
    tiny.saved("wave_b", tmp_path / "m", variant=variant, history=history)
    model, _ = load_surrogate(tmp_path / "m", "cpu")
    assert (model.variant, model.history) == (variant, history)
    assert (model.projector is None) == (variant == "vanilla")


def test_equal_models_give_equal_bytes(tmp_path: Path) -> None:
    one, two = (tiny.saved("heat", tmp_path / name) for name in ("a", "b"))
    for name in ("config.json", "weights.safetensors", "README.md"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    assert sorted(path.name for path in one.iterdir()) == ["README.md", "config.json", "weights.safetensors"]


def test_loading_leaves_the_random_numbers_alone(tmp_path: Path) -> None:
    tiny.saved("heat", tmp_path / "m")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    load_surrogate(tmp_path / "m", "cpu")
    assert torch.equal(torch.rand(3), expected)


def test_half_precision(tmp_path: Path) -> None:
    model = tiny.surrogate("heat")
    save_model(model, tmp_path / "m", tiny.DETAILS, dtype="float16")
    again, details = load_surrogate(tmp_path / "m", "cpu")
    assert details["weights_dtype"] == "float16"
    for key, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], value.half().float())
    assert details["weights_bytes"] < 0.75 * 4 * sum(value.numel() for value in model.parameters())


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    model = tiny.surrogate("heat")
    model.decoder.layers[-1].weight.data[0, 0] = 1e30
    save_model(model, tmp_path / "m", {})
    before = (tmp_path / "m" / "weights.safetensors").read_bytes()
    with pytest.raises(CheckpointError, match="not finite in float16"):
        save_model(model, tmp_path / "m", {}, dtype="float16")
    model.decoder.layers[-1].weight.data[0, 0] = torch.nan
    with pytest.raises(CheckpointError, match=r"decoder.* not finite in float32"):
        save_model(model, tmp_path / "m", {})
    assert (tmp_path / "m" / "weights.safetensors").read_bytes() == before


def test_config_has_the_agreed_keys(tmp_path: Path) -> None:
    folder = tiny.saved("heterns", tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    agreed = """format format_version pdejepa system switches variant history recipe polish seed model statistics fields
        grid times parameters lineage data_hash seconds device torch commit errors weights_sha256 weights_bytes
        weights_dtype size training steps machine flops problem"""
    assert list(config) == agreed.split() == list(Header.__dataclass_fields__)
    assert config["switches"]["solver_grid"] == 64  # the tiny size
    assert config["parameters"]["viscosity"]["train"] == [1e-5, 1e-3]
    assert config["torch"] == torch.__version__


def test_keys_of_former_versions_are_dropped(tmp_path: Path) -> None:
    folder = tiny.saved("heat", tmp_path / "m")
    path, text = folder / "config.json", (folder / "config.json").read_text()
    path.write_text(json.dumps({**json.loads(text), "as_trained": True}))
    model, details = load_surrogate(folder, "cpu")
    assert "as_trained" not in details
    save_model(model, tmp_path / "n", details)
    assert (tmp_path / "n" / "config.json").read_text() == text
    record_errors(model, folder, {})
    assert path.read_text() == text


def test_unknown_details_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="A model keeps no colour"):
        save_model(tiny.surrogate("heat"), tmp_path / "m", {"colour": "red"})
    with pytest.raises(CheckpointError, match="seed: must be an integer"):
        save_model(tiny.surrogate("heat"), tmp_path / "m", {"seed": "one"})
    assert not (tmp_path / "m").exists()


def test_details_of_a_loaded_model_can_be_saved_again(tmp_path: Path) -> None:
    folder = tiny.saved("heat", tmp_path / "m", {"errors": {"test": {"rel_l2": 0.5, "n": 3}}})
    model, details = load_surrogate(folder, "cpu")
    save_model(model, tmp_path / "n", details)
    assert (tmp_path / "n" / "config.json").read_bytes() == (folder / "config.json").read_bytes()


def test_the_card(tmp_path: Path) -> None:
    folder = tiny.saved("heat", tmp_path / "m")
    text = (folder / "README.md").read_text()
    for words in (
        "# Heat: learned surrogate",
        "u_t = beta u_xx",
        "`diffusivity`",
        "[0.001, 5]",
        "Recipe `tiny`",
        "total",
        "1.5",
        "Not measured yet",
        "pdejepa.load",
        "any number can be asked for",
    ):
        assert words in text
    model, _ = load_surrogate(folder, "cpu")
    errors = {"rel_l2": 0.0342, "median": 0.03, "last_frame": 0.05, "repeat_first": 0.9, "n": 1200, "n_unstable": 2}
    record_errors(model, folder, {"test": errors})
    record_errors(model, folder, {"ood": {**errors, "rel_l2": None, "n_unstable": 0}})
    text = (folder / "README.md").read_text()
    assert "| `test` | in distribution | 1,200 (2 unstable) | 3.42% | 3% | 5% | 90% |" in text
    assert "| `ood` | out of distribution | 1,200 | - | 3% |" in text
    assert json.loads((folder / "config.json").read_text())["errors"]["test"] == errors
    load_surrogate(folder, "cpu")


# ---- where models are found ------------------------------------------------------------------------------------
def test_run_folders(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "pretrain").mkdir(parents=True)
    (run / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"finished: no stage yet; begun: pretrain\)"):
        load_surrogate(run, "cpu")
    (run / "pretrain" / "done.json").write_text("{}")
    (run / "align").mkdir()
    with pytest.raises(CheckpointError, match=r"\(finished: pretrain; begun: align\)\. .*pdejepa train .* continues"):
        load_surrogate(run, "cpu")
    (run / "model").mkdir()
    (run / "model" / "weights.safetensors").write_bytes(b"")  # saving was interrupted
    with pytest.raises(CheckpointError, match="run without a model yet"):
        load_surrogate(run, "cpu")
    tiny.saved("heat", run / "model")
    assert load_surrogate(run, "cpu")[0].problem.name == "heat"
    assert pdejepa.load(str(run), "cpu").folder == run / "model"
    assert locate.run_folder(run / "model") == run


def test_a_run_with_data_only(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text("{}")
    with pytest.raises(CheckpointError, match="finished: no stage yet"):
        load_surrogate(tmp_path, "cpu")


def test_nothing_there(tmp_path: Path) -> None:
    tiny.saved("heat", tmp_path / "heat_a")
    with pytest.raises(CheckpointError, match=r"no folder .*heat_b', did you mean 'heat_a'\? .*: heat_a\."):
        load_surrogate(tmp_path / "heat_b", "cpu")
    for path in ("/nonexistent", "./combined", Path("/nonexistent")):
        with pytest.raises(CheckpointError, match=r"There is no folder .*\. Give the folder of a run or of a model"):
            pdejepa.load(path)
    with pytest.raises(CheckpointError, match="~ is not replaced here; write the whole path"):
        pdejepa.load("~/runs/nonexistent")
    with pytest.raises(CheckpointError, match=r"There is no model 'combinde', did you mean 'combined'\?"):
        pdejepa.load("combinde")
    with pytest.raises(CheckpointError, match=r"holds no model.* Models in it: heat_a\."):
        load_surrogate(tmp_path, "cpu")
    with pytest.raises(CheckpointError, match="is a file; give the folder"):
        load_surrogate(tmp_path / "heat_a" / "weights.safetensors", "cpu")
    with pytest.raises(CheckpointError, match="There is no model 'aaa"):
        load_surrogate("a" * 10_000, "cpu")  # longer than names of files may be
    for wrong in (None, 3, b"heat"):
        with pytest.raises(CheckpointError, match=f"by its name or folder, .*; got {type(wrong).__name__}"):
            pdejepa.load(wrong)  # type: ignore[arg-type]
    assert locate.run_folder(tmp_path / "heat_a") == tmp_path / "heat_a"


def test_shipped_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path / package)
    monkeypatch.chdir(tmp_path)
    tiny.saved("heat", tmp_path / "pdejepa" / "checkpoints" / "heat-tiny")
    assert load_surrogate("heat-tiny", "cpu")[0].problem.name == "heat"
    with pytest.raises(CheckpointError, match=r"did you mean 'heat-tiny'\? Models that come with pdejepa: heat-tiny\."):
        load_surrogate("heat-tinny", "cpu")
    tiny.saved("burgers", tmp_path / "heat-tiny")  # a folder of that name comes first
    assert load_surrogate("heat-tiny", "cpu")[0].problem.name == "burgers"


def test_importing_the_package_stays_cheap() -> None:
    import subprocess
    import sys

    code = "import sys, pdejepa; assert callable(pdejepa.load); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0

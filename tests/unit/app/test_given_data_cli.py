"""Data without a system, on the command line: trained by its folder, judged by what is stored."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

import pdejepa
from pdejepa.app.cli import main
from pdejepa.core.errors import DataError
from pdejepa.data.source import Stored
from pdejepa.evaluate.protocol import evaluate
from pdejepa.evaluate.truth import case_of, has_system, trained_on
from pdejepa.forecast.forecaster import Forecaster
from tests.unit.data.importing.made import T, X, words, write_source

SMALL = (
    "model.encoder={patch: 8, width: 16, depth: 1, heads: 2}",
    "model.field={width: 16, depth: 1, heads: 2}",
    "model.decoder={widths: [16, 16, 16, 16], scales: [2, 2, 2]}",
    "pretrain.one_frame_clips=4",
    *(f"{stage}.training.budget.steps=2" for stage in ("pretrain", "align", "dynamics", "decode")),
    "device=cpu",
)


def trained(data: Path, run: Path) -> Path:
    assert main(["train", str(data), "--recipe", "tiny", "--out", str(run), *SMALL]) == 0
    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data/ and run/."""
    root = tmp_path_factory.mktemp("given")
    assert main(words(*write_source(root), root / "data")) == 0
    trained(root / "data", root / "run")
    return root


def test_sizes_follow_from_the_data_and_are_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(folder / "data"), "--recipe", "tiny", "--out", str(folder / "run"), *SMALL]) == 0
    told = capsys.readouterr().out
    assert "waves: 28 trajectories of 6 frames on 32 points; patches of 8, 4 tokens a frame of width 16" in told
    stored = json.loads((folder / "run/config.json").read_text())["train"]
    assert stored["counts"] == {"train": 28, "valid": 4}


def test_the_model_knows_its_problem(folder: Path) -> None:
    model = pdejepa.load(folder / "run", "cpu")
    assert not has_system(model)
    assert model.problem.parameter_names == ("speed", "decay")
    assert [term.rule for term in model.problem.structure.terms] == ["midrange", "midrange"]
    assert model.problem.structure.has_shared
    assert model.problem.times == (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
    assert model.problem.periodic_axes == (True,)
    assert trained_on(model) == folder / "data"


def test_a_run_is_evaluated_on_its_own_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(folder / "run")]) == 0
    assert "test   4" in capsys.readouterr().out
    record = json.loads((folder / "run/results/waves-tiny-s0.json").read_text())
    assert {split: found["source"] for split, found in record["errors"].items()} == {
        "test": str(folder / "data"),
        "ood": str(folder / "data"),
    }
    assert main(["evaluate", str(folder / "run"), "--splits", "tset"]) == 3
    assert "has no split 'tset', did you mean 'test'?" in capsys.readouterr().err


def test_a_forecast_is_compared_with_what_is_stored(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "f.npz"
    assert main(["forecast", str(folder / "run"), "--from", "ood:1", "--compare", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "The truth is what is stored." in told
    with np.load(out) as kept:
        assert kept["fields"].shape == (1, T, 1, X)
    command = ["forecast", str(folder / "run"), "--set", "speed=0.7", "--compare", "--out", str(out)]
    assert main(command) == 3
    assert "only its stored frames are known, for unchanged parameters" in capsys.readouterr().err
    assert main([word for word in command if word != "--compare"]) == 0
    assert main(["forecast", str(folder / "run"), "--from", "test:99", "--out", str(out)]) == 3
    assert "test has trajectories 0 to 3; there is no 99" in capsys.readouterr().err


@pytest.mark.slow
def test_bands_and_parameters_without_an_equation(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are calibrated on valid of the data, and say on how much."""
    run = shutil.copytree(folder / "run", tmp_path / "run")
    assert main(["calibrate", str(run)]) == 0
    told = capsys.readouterr().out
    assert "From 4 cases: in 80 of 100 cases nine tenths of the points of the last frame are within" in told
    assert [line.split()[:2] for line in told.splitlines() if line.startswith(("test ", "ood "))] == [
        ["test", "4"],
        ["ood", "4"],
    ]
    assert main(["forecast", str(run), "--out", str(tmp_path / "f.npz")]) == 0
    assert "Band: " in capsys.readouterr().out
    assert main(["infer", str(run), "--demo", "--json", str(tmp_path / "i.json")]) == 0
    found = json.loads((tmp_path / "i.json").read_text())
    assert set(found["parameters"]) == {"speed", "decay"}
    truth = Stored.open(folder / "data").block("test", 0, 1).xi[0].tolist()
    assert list(found["truth"].values()) == pytest.approx(truth)
    assert set(found["intervals"]) == {"0.5", "0.9"}
    other = folder / "elsewhere"
    assert main([*words(*write_source(tmp_path), other), "--name", "other"]) == 0
    capsys.readouterr()
    for command in (["calibrate", str(run)], ["infer", str(run), "--demo"]):
        assert main([*command, "--data", str(other)]) == 3
        assert "does not fit the model: its system: other; the model's: waves" in capsys.readouterr().err


def test_data_that_are_gone_or_others_are_named(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "moved")
    run = tmp_path / "moved/run"
    told = json.loads((run / "data.json").read_text())
    for data, sentence in ((tmp_path / "gone", "which is not there any more"), (folder / "other", "are others than")):
        if "others" in sentence:
            assert main([*words(*write_source(tmp_path), folder / "other"), "--seed", "1"]) == 0
        (run / "data.json").write_text(json.dumps({**told, "folder": str(data)}))
        model = pdejepa.load(run, "cpu")
        with pytest.raises(DataError, match=sentence):
            evaluate(model, ["test"])
        with pytest.raises(DataError, match="Name a data set"):
            case_of(model, "test:0", {})
        assert case_of(model, f"{folder / 'data'}:test:0", {}).stored is not None
    model = pdejepa.load(shutil.copytree(run / "model", tmp_path / "alone"), "cpu")
    with pytest.raises(DataError, match="nor where its data are"):
        trained_on(model)


def test_the_folder_may_be_given_as_data(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = str(folder / "data"), str(tmp_path / "run")
    assert main(["train", "waves", "--data", data, "--recipe", "tiny", "--out", out, "--print-config"]) == 0
    assert f"data: {data}" in capsys.readouterr().out
    assert main(["train", "other", f"data={data}", "--recipe", "tiny", "--out", out]) == 2
    assert "holds waves, not other" in capsys.readouterr().err
    assert main(["train", data, "--data", str(tmp_path), "--out", out]) == 2
    assert main(["train", str(tmp_path), "--out", out]) == 3
    assert main(["train", data, "--recipe", "paper", "--out", out]) == 2
    assert "nothing is published" in capsys.readouterr().err


def test_without_parameters_there_is_the_shared_part_alone(folder: Path, tmp_path: Path) -> None:
    assert main(words(folder / "fields.npz", "none", tmp_path / "data")) == 0
    run = trained(tmp_path / "data", tmp_path / "run")
    assert main(["evaluate", str(run)]) == 0
    model: Forecaster = pdejepa.load(run, "cpu")
    assert model.problem.structure.terms == ()
    out = model.forecast(np.load(folder / "fields.npz")["u"][:2, 0])
    assert out.new.shape == (2, T - 1, 1, X)
    assert "None." in (run / "model/README.md").read_text()


def test_a_rectangle_with_open_ends(tmp_path: Path) -> None:
    draws = np.random.default_rng(1)
    p, q = draws.normal(size=(2, 12, 5, 32, 16)).cumsum(2).cumsum(3).cumsum(4)
    np.savez(tmp_path / "plane.npz", p=p, q=q, nu=np.linspace(1, 2, 12), dt=0.25)
    command = ["import", str(tmp_path / "plane.npz"), "--axes", "n,t,x,y", "--fields", "p,q", "--periodic", "y"]
    assert main([*command, "--box", "0:2,0:1", "--ood", "none", "--yes", "--out", str(tmp_path / "data")]) == 0
    run = trained(tmp_path / "data", tmp_path / "run")
    assert main(["evaluate", str(run)]) == 0
    model = pdejepa.load(run, "cpu")
    assert [axis.boundary for axis in model.problem.axes] == ["open", "periodic"]
    assert model.forecast(np.stack([p, q], 2)[0, 0], nu=1.5).new.shape == (1, 4, 2, 32, 16)


def test_a_folder_of_others_is_trained_on_as_it_is(folder: Path, tmp_path: Path) -> None:
    """Without our group and our files a data set is somebody else's in The Well's layout."""
    shutil.copytree(folder / "data/data", tmp_path / "theirs/data")
    for path in (tmp_path / "theirs").rglob("*.hdf5"):
        with h5py.File(path, "r+") as file:
            del file["provenance"]
            file.attrs["dataset_name"] = "Their Waves"
    run = trained(tmp_path / "theirs", tmp_path / "run")
    assert main(["evaluate", str(run)]) == 0
    model = pdejepa.load(run, "cpu")
    assert model.problem.name == "their_waves"
    assert model.problem.parameter_names == ("speed", "decay")


def test_a_generated_folder_is_trained_on_with_the_recipe_of_its_system(
    tiny_datasets: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tiny_datasets("heat")  # type: ignore[operator]
    assert main(["train", str(data), "--recipe", "tiny", "--out", str(tmp_path / "run"), "--print-config"]) == 0
    told = capsys.readouterr().out
    assert "system: heat" in told
    assert f"data: {data}" in told



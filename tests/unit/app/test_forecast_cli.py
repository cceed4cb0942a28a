"""`pdejepa forecast` and `pdejepa evaluate`, end to end with untrained models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image
from torch import Tensor

import pdejepa
from pdejepa import baselines, systems
from pdejepa.app.cli import main
from pdejepa.baselines.inference import PublishedSolver
from pdejepa.data.generate.job import GenerateConfig, generate
from pdejepa.evaluate import protocol
from pdejepa.evaluate.cases import find_case
from pdejepa.evaluate.truth import source_of
from pdejepa.method.save_model import save_model
from pdejepa.systems import switch_values
from tests.unit.baselines.token_solvers import shaken, task_of
from tests.unit.forecast import tiny

Make = Callable[[str], Path]
Printed = pytest.CaptureFixture[str]


@pytest.fixture
def heat(tmp_path: Path) -> Path:
    """A finished run."""
    run = tmp_path / "run"
    (run / "decode").mkdir(parents=True)
    tiny.saved("heat", run / "model")
    return run


def test_forecast(heat: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(heat)
    assert main(["forecast", str(heat)]) == 0
    out = capsys.readouterr().out
    assert "Heat, test 0: 24 new frames up to t = 3.85542, forecast in " in out
    assert "Extrapolating" not in out
    assert "Drawn to heat_test_0_forecast.png" in out
    with Image.open(heat / "heat_test_0_forecast.png") as image:
        assert image.format == "PNG"


@pytest.mark.slow
def test_forecast_of_changed_physics(tmp_path: Path, capsys: Printed) -> None:
    heat = tiny.saved("heat", tmp_path / "m", speed=1.0)
    picture, film = tmp_path / "f.png", tmp_path / "f.gif"
    options = ["--from", "ood:3", "--set", "diffusivity=50", "--set", "forcing_mode_1=2", "--frames", "30", "--compare"]
    assert main(["forecast", str(heat), *options, "--out", str(picture), "--animate", str(film)]) == 0
    out = capsys.readouterr().out
    assert "Heat, ood 3: 30 new frames" in out
    assert "Extrapolating: diffusivity 50 is above the training range [0.001, 5] (10x above)." in out
    assert "Extrapolating: 31 frames in all" in out
    assert "Relative L2 error " in out
    assert "repeating the last observed frame would give " in out
    assert "The solver took " in out
    assert f"Drawn to {picture} and {film}" in out
    with Image.open(film) as image:
        assert image.n_frames == 31


def test_forecast_of_a_state_in_a_file(heat: Path, tmp_path: Path, capsys: Printed) -> None:
    """Like the same state by number; beside the solver, and kept as arrays."""
    case = find_case("test:3", systems.get("heat"), {})
    named = {name: float(values[0]) for name, values in case.system.named(case.xi).items()}
    numpy.save(tmp_path / "u0.npy", case.observed(1)[0, 0].numpy())
    numpy.savez(tmp_path / "u0.npz", case.observed(1)[0, 0, 0].numpy())
    sets = [word for name, value in named.items() for word in ("--set", f"{name}={value!r}")]
    told, kept = [], []
    for number, source in enumerate((["--from", "test:3"], ["--u0", "u0.npy", *sets], ["--u0", "u0.npz", *sets])):
        files = [str(tmp_path / f"{number}{suffix}") for suffix in (".npz", ".png")]
        source = [str(tmp_path / word) if word.startswith("u0.") else word for word in source]
        assert main(["forecast", str(heat), *source, "--compare", "--out", files[0], "--out", files[1]]) == 0
        out = capsys.readouterr().out
        assert f"Saved to {files[0]}\nDrawn to {files[1]}\n" in out
        told.append(out.split("Relative L2 error ")[1].split(";")[0])
        with numpy.load(files[0]) as found:
            kept.append(found["fields"])
    assert told[0] == told[1] == told[2]
    assert (kept[0] == kept[1]).all()
    assert (kept[0] == kept[2]).all()


def test_forecast_of_several_states_in_a_file(heat: Path, tmp_path: Path, capsys: Printed) -> None:
    u0 = torch.cat([find_case(f"test:{index}", systems.get("heat"), {}).observed(1)[:, 0] for index in (0, 1)])
    numpy.save(tmp_path / "u0.npy", u0.numpy())
    sets = ["--set", "diffusivity=1", *forcing_of_heat()]
    assert main(["forecast", str(heat), "--u0", str(tmp_path / "u0.npy"), *sets, "--out", str(tmp_path / "f.npz")]) == 0
    assert "24 new frames of 2 states" in capsys.readouterr().out
    with numpy.load(tmp_path / "f.npz") as found:
        assert found["fields"].shape == (2, 25, 1, 256)


def forcing_of_heat() -> list[str]:
    names = [p.name for p in systems.get("heat").parameters if p.name != "diffusivity" and p.default is None]
    return [word for name in names for word in ("--set", f"{name}=1")]


def test_a_wave_in_a_file_has_no_truth(tmp_path: Path, capsys: Printed) -> None:
    tiny.saved("wave_b", tmp_path / "m")
    case = find_case("test:0", systems.get("wave_b"), {})
    numpy.save(tmp_path / "u0.npy", case.observed(1)[0].numpy())
    sets = [w for name, v in case.system.named(case.xi).items() for w in ("--set", f"{name}={float(v[0])}")]
    assert main(["forecast", str(tmp_path / "m"), "--u0", str(tmp_path / "u0.npy"), *sets, "--compare"]) == 3
    assert "needs a state and its parameters" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (b"", 3, "holds no array of numbers"),
        (b"not an array", 3, "holds no array of numbers"),
        (None, 3, "cannot be read: No such file"),
        (numpy.zeros((3, 7), dtype=numpy.float32), 3, "expects the observed state as (1, 256)"),
        (numpy.array([{"a": 1}], dtype=object), 3, "holds no array of numbers"),
        (numpy.full(256, numpy.nan), 3, "NaN"),
        (numpy.ones(256), 2, "heat needs diffusivity"),
    ],
)
def test_mistakes_in_a_file_of_states(
    heat: Path, tmp_path: Path, content: bytes | numpy.ndarray | None, code: int, words: str, capsys: Printed
) -> None:
    path = tmp_path / "u0.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        numpy.save(path, content, allow_pickle=True)
    assert main(["forecast", str(heat), "--u0", str(path), "--out", str(tmp_path / "f.npz")]) == code
    assert words in capsys.readouterr().err


def test_several_arrays_are_too_many(heat: Path, tmp_path: Path, capsys: Printed) -> None:
    numpy.savez(tmp_path / "u0.npz", first=numpy.ones(256), second=numpy.ones(256))
    assert main(["forecast", str(heat), "--u0", str(tmp_path / "u0.npz")]) == 3
    assert "holds several arrays (first, second); expected one" in capsys.readouterr().err


def test_residual(heat: Path, tmp_path: Path, capsys: Printed) -> None:
    assert main(["forecast", str(heat), "--residual", "--out", str(tmp_path / "f.png")]) == 0
    assert "Residual: from frame to frame the solver ends " in capsys.readouterr().out


@pytest.mark.parametrize("name", ["wave_b", "gray_scott"])
def test_forecast_of_other_systems(name: str, tmp_path: Path, capsys: Printed) -> None:
    tiny.saved(name, tmp_path / "m")
    assert main(["forecast", str(tmp_path / "m"), "--compare", "--out", str(tmp_path / "f.png")]) == 0
    assert "Relative L2 error" in capsys.readouterr().out


def test_forecast_from_a_data_set(heat: Path, tiny_datasets: Make, tmp_path: Path, capsys: Printed) -> None:
    data = tiny_datasets("heat")
    picture = ["--out", str(tmp_path / "f.png")]
    texts = []
    for source in (f"{data}:test:2", "test:2"):
        assert main(["forecast", str(heat), "--from", source, "--compare", *picture]) == 0
        texts.append(capsys.readouterr().out)
    errors = [text.split("Relative L2 error ")[1].split(";")[0] for text in texts]
    assert errors[0] == errors[1]


def test_an_unstable_forecast_is_kept_and_told(tmp_path: Path, capsys: Printed) -> None:
    model = tiny.surrogate("advection")
    model.field.D_heads[0][-1].weight.data.mul_(1e4)  # type: ignore[union-attr,index]
    save_model(model, tmp_path / "m", {})
    picture = tmp_path / "f.png"
    assert main(["forecast", str(tmp_path / "m"), "--compare", "--set", "speed=4", "--out", str(picture)]) == 5
    out, err = capsys.readouterr()
    assert "Relative L2 error -" in out
    assert "The forecast is unstable: frame " in err
    assert picture.exists()


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--set", "diffusivity"], 2, "--set takes NAME=VALUE"),
        (["--set", "diffusivity=much"], 2, "--set takes NAME=VALUE"),
        (["--set", "=3"], 2, "--set takes NAME=VALUE"),
        (["--set", "difusivity=3"], 2, "did you mean 'diffusivity'"),
        (["--set", "diffusivity=-3"], 2, "diffusivity must be in"),
        (["--from", "test"], 2, "--from must be SPLIT:INDEX"),
        (["--from", "tset:0"], 3, "did you mean 'test'"),
        (["--from", "nowhere:test:0"], 3, "holds no data set"),
        (["--frames", "0"], 2, "n_frames counts new frames"),
        (["--device", "gpu"], 2, "Unknown device"),
        (["--out", "f.bmp"], 2, "Pictures and arrays are written as"),
        (["--animate", "f.mp4"], 2, "Animations are written as .gif, .webp; got 'f.mp4'. Give --animate such a name."),
        (["--out", "d.png"], 2, "--out must name a file; d.png is a folder."),
        (["--out", "d.png/file/f.png"], 2, "--out needs a folder where d.png/file is a file; choose another name."),
    ],
)
def test_forecast_mistakes(
    heat: Path, options: list[str], code: int, words: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(heat)
    Path("d.png").mkdir()
    Path("d.png/file").touch()
    assert main(["forecast", str(heat), *options]) == code
    out, err = capsys.readouterr()
    assert words in err
    assert out == ""  # nothing was forecast


@pytest.mark.parametrize("command", ["forecast", "demo", "evaluate"])
def test_places_that_cannot_be_written_to(command: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    monkeypatch.setattr("pdejepa.load", lambda *_, **__: pytest.fail("work was begun"))
    assert main([command, "combined", "--out", "ro/f.png"]) == 6
    assert "--out: the folder . cannot be written to. Choose another one" in capsys.readouterr().err


def test_evaluate(heat: Path, capsys: Printed) -> None:
    assert main(["evaluate", str(heat), "--n", "3"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("split")
    assert [line.split()[:2] for line in out.splitlines()[1:3]] == [["test", "3"], ["ood", "3"]]
    path = heat / "results" / "heat-tiny-s3.json"
    assert f"Recorded in {path}" in out
    result = json.loads(path.read_text())
    config = json.loads((heat / "model" / "config.json").read_text())
    assert result["weights_sha256"] == config["weights_sha256"]
    assert result["errors"]["test"]["rel_l2"] == config["errors"]["test"]["rel_l2"]
    assert len(result["errors"]["ood"]["trajectories"]) == 3
    assert "| `ood` | out of distribution | 3 |" in (heat / "model" / "README.md").read_text()
    assert main(["evaluate", str(heat), "--n", "2", "--splits", "valid"]) == 0  # it still loads; errors are added
    for file in (heat / "model" / "config.json", path):
        assert set(json.loads(file.read_text())["errors"]) == {"test", "ood", "valid"}


def test_fewer_trajectories_replace_nothing(heat: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(heat.parent)
    assert main(["evaluate", "run", "--n", "3", "--splits", "test", "--out", "mine.json"]) == 0
    for given in ([], ["--out", "few.json"]):
        before = {path: path.read_bytes() for path in (*heat.rglob("*.*"), Path("mine.json")) if path.is_file()}
        capsys.readouterr()
        assert main(["evaluate", "run", "--n", "1", *given]) == 0
        told = "The card keeps the errors on" if given else "Not recorded: run/model has errors on"
        assert f"{told} 3 trajectories of test" in capsys.readouterr().out
        assert {path: path.read_bytes() for path in (*heat.rglob("*.*"), Path("mine.json")) if path.is_file()} == before
    assert json.loads(Path("few.json").read_text())["errors"]["test"]["n"] == 1
    assert main(["evaluate", "run", "--n", "1", "--out", "mine.json"]) == 2
    assert "mine.json has errors on 3 trajectories of test; fewer do not replace them" in capsys.readouterr().err
    assert main(["evaluate", "run", "--n", "4", "--splits", "test"]) == 0
    assert "| `test` | in distribution | 4 |" in (heat / "model" / "README.md").read_text()


def test_fewer_trajectories_of_a_data_set_replace_nothing(heat: Path, tiny_datasets: Make, capsys: Printed) -> None:
    words = ["evaluate", str(heat), "--data", str(tiny_datasets("heat")), "--splits", "test", "--n"]
    assert main([*words, "2"]) == 0
    assert main([*words, "1"]) == 0
    assert "Not recorded" in capsys.readouterr().out
    (record,) = (heat / "results").iterdir()
    assert json.loads(record.read_text())["errors"]["test"]["n"] == 2


def test_evaluate_a_data_set(heat: Path, tiny_datasets: Make, tmp_path: Path, capsys: Printed) -> None:
    out = tmp_path / "deep" / "r.json"
    data = str(tiny_datasets("heat"))
    assert main(["evaluate", str(heat), "--data", data, "--splits", "test", "--out", str(out)]) == 0
    assert json.loads(out.read_text())["errors"]["test"]["n"] == 10
    assert not (heat / "results").exists()


def test_evaluate_in_a_terminal(heat: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "140")
    assert main(["evaluate", str(heat), "--n", "1", "--splits", "test"]) == 0
    assert "repeat first" in capsys.readouterr().out


def test_evaluate_with_other_observations(tmp_path: Path, capsys: Printed) -> None:
    tiny.saved("wave_b", tmp_path / "m")
    assert main(["evaluate", str(tmp_path / "m"), "--n", "1", "--observed", "2"]) == 0
    result = json.loads((tmp_path / "m" / "results" / "wave_b-tiny-s3-observed2.json").read_text())
    assert result["observed_frames"] == 2
    assert json.loads((tmp_path / "m" / "config.json").read_text())["errors"] == {}  # not how it was trained


def test_evaluate_leaves_a_shipped_model_alone(
    tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path / package)
    monkeypatch.chdir(tmp_path)
    folder = tiny.saved("heat", tmp_path / "pdejepa" / "checkpoints" / "heat-tiny")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(["evaluate", "heat-tiny", "--n", "1", "--splits", "test"]) == 0
    assert "Recorded" not in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--splits", "tset"], 3, "did you mean 'test'"),
        (["--splits", ","], 2, "names no split"),
        (["--n", "0"], 2, "--n"),
        (["--data", "nowhere"], 3, "holds no data set"),
        (["--observed", "2", "--n", "1"], 3, "--observed 2 is for second-order systems; heat expects"),
        (["--out", "."], 2, "--out must name a file; . is a folder."),
    ],
)
def test_evaluate_mistakes(heat: Path, options: list[str], code: int, words: str, capsys: Printed) -> None:
    assert main(["evaluate", str(heat), *options]) == code
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("command", ["forecast", "evaluate"])
def test_models_that_are_not_there(command: str, tmp_path: Path, capsys: Printed) -> None:
    assert main([command, str(tmp_path / "nothing")]) == 4
    assert "There is no folder" in capsys.readouterr().err
    (tmp_path / "pretrain").mkdir()
    assert main([command, str(tmp_path)]) == 4
    assert "run without a model yet" in capsys.readouterr().err


# ---- published solvers -------------------------------------------------------------------------------------------
@pytest.fixture
def published(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A solver of random weights on a line of 64 points."""
    kind, task = baselines.get(request.param), task_of("combined", 64)
    torch.manual_seed(0)
    network = shaken(kind(kind.recipe("tiny", task).model, task))
    PublishedSolver(network.eval().requires_grad_(False), "tiny").save(tmp_path / request.param)
    return tmp_path / request.param


@pytest.mark.parametrize("published", ["unisolver", "cls_vit", "fno"], indirect=True)
def test_published_solvers_forecast_and_are_judged(published: Path, capsys: Printed) -> None:
    """One is told parameters, one another trajectory, one nothing."""
    picture = published / "f.png"
    words = ["--from", "test:3", "--frames", "2", "--compare", "--out", str(picture)]
    assert main(["forecast", str(published), *words]) == 0
    assert "Relative L2 error" in capsys.readouterr().out
    assert picture.stat().st_size > 10_000
    assert main(["evaluate", str(published), "--splits", "test", "--n", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["test", "2"]
    assert main(["evaluate", str(published), "--n", "2", "--out", "x.json"]) == 2
    assert "are for models of PDE-JEPA" in capsys.readouterr().err


@pytest.mark.parametrize("published", ["cls_vit"], indirect=True)
def test_who_learns_from_another_trajectory_is_given_one_of_its_environment(published: Path) -> None:
    solver = pdejepa.load(published, "cpu")
    case = find_case("test:3", solver.system, {"advection": 0.5})
    n = solver.system.split("test").n_environments
    other, xi = solver.system.sample("test", 3 + n)
    assert torch.equal(solver.system.sample("test", 3)[1], xi)
    expected = solver.system.solve(other, case.xi).as_subclass(Tensor).float()
    assert torch.equal(case.sibling()[0], expected)
    (fields, rows, support) = next(protocol._blocks(solver, source_of(solver), "test", 5))
    assert support is not None
    assert torch.equal(support[3, 0], solver.system.generate("test", 1, start=3 + n).fields[0])
    assert not torch.equal(support[:, 0], fields)
    assert torch.equal(rows[3:4], xi)


@pytest.mark.parametrize("published", ["cls_vit"], indirect=True)
def test_data_without_another_trajectory_are_refused(published: Path, capsys: Printed) -> None:
    system = systems.get("combined", n_points=64)
    out = published.parent / "data"
    generate(GenerateConfig(system="combined", out=str(out), switches=switch_values(system), device="cpu"))
    assert main(["evaluate", str(published), "--data", str(out), "--splits", "test", "--n", "2"]) == 3
    assert "needs another trajectory of the same environment" in capsys.readouterr().err

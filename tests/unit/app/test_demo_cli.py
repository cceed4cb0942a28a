"""`pdejepa demo`, end to end with untrained models."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from pdejepa.app.cli import main
from pdejepa.method.save_model import save_model
from tests.unit.forecast import tiny

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of shipped models, empty; the present folder is a fresh one."""
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path / package)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "pdejepa" / "checkpoints"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of the time; where pictures are not looked at, names are enough."""

    def touch(pairs: Sequence[object], path: Path) -> None:
        assert len(pairs) == 2
        path.parent.mkdir(exist_ok=True)
        path.touch()

    monkeypatch.setattr("pdejepa.draw.stack.draw_comparisons", touch)
    monkeypatch.setattr("pdejepa.draw.stack.animate_comparisons", touch)


@pytest.mark.slow
def test_a_model_of_ones_own(shipped: Path, tmp_path: Path, capsys: Printed) -> None:
    model = tiny.saved("advection", tmp_path / "my model")
    assert main(["demo", "--model", str(model)]) == 0
    out = capsys.readouterr().out
    assert f"Model {model}: recipe tiny, 7,457 parameters, " in out
    assert "Trained on speed [0, 4]; 13 new frames from 1 observed." in out
    inside, outside = out.split("Inside the training range: test 0")[1].split("Outside the training range: ood 0")
    for part in (inside, outside):
        assert "\n  speed = " in part
        assert "relative L2 error " in part
        assert "; repeating the observed frame " in part
        assert " ms, solver " in part
    assert "\n  The model does not see the observed frames as they are" in inside  # it is not trained
    assert "Extrapolating" not in inside
    assert "is above the training range [0, 4] (" in outside
    assert "the median of 3 calls after one to warm up" in out
    assert "Drawn to pdejepa-demo/demo.png and pdejepa-demo/demo.gif" in out
    with Image.open("pdejepa-demo/demo.png") as picture, Image.open("pdejepa-demo/demo.gif") as film:
        assert picture.format == "PNG"
        assert film.n_frames == 14
    assert sorted(path.name for path in Path("pdejepa-demo").iterdir()) == ["demo.gif", "demo.png"]


@pytest.mark.usefixtures("quick")
def test_the_commands_at_the_end_work(shipped: Path, tmp_path: Path, capsys: Printed) -> None:
    model = tiny.saved("advection", tmp_path / "my model")
    assert main(["demo", "--model", str(model), "--out", "d", "--index", "7"]) == 0
    out = capsys.readouterr().out
    assert "test 7" in out
    lines = out.split("What to try next:\n")[1].splitlines()
    commands = [shlex.split(line) for line in lines]
    assert [words[:2] for words in commands] == [
        ["pdejepa", name] for name in ("forecast", "evaluate", "systems", "train")
    ]
    assert "speed=4.8" in commands[0]
    for words in commands[:3]:
        assert main(words[1:]) == 0, words
    assert main([*commands[3][1:], "--print-config"]) == 0
    assert Path("mine.png").exists()


@pytest.mark.usefixtures("quick")
def test_the_first_model_is_combined(shipped: Path, capsys: Printed) -> None:
    tiny.saved("advection", shipped / "advection")
    assert main(["demo", "--out", "a"]) == 0
    assert "Model advection: " in capsys.readouterr().out
    tiny.saved("combined", shipped / "combined")
    Path("combined").mkdir()  # a folder of that name is not meant
    assert main(["demo", "--out", "b"]) == 0
    out = capsys.readouterr().out
    assert "Model combined: " in out
    assert "  pdejepa evaluate combined --n 20\n" in out
    assert out.endswith("  pdejepa demo advection\n")


@pytest.mark.usefixtures("quick")
def test_models_by_system(shipped: Path, capsys: Printed) -> None:
    tiny.saved("advection", shipped / "fast-advection")
    for word in ("advection", "Advection", "fast-advection"):
        assert main(["demo", word, "--out", "a"]) == 0
        assert "Model fast-advection: " in capsys.readouterr().out
    assert main(["demo", "heat"]) == 4
    err = capsys.readouterr().err
    assert err.startswith("No model of heat comes with this pdejepa (there are: fast-advection); train one")
    assert "pdejepa train heat --recipe tiny --out runs/heat" in err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 4, "No model comes with this pdejepa; train one, which takes minutes on two CPU cores, with: "),
        (["wave-b"], 4, "pdejepa train wave_b --recipe tiny --out runs/wave_b; then: pdejepa demo --model runs/wave_b"),
        (["haet"], 2, "did you mean 'heat'"),
        (["--model", "nowhere"], 4, "There is no model 'nowhere'"),
        (["--index", "-1"], 2, "--index"),
        (["--device", "gpu", "--model", "MODEL"], 2, "Unknown device"),
        (["heat", "--model", "MODEL"], 2, "is a model of advection, not of heat"),
        (["--out", "afile/demo"], 2, "--out needs a folder where afile is a file"),
    ],
)
def test_mistakes(shipped: Path, words: list[str], code: int, told: str, capsys: Printed) -> None:
    if "MODEL" in words:
        tiny.saved("advection", Path("MODEL"))
    Path("afile").touch()
    assert main(["demo", *words]) == code
    assert told in capsys.readouterr().err
    assert not Path("pdejepa-demo").exists()


@pytest.mark.slow
def test_an_unstable_forecast_is_drawn_and_told(shipped: Path, capsys: Printed) -> None:
    model = tiny.surrogate("advection")
    model.field.D_heads[0][-1].weight.data.mul_(1e4)  # type: ignore[union-attr,index]
    save_model(model, Path("m"), {})
    assert main(["demo", "--model", "m"]) == 5
    out, err = capsys.readouterr()
    assert "relative L2 error -" in out
    assert "What to try next:" in out
    assert "The forecast is unstable: frame " in err
    assert Path("pdejepa-demo/demo.gif").exists()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["heat", pytest.param("gray_scott", marks=pytest.mark.slow)])
def test_other_systems(name: str, shipped: Path, capsys: Printed) -> None:
    tiny.saved(name, shipped / name)
    assert main(["demo", name, "--out", "d"]) in (0, 5)  # untrained models may be unstable
    out = capsys.readouterr().out
    assert ("20 numbers of the forcing" in out) == (name == "heat")
    assert ("feed = " in out) == (name == "gray_scott")

"""The page: complete, self-contained, safe, and honest about what is missing."""

from __future__ import annotations

import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pdejepa.app.cli import main
from pdejepa.app.report import examples
from pdejepa.app.report.content import read_run
from pdejepa.app.report.markup import STYLE, Html, esc, tag
from pdejepa.app.report.page import NAVIGATION, report, write_report
from pdejepa.app.report.reproduce import command as repeating
from pdejepa.core.config import load_config, to_yaml
from pdejepa.core.errors import UsageError
from pdejepa.method.recipes import RECIPES
from pdejepa.method.run_config import RunConfig
from tests.unit.app.report import folder
from tests.unit.forecast import tiny

VOID = {"meta", "img"}


class Checker(HTMLParser):
    """Tags must match, and nothing may come from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.images: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        assert name not in ("script", "link", "iframe", "object", "form", "base")
        assert not any(key.startswith("on") for key in given)
        assert (given.get("src") or "data:image/").startswith("data:image/")
        assert (given.get("href") or "#").startswith("#")
        if name == "img":
            assert given["alt"]
            self.images.append(str(given["src"]))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts are made but not rendered, which takes most of the time."""
    monkeypatch.setattr("pdejepa.app.report.curves.svg", lambda figure: b"<svg/>")


def page(root: Path) -> Checker:
    return Checker(report(read_run(root)))


def test_a_finished_run(tmp_path: Path) -> None:
    root = folder.write_run(tmp_path / "run")
    folder.write(root / "results" / "r.json", {"errors": {"test": folder.errors(), "ood": folder.errors(0.4)}})
    text = report(read_run(root))
    assert len(text) < 1_000_000
    found = Checker(text)
    assert len(found.images) == 4 + 5 + 2 + 1 + 1
    for words in (
        "Advection", "u_t + beta u_x = 0", "physics", "trajectories of train 240", "8% error of forecasts on valid",
        "test 12 5% 4% 10% 130% 0", "ood* 12 40% 4% 10% 130% 0", "Verdict: healthy", "z, before alignment 80° 30°",
        "q, after alignment 55° 6°", "whole forecast from the first frame 16%", "no finished model",
        "pdejepa train advection --recipe tiny --config run.yaml --out RUN", "4 min 40 s",
        "d" * 64,
    ):  # fmt: skip
        assert words in found.text, words
    assert "Not finished:" not in found.text
    assert all(f'id="{anchor}"' in text for anchor, _ in NAVIGATION)


@pytest.mark.usefixtures("no_drawing")
def test_unfinished_runs_say_so(tmp_path: Path) -> None:
    root = folder.write_run(tmp_path / "run", ("pretrain",))
    folder.write_stage(root / "align", is_done=False, planned=500)
    text = page(root).text
    assert "Not finished: align stopped at step 100 of 500; dynamics was not begun; decode was not begun" in text
    assert "100 of 500, unfinished" in text
    assert "The stage dynamics was not begun." in text
    assert "pdejepa evaluate" in text


@pytest.mark.usefixtures("no_drawing")
def test_missing_and_damaged_parts_say_so(tmp_path: Path) -> None:
    root = folder.write_run(tmp_path / "run")
    (root / "pretrain" / "metrics.jsonl").unlink()
    (root / "dynamics" / "metrics.jsonl").write_text('{"step": 1}\n')
    (root / "config.json").write_text("{")
    text = page(root).text
    assert "The settings are lost." in text
    assert "pretrain/metrics.jsonl is missing" in text
    assert "The stage dynamics left no measurements." in text
    assert "The configuration is lost" in text
    assert "Unknown system" in text


@pytest.mark.usefixtures("no_drawing")
@pytest.mark.parametrize(("planned", "is_early"), [(300, True), (200, False)])
def test_a_young_training_gets_no_verdict(tmp_path: Path, planned: int, is_early: bool) -> None:
    run = folder.write_run(tmp_path / "run", stages=())
    folder.write_stage(run / "pretrain", is_done=False, planned=planned)  # measured at step 100
    text = page(run).text
    assert ("There is no verdict yet" in text) == is_early
    assert ("Verdict: healthy" in text) != is_early


@pytest.mark.usefixtures("no_drawing")
@pytest.mark.parametrize(("key", "bad", "words"), [("rank", 1.5, "collapsing"), ("share_place", 0.9, "position-only")])
def test_a_sick_encoder_gets_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, bad: float, words: str
) -> None:
    monkeypatch.setitem(folder.MEASURES, "pretrain", {**folder.HEALTH, key: bad})
    text = page(folder.write_run(tmp_path / "run")).text
    assert f"Verdict: {words}" in text
    assert "Lower the learning rate" in text or "Use ring positions" in text


@pytest.mark.usefixtures("no_drawing")
def test_hostile_text_stays_text(tmp_path: Path) -> None:
    bad = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    root = folder.write_run(tmp_path / bad.replace("/", "-"), system=bad, recipe=bad, variant=bad, data=bad, seed=bad)
    folder.write(root / "results" / "r.json", {"errors": {bad: folder.errors(), "\ud800": folder.errors()}})
    folder.write(root / "model" / "config.json", {bad: bad, "device": bad, "commit": bad, "errors": {}})
    path = write_report(root, tmp_path / "out" / "page.html")
    text = path.read_text(encoding="utf-8")
    found = Checker(text)
    assert "<script" not in text
    assert bad in found.text
    assert "Content-Security-Policy" in text


@pytest.mark.usefixtures("no_drawing")
def test_endless_text_is_cut(tmp_path: Path) -> None:
    root = folder.write_run(tmp_path / "run", recipe="&" * 100_000, data="&" * 100_000)
    folder.write(root / "results" / "r.json", {"errors": {f"{i:0500}": folder.errors() for i in range(200)}})
    assert len(report(read_run(root))) < 500_000


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_command_names_the_recipe(recipe: str, tmp_path: Path) -> None:
    content = read_run(folder.write_run(tmp_path / "run", recipe=recipe))
    assert repeating(content) == f"pdejepa train advection --recipe {recipe} --config run.yaml --out RUN"


def test_the_page_has_colours_for_the_dark() -> None:
    """Each of those for the light, so that no text is left dark on dark; only pictures stay white."""
    light, dark = STYLE.split("@media (prefers-color-scheme: dark)")
    names = {"paper", "ink", "soft", "line", "wash", "blue", "good", "warn"}
    assert set(re.findall(r"--(\w+): #", light)) == set(re.findall(r"--(\w+): #", dark)) == names
    rules = dark.split("} }", 1)[1]
    assert re.findall(r"([^\n]*)\{[^}]*(?:background|[^-]color): #", rules) == ["img "]


def test_escaping() -> None:
    assert esc("<&\"'>") == "&lt;&amp;&quot;&#x27;&gt;"
    assert tag("p", Html("<b>x</b>"), "<i>", class_='"') == '<p class="&quot;"><b>x</b>&lt;i&gt;</p>'
    assert esc("\ud800") == "?"
    assert esc("x" * 10, 4) == "xxxx..."


def test_examples_of_a_finished_model(tmp_path: Path, no_drawing: None) -> None:
    root = folder.write_run(tmp_path / "run")
    tiny.saved("advection", root / "model")
    said: list[str] = []
    path = write_report(root, say=said.append)
    assert path == root / "report.html"
    assert path.stat().st_size < 2_000_000
    found = Checker(path.read_text())
    assert sum("image/png" in source for source in found.images) == 2
    assert "The model does not see the observed frames as they are" in found.text  # it is not trained
    assert re.search(r"Extrapolating: speed 4\.\d+ is above the training range", found.text)
    assert len(said) == 2
    (root / "model" / "weights.safetensors").write_bytes(b"broken")
    assert "No examples could be made:" in page(root).text
    assert "left out on request" in report(read_run(root), with_examples=False)


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("advection", [("ood", 0)]),
        ("wave_2d", [("ood", 1)]),  # its first one lies on the border
        ("heterns", [("ood_viscosity_extrap", 0)]),  # its first split interpolates
        ("wave_b", []),
    ],
)
def test_the_example_outside_is_outside(name: str, chosen: list[tuple[str, int]]) -> None:
    assert [(case.split, case.index) for case in examples._outside(tiny.forecaster(name))] == chosen


def test_the_configuration_on_the_page_repeats_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], no_drawing: None
) -> None:
    budget = {"steps": 0, "epochs": 0.0, "seconds": 60.0}
    root = folder.write_run(tmp_path / "run")
    train = read_run(root).train
    train["decode"]["training"]["budget"] = budget
    folder.write(root / "config.json", {"train": train})
    content = read_run(root)
    shown = re.search(r"<details>.*?<pre>(.*?)</pre>", report(content), re.DOTALL)
    assert shown is not None
    (tmp_path / "run.yaml").write_text("".join(Checker(shown[1]).words))
    command = shlex.split(repeating(content).replace("run.yaml", str(tmp_path / "run.yaml")))
    assert main([*command[1:], "--print-config"]) == 0
    wanted = load_config(
        RunConfig,
        overrides=["decode.training.budget.seconds=0", "decode.training.budget.steps=100"],
        defaults=train,
    )
    assert capsys.readouterr().out == to_yaml(wanted)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], no_drawing: None) -> None:
    root = folder.write_run(tmp_path / "run")
    assert main(["report", str(root)]) == 0
    assert f"Written to {root / 'report.html'}" in capsys.readouterr().out
    assert main(["report", str(root), "--no-examples", "--out", str(tmp_path / "deep" / "p.html")]) == 0
    assert (tmp_path / "deep" / "p.html").read_text().startswith("<!DOCTYPE html>")
    capsys.readouterr()
    assert main(["report", str(tmp_path / "deep")]) == 4
    assert "not a run of pdejepa" in capsys.readouterr().err
    assert main(["report", str(root), "--out", str(root / "config.json")]) == 2
    with pytest.raises(UsageError, match="html"):
        write_report(root, root / "config.json")

"""A whole ablation of a very small training: what is shared, what is equal, what is measured, and going on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pdejepa.core.errors import CheckpointError, ConfigError, NumericalError, UsageError
from pdejepa.evaluate import metrics
from pdejepa.evaluate.evaluations import make_record
from pdejepa.evaluate.geometry import turning_angles
from pdejepa.evaluate.protocol import evaluate
from pdejepa.evaluate.record import to_plain
from pdejepa.forecast.forecaster import load
from pdejepa.method.pipeline import train
from pdejepa.method.run_config import RunConfig
from pdejepa.models.decoder import Decoder
from pdejepa.studies.ablate import ablation as module
from pdejepa.studies.ablate.ablation import ablate
from pdejepa.studies.ablate.runs import WHAT
from pdejepa.systems import build_system
from pdejepa.training.timing import Measured
from tests.unit.method.small_run import small_config

RUNS = ["physics", "geo", "vanilla", "euler", "rk2", "rk8", "no-anchor"]
N = 3  # trajectories measured
STEPS = 5  # of the dynamics
WORDS = (
    "device=cpu",
    *(f"{name}.training.budget={{steps: 4}}" for name in ("pretrain", "align", "decode", "polish", "reconstruct")),
    "dynamics.training.budget={steps: 0, seconds: 9}",  # becomes STEPS when the base is trained
    *(f"{name}.training.n_scores=1" for name in ("pretrain", "align", "dynamics", "decode", "polish", "reconstruct")),
)

pytestmark = pytest.mark.slow


def config(*words: str) -> RunConfig:
    return small_config("advection", *WORDS, *words)


@pytest.fixture(scope="module", autouse=True)
def _measured() -> Iterator[None]:
    """Nine seconds are STEPS steps, however busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        found = Measured(STEPS, scores=1)
        patch.setattr("pdejepa.training.loop.measure", lambda *_: found)
        yield


def go(out: Path, what: tuple[str, ...] = WHAT, *words: str, **options: Any) -> dict[str, Any]:
    return dict(to_plain(ablate(config(*words), out, what, n=N, say=lambda _: None, **options)))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything, once; do not change it."""
    out = tmp_path_factory.mktemp("ablate") / "all"
    go(out)
    return out


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def told(out: Path, run: str, stage: str) -> dict[str, Any]:
    return dict(json.loads((out / run / stage / "done.json").read_text()))


def record(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "ablate.json").read_text()))


def weights(out: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}


def test_stages_are_shared_where_nothing_differs(whole: Path) -> None:
    def digests(stage: str) -> dict[str, str]:
        return {run: told(whole, run, stage)["weights_sha256"] for run in RUNS if (whole / run / stage).exists()}

    assert len(set(digests("pretrain").values())) == 1
    align = digests("align")
    assert set(align) == set(RUNS) - {"vanilla"}
    assert {run for run in align if align[run] != align["physics"]} == {"no-anchor"}
    for stage in ("dynamics", "decode"):
        assert len(set(digests(stage).values())) == len(RUNS)


def test_budgets_are_equal_in_steps(whole: Path) -> None:
    for stage in ("pretrain", "align", "dynamics", "decode"):
        steps = {told(whole, run, stage)["steps"] for run in RUNS if (whole / run / stage).exists()}
        assert len(steps) == 1, stage
    assert told(whole, "euler", "dynamics")["steps"] == STEPS
    assert told(whole, "physics", "reconstruct")["steps"] == told(whole, "physics", "decode")["steps"]


def test_each_run_is_what_its_name_says(whole: Path) -> None:
    found = {run: load(whole / run, "cpu") for run in RUNS}
    assert [found[run].surrogate.variant for run in RUNS[:4]] == ["physics", "geo", "vanilla", "physics"]
    methods = {run: found[run].surrogate.config.field.integrator for run in RUNS}
    assert methods == dict.fromkeys(RUNS, "rk4") | {name: name for name in ("euler", "rk2", "rk8")}
    stored = json.loads((whole / "no-anchor" / "config.json").read_text())["train"]
    assert stored["align"]["anchor_weight"] == 0.0


def test_the_record_has_the_whole_provenance(whole: Path) -> None:
    found = record(whole)
    assert found["what"] == list(WHAT)
    assert list(found["runs"]) == RUNS
    keys = set(to_plain(make_record(load(whole / "geo", "cpu"), {})))
    for run, row in found["runs"].items():
        assert keys <= set(row), run
        assert row["data_hash"] == found["data_hash"]
        assert row["parameters"] == sum(p.numel() for p in load(whole / run, "cpu").surrogate.parameters())
    assert found["runs"]["vanilla"]["steps"].keys() == {"pretrain", "dynamics", "decode"}
    assert found["runs"]["geo"]["shared"] == ["pretrain", "align"]
    assert found["runs"]["euler"]["changes"] == {"model.field.integrator": "euler"}


def test_errors_are_those_of_evaluate(whole: Path) -> None:
    for run in ("geo", "vanilla"):
        expected = evaluate(load(whole / run, "cpu"), ["test", "ood"], n=N)
        assert record(whole)["runs"][run]["errors"] == to_plain(expected)


def test_geometry_is_measured_on_valid(whole: Path) -> None:
    for run in ("physics", "no-anchor"):
        model = load(whole / run, "cpu").surrogate
        system = build_system(model.problem.name, "paper", model.problem.switches)
        u = model.normalise(system.generate("valid", N).fields)
        with torch.no_grad():
            z = model.encoder.frames(u)
            q = model.project(z)
        row = record(whole)["runs"][run]["geometry"]
        assert row["n"] == N
        assert row["angle"]["q"] == pytest.approx(float((turning_angles(q) - turning_angles(u)).abs().mean()), rel=1e-4)
        assert row["angle"]["z"] == pytest.approx(float((turning_angles(z) - turning_angles(u)).abs().mean()), rel=1e-4)
        assert row["change"] == pytest.approx(float((q - z).norm() / z.norm()), rel=1e-4)
    assert "geometry" not in record(whole)["runs"]["geo"]


def test_reconstruction_decodes_true_latents(whole: Path) -> None:
    from pdejepa.core.weights import read_weights

    model = load(whole / "physics", "cpu").surrogate
    decoder = Decoder(model.config.decoder, model.patches, 16, 1, model.problem.padding)
    stored = read_weights(whole / "physics" / "reconstruct" / "final" / "weights.safetensors")
    decoder.load_state_dict({name.removeprefix("decoder."): value for name, value in stored.items()})
    fields = build_system(model.problem.name, "paper", model.problem.switches).generate("test", N).fields
    with torch.no_grad():
        guess = model.denormalise(decoder(model.encode(model.normalise(fields))))
    expected = float(metrics.rel_l2(guess, fields).mean())
    assert record(whole)["runs"]["physics"]["reconstruct"]["rel_l2"] == pytest.approx(expected, rel=1e-4)


def test_rollouts_of_every_integrator(whole: Path) -> None:
    rows = record(whole)["runs"]
    for run in ("physics", "euler", "rk2", "rk8"):
        assert set(rows[run]["rollouts"]) == {"test", "ood"}
        assert rows[run]["rollouts"]["test"]["n"] == N
    assert "rollouts" not in rows["geo"]


def test_a_second_call_trains_and_measures_nothing(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing is left to do")

    monkeypatch.setattr(module, "train", refuse)
    monkeypatch.setattr("pdejepa.studies.ablate.measure.evaluate", refuse)
    monkeypatch.setattr("pdejepa.studies.ablate.measure.compare_geometry", refuse)
    monkeypatch.setattr("pdejepa.studies.ablate.measure.rollout_errors", refuse)
    before, text = weights(copied), record(copied)
    go(copied)
    assert weights(copied) == before
    assert record(copied) == text


def test_an_interrupted_run_goes_on(copied: Path) -> None:
    """Killed in the decoder of geo: it ends with the same weights, and the others are not touched."""
    before, rows = weights(copied / "euler"), record(copied)["runs"]
    shutil.rmtree(copied / "geo" / "model")
    shutil.rmtree(copied / "geo" / "decode" / "final")
    (copied / "geo" / "decode" / "done.json").unlink()
    found = go(copied)
    assert found["runs"]["geo"]["weights_sha256"] == rows["geo"]["weights_sha256"]
    assert weights(copied / "euler") == before


def test_a_run_that_diverges_is_left_out(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(copied / "geo")
    with monkeypatch.context() as patch:
        patch.setattr(module, "train", _diverge)
        found = go(copied)
    assert list(found["runs"]) == [run for run in RUNS if run != "geo"]
    assert found["failed"] == {"geo": "dynamics, step 3: the loss is not finite"}
    assert record(copied) == found
    found = go(copied)
    assert set(found["runs"]) == set(RUNS)
    assert "failed" not in found


def _diverge(_config: RunConfig, _folder: Path, _say: object) -> None:
    raise NumericalError("dynamics, step 3: the loss is not finite. Lower the learning rate.")


def test_a_base_that_diverges_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "train", _diverge)
    with pytest.raises(NumericalError, match="step 3"):
        go(tmp_path)


def test_the_base_and_the_record_are_enough_to_go_on(whole: Path, tmp_path: Path) -> None:
    """Of the base the finished stages and the model, of the others nothing: their rows are kept."""
    unfinished = shutil.ignore_patterns("step-*", "best", "latest.json", ".lock")
    shutil.copytree(whole / "physics", tmp_path / "physics", ignore=unfinished)
    shutil.copy(whole / "ablate.json", tmp_path)
    rows = record(whole)["runs"]
    found = go(tmp_path, ("anchor",))
    assert {path.parent.name for path in tmp_path.glob("*/model")} == {"physics", "no-anchor"}
    assert found["what"] == list(WHAT)
    assert {run: row["weights_sha256"] for run, row in found["runs"].items()} == {
        run: row["weights_sha256"] for run, row in rows.items()
    }


def test_other_numbers_of_trajectories_are_measured_anew(copied: Path) -> None:
    found = to_plain(ablate(config(), copied, ("geometry",), n=N + 1, say=lambda _: None))
    assert found["what"] == ["geometry"]
    assert found["runs"]["physics"]["geometry"]["n"] == N + 1
    assert list(found["runs"]) == ["physics"]


def test_questions_add_up(tmp_path: Path) -> None:
    go(tmp_path, ("geometry",))
    assert list(tmp_path.glob("*/model")) == [tmp_path / "physics" / "model"]
    assert record(tmp_path)["runs"]["physics"]["errors"] == {}
    found = go(tmp_path, ("reconstruct",))
    assert found["what"] == ["geometry", "reconstruct"]
    assert set(found["runs"]["physics"]["errors"]) == {"test", "ood"}
    assert found["runs"]["physics"]["geometry"]["n"] == N


def test_a_base_is_taken_and_left_as_it_is(tmp_path: Path) -> None:
    """Also one that was polished: the four stages are compared."""
    base, out = tmp_path / "base", tmp_path / "out"
    settings = config("stages=[pretrain, align, dynamics, decode, polish]")
    train(settings, base, lambda _: None)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in base.rglob("*") if path.is_file()}
    found = to_plain(ablate(settings, out, ("variants",), base, N, lambda _: None))
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in base.rglob("*") if path.is_file()}
    assert after == before
    assert told(out, "geo", "align") == told(tmp_path, "base", "align")
    four = json.loads((base / "model-four-stages" / "config.json").read_text())
    assert found["runs"]["physics"]["weights_sha256"] == four["weights_sha256"]
    assert not found["runs"]["physics"]["polish"]
    assert not (out / "physics" / "polish").exists()


def test_another_base_is_refused(copied: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    train(config("pretrain.training.budget={steps: 2}"), other, lambda _: None)
    with pytest.raises(ConfigError, match=r"other was started with other settings: pretrain\.training\.budget\.steps"):
        go(copied, base=other)
    with pytest.raises(CheckpointError, match="holds another pretrain"):
        ablate(config("pretrain.training.budget={steps: 2}"), copied, ("geometry",), other, N, lambda _: None)


def test_other_settings_are_refused(copied: Path) -> None:
    with pytest.raises(ConfigError, match=r"align\.geo_weight 0\.1 -> 0\.2\. Use the same ones, or another --out"):
        go(copied, WHAT, "align.geo_weight=0.2")


def test_what_cannot_be_ablated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="variant physics, got geo"):
        go(tmp_path, WHAT, "variant=geo")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="without torchrun"):
        go(tmp_path)

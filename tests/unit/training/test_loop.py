"""The training loop on a toy stage: budgets, metrics, selection, refusals, and the watch on values."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from pdejepa.core.errors import CheckpointError, ConfigError, Interrupted
from pdejepa.core.run_folder import RunFolder
from pdejepa.core.weights import gather, read_weights
from pdejepa.training.loop import run_stage
from pdejepa.training.metrics_log import append_line, cut_metrics, read_lines
from pdejepa.training.settings import Budget, OptimiserConfig
from pdejepa.training.stage import Batch, Context
from tests.faults.training import Toy, result, settings, train


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an undisturbed toy stage; do not change it."""
    folder = tmp_path_factory.mktemp("plain") / "toy"
    train(folder)
    return folder


# ---- what a training leaves behind -------------------------------------------------------------------------------
def test_a_stage_learns_and_reports(tmp_path: Path) -> None:
    stage = Toy()
    report = train(tmp_path / "toy", stage)
    lines = read_lines(tmp_path / "toy/metrics.jsonl")
    assert [line["step"] for line in lines if "train" in line] == list(range(2, 25, 2))
    assert [line["step"] for line in lines if "valid" in line] == [6, 12, 18, 24]
    assert set(lines[0]["train"]) == {"loss", "error", "gradient_norm", "lr"}
    losses = [line["train"]["loss"] for line in lines if "train" in line]
    assert losses[-1] < losses[0] / 2
    done = json.loads((tmp_path / "toy/done.json").read_text())
    assert report == {
        "steps": 24,
        "seconds": done["seconds"],
        "score": min(line["valid"]["score"] for line in lines if "valid" in line),
        "step_selected": done["step"],
        "weights_sha256": done["weights_sha256"],
        "flops": 0.0,
    }
    final = read_weights(tmp_path / "toy/final/weights.safetensors")
    assert {"online.0.weight", "target.0.weight"} <= final.keys()
    for name, value in gather(stage.saved()).items():
        assert torch.equal(value, final[name])
    assert all(p.grad is None for p in stage.parameters())


@pytest.mark.parametrize("select", ["best", "last"])
def test_a_training_in_memory_ends_alike_and_writes_no_weights(select: Any, tmp_path: Path) -> None:
    usual, trial = Toy(settings(select=select)), Toy(settings(select=select))
    reports = [train(tmp_path / "usual", usual), train(tmp_path / "trial", trial, keep="memory")]
    for key in ("steps", "score", "step_selected"):
        assert reports[0][key] == reports[1][key]
    assert all(torch.equal(value, gather(usual.saved())[name]) for name, value in gather(trial.saved()).items())
    assert {path.name for path in (tmp_path / "trial").iterdir()} == {"metrics.jsonl", "plan.json", "timings.jsonl"}


def test_a_training_in_memory_selects_the_best_weights_and_not_later_ones(tmp_path: Path) -> None:
    class Worsening(Toy):
        scores: Iterator[float] = iter([0.25, 0.5, 0.75, 1.0])

        def score(self) -> dict[str, float]:
            return {"score": next(self.scores), "real": super().score()["score"]}

    stage = Worsening()
    assert train(tmp_path / "toy", stage, keep="memory")["step_selected"] == 6
    assert Toy.score(stage)["score"] == read_lines(tmp_path / "toy/metrics.jsonl")[3]["valid"]["real"]


def test_a_training_in_memory_that_is_stopped_begins_anew(tmp_path: Path) -> None:
    with pytest.raises(Interrupted, match="it was kept in memory only"):
        train(tmp_path / "toy", Toy(disturb={7: lambda _: signal.raise_signal(signal.SIGINT)}), keep="memory")
    said: list[str] = []
    assert train(tmp_path / "toy", said=said, keep="memory")["steps"] == 24
    assert said == ["Starting toy anew: nothing was saved yet. 8 steps are repeated."]


def test_a_training_in_memory_goes_on_from_nothing(tmp_path: Path) -> None:
    """Neither from a stopped training in the same folder, nor with the plan of one that was in memory."""
    with pytest.raises(Interrupted, match="saved"):
        train(tmp_path / "toy", Toy(disturb={13: lambda _: signal.raise_signal(signal.SIGINT)}))
    append_line(tmp_path / "toy/timings.jsonl", {"step": 14, "seconds": 1e6})
    for n in (12, 7):
        report = train(tmp_path / "toy", Toy(settings(budget=Budget(steps=n))), keep="memory")
        assert report["steps"] == n
        assert report["seconds"] < 1e6
        assert json.loads((tmp_path / "toy/plan.json").read_text())["steps"] == n


def test_a_stop_in_the_last_step_is_not_forgotten(plain: Path, tmp_path: Path) -> None:
    """The stage is finished then, but others would follow."""
    with pytest.raises(Interrupted, match=r"^Stopping after toy; saved\. Continue with the same command\.$"):
        train(tmp_path / "toy", Toy(disturb={23: lambda _: signal.raise_signal(signal.SIGINT)}))
    assert result(tmp_path / "toy") == result(plain)
    assert train(tmp_path / "toy")["steps"] == 24


def test_equal_runs_give_equal_files(plain: Path, tmp_path: Path) -> None:
    train(tmp_path / "toy", Toy(settings(save_every=0)))
    assert result(tmp_path / "toy") == result(plain)


def test_a_finished_stage_is_loaded(plain: Path) -> None:
    stage, said = Toy(), list[str]()
    before = {path: path.stat().st_mtime_ns for path in plain.rglob("*")}
    report = train(plain, stage, said)
    assert said == ["toy: finished, 24 steps."]
    assert report["steps"] == 24
    final = read_weights(plain / "final/weights.safetensors")
    assert all(torch.equal(value, final[name]) for name, value in gather(stage.saved()).items())
    assert {path: path.stat().st_mtime_ns for path in plain.rglob("*")} == before


def test_a_finished_stage_that_was_tampered_with(plain: Path, tmp_path: Path) -> None:
    train(tmp_path / "toy")
    path = tmp_path / "toy/final/weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(CheckpointError, match=rf"^{path} is damaged \(hash differs\)\. Pass --restart toy"):
        train(tmp_path / "toy")
    path.write_bytes((plain / "final/weights.safetensors").read_bytes())
    for content in ("{", "[]", '{"upstream": {}}', '{"upstream": {"data": "%s"}, "steps": 3}' % ("d" * 64)):
        (tmp_path / "toy/done.json").write_text(content)
        with pytest.raises(CheckpointError, match=r"toy/done.json .* Pass --restart toy to begin it anew"):
            train(tmp_path / "toy")


@pytest.mark.parametrize("select", ["best", "last"])
def test_which_weights_are_selected(select: Any, tmp_path: Path) -> None:
    class Worsening(Toy):
        """The second score is the best."""

        scores: Iterator[float] = iter(())

        def score(self) -> dict[str, float]:
            return {"score": next(self.scores), "real": super().score()["score"]}

    stage = Worsening(settings(select=select))
    stage.scores = iter([0.5, 0.25, float("nan"), 0.75])
    report = train(tmp_path / "toy", stage)
    assert (report["step_selected"], report["score"]) == ((12, 0.25) if select == "best" else (24, 0.75))
    real = [line["valid"]["real"] for line in read_lines(tmp_path / "toy/metrics.jsonl") if "valid" in line]
    assert Toy.score(stage)["score"] == real[1 if select == "best" else 3]
    assert '"score": null' in (tmp_path / "toy/metrics.jsonl").read_text()


def test_no_score_is_finite(tmp_path: Path) -> None:
    class Hopeless(Toy):
        def score(self) -> dict[str, float]:
            return {"score": float("inf")}

    said: list[str] = []
    report = train(tmp_path / "toy", Hopeless(), said)
    assert (report["step_selected"], report["score"]) == (24, None)
    assert said == ["toy: no score on valid was finite; the last weights are used."]


def test_without_scores(tmp_path: Path) -> None:
    report = train(tmp_path / "toy", Toy(settings(n_scores=0, select="last")))
    assert report["score"] is None
    assert not (tmp_path / "toy/best").exists()


def test_progress_goes_to_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path / "toy", shown="lines")
    told = capsys.readouterr().err
    assert "toy: step 12: score " in told
    assert "toy: 24 of 24 steps (100 %)" in told


def test_trials_are_scored_at_their_end(tmp_path: Path) -> None:
    train(tmp_path / "toy", Toy(), keep="trial")
    lines = [json.loads(line) for line in (tmp_path / "toy" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "valid" in line] == [24]


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_mixed_precision_and_both_optimisers_learn(kind: Any, tmp_path: Path) -> None:
    stage = Toy(settings(optimiser=OptimiserConfig(kind=kind, lr=0.02, muon_lr=0.02)))
    train(tmp_path / "toy", stage, precision="bf16")
    scores = [line["valid"]["score"] for line in read_lines(tmp_path / "toy/metrics.jsonl") if "valid" in line]
    assert scores[-1] < scores[0]
    assert all(p.dtype == torch.float32 for p in stage.parameters())


class Watched(Toy):
    """Notes whether its layers hold values of bfloat16 only, in steps and in scores."""

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self.steps: list[bool] = []
        self.scores: list[bool] = []

    def is_rounded(self) -> bool:
        weight = self.online[0].weight
        return bool(torch.equal(weight, weight.bfloat16().float()))

    def batch(self, step: int, n_steps: int) -> Batch:
        assert not _get_current_dispatch_mode_stack()  # making a batch may take long, and is not slowed by watching
        return super().batch(step, n_steps)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        self.steps.append(self.is_rounded())
        return super().forward(batch)

    def score(self) -> dict[str, float]:
        self.scores.append(self.is_rounded())
        return super().score()


@pytest.mark.parametrize("select", ["best", "last"])
@pytest.mark.parametrize(("precision", "rounds"), [("bf16", True), ("bf16", False), ("fp32", True)])
def test_mixed_precision_is_judged_and_kept_as_products_saw_it(
    precision: Any, rounds: bool, select: Any, tmp_path: Path
) -> None:
    stage, is_rounded = Watched(settings(rounds=rounds, select=select)), precision == "bf16" and rounds
    report = train(tmp_path / "toy", stage, precision=precision)
    assert not any(stage.steps)  # it learns with the exact ones
    assert stage.scores == [is_rounded] * 4
    assert stage.is_rounded() == is_rounded
    assert report["score"] == Toy.score(stage)["score"]


# ---- refusals ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("is_finished", [True, False])
def test_a_changed_upstream_is_refused(is_finished: bool, tmp_path: Path) -> None:
    before, now = {"data": "d" * 64, "align": "9c1e" * 16}, {"data": "d" * 64, "align": "77ab" * 16}
    stop = {} if is_finished else {7: lambda _: signal.raise_signal(signal.SIGINT)}
    try:
        train(tmp_path / "toy", Toy(disturb=stop), upstream=before)
    except Interrupted:
        assert not is_finished
    with pytest.raises(CheckpointError) as caught:
        train(tmp_path / "toy", upstream=now)
    assert str(caught.value) == (
        "toy was started on align 9c1e9c1e..., but align now holds 77ab77ab.... "
        "Pass --restart toy, or restore the old align."
    )
    with pytest.raises(CheckpointError, match="but align now holds nothing"):
        train(tmp_path / "toy", upstream={"data": "d" * 64})
    assert train(tmp_path / "toy", upstream=before)["steps"] == 24


def test_another_batch_or_seed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(tmp_path / "toy", Toy(disturb={7: lambda _: signal.raise_signal(signal.SIGINT)}))
    with pytest.raises(CheckpointError, match=r"toy was started with batch 8, now it is 4. Pass --restart toy"):
        train(tmp_path / "toy", Toy(settings(batch=4)))
    with pytest.raises(CheckpointError, match=r"toy was started with seed 0, now it is 1"):
        train(tmp_path / "toy", seed=1)


def test_a_plan_that_is_damaged_or_lost(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(tmp_path / "toy", Toy(disturb={7: lambda _: signal.raise_signal(signal.SIGINT)}))
    for content in ("{", "[]", "{}", '{"steps": "3"}'):
        (tmp_path / "toy/plan.json").write_text(content)
        with pytest.raises(CheckpointError, match=r"plan.json is damaged .* Pass --restart toy"):
            train(tmp_path / "toy")
    (tmp_path / "toy/plan.json").unlink()
    with pytest.raises(CheckpointError, match=r"has checkpoints, but no plan.json"):
        train(tmp_path / "toy")


def test_another_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(tmp_path / "toy", Toy(disturb={7: lambda _: signal.raise_signal(signal.SIGINT)}))
    other = Toy()
    other.online[0] = nn.Linear(3, 8, bias=False)
    with pytest.raises(CheckpointError, match=r"toy/step-000008 does not fit this model: unexpected: online.0.bias"):
        train(tmp_path / "toy", other)


def test_a_batch_that_cannot_be_shared_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a batch of 8 cannot be shared out evenly among 3 ranks"):
        run_stage(Toy(), tmp_path, Context(world=3))


def test_our_own_mistakes_are_found(tmp_path: Path) -> None:
    def meddle(stage: Toy) -> None:
        with torch.no_grad():
            stage.base.bias += 1

    with pytest.raises(RuntimeError, match="toy changed base, which it must leave as it is"):
        train(tmp_path / "toy", Toy(disturb={3: meddle}))

    class Elsewhere(Toy):
        hidden: tuple[nn.Module, ...] = (nn.Linear(1, 1),)

        def trained(self) -> dict[str, nn.Module]:
            return {"hidden": self.hidden[0]}

    with pytest.raises(RuntimeError, match="hidden is trained, but it is not a submodule of toy"):
        train(tmp_path / "other", Elsewhere())


def test_only_trained_parameters_get_gradients(tmp_path: Path) -> None:
    stage = Toy()
    stage.online.requires_grad_(False)
    train(tmp_path / "toy", stage)
    assert all(p.requires_grad for p in stage.online.parameters())
    assert not any(p.requires_grad for part in (stage.base, stage.target) for p in part.parameters())


# ---- the run folder ----------------------------------------------------------------------------------------------
def test_paths_of_a_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert (folder.config.name, folder.data.name, folder.model.name) == ("config.json", "data.json", "model")
    assert folder.stage("align") == tmp_path / "align"


def test_cutting_metrics_back(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert cut_metrics(path, 3) == 0
    for step in range(1, 7):
        append_line(path, {"step": step, "train": {"loss": 0.1 * step, "bad": float("nan")}})
    expected = path.read_bytes().splitlines(keepends=True)[:3]
    with path.open("ab") as stream:
        stream.write(b'nonsense\n[1]\n{"step": "9"}\n{"step": 7, "tr')
    assert cut_metrics(path, 3) == 3
    assert path.read_bytes() == b"".join(expected)
    assert cut_metrics(path, 3) == 0

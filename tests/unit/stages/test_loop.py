"""The training loop on a toy stage: budgets, metrics, selection, refusals, and the watch on values."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pdejepa.core.errors import CheckpointError, ConfigError, Interrupted, NumericalError
from pdejepa.stages import plan as planning
from pdejepa.stages.base import Context
from pdejepa.stages.guard import FiniteGuard
from pdejepa.stages.interrupts import stop_on_signal
from pdejepa.stages.loop import run_stage
from pdejepa.stages.plan import planned_steps
from pdejepa.stages.run import RunFolder, append_line, cut_metrics, read_lines
from pdejepa.stages.settings import Budget, OptimiserConfig
from pdejepa.stages.weights import gather, read_weights
from tests.faults.training import SETTINGS, Toy, result, settings, train

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


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
    }
    final = read_weights(tmp_path / "toy/final/weights.safetensors")
    assert {"online.0.weight", "target.0.weight"} <= final.keys()
    for name, value in gather(stage.saved()).items():
        assert torch.equal(value, final[name])
    assert all(p.grad is None for p in stage.parameters())


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
    with pytest.raises(CheckpointError, match=r"final/weights.safetensors is damaged \(hash differs\)"):
        train(tmp_path / "toy")
    path.write_bytes((plain / "final/weights.safetensors").read_bytes())
    for content in ("{", "[]", '{"upstream": {}}', '{"upstream": {"data": "%s"}, "steps": 3}' % ("d" * 64)):
        (tmp_path / "toy/done.json").write_text(content)
        with pytest.raises(CheckpointError, match=r"done.json"):
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
    train(tmp_path / "toy", show_progress=True)
    told = capsys.readouterr().err
    assert "toy: step 12: score " in told
    assert "toy: 24 of 24 steps (100 %)" in told


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_mixed_precision_and_both_optimisers_learn(kind: Any, tmp_path: Path) -> None:
    stage = Toy(settings(optimiser=OptimiserConfig(kind=kind, lr=0.02, muon_lr=0.02)))
    train(tmp_path / "toy", stage, precision="bf16")
    scores = [line["valid"]["score"] for line in read_lines(tmp_path / "toy/metrics.jsonl") if "valid" in line]
    assert scores[-1] < scores[0]
    assert all(p.dtype == torch.float32 for p in stage.parameters())


# ---- budgets -----------------------------------------------------------------------------------------------------
def test_steps_of_a_budget() -> None:
    assert planned_steps(Budget(steps=7), 100, 8) == 7
    assert planned_steps(Budget(epochs=2.5), 100, 8) == 30
    assert planned_steps(Budget(epochs=0.01), 100, 8) == 1
    assert planned_steps(Budget(epochs=3), 4, 8) == 3
    assert planned_steps(Budget(seconds=3), 100, 8) == 0


def test_epochs(tmp_path: Path) -> None:
    assert train(tmp_path / "toy", Toy(settings(budget=Budget(epochs=2))))["steps"] == 10


class Timed(Toy):
    """A stage on a clock of its own: a step takes `step_s` seconds, a score two."""

    now, step_s = 100.0, 1.0

    def forward(self, step: int, n_steps: int) -> dict[str, Tensor]:
        Timed.now += Timed.step_s
        return super().forward(step, n_steps)

    def score(self) -> dict[str, float]:
        Timed.now += 2.0
        return super().score()


@pytest.fixture
def own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "clock", lambda: Timed.now)
    monkeypatch.setattr(Timed, "now", 100.0)
    monkeypatch.setattr(Timed, "step_s", 1.0)


@pytest.mark.usefixtures("own_clock")
def test_seconds_become_steps_once_and_the_probe_leaves_no_trace(tmp_path: Path) -> None:
    """50 s: 3 steps to warm up and 7 timed ones (a fifth of the budget in all), then one score.  Of the 38 s left,
    four scores take 8, and saving takes a moment: 29 steps of 1 s."""
    assert train(tmp_path / "timed", Timed(settings(budget=Budget(seconds=50))))["steps"] == 29
    assert Timed.now - 100 == 12 + 8 + 29
    assert json.loads((tmp_path / "timed/plan.json").read_text())["steps"] == 29
    train(tmp_path / "counted", Toy(settings(budget=Budget(steps=29))))
    timed, counted = result(tmp_path / "timed"), result(tmp_path / "counted")
    assert {name for name in timed if timed[name] != counted[name]} == {"plan.json"}


@pytest.mark.usefixtures("own_clock")
def test_a_resumed_stage_keeps_its_number_of_steps(tmp_path: Path) -> None:
    budget = Budget(seconds=50)
    train(tmp_path / "one", Timed(settings(budget=budget)))
    stop = {11: lambda stage: signal.raise_signal(signal.SIGTERM)}

    class Stopped(Timed):
        def forward(self, step: int, n_steps: int) -> dict[str, Tensor]:
            if n_steps != planning.PROBE_STEPS and step in stop:
                stop.pop(step)(self)
            return super().forward(step, n_steps)

    with pytest.raises(Interrupted, match=r"^Stopping after step 12; saved. Continue with the same command.$"):
        train(tmp_path / "two", Stopped(settings(budget=budget)))
    Timed.step_s = 17.0
    train(tmp_path / "two", Timed(settings(budget=budget)))
    assert result(tmp_path / "one") == result(tmp_path / "two")


@pytest.mark.usefixtures("own_clock")
def test_slow_steps_end_the_probe_early(tmp_path: Path) -> None:
    Timed.step_s = 30.0
    n_before = Timed.now
    assert train(tmp_path / "toy", Timed(settings(budget=Budget(seconds=50))))["steps"] == 1
    assert Timed.now - n_before < 30 * 4


@pytest.mark.usefixtures("own_clock")
def test_checkpoints_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    from pdejepa.stages.checkpoint import StageFolder

    save = StageFolder.save
    monkeypatch.setattr(StageFolder, "save", lambda self, step, *rest: (saved.append(step), save(self, step, *rest)))
    train(tmp_path / "toy", Timed(settings(save_every=0, save_seconds=7.0, n_scores=0, select="last")))
    assert saved == [7, 14, 21, 24]


def test_stopped_in_the_probe(tmp_path: Path) -> None:
    stage = Toy(settings(budget=Budget(seconds=50)), disturb={1: lambda _: signal.raise_signal(signal.SIGINT)})
    with pytest.raises(Interrupted, match=r"^Stopped before the first step"):
        train(tmp_path / "toy", stage)
    assert not (tmp_path / "toy/plan.json").exists()


# ---- values that are not finite ----------------------------------------------------------------------------------
def spoil_loss(stage: Toy) -> None:
    stage.bad = float("nan")


def spoil_gradient(stage: Toy) -> None:
    weight = stage.online[3].weight
    handle = weight.register_hook(lambda gradient: (handle.remove(), gradient * float("inf"))[1])


@pytest.mark.parametrize(
    ("spoil", "what"), [(spoil_loss, "the loss"), (spoil_gradient, "the gradient of online.3.weight")]
)
def test_a_bad_step_changes_nothing(spoil: Any, what: str, tmp_path: Path) -> None:
    stage = Toy(disturb={13: spoil})
    kept: dict[str, Tensor] = {}
    stage.disturb[13] = lambda s: (kept.update({n: v.clone() for n, v in gather(s.saved()).items()}), spoil(s))
    with pytest.raises(NumericalError) as caught:
        train(tmp_path / "toy", stage)
    rows = ", ".join(str(row) for row in stage.trajectories(13))
    assert str(caught.value) == (
        f"toy, step 14: {what} is not finite. The batch held trajectories {rows}. "
        "Last good checkpoint: step-000012. Look at these trajectories, or lower the learning rate."
    )
    assert all(torch.equal(value, kept[name]) for name, value in gather(stage.saved()).items())
    assert read_lines(tmp_path / "toy/metrics.jsonl")[-1]["step"] == 12


@pytest.mark.parametrize("spoil", [spoil_loss, spoil_gradient])
def test_a_bad_step_that_is_found_late_is_never_saved(
    spoil: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where nobody looks after every step."""
    monkeypatch.setattr(FiniteGuard, "is_immediate", property(lambda _: False, lambda *_: None), raising=False)
    changed = settings(log_every=20, save_every=8)
    with pytest.raises(NumericalError, match=r"^toy, step 14: .* is not finite \(found after step 16\)"):
        train(tmp_path / "toy", Toy(changed, disturb={13: spoil}))
    assert (tmp_path / "toy/latest.json").read_text() == '{\n  "folder": "step-000012"\n}\n'
    monkeypatch.undo()
    train(tmp_path / "toy", Toy(changed))
    train(tmp_path / "other", Toy(changed))
    assert result(tmp_path / "toy") == result(tmp_path / "other")


def test_a_bad_moving_average_is_never_saved(tmp_path: Path) -> None:
    def spoil(stage: Toy) -> None:
        with torch.no_grad():
            stage.target[2].bias[3] = float("nan")

    class Apart(Toy):
        """A moving average that the loss does not look at."""

        def forward(self, step: int, n_steps: int) -> dict[str, Tensor]:
            if step in self.disturb:
                self.disturb[step](self)
            return {"loss": self.online(self.x).square().mean()}

    with pytest.raises(NumericalError, match=r"^toy, step 15: target.2.bias holds values that are not finite, so no"):
        train(tmp_path / "toy", Apart(settings(n_scores=0, select="last"), disturb={13: spoil}))
    assert (tmp_path / "toy/latest.json").read_text() == '{\n  "folder": "step-000010"\n}\n'


def test_the_guard_remembers_the_first_bad_step() -> None:
    guard = FiniteGuard(["a", "b"], torch.device("cpu"))
    good, bad = torch.ones(3), torch.tensor([1.0, float("nan")])
    assert float(guard.watch(0, torch.tensor(1.0), [good, good])) == pytest.approx(6**0.5)
    assert guard.poll() is None
    guard.watch(1, torch.tensor(1.0), [good, bad])
    guard.watch(2, torch.tensor(float("inf")), [bad, bad])
    found = guard.poll()
    assert found is not None
    assert (found.step, found.what) == (1, "the gradient of b")


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

    with pytest.raises(RuntimeError, match="hidden is trained, but it is no submodule of toy"):
        train(tmp_path / "other", Elsewhere())


def test_only_trained_parameters_get_gradients(tmp_path: Path) -> None:
    stage = Toy()
    stage.online.requires_grad_(False)
    train(tmp_path / "toy", stage)
    assert all(p.requires_grad for p in stage.online.parameters())
    assert not any(p.requires_grad for part in (stage.base, stage.target) for p in part.parameters())


# ---- signals -----------------------------------------------------------------------------------------------------
def test_one_signal_asks_and_the_second_insists(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with stop_on_signal() as request:
        assert not request.is_set
        signal.raise_signal(signal.SIGTERM)
        assert request.is_set
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    with stop_on_signal() as request:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)  # the same Ctrl-C, passed on by torchrun
        assert request.is_set


# ---- the run folder ----------------------------------------------------------------------------------------------
def test_paths_of_a_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert (folder.config.name, folder.data.name, folder.model.name) == ("config.json", "data.json", "model")
    assert folder.stage("align") == tmp_path / "align"
    with folder.lock():
        assert (tmp_path / ".lock").exists()


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


# ---- on a GPU ----------------------------------------------------------------------------------------------------
@needs_cuda
@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_gpu_is_never_waited_for_between_logs(kind: Any, tmp_path: Path) -> None:
    class Watched(Toy):
        def forward(self, step: int, n_steps: int) -> dict[str, Tensor]:
            torch.cuda.set_sync_debug_mode("error" if step % 2 == 0 else "default")
            return {"loss": (self.online(self.base(self.x)) - self.y).square().mean()}

        def after_update(self, step: int, n_steps: int) -> None:
            super().after_update(step, n_steps)
            torch.cuda.set_sync_debug_mode("default")

    optimiser = OptimiserConfig(kind=kind, lr=0.02, muon_lr=0.02)
    stage = Watched(settings(optimiser=optimiser, log_every=8, save_every=24), device="cuda")
    assert train(tmp_path / "toy", stage, precision="bf16")["steps"] == 24


@needs_cuda
def test_resume_on_a_gpu_repeats_the_loss(tmp_path: Path) -> None:
    for name, stop in (("one", {}), ("two", {10: lambda _: signal.raise_signal(signal.SIGTERM)})):
        if stop:
            with pytest.raises(Interrupted):
                train(tmp_path / name, Toy(device="cuda", disturb=stop))
        train(tmp_path / name, Toy(device="cuda"))
    one, two = (read_lines(tmp_path / name / "metrics.jsonl") for name in ("one", "two"))
    assert [line["step"] for line in one] == [line["step"] for line in two]
    for a, b in zip(one, two, strict=True):
        if "train" in a:
            assert a["train"]["loss"] == pytest.approx(b["train"]["loss"], rel=1e-5)
    assert json.loads((tmp_path / "one/plan.json").read_text())["exactness"] == "loss"


@needs_cuda
@pytest.mark.parametrize("spoil", [spoil_loss, spoil_gradient])
def test_a_bad_step_on_a_gpu(spoil: Any, tmp_path: Path) -> None:
    stage = Toy(replace(SETTINGS, log_every=20, save_every=8), device="cuda", disturb={13: spoil})
    with pytest.raises(NumericalError, match=r"^toy, step 14: .* is not finite \(found after step 16\)"):
        train(tmp_path / "toy", stage)
    assert (tmp_path / "toy/latest.json").read_text() == '{\n  "folder": "step-000012"\n}\n'

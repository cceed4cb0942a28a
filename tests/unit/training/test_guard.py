"""Values that are not finite stop a training before they do harm, on a CPU and on a GPU."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pdejepa.core.errors import Interrupted, NumericalError
from pdejepa.core.weights import gather
from pdejepa.training.guard import FiniteGuard, Jumps
from pdejepa.training.metrics_log import read_lines
from pdejepa.training.settings import OptimiserConfig
from pdejepa.training.stage import Batch
from tests.faults.training import SETTINGS, Toy, result, settings, train
from tests.gpu import needs_cuda


def spoil_loss(stage: Toy) -> None:
    stage.bad = float("nan")


def spoil_gradient(stage: Toy) -> None:
    weight = stage.online[3].weight
    handle = weight.register_hook(lambda gradient: (handle.remove(), gradient * float("inf"))[1])


@pytest.mark.parametrize(
    ("spoil", "what", "first"),
    [
        (spoil_loss, "the loss", "; first bad tensor: bad of the batch"),
        (spoil_gradient, "the gradient of online.3.weight", ""),
    ],
)
def test_a_bad_step_changes_nothing(spoil: Any, what: str, first: str, tmp_path: Path) -> None:
    stage = Toy(disturb={13: spoil})
    kept: dict[str, Tensor] = {}
    stage.disturb[13] = lambda s: (kept.update({n: v.clone() for n, v in gather(s.saved()).items()}), spoil(s))
    with pytest.raises(NumericalError) as caught:
        train(tmp_path / "toy", stage)
    rows = ", ".join(str(row) for row in stage.trajectories(13))
    assert str(caught.value) == (
        f"toy, step 14: {what} is not finite{first}. The batch held trajectories {rows}. "
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
    assert json.loads((tmp_path / "toy/latest.json").read_text()) == {"folder": "step-000012"}
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

        def forward(self, batch: Batch) -> dict[str, Tensor]:
            return {"loss": self.online(self.x).square().mean()}

    with pytest.raises(NumericalError, match=r"^toy, step 15: target.2.bias holds values that are not finite, so no"):
        train(tmp_path / "toy", Apart(settings(n_scores=0, select="last"), disturb={13: spoil}))
    assert json.loads((tmp_path / "toy/latest.json").read_text()) == {"folder": "step-000010"}


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


def test_gradients_that_jump_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Clipped, they do not show in the loss."""

    def spoil(stage: Toy) -> None:
        stage.online[3].weight.register_hook(lambda gradient: 1e6 * gradient)

    train(tmp_path / "toy", Toy(settings(log_every=1), disturb={15: spoil}), shown="lines")
    told = [line for line in capsys.readouterr().err.splitlines() if "jumped" in line]
    assert len(told) == 1
    assert told[0].startswith("toy: step 16: the norm of the gradient jumped from ")


def test_what_is_usual_is_no_jump() -> None:
    jumps = Jumps()
    assert not jumps.notice(0.0)
    assert not any(jumps.notice(norm) for norm in (1e-4, 3.0, 1e5))  # at first nobody knows
    assert not any(jumps.notice(1.0 + 30 * (n % 7 == 0)) for n in range(60))
    assert jumps.notice(2000.0)
    assert not jumps.notice(3000.0)


# ---- on a GPU ----------------------------------------------------------------------------------------------------
@needs_cuda
@pytest.mark.parametrize("kind", ["adamw", "muon", "adan"])
def test_a_gpu_is_never_waited_for_between_logs(kind: Any, tmp_path: Path) -> None:
    class Watched(Toy):
        def batch(self, step: int, n_steps: int) -> Batch:
            torch.cuda.set_sync_debug_mode("error" if step % 2 == 1 else "default")  # the first step is recorded
            return {"x": self.x, "y": self.y, "bad": torch.ones((), device="cuda")}

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
    assert json.loads((tmp_path / "toy/latest.json").read_text()) == {"folder": "step-000012"}

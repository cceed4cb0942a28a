"""A request to stop is noticed while a stage is prepared, and afterwards when a step is complete."""

from __future__ import annotations

import _thread
import json
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pdejepa.core.errors import Interrupted
from pdejepa.training import interrupts
from pdejepa.training.interrupts import stop_if_asked, stop_on_signal
from pdejepa.training.settings import Budget, StageTraining
from pdejepa.training.stage import Batch, Context
from pdejepa.training.step import Learner
from tests.faults.training import SETTINGS, Toy, result, settings, train

N_PIECES = 10


class Prepared(Toy):
    """Before its first batch it prepares something, in pieces; so does each of its scores."""

    def __init__(self, configured: StageTraining = SETTINGS, scores_start: bool = False) -> None:
        super().__init__(configured)
        self.pieces: list[str] = []
        self.at = (0, lambda: None)  # a piece, and what happens in it
        self.scores_start = scores_start  # type: ignore[misc]

    def batch(self, step: int, n_steps: int) -> Batch:
        if not self.pieces:
            self.work("latents")
        return super().batch(step, n_steps)

    def score(self) -> dict[str, float]:
        self.work("score")
        return super().score()

    def work(self, what: str) -> None:
        for _ in range(N_PIECES):
            stop_if_asked()
            number, action = self.at
            if len(self.pieces) == number:
                action()
            self.pieces.append(what)


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("at", [0, 2, N_PIECES - 2])
def test_asked_while_latents_are_made(at: int, tmp_path: Path) -> None:
    stage = Prepared()
    stage.at = (at, terminate)
    with pytest.raises(Interrupted, match=r"^Stopped before the first step\. Start again with the same command\.$"):
        train(tmp_path / "toy", stage)
    assert stage.pieces == ["latents"] * (at + 1)  # the piece in which it was asked is finished


@pytest.mark.parametrize(
    "make",
    [lambda: Prepared(scores_start=True), lambda: Prepared(settings(budget=Budget(seconds=60.0)))],
    ids=["of the start", "that is timed"],
)
def test_asked_in_a_score_before_the_first_step(make: Callable[[], Prepared], tmp_path: Path) -> None:
    stage = make()
    n_before = 0 if stage.scores_start else N_PIECES  # to time a score comes after a few steps
    stage.at = (n_before + 2, terminate)
    with pytest.raises(Interrupted, match=r"^Stopped before the first step"):
        train(tmp_path / "toy", stage)
    assert len(stage.pieces) == n_before + 3


def test_asked_in_a_later_score(tmp_path: Path) -> None:
    """The score of step 6 is finished, and its step saved."""
    stage = Prepared()
    stage.at = (N_PIECES + 2, terminate)
    with pytest.raises(Interrupted, match=r"^Stopping after step 6; saved"):
        train(tmp_path / "toy", stage)
    assert stage.pieces == ["latents"] * N_PIECES + ["score"] * N_PIECES
    assert json.loads((tmp_path / "toy/latest.json").read_text()) == {"folder": "step-000006"}


# ---- steps that last longer than one waits -----------------------------------------------------------------------
@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "GRACE_S", 0.05)


def ask_and_dawdle(_: object = None) -> None:
    terminate()
    began = time.monotonic()
    while time.monotonic() - began < 20:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("step", "words"), [(0, r"^Stopped in the first step\. Start again"), (7, r"^Stopping after step 7; saved")]
)
def test_a_long_step_is_given_up_and_repeated(step: int, words: str, tmp_path: Path, impatient: None) -> None:
    """The steps before it are saved although no checkpoint is due, and the whole is what it is undisturbed."""
    train(tmp_path / "whole")
    began = time.monotonic()
    with pytest.raises(Interrupted, match=words):
        train(tmp_path / "toy", Toy(disturb={step: ask_and_dawdle}))
    assert time.monotonic() - began < 15
    assert (tmp_path / f"toy/step-{step:06d}").exists() == (step > 0)
    train(tmp_path / "toy")
    assert result(tmp_path / "toy") == result(tmp_path / "whole")


def test_a_long_score_is_given_up_and_repeated(tmp_path: Path, impatient: None) -> None:
    """Its step is not saved: what is saved has been scored."""
    train(tmp_path / "whole", Prepared())
    stage = Prepared()
    stage.at = (2 * N_PIECES + 2, ask_and_dawdle)
    with pytest.raises(Interrupted, match=r"^Stopped at once; the latest checkpoint is step-000010"):
        train(tmp_path / "toy", stage)
    train(tmp_path / "toy", Prepared())
    assert result(tmp_path / "toy") == result(tmp_path / "whole")


def test_one_waits_for_what_changes_weights(tmp_path: Path, impatient: None) -> None:
    """It ends by itself, and the step counts."""
    stage = Toy()

    def slow_update(step: int, n_steps: int) -> None:
        Toy.after_update(stage, step, n_steps)
        if step == 7:
            terminate()
            time.sleep(0.2)

    stage.after_update = slow_update  # type: ignore[method-assign]
    with pytest.raises(Interrupted, match=r"^Stopping after step 8; saved"):
        train(tmp_path / "toy", stage)


class Slow(nn.Module):
    """Products whose backward passes take a while in PyTorch's own code."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(600))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight @ self.weight @ self.weight


@pytest.mark.parametrize("watched", [True, False])
def test_a_backward_pass_looks_for_signals(watched: bool) -> None:
    """It stops before it comes to the first block; without hooks it runs to its end (the mutant)."""
    network = nn.ModuleList(Slow() for _ in range(10))
    handles = interrupts.let_signals_in(network) if watched else []
    x = torch.ones(600, 600)
    for block in network:
        x = block(x)
    timer = threading.Timer(0.02, _thread.interrupt_main)
    x.register_hook(lambda _: timer.start())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores SIGINT
    try:
        with pytest.raises(KeyboardInterrupt):
            x.sum().backward()
            timer.join()
            time.sleep(0.1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (network[0].weight.grad is None) == watched
    for handle in handles:
        handle.remove()
    assert not any(block._forward_hooks for block in network)


def test_short_steps_are_not_watched() -> None:
    """Hooks cost a percent or two of short steps; the first step, and those after a long one, are watched."""
    stage = Toy()
    learner = Learner(stage, Context(), lambda _: None)
    has_hooks = lambda: any(part._forward_hooks for part in stage.modules())  # noqa: E731
    assert has_hooks()
    learner.update(0, 24)
    assert not has_hooks()
    stage.disturb = {1: lambda _: time.sleep(interrupts.GRACE_S)}
    learner.update(1, 24)
    assert has_hooks()
    learner.close()
    assert not has_hooks()


def test_nobody_is_stopped_where_nobody_listens() -> None:
    stop_if_asked()
    with stop_on_signal() as request:
        stop_if_asked()
        signal.raise_signal(signal.SIGTERM)
        request.is_preparing = False
        stop_if_asked()
    stop_if_asked()


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

"""A training survives kills, signals, full disks and lost ranks: it ends up as if nothing had happened."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import signal
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from pdejepa.core import weights
from pdejepa.core.errors import CheckpointError, ResourceError
from pdejepa.core.weights import read_weights
from pdejepa.training import checkpoint
from pdejepa.training.metrics_log import append_line, read_lines
from pdejepa.training.settings import Budget, OptimiserConfig
from tests.faults.training import (
    Toy,
    in_child,
    in_ranks,
    kill_minus_nine,
    leftovers,
    result,
    settings,
    train,
    train_and_kill_at_rename,
    train_with,
)

SHORT = settings(budget=Budget(steps=6), n_scores=2, save_every=2, log_every=1)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed") / "toy"
    train(folder)
    return result(folder)


# ---- kill -9 -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("step", "told"),
    [
        (0, []),
        (4, ["Starting toy anew: nothing was saved yet. 4 steps are repeated."]),
        (11, ["Resuming toy from step 10. 0 steps are repeated."]),
        (17, ["Resuming toy from step 15. 1 step is repeated."]),
        (23, ["Resuming toy from step 20. 2 steps are repeated."]),
    ],
)
def test_kill_minus_nine_in_mid_step(
    step: int, told: list[str], tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    code, _ = in_child(train_with, str(tmp_path / "toy"), step, kill_minus_nine)
    assert code == -signal.SIGKILL
    assert not (tmp_path / "toy/done.json").exists()
    said: list[str] = []
    train(tmp_path / "toy", said=said)
    assert said == told
    assert result(tmp_path / "toy") == undisturbed


def test_kill_minus_nine_again_and_again(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    for step in (7, 7, 13, 16):
        assert in_child(train_with, str(tmp_path / "toy"), step, kill_minus_nine)[0] == -signal.SIGKILL
    train(tmp_path / "toy")
    assert result(tmp_path / "toy") == undisturbed
    assert leftovers(tmp_path) == []


@pytest.mark.slow
def test_kill_minus_nine_at_every_point_of_saving(tmp_path: Path) -> None:
    """Before every single rename of a stage: each file of each checkpoint, each folder, latest, best, final, done."""
    train(tmp_path / "straight", Toy(SHORT))
    expected = result(tmp_path / "straight")
    for number in itertools.count():
        folder = tmp_path / str(number)
        code, _ = in_child(train_and_kill_at_rename, str(folder), number, SHORT)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        assert not (folder / "done.json").exists()
        said: list[str] = []
        train(folder, Toy(SHORT), said)
        assert result(folder) == expected, number
        assert leftovers(folder) == []
        assert not any("lost" in text or "damaged" in text for text in said), (number, said)
    assert number >= 30


def test_muon_is_resumed_exactly_too(tmp_path: Path) -> None:
    optimiser = OptimiserConfig(kind="muon", lr=0.02, muon_lr=0.02)
    train(tmp_path / "one", Toy(settings(optimiser=optimiser)))
    code, _ = in_child(_train_muon_and_kill, str(tmp_path / "two"), optimiser)
    assert code == -signal.SIGKILL
    train(tmp_path / "two", Toy(settings(optimiser=optimiser)))
    assert result(tmp_path / "one") == result(tmp_path / "two")


def _train_muon_and_kill(folder: str, optimiser: OptimiserConfig) -> None:
    train_with(folder, 17, kill_minus_nine, optimiser=optimiser)


# ---- signals -----------------------------------------------------------------------------------------------------
def _terminate(_: Toy) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _press_ctrl_c(_: Toy) -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("action", [_terminate, _press_ctrl_c])
def test_asked_to_stop_it_saves_the_last_complete_step(
    action: Any, tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    code, told = in_child(train_with, str(tmp_path / "toy"), 12, action)
    assert (code, told) == (7, "Stopping after step 13; saved. Continue with the same command.")
    said: list[str] = []
    train(tmp_path / "toy", said=said)
    assert said == ["Resuming toy from step 13. 0 steps are repeated."]
    assert result(tmp_path / "toy") == undisturbed


def _insist_while_saving(folder: str) -> None:
    """The first signal comes in step 13; the second when half of the checkpoint that it causes is written."""
    write = weights.save_file

    def disturbed(tensors: Any, path: Any) -> None:
        write(tensors, path)
        if ".step-000013" in str(path) and "optimiser" in str(path):
            os.kill(os.getpid(), signal.SIGTERM)

    weights.save_file = disturbed
    train_with(folder, 12, _terminate)


def test_a_second_signal_while_saving_leaves_the_checkpoint_before(
    tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    code, told = in_child(_insist_while_saving, str(tmp_path / "toy"))
    assert (code, told) == (7, "Stopped at once; the latest checkpoint is step-000012. Continue with the same command.")
    assert leftovers(tmp_path) == []
    train(tmp_path / "toy")
    assert result(tmp_path / "toy") == undisturbed


# ---- damage ------------------------------------------------------------------------------------------------------
def _stopped(folder: Path, step: int = 16) -> None:
    assert in_child(train_with, str(folder), step, kill_minus_nine)[0] == -signal.SIGKILL


def test_partial_folders_are_ignored(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    folder = tmp_path / "toy"
    _stopped(folder)
    shutil.copytree(folder / "step-000015", folder / "step-000016")
    (folder / "step-000016/manifest.json").unlink()
    (folder / "latest.json").write_text('{"folder": "step-000016"}')
    shutil.copytree(folder / "step-000016", folder / ".step-000017.tmp-1-abcd")
    with (folder / "metrics.jsonl").open("ab") as stream:
        stream.write(b'{"step": 18, "train": {"lo')
    said: list[str] = []
    train(folder, said=said)
    assert said == [
        "toy: step-000017 was not finished when a process ended; it is ignored.",
        "toy: step-000016 was never finished; it is ignored.",
        "Resuming toy from step 15. 1 step is repeated.",
    ]
    assert result(folder) == undisturbed
    assert sorted(path.name for path in folder.glob("step-*")) == ["step-000020", "step-000024"]


def test_a_damaged_checkpoint_costs_repeated_steps_only(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    folder = tmp_path / "toy"
    _stopped(folder, step=19)  # saved: 15 and 18, the latter because of a better score
    path = folder / "step-000018/optimiser.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    said: list[str] = []
    train(folder, said=said)
    assert said[0].startswith("toy: step-000018/optimiser.safetensors is damaged (size differs).")
    assert said[1] == "Resuming toy from step 15. 3 steps are repeated."
    assert result(folder) == undisturbed


def test_best_weights_that_were_lost(tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    _stopped(folder)
    shutil.rmtree(folder / "best")
    said: list[str] = []
    report = train(folder, said=said)
    assert said[-1] == "toy: the best weights so far, of step 12, are lost; later ones will be kept."
    assert report["step_selected"] == 24


def test_nothing_usable_is_said_and_nothing_is_trained(tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    _stopped(folder)
    for path in folder.glob("step-*/weights.safetensors"):
        write = read_weights(path)
        weights.write_weights(path, {name: value + 1 for name, value in write.items()})
    with pytest.raises(CheckpointError, match=r"No checkpoint of toy can be used.*hash differs.*Pass --restart toy"):
        train(folder)


# ---- the disk ----------------------------------------------------------------------------------------------------
def test_disk_full_while_saving(
    tmp_path: Path, undisturbed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = checkpoint.write_weights

    def full(path: Path, tensors: Any) -> None:
        if ".step-000020" in str(path) and path.name.startswith("optimiser"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, tensors)

    monkeypatch.setattr(checkpoint, "write_weights", full)
    with pytest.raises(ResourceError, match=r"^Disk full while saving step-000020; step-000018 is intact\. Free some"):
        train(tmp_path / "toy")
    assert leftovers(tmp_path) == []
    monkeypatch.undo()
    train(tmp_path / "toy")
    assert result(tmp_path / "toy") == undisturbed


def test_disk_full_in_a_line(tmp_path: Path, undisturbed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, mode: str = "r", *rest: Any) -> Any:
        if self.name == "metrics.jsonl" and mode == "ab" and self.exists() and self.stat().st_size > 1000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(self, mode, *rest)

    opened = Path.open
    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(ResourceError, match=r"^Disk full while writing .*metrics.jsonl"):
        train(tmp_path / "toy")
    monkeypatch.undo()
    train(tmp_path / "toy")
    assert result(tmp_path / "toy") == undisturbed


def test_too_little_space_is_told_before_anything_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**6, 10**6 - 1000, 1000))
    with pytest.raises(ResourceError, match=r"Not enough space: toy, with its checkpoints, needs about"):
        train(tmp_path / "toy")
    assert not (tmp_path / "toy").exists()


# ---- ranks -------------------------------------------------------------------------------------------------------
def _train_precisely(folder: str) -> None:
    """In float64, so that the order of additions does not show; then a second stage on the same modules."""
    stage = Toy().double()
    train(Path(folder) / "toy", stage)
    second = Toy().double()
    second.online = stage.online
    train(Path(folder) / "second", second)


def _curve(folder: Path) -> list[float]:
    lines = read_lines(folder / "metrics.jsonl")
    return [value for line in lines for value in line.get("train", line.get("valid")).values()]


@pytest.mark.slow
def test_two_ranks_train_as_one(tmp_path: Path) -> None:
    _train_precisely(str(tmp_path / "one"))
    assert in_ranks(2, _train_precisely, str(tmp_path / "two")) == [(0, ""), (0, "")]
    for stage in ("toy", "second"):
        one, two = _curve(tmp_path / "one" / stage), _curve(tmp_path / "two" / stage)
        assert len(one) == 12 * 4 + 4
        assert two == pytest.approx(one, rel=1e-6)


def _train_on_operations(folder: str) -> None:
    """With an optimiser that multiplies matrices, on every rank the same ones."""
    optimiser = OptimiserConfig(kind="muon", lr=0.02)
    train(Path(folder), Toy(settings(budget=Budget(flops=2e5), optimiser=optimiser)))


@pytest.mark.slow
def test_two_ranks_take_the_steps_of_one(tmp_path: Path) -> None:
    _train_on_operations(str(tmp_path / "one"))
    assert in_ranks(2, _train_on_operations, str(tmp_path / "two")) == [(0, ""), (0, "")]
    one, two = (json.loads((tmp_path / name / "plan.json").read_text())["steps"] for name in ("one", "two"))
    assert 10 < one == two


def _train_and_kill_rank_one(folder: str) -> None:
    rank = int(os.environ["RANK"])
    train(Path(folder), Toy(disturb={13: kill_minus_nine} if rank == 1 else {}))


def _train_plainly(folder: str) -> None:
    train(Path(folder))


def test_a_rank_that_dies_is_noticed_and_nothing_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    (code, told), (killed, _) = in_ranks(2, _train_and_kill_rank_one, str(folder))
    assert killed == -signal.SIGKILL
    assert (code, told) == (
        6,
        "Rank 0 lost contact with another rank at step 14. Last checkpoint: step-000012.",
    )
    assert in_ranks(2, _train_plainly, str(folder)) == [(0, ""), (0, "")]
    assert in_ranks(2, _train_plainly, str(tmp_path / "other")) == [(0, ""), (0, "")]
    assert result(folder) == result(tmp_path / "other")


def _train_and_stop_rank_one(folder: str) -> None:
    rank = int(os.environ["RANK"])
    train(Path(folder), Toy(disturb={13: _terminate} if rank == 1 else {}))


def test_what_one_rank_is_asked_all_do(tmp_path: Path) -> None:
    told = "Stopping after step 14; saved. Continue with the same command."
    assert in_ranks(2, _train_and_stop_rank_one, str(tmp_path / "toy")) == [(7, told), (7, told)]
    assert json.loads((tmp_path / "toy/latest.json").read_text()) == {"folder": "step-000014"}


def _train_with_bad_rank_one(folder: str) -> None:
    def spoil(stage: Toy) -> None:
        stage.bad = float("nan")

    rank = int(os.environ["RANK"])
    train(Path(folder), Toy(disturb={13: spoil} if rank == 1 else {}))


def test_a_bad_value_on_one_rank_stops_all_with_the_same_words(tmp_path: Path) -> None:
    (code, told), other = in_ranks(2, _train_with_bad_rank_one, str(tmp_path / "toy"))
    assert other == (code, told)
    assert code == 5
    assert told.startswith("toy, step 14: the loss is not finite.")


def test_a_failure_of_rank_zero_is_passed_on(tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    _stopped(folder)
    for path in folder.glob("step-*/state.json"):
        path.write_text("{}")
    (code, told), (other, why) = in_ranks(2, _train_plainly, str(folder))
    assert (code, other) == (4, 6)
    assert told.startswith("No checkpoint of toy can be used.")
    assert why == "Rank 1 stops because rank 0 failed; see the message of rank 0."


def _train_on_seconds(folder: str) -> None:
    rank = int(os.environ["RANK"])
    train(Path(folder) / "toy", Toy(settings(budget=Budget(seconds=0.5))))
    n_steps = json.loads((Path(folder) / "toy/plan.json").read_text())["steps"]
    append_line(Path(folder) / f"rank-{rank}.jsonl", {"step": n_steps})


def test_all_ranks_take_the_number_of_steps_of_rank_zero(tmp_path: Path) -> None:
    assert in_ranks(2, _train_on_seconds, str(tmp_path)) == [(0, ""), (0, "")]
    assert read_lines(tmp_path / "rank-0.jsonl") == read_lines(tmp_path / "rank-1.jsonl")

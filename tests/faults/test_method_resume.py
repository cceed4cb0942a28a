"""A whole training, killed in every stage and continued, or shared by two ranks, ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pdejepa
from tests.unit.method.small_run import SMALL

SOURCE = str(Path(pdejepa.__file__).parents[1])
STAGES = ("pretrain", "align", "dynamics", "decode", "polish")
WORDS = (
    *SMALL,
    "device=cpu",
    *(f"{name}.training.budget={{steps: 6}}" for name in STAGES),
    *(f"{name}.training.save_every=2" for name in STAGES),
    *(f"{name}.training.log_every=1" for name in STAGES),
    *(f"{name}.training.n_scores=2" for name in STAGES),
    *(f"{name}.training.average=0.3" for name in ("dynamics", "decode", "polish")),
    "polish.anchor_weight=0.1",
    # AdamW turns gradients that are zero up to rounding into full steps; small ones keep two ranks comparable.
    "decode.training.optimiser.lr=0.0002",
)
# Kills itself in the middle of one step of one stage: `rows` is what every stage asks for first.
KILLED = """
import os, signal, sys
from pdejepa.app.cli import main
from pdejepa.method.method_stage import MethodStage

where, at = sys.argv[1], int(sys.argv[2])
rows = MethodStage.rows

def disturbed(self, step):
    if self.name == where and step == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return rows(self, step)

MethodStage.rows = disturbed
sys.exit(main(sys.argv[3:]))
"""

pytestmark = pytest.mark.slow


def command(out: Path, *more: str) -> list[str]:
    stages = ("--stages", ",".join(STAGES))
    return ["train", "advection", "--recipe", "tiny", "--out", str(out), *stages, *WORDS, *more]


def run(words: list[str], *before: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run([sys.executable, *before, *words], capture_output=True, text=True, env=variables, check=False)


def results(out: Path) -> dict[str, bytes]:
    """Everything that must be equal: metrics and weights of every stage, and the weights of the model."""
    files = [out / name / part for name in STAGES for part in ("metrics.jsonl", "final/weights.safetensors")]
    return {str(p.relative_to(out)): p.read_bytes() for p in (*files, out / "model" / "weights.safetensors")}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("straight") / "run"
    done = run(command(out), "-m", "pdejepa")
    assert done.returncode == 0, done.stderr
    return out


def test_killed_in_every_stage(straight: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    for number, stage in enumerate(STAGES):
        killed = run(command(out), "-c", KILLED, stage, str((4, 3, 5, 2, 4)[number]))
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = run(command(out), "-m", "pdejepa")
    assert done.returncode == 0, done.stderr
    assert "pretrain: finished, 6 steps." in done.stdout
    assert results(out) == results(straight)


def test_a_finished_run_is_left_alone(straight: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in straight.rglob("*.safetensors")}
    done = run(command(straight), "-m", "pdejepa")
    assert done.returncode == 0, done.stderr
    assert {p: p.stat().st_mtime_ns for p in straight.rglob("*.safetensors")} == before


def test_other_settings_are_refused_and_restart_is_the_way_out(straight: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    subprocess.run(["cp", "-r", str(straight), str(out)], check=True)
    word = "dynamics.training.optimiser.muon_lr=0.001"
    refused = run(command(out, word), "-m", "pdejepa")
    assert refused.returncode == 2
    assert "dynamics.training.optimiser.muon_lr 0.004 -> 0.001" in refused.stderr
    assert "--restart dynamics" in refused.stderr
    done = run([*command(out, word), "--restart", "dynamics"], "-m", "pdejepa")
    assert done.returncode == 0, done.stderr
    assert "Forgot dynamics, decode, polish" in done.stdout
    same, other = results(straight), results(out)
    assert other["align/metrics.jsonl"] == same["align/metrics.jsonl"]
    assert other["dynamics/metrics.jsonl"] != same["dynamics/metrics.jsonl"]


def test_an_upstream_stage_that_changed_is_noticed(straight: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "run", tmp_path / "other"
    subprocess.run(["cp", "-r", str(straight), str(out)], check=True)
    done = run([*command(other, "seed=1"), "--stages", "pretrain"], "-m", "pdejepa")
    assert done.returncode == 0, done.stderr
    subprocess.run(["rm", "-r", str(out / "pretrain"), str(out / "decode"), str(out / "polish")], check=True)
    subprocess.run(["cp", "-r", str(other / "pretrain"), str(out / "pretrain")], check=True)
    refused = run(command(out), "-m", "pdejepa")
    assert refused.returncode == 4
    assert "align was started on pretrain" in refused.stderr
    assert "Pass --restart align" in refused.stderr


def losses(out: Path, stage: str) -> list[float]:
    lines = [json.loads(line) for line in (out / stage / "metrics.jsonl").read_text().splitlines()]
    return [line["train"]["loss"] for line in lines if "train" in line]


def test_two_ranks_follow_the_same_curve(straight: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "pdejepa")
    done = run(command(out), *launch)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Next: pdejepa evaluate") == 1  # told once, not by every rank
    for stage in STAGES:
        assert losses(out, stage) == pytest.approx(losses(straight, stage), rel=2e-4), stage
    assert losses(out, "pretrain")[0] == pytest.approx(losses(straight, "pretrain")[0], rel=1e-6)


def test_fine_tuning_killed_and_continued(straight: Path, tmp_path: Path) -> None:
    stages = ("--stages", "dynamics,polish", "--from", str(straight), "counts={train: 6, valid: 4}")
    words = {name: command(tmp_path / name, *stages) for name in ("one", "two")}
    done = run(words["one"], "-m", "pdejepa")
    assert done.returncode == 0, done.stderr
    for stage, at in (("dynamics", 3), ("polish", 4)):
        killed = run(words["two"], "-c", KILLED, stage, str(at))
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = run(words["two"], "-m", "pdejepa")
    assert done.returncode == 0, done.stderr
    parts = ("metrics.jsonl", "final/weights.safetensors")
    files = [f"{name}/{part}" for name in ("dynamics", "polish") for part in parts]
    for file in (*files, "model/weights.safetensors"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file

"""Where a stage begins: at its first step, or at its latest checkpoint, with everything else brought back to that step.

The best weights so far need care, because `best` and a checkpoint are two folders.  A better score is therefore
always saved as a checkpoint first and as `best` second; if a kill comes between the two, the checkpoint we resume
from holds exactly the weights that `best` should hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from pdejepa.core.errors import CheckpointError
from pdejepa.core.weights import gather
from pdejepa.training.average import with_averages
from pdejepa.training.checkpoint import BEST, Snapshot, StageFolder, step_name
from pdejepa.training.distributed import ask_rank_zero
from pdejepa.training.metrics_log import cut_metrics
from pdejepa.training.plan import PLAN, Plan, check_plan, read_plan
from pdejepa.training.stage import Context, Stage


@dataclass(frozen=True)
class Best:
    """The lowest score so far."""

    step: int
    score: float

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Best | None:
        data = state.get("best")
        return cls(int(data["step"]), float(data["score"])) if isinstance(data, dict) else None

    def to_plain(self) -> dict[str, Any]:
        return {"step": self.step, "score": self.score}


def find_start(stage: Stage, store: StageFolder, context: Context) -> tuple[Plan | None, Snapshot | None]:
    """The plan and the checkpoint to go on from, the same on all ranks; None for what does not exist yet."""
    if not store.resumes:
        return None, None
    plan = read_plan(store.root)
    if plan is not None:
        check_plan(stage.name, plan, stage.settings.batch, context.seed, context.upstream)
    found: list[Snapshot] = []

    def latest_step() -> int:
        store.clear()
        snapshot = store.load_latest()
        if snapshot is None:
            return -1
        if plan is None:
            raise CheckpointError(
                f"{store.root} has checkpoints, but no {PLAN}. Pass --restart {stage.name} to begin it anew."
            )
        found.append(snapshot)
        return snapshot.step

    step = ask_rank_zero(latest_step)
    if step >= 0 and not found:  # another rank than 0
        found.append(store.read(step_name(step)))
    return plan, found[0] if found else None


def rewind(stage: Stage, store: StageFolder, snapshot: Snapshot | None) -> Best | None:
    """Bring metrics and `best` back to the checkpoint, say so, and return the best so far; rank 0 only."""
    step = 0 if snapshot is None else snapshot.step
    n_again = cut_metrics(store.root / "metrics.jsonl", step)
    if snapshot is None:
        if n_again:
            store.say(f"Starting {stage.name} anew: nothing was saved yet. {_repeated(n_again)}")
        return None
    store.say(f"Resuming {stage.name} from step {step:,}. {_repeated(n_again)}")
    best = Best.from_state(snapshot.state)
    if best is None or _is_there(store, best):
        return best
    if best.step == step:
        store.save_best(step, with_averages(snapshot.weights, snapshot.optimiser), snapshot.state)
        return best
    store.say(f"{stage.name}: the best weights so far, of step {best.step:,}, are lost; later ones will be kept.")
    return None


def _repeated(n: int) -> str:
    return f"{n:,} {'step is' if n == 1 else 'steps are'} repeated."


def _is_there(store: StageFolder, best: Best) -> bool:
    try:
        return store.read(BEST).step == best.step
    except CheckpointError:
        return False


def choose_trained(stage: Stage) -> None:
    """Gradients for the parameters of `trained()` and for no others."""
    own = {id(p) for p in stage.parameters()}
    stage.requires_grad_(False)
    for name, module in stage.trained().items():
        if any(id(p) not in own for p in module.parameters()):
            raise RuntimeError(f"{name} is trained, but it is not a submodule of {stage.name}.")
        module.requires_grad_(True)


def hash_modules(modules: Mapping[str, nn.Module]) -> dict[str, str]:
    """A hash of the values of each module."""
    return {name: _hash(module) for name, module in modules.items()}


def _hash(module: nn.Module) -> str:
    result = hashlib.sha256()
    for name, value in gather({"": module}).items():
        result.update(name.encode())
        result.update(value.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return result.hexdigest()

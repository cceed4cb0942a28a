"""The result of a finished stage: final/ with the selected weights, and done.json, written last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pdejepa.core.errors import CheckpointError
from pdejepa.core.weights import gather, restore
from pdejepa.training.checkpoint import DONE, FINAL, WEIGHTS, StageFolder
from pdejepa.training.metrics_log import read_lines
from pdejepa.training.resume import Best
from pdejepa.training.stage import Stage

_KEYS = {  # of the report: of done.json
    "steps": "steps",
    "seconds": "seconds",
    "score": "score",
    "step_selected": "step",
    "weights_sha256": "weights_sha256",
}


def write_result(
    stage: Stage,
    store: StageFolder,
    n_steps: int,
    best: Best | None,
    upstream: Mapping[str, str],
    seconds: float,
    flops: float = 0.0,
) -> None:
    """Write the weights that the stage holds: those of `best`, or the last ones if it is None.

    flops: operations of all steps; 0 if they were not counted.
    """
    step = n_steps if best is None else best.step
    score = _score_of(store, step)
    digest = store.write_final(gather(stage.saved()), {"stage": stage.name, "step": step, "score": score})
    store.write_done(
        {
            "steps": n_steps,
            "selected": "last" if best is None else "best",
            "step": step,
            "score": score,
            "weights_sha256": digest,
            "upstream": dict(upstream),
            "seconds": seconds,
            "flops": flops,
        }
    )


def load_result(stage: Stage, store: StageFolder) -> dict[str, Any]:
    """Put the selected weights into the stage; return what done.json says of them."""
    done, final = store.read_done(), store.read_final()
    if done is None or any(key not in done for key in _KEYS.values()):
        raise CheckpointError(f"{store.root / DONE} is damaged. Pass --restart {stage.name} to begin it anew.")
    if done["weights_sha256"] != store.digest(FINAL, WEIGHTS):
        raise CheckpointError(
            f"{store.root / FINAL} is not what {DONE} says. Pass --restart {stage.name} to begin it anew."
        )
    restore(stage.saved(), final.weights, f"{stage.name}/{FINAL}")
    return {**{key: done[stored] for key, stored in _KEYS.items()}, "flops": float(done.get("flops", 0.0))}


def _score_of(store: StageFolder, step: int) -> float | None:
    """The score after `step` steps, if there was one and it was finite."""
    lines = read_lines(store.root / "metrics.jsonl")
    return next((line["valid"]["score"] for line in lines if line["step"] == step and "valid" in line), None)

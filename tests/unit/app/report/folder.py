"""A run folder as a training leaves it, written by hand: no network is trained here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pdejepa.core.config import to_dict
from pdejepa.core.run_folder import METHOD_STAGES
from pdejepa.method import recipes
from pdejepa.method.run_config import RunConfig
from pdejepa.training.metrics_log import append_line

STEPS = (20, 40, 60, 80, 100)
HEALTH = {
    "channel_std": 0.9, "rank": 20.0, "participation": 6.0, "cosine": 0.2, "share_trajectory": 0.3, "share_time": 0.01,
    "share_place": 0.02, "read_u": 0.95, "read_xi": -3.0,
}  # fmt: skip
ANGLES = {"angle_u": 50.0, "angle_z": 80.0, "angle_q": 55.0, "angle_error_z": 30.0, "angle_error_q": 6.0}
MEASURES: dict[str, dict[str, float]] = {
    "pretrain": HEALTH,
    "align": ANGLES,
    "dynamics": {"rollout_error": 0.16, "step_error": 0.03},
    "decode": {},
    "polish": {},
    "reconstruct": {},
}


def config(system: str = "advection") -> RunConfig:
    return recipes.get(system, "tiny")


def write_run(root: Path, stages: tuple[str, ...] = METHOD_STAGES, **changes: Any) -> Path:
    """A finished run of these stages; `changes` replace keys of the configuration."""
    root.mkdir(parents=True, exist_ok=True)
    train = {**json.loads(json.dumps(to_dict(config()))), **changes}
    write(root / "config.json", {"pdejepa": "0.1.0", "torch": "2.13.0", "train": train})
    write(root / "data.json", {"hash": "d" * 64, "statistics": {"ranges": {"speed": [0.01, 3.9]}}})
    for number, name in enumerate(stages):
        write_stage(root / name, number + 1)
    return root


def write_stage(folder: Path, size: float = 1.0, is_done: bool = True, planned: int = 100) -> Path:
    """A stage of five logged lines and two scores, the last one kept."""
    folder.mkdir(parents=True)
    write(folder / "plan.json", {"steps": planned, "batch": 8, "seed": 0, "upstream": {}, "exactness": "bit"})
    for step in STEPS:
        train = {"loss": size / step, "gradient_norm": 1.0, "lr": 1e-3 * (1 - step / 101)}
        append_line(folder / "metrics.jsonl", {"step": step, "train": train})
        if step in (40, 100):
            valid = {"score": 2 * size / step, **MEASURES[folder.name]}
            append_line(folder / "metrics.jsonl", {"step": step, "valid": valid})
        append_line(folder / "timings.jsonl", {"step": step, "seconds": 0.7 * step})
    if is_done:
        done = {"steps": 100, "selected": "best", "step": 100, "score": 0.02 * size, "seconds": 70.0}
        write(folder / "done.json", {**done, "weights_sha256": folder.name[0] * 64, "upstream": {}})
    return folder


def write(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def errors(rel_l2: float = 0.05, **more: Any) -> dict[str, Any]:
    """What `pdejepa evaluate` records of one split."""
    found = {"rel_l2": rel_l2, "median": 0.04, "last_frame": 0.1, "repeat_first": 1.3, "n": 12, "n_unstable": 0}
    return {**found, "per_frame": [0.01, 0.05, None, 0.1], **more}

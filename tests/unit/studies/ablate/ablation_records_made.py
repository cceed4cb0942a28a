"""Records made by hand."""

from __future__ import annotations

from typing import Any

from pdejepa.evaluate.record import parse
from pdejepa.studies.ablate.ablation_record import Ablation

STEPS = {"pretrain": 10, "align": 20, "dynamics": 30, "decode": 40}


def errors(test: float, ood: float) -> dict[str, Any]:
    return {
        split: {"rel_l2": value, "rel_l2_joint": 2 * value, "n": 120, "n_unstable": 1}
        for split, value in (("test", test), ("ood", ood))
    }


def rollouts(value: float) -> dict[str, Any]:
    keys = ("late_teacher", "final", "whole", "round_trip", "round_trip_median")
    return {split: {**dict.fromkeys(keys, value), "n": 120} for split in ("test", "ood")}


def row(test: float, ood: float, **more: Any) -> dict[str, Any]:
    steps = more.pop("steps", STEPS)
    return {
        "system": "vorticity",
        "recipe": "fast",
        "variant": "physics",
        "seed": 0,
        "observed_frames": 1,
        "errors": errors(test, ood),
        "parameters": 1234567,
        "seconds": {stage: 10.0 * n for stage, n in steps.items()},
        "steps": steps,
        "integrator": "rk4",
        "n_substeps": 2,
        "anchor_weight": 0.01,
        **more,
    }


def geometry(angle: float, change: float) -> dict[str, Any]:
    return {
        "n": 60,
        "mean_angle": {"u": 30.0, "z": 60.0, "q": 36.0},
        "angle": {"z": 30.0, "q": angle},
        "acceleration": {"z": 0.25, "q": 0.05},
        "cosine": {"z": 0.4, "q": 0.1},
        "change": change,
    }


def full_record(**more: Any) -> dict[str, Any]:
    """A record with everything measured, as plain data."""
    short = {stage: n for stage, n in STEPS.items() if stage != "align"}
    side = {"rel_l2": 0.003, "rel_l2_joint": 0.0075, "n": 120, "steps": 40}
    runs = {
        "physics": row(0.034, 0.288, geometry=geometry(6.3, 0.2), rollouts=rollouts(0.2), reconstruct=side),
        "geo": row(0.040, 0.397),
        "vanilla": row(0.086, 0.491, steps=short),
        "euler": row(0.05, 0.4, rollouts=rollouts(0.4)),
        "rk2": row(0.04, 0.3, rollouts=rollouts(0.3)),
        "rk8": row(0.034, 0.288, rollouts=rollouts(0.195)),
        "no-anchor": row(0.047, 0.423, geometry=geometry(4.8, 0.5), anchor_weight=0.0),
    }
    return {
        "format": "pdejepa-ablate",
        "format_version": 1,
        "system": "vorticity",
        "title": "Vorticity",
        "fields": ["vorticity"],
        "recipe": "fast",
        "seed": 0,
        "device": "NVIDIA H200",
        "torch": "2.11",
        "commit": "0123456789abcdef-changed",
        "splits": {"test": {"is_ood": False, "is_ours": False}, "ood": {"is_ood": True, "is_ours": False}},
        "what": ["variants", "geometry", "integrators", "anchor", "reconstruct"],
        "runs": runs,
        **more,
    }


def made(**more: Any) -> Ablation:
    """The same as it is read."""
    return parse(Ablation, full_record(**more))

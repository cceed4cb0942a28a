"""What a run folder remembers of its settings, so that it is continued with the same ones or not at all.

Every setting belongs to the first stage that it changes.  A difference matters only if that stage was begun; it is
then refused, with the way out: `--restart STAGE` forgets that stage and all that stand on it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pdejepa import __version__
from pdejepa.core.config import differences, to_dict
from pdejepa.core.errors import CheckpointError, ConfigError, did_you_mean
from pdejepa.core.files import write_json
from pdejepa.core.run_folder import STAGES
from pdejepa.method.run_config import RunConfig, load_stored, without_former
from pdejepa.training.settings import FREE_TRAINING

NEEDS: dict[str, tuple[str, ...]] = {
    "pretrain": (),
    "align": ("pretrain",),
    "dynamics": ("pretrain", "align"),
    "decode": ("pretrain", "align", "dynamics"),
    "polish": ("pretrain", "align", "dynamics", "decode"),
    "reconstruct": ("pretrain", "align"),
}
# What may differ between two tries of one run without changing its meaning.
FREE = ("stages", "device", "compile", "record", "precision", "shares", "memory")
OWNERS = {
    "model.field.coordinate": "align",
    "model.projector": "align",
    "model.causal_predictor": "align",
    "variant": "align",
    "latents": "align",
    "model.field": "dynamics",
    "history": "dynamics",
    "model.decoder": "decode",
    **{name: name for name in STAGES},
}


def check_settings(out: Path, config: RunConfig, say: Callable[[str], object] = lambda _: None) -> None:
    """ConfigError if a stage that was begun had another configuration."""
    path, now = out / "config.json", to_dict(config)
    if path.exists():
        before = completed(read_json(path).get("train", {}))
        check(out, before, now)
        if before.get("precision") != now["precision"]:
            say(f"precision {before.get('precision')} -> {now['precision']}: no longer exact to the last digit.")


def remember(out: Path, config: RunConfig) -> None:
    """Store the configuration, once nothing stands in the way of the training."""
    write_json(out / "config.json", {"pdejepa": __version__, "torch": torch.__version__, "train": to_dict(config)})


def completed(config: dict[str, Any]) -> dict[str, Any]:
    """Settings of an earlier version, with what came since at its defaults, unless they say too little for that."""
    try:
        return to_dict(load_stored(config))
    except ConfigError:
        return without_former(config)


def check(out: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    begun = [name for name in STAGES if (out / name).is_dir()]
    changed = differences(meaning(before), meaning(now))
    owners = {change: owner(change) for change in changed}
    touched = [name for name in STAGES if name in owners.values() and (name in begun or _stands_under(name, begun))]
    if touched:
        told = "; ".join(change for change in changed if owners[change] in touched)
        raise ConfigError(
            f"{out} was started with other settings: {told[:300]}. Use the same settings, another --out, or "
            f"--restart {touched[0]}, which forgets that stage and those after it."
        )


def _stands_under(name: str, begun: list[str]) -> bool:
    return any(name in NEEDS[other] for other in begun)


def owner(change: str) -> str:
    """The first stage that a difference `path old -> new` matters to."""
    path = change.split(" ", 1)[0]
    for prefix, name in OWNERS.items():
        if path == prefix or path.startswith(f"{prefix}."):
            return name
    return STAGES[0]


def restart_from(out: Path, stage: str, say: Callable[[str], object]) -> None:
    """Forget a stage, those that stand on it, and the models made of them."""
    if stage not in STAGES:
        hint = did_you_mean(stage, STAGES) or "."
        raise ConfigError(f"--restart: unknown stage {stage!r}{hint} The stages: {', '.join(STAGES)}.")
    forgotten = [name for name in STAGES if name == stage or stage in NEEDS[name]]
    present = [name for name in forgotten if (out / name).is_dir()]
    for name in [*present, *(("model", "model-four-stages") if stage != "reconstruct" else ())]:
        shutil.rmtree(out / name, ignore_errors=True)
    if present:
        say(f"Forgot {', '.join(present)} in {out}; training again from {present[0]}.")


def meaning(config: dict[str, Any]) -> dict[str, Any]:
    """The settings without those that change nothing."""
    kept = {name: value for name, value in config.items() if name not in FREE}
    for name in STAGES:
        stage = kept.get(name)
        if isinstance(stage, dict) and isinstance(stage.get("training"), dict):
            training = {key: value for key, value in stage["training"].items() if key not in FREE_TRAINING}
            kept[name] = {**stage, "training": training}
    return kept


def read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); it does not look like a run of pdejepa.") from None

"""Finished stages that one run takes over from another.

What is taken over is what a finished stage is made of: final/, done.json, plan.json and the metrics.  Weights are hard
links where the file system allows them (they are never changed in place, only replaced), everything else is a copy;
the run they come from stays as it is.  A stage appears under its name only when it is complete.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pdejepa.core.config import differences, to_dict
from pdejepa.core.errors import CheckpointError, ConfigError
from pdejepa.core.files import write_aside
from pdejepa.core.run_folder import METHOD_STAGES
from pdejepa.forecast.locate import MODEL_FOLDER
from pdejepa.method.run_config import RunConfig
from pdejepa.method.run_settings import check, meaning, read_json
from pdejepa.training.checkpoint import DONE, FINAL, StageFolder

TAKEN = ("plan.json", "metrics.jsonl", "timings.jsonl", FINAL, DONE)
_ASIDE = ".taken-"


def read_base(base: Path) -> dict[str, Any]:
    """The settings of a finished run of the variant physics; CheckpointError if it is none."""
    if not (base / "config.json").exists():
        raise CheckpointError(f"--base: {base} is not a run of pdejepa: it has no config.json.")
    settings = read_json(base / "config.json").get("train")
    if not isinstance(settings, dict) or settings.get("variant") != "physics":
        raise CheckpointError(f"--base: {base} is not a run of the variant physics, which everything is compared with.")
    missing = [stage for stage in METHOD_STAGES if done(base, stage) is None]
    if missing:
        raise CheckpointError(
            f"--base: {base} is not finished: {', '.join(missing)} missing. Finish it first, with pdejepa train."
        )
    return settings


def done(run: Path, stage: str) -> dict[str, Any] | None:
    """done.json of a stage, or None while it is unfinished."""
    return StageFolder(run / stage).read_done()


def is_finished(run: Path, stages: Sequence[str]) -> bool:
    """Whether all these stages are finished and their model is saved."""
    found = {stage: done(run, stage) for stage in stages}
    if any(told is None for told in found.values()):
        return False
    path = run / MODEL_FOLDER / "config.json"
    if not path.exists():
        return False
    lineage, last = read_json(path).get("lineage", {}), found.get("decode")
    return last is None or lineage.get("decode") == last["weights_sha256"]


def refuse_other_settings(run: Path, config: RunConfig, way_out: str) -> None:
    """ConfigError if a stage of the run was begun with other settings than these."""
    path = run / "config.json"
    if not path.exists():
        return
    before, now = read_json(path).get("train", {}), to_dict(config)
    try:
        check(run, before, now)
    except ConfigError:
        told = "; ".join(differences(meaning(before), meaning(now)))[:300]
        raise ConfigError(f"{run} was started with other settings: {told}. {way_out}") from None


def take_over(source: Path, run: Path, stages: Sequence[str]) -> None:
    """Give `run` the finished stages of `source`; those it has already must be the same."""
    run.mkdir(parents=True, exist_ok=True)
    for left in run.glob(f"{_ASIDE}*"):
        shutil.rmtree(left, ignore_errors=True)
    _copy_once(source / "data.json", run / "data.json")
    for stage in stages:
        _take_stage(source, run, stage)


def copy_fitted(source: Path, run: Path) -> None:
    """What was fitted on latents, where there is something; for a run that takes over the dynamics too."""
    if (source / "latents.json").exists():
        _copy_once(source / "latents.json", run / "latents.json")


def _take_stage(source: Path, run: Path, stage: str) -> None:
    wanted, here = done(source, stage), done(run, stage)
    if wanted is None:
        raise CheckpointError(f"{source} has not finished {stage}, which {run} stands on.")
    if here is not None and here["weights_sha256"] == wanted["weights_sha256"]:
        return
    if (run / stage).exists():
        raise CheckpointError(
            f"{run} holds another {stage} than {source}: it belongs to another base. "
            "Remove that run, or use another --out."
        )
    aside = run / f"{_ASIDE}{stage}-{secrets.token_hex(4)}"
    aside.mkdir()
    for name in TAKEN:
        path = source / stage / name
        if path.is_dir():
            shutil.copytree(path, aside / name, copy_function=_link)
        elif path.exists():
            _copy(path, aside / name)
    os.rename(aside, run / stage)


def _link(source: str, target: str) -> None:
    """A second name for the same weights; a copy where that cannot be, on another disk for example."""
    if source.endswith(".safetensors"):
        with contextlib.suppress(OSError):
            os.link(source, target)
            return
    _copy(Path(source), Path(target))


def _copy(source: Path, target: Path) -> None:
    with write_aside(target) as temporary:
        shutil.copyfile(source, temporary)


def _copy_once(source: Path, target: Path) -> None:
    """Copy a small file unless it is there; a difference is for the training to refuse, which knows what it means."""
    if not source.exists():
        raise CheckpointError(f"{source} is missing; {source.parent} is not a complete run.")
    if not target.exists():
        _copy(source, target)

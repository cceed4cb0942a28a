"""From a configuration to a model that forecasts: all stages, then the checkpoint.

    RUN/model/               the finished model
    RUN/model-four-stages/   the model before polishing, if it was polished
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pdejepa.core.config import to_dict
from pdejepa.core.device import pick_device, rank_and_world
from pdejepa.core.errors import CheckpointError, PdejepaError
from pdejepa.core.files import lock, sha256_file
from pdejepa.core.locks import remove_bare
from pdejepa.core.provenance import commit
from pdejepa.data.source import Trajectories
from pdejepa.forecast.header import CONFIG_NAME
from pdejepa.forecast.locate import WEIGHTS_NAME
from pdejepa.method.chain import Trained, train_stages
from pdejepa.method.load_data import from_source
from pdejepa.method.model_card import kept_training
from pdejepa.method.run_config import RunConfig
from pdejepa.method.run_settings import read_json
from pdejepa.method.save_model import save_model


def train(
    config: RunConfig,
    out: str | Path,
    say: Callable[[str], object] = print,
    restart: str = "",
    started: float | None = None,
    data: Trajectories | None = None,
) -> Trained:
    """Train (or continue) in the folder `out` and write RUN/model; see `pdejepa train --help`.

    restart: forget this stage and those after it first.  started: when the clock of the total began
    (time.monotonic), if that was before this call.  data: what to train on, if not what the configuration names.
    """
    folder, begin = Path(out), time.monotonic() if started is None else started
    rank, world = rank_and_world()

    def after_stage(name: str, trained: Trained) -> None:
        if name not in ("decode", "polish"):
            return
        trained.seconds["total"] = _total(trained, time.monotonic() - begin)
        is_polished, will_be = name == "polish", "polish" in trained.config.stages or (folder / "polish").is_dir()
        for model in ("model-four-stages",) if will_be and not is_polished else ("model",):
            if not _is_saved(folder / model, trained, name):
                save_model(trained.model, folder / model, details(trained, is_polished))

    is_new = not folder.exists()
    with lock(folder, (rank, world) if world > 1 else None, wait=False):
        try:
            loaded = None if data is None else from_source(config, data, pick_device(config.device), show=rank == 0)
            return train_stages(config, folder, say, after_stage, restart, loaded)
        except PdejepaError:
            if is_new:
                remove_bare(folder)
            raise


def details(trained: Trained, is_polished: bool) -> dict[str, Any]:
    """What the checkpoint tells about the training."""
    config = trained.config
    return {
        "recipe": config.recipe,
        "polish": is_polished,
        "seed": config.seed,
        "size": config.size,
        "lineage": trained.lineage,
        "data_hash": trained.data_hash,
        "seconds": dict(trained.seconds),
        "device": trained.device,
        "machine": trained.machine,
        "flops": {name: flops for name, report in trained.reports.items() if (flops := report.get("flops"))},
        "torch": torch.__version__,
        "commit": commit(),
        "training": kept_training(to_dict(config), trained.lineage),
        "steps": {name: report["steps"] for name, report in trained.reports.items()},
    }


def _is_saved(model: Path, trained: Trained, name: str) -> bool:
    """Whether the checkpoint of these very weights is there and whole: a finished run that is run again keeps it."""
    try:
        plain, weights = read_json(model / CONFIG_NAME), model / WEIGHTS_NAME
        is_ours = plain["lineage"].get(name) == trained.lineage[name]
        is_whole = weights.stat().st_size == plain["weights_bytes"] and sha256_file(weights) == plain["weights_sha256"]
    except (CheckpointError, OSError, AttributeError, KeyError):
        return False
    return is_ours and is_whole


def _total(trained: Trained, elapsed: float) -> float:
    """Wall clock from the start of the command; of a run in several tries, the sum of its parts."""
    return max(elapsed, sum(seconds for name, seconds in trained.seconds.items() if name != "total"))



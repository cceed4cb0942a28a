"""What a stage prepares before its first step, cut to the seconds that there are.

    latents of all of train     kept if making them takes at most a tenth of what is left of the training, or for stage
                                2, which is short, a fifth of the stage; else made anew for every batch
    rollouts for the decoder    of as many trajectories as take at most a fifth of the stage, and no more than the
                                recipe has

Both are timed on a few trajectories.  Without a limit recipes decide.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import torch

from pdejepa.method.run_config import RunConfig
from pdejepa.models.surrogate import Surrogate
from pdejepa.training.timing import Limit
from pdejepa.training.training_data import TrainingData

SHARE, LATENTS_SHARE = 0.2, 0.1  # of the seconds of a stage, and of those that are left of the training
N_TIMED = 4  # trajectories
LEAST = 4  # trajectories that the decoder learns from

clock = time.perf_counter


@torch.no_grad()
def preparing_less(
    config: RunConfig, name: str, model: Surrogate, data: TrainingData, limit: Limit, whole: Limit
) -> RunConfig:
    """The configuration with what the stage `name` can afford to prepare; limits of the stage and of the training."""
    fields, xi = data.fields["train"], data.xi["train"]
    rows = torch.arange(min(N_TIMED, len(fields)), device=xi.device)
    u, n, most = fields[rows], len(fields), SHARE * limit.left
    if name in ("align", "dynamics", "polish") and config.latents != "on_the_fly":
        encode, most = (model.encoder.frames, most) if name == "align" else (model.encode, LATENTS_SHARE * whole.left)
        needed = n * _seconds(lambda: encode(u)) / len(u)
        return config if needed <= most else dataclasses.replace(config, latents="on_the_fly")
    if name != "decode":
        return config
    first, n_new = config.history, u.shape[1] - config.history
    each = _seconds(lambda: model.rollout(model.encode(u[:, :first]), model.drive(xi[rows]), n_new)) / len(u)
    share = min(config.decode.share, max(LEAST, most / each) / n)
    return dataclasses.replace(config, decode=dataclasses.replace(config.decode, share=share))


def _seconds(action: Callable[[], object]) -> float:
    begun = clock()
    action()
    return clock() - begun

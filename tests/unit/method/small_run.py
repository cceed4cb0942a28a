"""A training of the method that takes seconds: small networks on a coarse grid."""

from __future__ import annotations

from typing import Any

import torch

from pdejepa.core.config import load_config
from pdejepa.method.load_data import load_data
from pdejepa.method.recipes import get
from pdejepa.method.run_config import RunConfig
from pdejepa.models.surrogate import Surrogate
from pdejepa.training.stage import Context
from pdejepa.training.training_data import TrainingData

STAGES = ("pretrain", "align", "dynamics", "decode", "polish", "reconstruct")
CPU = torch.device("cpu")
# Words for the command line or `load_config`: a line of 32 points in 8 patches, 8 trajectories.
SMALL = (
    "switches.n_points=32",
    "counts={train: 8, valid: 4}",
    "model.encoder={patch: 4, width: 16, depth: 2, heads: 2}",
    "model.jepa_predictor={width: 16, depth: 1, heads: 2}",
    "model.causal_predictor={width: 16, depth: 1, heads: 2}",
    "model.field={width: 16, depth: 1, heads: 2, n_substeps: 1}",
    "model.decoder={widths: [16, 8, 8], scales: [2, 2]}",
    "pretrain.one_frame_clips=8",
    *(f"{name}.training.batch={4 if name != 'dynamics' else 16}" for name in STAGES),
)


def small_config(system: str = "advection", *words: str) -> RunConfig:
    """The tiny recipe of a system, much smaller; `words` are further overrides."""
    place = () if system != "gray_scott" else ("switches={n_points: 8, dx: 2.0}",)
    base = tuple(word for word in SMALL if not (place and word.startswith("switches")))
    return load_config(RunConfig, None, (*base, *place, *words), get(system, "tiny"))


def small_training(system: str = "advection", *words: str) -> tuple[RunConfig, TrainingData, Surrogate]:
    config = small_config(system, *words)
    data = load_data(config, CPU, show=False)
    torch.manual_seed(0)
    model = Surrogate(data.problem, config.model, config.variant, data.statistics, config.history)
    return config, data, model


def build(stage: type[Any], system: str = "advection", *words: str) -> Any:
    """A stage on a fresh model."""
    config, data, model = small_training(system, *words)
    return stage(config, data, model, Context(CPU))
